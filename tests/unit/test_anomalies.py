"""The detectors on recordings with labels, on made-up histories, and their thresholds."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest

from detectors import sentences
from detectors.clock import known_until, time_of_log
from detectors.detection import COLUMNS
from detectors.group import (
    GENERATION,
    LAG,
    MINUTE,
    MOVE,
    OPEN_GENERATION,
    OPEN_SESSION,
    OPEN_STATE,
    SESSION,
    TOPIC,
    WAIT,
    GroupDetector,
)
from detectors.log import LogFindings, alike, coverage_gaps, misplaced, stale_groups, with_clients
from detectors.members import SlotChanges
from detectors.memberships import Membership
from detectors.model import anomaly_id
from detectors.rows import anomaly_rows
from detectors.sentences import KINDS, window
from detectors.thresholds import ThresholdsError
from schemas.placement import java_hash
from tests.support.detection import default_thresholds, detected
from tests.support.labels import RECORDINGS, found_in, outcomes, path_of

Row = dict[str, Any]
SECOND, MINUTE_MS, HOUR = 1_000, 60_000, 3_600_000
LIMITS = default_thresholds()


# -- recordings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(outcomes()))
def test_what_happened_in_the_recordings_is_found_and_nothing_else(kind: str) -> None:
    outcome = outcomes()[kind]
    assert outcome.found == outcome.must
    assert outcome.false == []
    assert outcome.quiet == outcome.never


@pytest.mark.parametrize("recording", RECORDINGS)
@pytest.mark.parametrize("runs", [2, 7])
def test_cut_into_runs_it_is_the_same(recording: str, runs: int) -> None:
    whole = list(found_in(recording))
    assert detected(path_of(recording), runs) == whole
    ids = [row["anomaly_id"] for row in whole]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("recording", RECORDINGS)
def test_a_summary_is_a_sentence_on_its_group(recording: str) -> None:
    for row in found_in(recording):
        assert sentences.name(row["group_id"]) in row["summary"]
        assert row["summary"].endswith(".")
        assert " UTC" in row["summary"] or row["kind"] == "stale_group"


def test_names_and_times_in_a_summary_stay_short() -> None:
    assert sentences.name("a\nb") == "a b"
    assert len(sentences.name("g" * 32_767)) == 80
    assert window(0, 3 * SECOND) == "00:00:00 to 00:00:03 UTC"
    assert window(5, 6) == "00:00:00 UTC"
    assert window(0, 24 * HOUR) == "1970-01-01 00:00:00 to 1970-01-02 00:00:00 UTC"


# -- made-up histories -----------------------------------------------------------------------------


class Story:
    """A classic group's generations, one after the other."""

    def __init__(self) -> None:
        self.generations: list[Row] = []
        self._members: dict[str, Row] = {}
        self._at = 0

    def then(self, seconds: float, cause: str, **given: object) -> Story:
        """Let a generation begin so many seconds after the last one; `joined`, `left`: names.

        Members `a#1` and `a#2` share client id and host.
        """
        self._at += round(seconds * SECOND)
        names: dict[str, Any] = {n: given.pop(n, ()) for n in ("joined", "left", "restarted")}
        joined = [self._member(name) for name in names["joined"]]
        left = [self._members.pop(name) for name in names["left"]]
        replaced = []
        for name in names["restarted"]:
            old = self._members.pop(name)
            replaced.append({**self._member(name), "replaced_member_id": old["member_id"]})
        number = len(self.generations) + 1
        if self.generations:
            self.generations[-1]["ended_at"] = self._at
        row = {
            "group_type": "classic",
            "generation": number,
            "cause": cause,
            "aborted_generations": 0,
            "aborted_evidence": "complete",
            "ended_at": None,
            "join_started_at": self._at,
            "join_started_at_max": self._at,
            "join_completed_at": self._at + SECOND,
            "join_completed_at_min": self._at + SECOND,
            "stable_at": self._at + SECOND if self._members else None,
            "join_ms": SECOND,
            "sync_ms": 0,
            "rebalance_ms": SECOND,
            "protocol": "range",
            "member_count": len(self._members),
            "rebalance_timeout_ms": 300_000,
            "session_timeout_ms": 45_000,
            "assigned_partitions": 6,
            "members_joined": joined,
            "members_left": left,
            "members_replaced": replaced,
            "record_partition": 0,
            "record_offset": number,
            "record_timestamp": self._at,
        }
        self.generations.append(row | given)
        return self

    def _member(self, name: str) -> Row:
        member_id = f"{name}-{len(self.generations)}"
        member = {"member_id": member_id, "client_id": name.partition("#")[0]}
        member["client_host"] = "/10.0.0.1"
        self._members[name] = member
        return {**member, "group_instance_id": None, "rebalance_timeout_ms": 300_000}

    def found(
        self, *others: tuple[str, Row], lasts: float = 3600, cut: float | None = None
    ) -> list[Row]:
        """Return what is found, so many seconds after the last generation.

        A first run knows what was there up to the time of the `cut`, in seconds.
        """
        now, checkpoint, settled, read = self._at + round(lasts * SECOND), None, [], -1
        for until in (now,) if cut is None else (round(cut * SECOND), now):
            detector = GroupDetector(LIMITS.of("g"), checkpoint)
            known = [row for row in self.generations if row["join_started_at"] <= until]
            goes_on = {} if until == now else {"ended_at": None}
            detector.take(OPEN_GENERATION, known[-1] | goes_on)
            for row in known[:-1]:
                if row["ended_at"] > read:
                    detector.take(GENERATION, row)
            for kind, row in others:
                if cut is None or read < row.get("at", row.get("first_at")) <= until:
                    detector.take(kind, row)
            settled += detector.settled()
            going_on, read = detector.still_open(until), until
            checkpoint = detector.to_json()
        episodes = [*settled, *going_on]
        return list(anomaly_rows([], episodes, "c", "g", LIMITS.of("g"), now=now))


def started(*names: str) -> Story:
    return Story().then(0, "group_created", joined=names or ("a", "b", "c"))


def kinds(rows: list[Row]) -> set[str]:
    return {row["kind"] for row in rows}


def test_a_deployment_is_no_storm() -> None:
    story = started(*"abcdefghijkl")
    for name in "abcdefghijkl":
        story.then(20, "member_restarted", restarted=[name])
    assert not kinds(story.found())


def test_a_deployment_whose_members_have_new_names_is_no_storm() -> None:
    story = started("old-1", "old-2", "old-3", "old-4")
    for number in range(1, 5):
        story.then(30, "new_member", left=[f"old-{number}"], joined=[f"new-{number}"])
    assert not kinds(story.found())


@pytest.mark.parametrize("pause", [60, 12 * 60, 50 * 60])
def test_a_rollback_or_a_migration_is_no_storm_and_a_third_pass_is(pause: float) -> None:
    story = restarting(started(*"abcdefgh"), *"abcdefgh", down=5, up=20)
    restarting(story.then(pause, "probing"), *"abcdefgh", down=5, up=20)
    assert not kinds(story.found())
    restarting(story.then(60, "probing"), *"abcdefgh", down=5, up=20)
    assert "rebalance_storm" in kinds(story.found())


def test_a_canary_and_a_rollback_of_members_with_new_names_are_no_storm() -> None:
    story = restarting(started(*"abcd"), "b")
    members = [*"abcd"]
    for version in (1, 2):
        story.then(600, "probing")
        for number in range(4):
            story.then(10, "new_member", joined=[f"v{version}-{number}"])
            story.then(20, "member_left", left=[members.pop(0)])
            members.append(f"v{version}-{number}")
    assert not kinds(story.found())


@pytest.mark.parametrize(
    ("releases", "comes_first", "is_storm"),
    [(3, True, False), (3, False, True), (4, True, True)],
    ids=["a hot fix", "pods that fail in turns", "a fourth"],
)
def test_a_release_may_be_taken_back_and_made_again(
    releases: int,
    comes_first: bool,  # noqa: FBT001
    is_storm: bool,  # noqa: FBT001
) -> None:
    story = started(*(f"v0-{n}" for n in range(6))).then(600, "probing")
    for version in range(1, releases + 1):
        for number in range(6):
            steps = [{"joined": [f"v{version}-{number}"]}, {"left": [f"v{version - 1}-{number}"]}]
            for step in steps if comes_first else steps[::-1]:
                story.then(15, "member_left" if "left" in step else "new_member", **step)
        story.then(1260 if version == 2 else 300, "probing")
    assert ("rebalance_storm" in kinds(story.found())) == is_storm


@pytest.mark.parametrize("names", ["ab", "abcde"])
def test_one_place_that_restarts_behind_a_deployment_is_a_storm(names: str) -> None:
    story = restarting(started(*names), *names, down=5, up=20)
    restarting(story.then(300, "probing"), *"bbbbb", down=30, up=60)
    assert {"rebalance_storm", "member_flapping"} <= kinds(story.found())


def test_members_that_all_restart_over_and_over_are_a_storm() -> None:
    story = started(*"abc")
    for name in "abcbaccababc":
        restarting(story, name, down=20, up=280)
    assert "rebalance_storm" in kinds(story.found())


def alone(*turns: tuple[float, float]) -> set[str]:
    """Return what is found of one member, by the seconds that it was there, and then was not."""
    story = started("a")
    for there, away in turns:
        story.then(there, "member_left", left=["a"]).then(away, "new_member", joined=["a"])
    return kinds(story.found(lasts=60))


_WORK = [70, 170, 95, 140, 62, 121, 178, 88, 103, 155, 66, 134]


@pytest.mark.parametrize("minutes", [5, 10, 15, 30])
def test_a_job_on_schedule_is_no_storm(minutes: int) -> None:
    every = minutes * 60
    assert not alone(*((work, every - work) for work in _WORK))
    assert not alone(*[(60, every - 60)] * 12)
    late = [0, 1.5, 0.2, 1.1, 0.7, 1.9, 0.4, 0, 1.2, 0.6, 1.7, 0.3]
    times = zip(_WORK, [0, *late], late, strict=False)
    assert not alone(*((work, every - work - before + now) for work, before, now in times))


@pytest.mark.parametrize("minutes", [6, 10, 15])
def test_pods_that_a_clock_starts_are_there_now_sooner_and_now_later(minutes: int) -> None:
    late = [4, 31, 12, 38, 2, 25, 9, 33, 17, 6, 28, 14]
    times = list(zip([0, *late], late, strict=False))
    assert not alone(*((240, 60 * minutes - 240 - before + now) for before, now in times))
    # What waits for five minutes whenever it has ended is later each time.
    assert alone(*((15 + now, 300) for now in late)) == {"rebalance_storm"}


def test_a_job_that_starts_long_after_its_end_is_no_storm() -> None:
    assert not alone(*((work, 400) for work in _WORK))


def test_a_client_that_is_started_again_whenever_it_ends_is_a_storm() -> None:
    backoff = [min(10 * 2**n, 300) + 6 for n in range(12)]
    assert alone(*zip(_WORK, backoff, strict=True)) == {"rebalance_storm"}
    assert alone(*((10, away) for away in backoff)) == {"rebalance_storm"}
    assert alone(*((work, 306) for work in _WORK)) == {"rebalance_storm"}
    assert alone(*[(15, 306)] * 12) == {"rebalance_storm"}
    assert alone(*[(3, 6)] * 12) == {"rebalance_storm"}
    # A job that goes wrong is no schedule any more.
    assert alone(*((work, 300 - work) for work in _WORK), *[(5, 10)] * 6) == {"rebalance_storm"}


def _scaled(there: float, name: str = "pod-{n}", aways: Sequence[int] = _WORK) -> set[str]:
    """Return what is found of a group that ran so long each time, by who came back each time."""
    story = started("pod-0")
    for n, away in enumerate([*aways] * 2):
        story.then(there, "member_left", left=[name.format(n=n)])
        story.then(away, "new_member", joined=[name.format(n=n + 1)])
    return kinds(story.found(lasts=60))


def test_a_group_that_is_scaled_to_nothing_and_back_is_no_storm() -> None:
    # KEDA stops the last pod five minutes after the last record, and starts another one.
    assert not _scaled(330)
    # Pods that do not last fail, whatever their names; one that is back is started again.
    assert _scaled(200) == {"rebalance_storm"}
    assert _scaled(330, "pod-0") == {"rebalance_storm"}
    # Pods that are replaced at once are none that an autoscaler had stopped.
    assert _scaled(560, aways=[away // 6 for away in _WORK]) == {"rebalance_storm"}


def test_of_several_that_start_a_group_again_one_that_was_there_is_enough() -> None:
    story = started("a", "pod-0")
    for n, away in enumerate(_WORK):
        story.then(330, "member_left", left=["a", f"pod-{n}"])
        story.then(away, "new_member", joined=["a", f"pod-{n + 1}"])
    assert kinds(story.found(lasts=60)) == {"rebalance_storm"}


@pytest.mark.parametrize("protocol", ["consumer", "share", "streams"])
@pytest.mark.parametrize("others", [("a", "b"), ()])
def test_a_process_that_was_started_anew_did_not_exceed_its_time_to_poll(
    protocol: str, others: tuple[str, ...]
) -> None:
    """In the new protocols a client keeps its member id for as long as it lives."""

    def label(lasts: float, *, goes_on: bool) -> str | None:
        story = started("slow", *others)
        for _ in range(14):
            story.then(lasts, "member_left", left=["slow"])
            story.then(20, "new_member", joined=["slow"])
            if goes_on:
                joined = story.generations[-1]["members_joined"]
                story._members["slow"]["member_id"] = joined[0]["member_id"] = "slow"
        for row in story.generations:
            row |= {"group_type": protocol, "join_started_at_max": None}
        for member in (m for row in story.generations for m in row["members_left"]):
            member["rebalance_timeout_ms"] = 300_000
        return next(r["label"] for r in story.found() if r["kind"] == "rebalance_storm")

    assert label(320, goes_on=True) == "slow_members"
    assert label(320, goes_on=False) == "short_lived_members"
    # Nor is who goes on started and stopped, as one whose session ends is not.
    assert label(150, goes_on=True) is None
    assert label(150, goes_on=False) == "short_lived_members"


@pytest.mark.parametrize(
    ("there", "name", "label"),
    [
        (310, "pod-0", "slow_members"),  # as its max.poll.interval.ms is five minutes
        (200, "pod-0", "short_lived_members"),
        (290, "pod-{n}", "short_lived_members"),  # none of them comes back
    ],
)
def test_the_only_member_is_slow_if_it_comes_back_whenever_it_has_left(
    there: float, name: str, label: str
) -> None:
    story = started("pod-0")
    for n, away in enumerate(_WORK):
        story.then(there, "member_left", left=[name.format(n=n)])
        for member in story.generations[-1]["members_left"]:
            member["rebalance_timeout_ms"] = 300_000
        story.then(away, "new_member", joined=[name.format(n=n + 1)])
    assert storm_of(story)["label"] == label


def test_of_a_group_that_is_deleted_and_made_again_nobody_is_remembered() -> None:
    memory: Row = {}
    for number in range(20):
        member = {"member_id": f"a-{number}", "client_id": "a", "client_host": "/10.0.0.1"}
        SlotChanges(memory, {"members_joined": [member], "member_count": 1}, number * SECOND)
    assert list(memory["members"]) == ["a-19"]
    assert len(memory["slots"]) == 1


def test_growing_and_shrinking_is_no_storm() -> None:
    story = started("a")
    for name in "bcdefgh":
        story.then(10, "new_member", joined=[name])
    for name in "hgfedcb":
        story.then(10, "member_left", left=[name])
    assert not kinds(story.found())


def test_static_members_that_came_back_without_a_rebalance_have_not_restarted() -> None:
    """Else the second of two rolling restarts, as for a migration, would be each place's fourth."""
    for is_static in (True, False):
        story = started()
        if is_static:
            row = story.generations[0]
            for member in row["members_joined"][:2] * 3:
                before = story._members[member["client_id"]]
                back = {**member, "member_id": f"{before['member_id']}-back"}
                back |= {"replaced_member_id": before["member_id"], "group_instance_id": "i"}
                row["members_replaced"].append(back)
                story._members[member["client_id"]] = back
        else:
            for name in "ababab":
                story.then(5, "member_restarted", restarted=[name])
        story.then(1080, "member_restarted", restarted=["c"]).then(1200, "probing")
        for name in "abc":
            story.then(45, "member_restarted", restarted=[name])
        assert ("rebalance_storm" in kinds(story.found())) != is_static


@pytest.mark.parametrize(("minutes", "is_storm"), [(15, False), (11, False), (7, True), (4, True)])
def test_an_autoscaler_is_no_storm_unless_it_thrashes(minutes: int, is_storm: bool) -> None:  # noqa: FBT001
    story = started()
    for turn in range(8):
        names = [f"{name}{turn}" for name in "def"]
        story.then(60 * minutes - 15, "new_member", joined=names[:1])
        for name in names[1:]:
            story.then(5, "new_member", joined=[name])
        story.then(60 * minutes, "member_left", left=names)
    assert ("rebalance_storm" in kinds(story.found())) == is_storm


def test_a_member_that_was_away_and_is_itself_again_was_not_scaled() -> None:
    def told(*, keeps_its_id: bool) -> set[str]:
        story = started("a", "b", "c")
        for _ in range(6):
            story.then(700, "member_left", left=["c"]).then(700, "new_member", joined=["c"])
            if keeps_its_id:
                for member in (story._members["c"], *story.generations[-1]["members_joined"]):
                    member["member_id"] = "c-0"
        return kinds(story.found())

    assert not told(keeps_its_id=False)
    assert told(keeps_its_id=True) == {"rebalance_storm", "member_flapping"}


def test_a_large_group_of_which_somebody_is_always_restarted_is_not_being_deployed() -> None:
    names = [f"m{n}" for n in range(12)]
    story = restarting(started(*names), *names, down=20, up=310)
    assert not kinds(restarting(story, *names, down=20, up=310).found())
    assert "rebalance_storm" in kinds(restarting(story, *names, down=20, up=310).found())
    # Three deployments of an afternoon.
    story = started(*names)
    for _ in range(3):
        restarting(story.then(2700, "probing"), *names, down=5, up=30)
    assert not kinds(story.found())


def test_deployments_without_an_end_are_a_storm() -> None:
    story = started(*"abcd")
    for _ in range(3):
        restarting(story.then(1800, "probing"), *"abcd", down=5, up=60)
    assert not kinds(story.found())
    for _ in range(3):
        restarting(story.then(1800, "probing"), *"abcd", down=5, up=60)
    assert "rebalance_storm" in kinds(story.found())


def test_nodes_that_are_drained_one_after_the_other_are_no_storm() -> None:
    """What comes to a node that is drained later moves on, with what was on that one before."""
    story, pods, number = started(*"abcdefgh"), [*"abcdefgh"], 0
    for node in ("ab", "abcd", "abcef", "abeg", "acgh"):
        story.then(660, "probing")
        for place in node:
            of_place, number = next(p for p in pods if p[0] == place), number + 1
            story.then(4, "member_left", left=[of_place])
            pods[pods.index(of_place)] = f"{place}{number}"
        for place in node:
            story.then(15, "new_member", joined=[next(p for p in pods if p[0] == place)])
    assert not kinds(story.found())


def test_a_preview_of_a_branch_that_is_pushed_now_and_then_is_no_storm() -> None:
    story = started("a", "b", "x0")
    for number in range(14):
        story.then(1230, "member_left", left=[f"x{number}"])
        story.then(30, "new_member", joined=[f"x{number + 1}"])
    assert not kinds(story.found())


@pytest.mark.parametrize(("lasts", "away"), [(20, 30), (240, 300), (400, 20)])
def test_pods_that_do_not_last_are_a_storm_under_whatever_name(lasts: float, away: float) -> None:
    story = started("a", "b", "c0")
    for number in range(12):
        story.then(lasts, "member_left", left=[f"c{number}"])
        story.then(away, "new_member", joined=[f"c{number + 1}"])
    assert "rebalance_storm" in kinds(story.found())


@pytest.mark.parametrize("away", [-5, 5])
def test_deployments_of_new_pods_without_an_end_are_a_storm(away: float) -> None:
    story = started(*(f"{name}0" for name in "abcd"))
    for number in range(6):
        story.then(1800, "probing")
        for name in "abcd":
            old, new = f"{name}{number}", f"{name}{number + 1}"
            if away > 0:
                story.then(60, "member_left", left=[old]).then(away, "new_member", joined=[new])
            else:
                story.then(60, "new_member", joined=[new]).then(-away, "member_left", left=[old])
        if number == 2:
            assert not kinds(story.found())
    assert "rebalance_storm" in kinds(story.found())


def test_a_pod_that_is_replaced_again_and_again_after_a_while_is_a_storm() -> None:
    """Whoever runs out of memory comes back in place, or four times an hour."""
    for names in (["c"] * 13, [f"c{number}" for number in range(13)]):
        story = started("a", "b", names[0])
        for old, new in pairwise(names):
            story.then(720, "member_left", left=[old]).then(60, "new_member", joined=[new])
        assert "rebalance_storm" in kinds(story.found())


@pytest.mark.parametrize("seconds", [30, 150])
def test_topics_that_a_script_makes_one_after_the_other_are_one_change(seconds: float) -> None:
    story = started("a", "b")
    for _ in range(12):
        story.then(min(seconds, 140), "partitions_changed")
    assert not kinds(story.found())
    for _ in range(round(3600 / seconds)):
        story.then(seconds, "partitions_changed")
    storm = storm_of(story)
    since = (storm["ended_at"] - storm["started_at"]) / SECOND
    # Each of that time is counted.
    assert storm["said"]["rebalances"] == pytest.approx(since / seconds, abs=2)


@pytest.mark.parametrize("protocol", ["consumer", "share", "streams"])
def test_replicas_that_are_moved_disturb_no_member_of_the_new_protocols(protocol: str) -> None:
    """Each begins an epoch; a topic that comes and goes, or whose partitions move, does disturb."""
    moves = {"group_type": protocol, "assigned_partitions": 6}
    kept = started("a", "b").then(60, "partitions_changed", **moves)
    for _ in range(80):
        kept.then(
            40, "partitions_changed", moved_partitions=None if protocol == "share" else 0, **moves
        )
        # The coordinator may assign once for several epochs.
        passed_over = {"assigned_partitions": None, "join_completed_at": None}
        kept.then(0.1, "partitions_changed", group_type=protocol, **passed_over)
    assert not kinds(kept.found())
    moved, topics, classic = started("a", "b"), started("a", "b"), started("a", "b")
    unknown = started("a", "b")
    for n in range(80):
        unknown.then(40, "partitions_changed", group_type=protocol, assigned_partitions=None)
        moved.then(40, "partitions_changed", moved_partitions=1, **moves)
        topics.then(
            40,
            "partitions_changed",
            moved_partitions=0,
            group_type=protocol,
            assigned_partitions=3 + n % 2,
        )
        classic.then(40, "partitions_changed", moved_partitions=0, assigned_partitions=6)
    for story in (moved, topics, classic, unknown):
        assert "rebalance_storm" in kinds(story.found())


@pytest.mark.parametrize(("stays", "severity"), [(900, "info"), (60, "warning")])
def test_who_comes_and_goes_in_a_share_group_has_nobody_wait(stays: float, severity: str) -> None:
    story = started("a", "b")
    for n in range(12):
        story.then(stays, "member_left", left=["b"], group_type="share")
        story.then(20, "new_member", joined=["b"], group_type="share")
        if n == 0:
            story.generations[0]["group_type"] = "share"
    assert {row["severity"] for row in story.found()} == {severity}


def test_cooperative_two_steps_and_probing_are_no_storm() -> None:
    story = started("a")
    for name in "bcdef":
        story.then(10, "new_member", joined=[name]).then(1, "cooperative_follow_up")
    for _ in range(6):
        story.then(600, "probing")
    assert not kinds(story.found())


@pytest.mark.parametrize(("minutes", "told"), [((57, 63), set()), ((41, 47), {"rebalance_storm"})])
def test_who_restarts_each_hour_may_do_so_a_little_sooner(
    minutes: tuple[int, int], told: set[str]
) -> None:
    story = started("a", "b", "c", "d")
    for n in range(12):
        for name in "abcd":
            first = 60 * minutes[n % 2] if name == "a" else 20
            story.then(first, "member_restarted", restarted=[name])
    assert kinds(story.found()) == told


def test_a_place_that_restarts_again_and_again_is_a_storm_that_ends() -> None:
    story = started()
    for _ in range(6):
        story.then(60, "member_left", left=["c"]).then(30, "new_member", joined=["c"])
    story.then(3 * 3600, "new_member", joined=["d"])
    found = story.found()
    assert kinds(found) == {"rebalance_storm", "member_flapping"}
    storm = next(row for row in found if row["kind"] == "rebalance_storm")
    assert (storm["started_at"], storm["ended_at"]) == (90 * SECOND, (6 * 90 + 1) * SECOND)
    assert storm["severity"] == "critical"  # five in ten minutes
    assert not storm["is_open"]


@pytest.mark.parametrize(
    ("cause", "minutes"),
    # Who makes topics one after the other is done some time.
    [("partitions_changed", 35), ("subscription_changed", 35), ("unknown", 15)],
)
@pytest.mark.parametrize("pause", [20, 50])
def test_rebalances_without_a_pause_that_last_are_a_storm(
    cause: str, minutes: int, pause: float
) -> None:
    story = started()
    for _ in range(round(minutes * 60 / pause)):
        story.then(pause, cause)
    assert "rebalance_storm" in kinds(story.found())


@pytest.mark.parametrize(("members", "minutes"), [(3, 9), (40, 35)])
def test_a_burst_of_changes_that_is_over_soon_is_no_storm(members: int, minutes: int) -> None:
    # Topics that a script makes, and static members that are deployed with another subscription.
    story = started(*(f"m{n}" for n in range(members)))
    for _ in range(minutes):
        story.then(60, "subscription_changed")
    assert not kinds(story.found())
    for _ in range(minutes):
        story.then(60, "partitions_changed")
    assert not kinds(story.found())


def test_a_storm_names_who_makes_it_unless_all_do() -> None:
    story = started("a", "b", "c")
    for _ in range(4):
        story.then(60, "member_restarted", restarted=["c"])
    (storm,) = [r for r in story.found() if r["kind"] == "rebalance_storm"]
    assert json.loads(storm["evidence"])["clients"] == ["c@/10.0.0.1"]
    assert "most of them of c@/10.0.0.1" in storm["summary"]
    every = started("a", "b", "c")
    for _ in range(2):
        for name in "abc":
            every.then(60, "member_restarted", restarted=[name])
    for row in every.found():
        assert "clients" not in json.loads(row["evidence"])


def storm_of(story: Story) -> Row:
    (storm,) = [r for r in story.found(lasts=60) if r["kind"] == "rebalance_storm"]
    return storm | {"said": json.loads(storm["evidence"])}


def test_who_makes_a_storm_is_who_makes_it_now() -> None:
    story = started(*"abcdefgh")
    for name in "aaaa":
        story.then(60, "member_restarted", restarted=[name])
    assert storm_of(story)["said"]["clients"] == ["a@/10.0.0.1"]
    for name in "bcd" * 8:  # for an hour that of others
        story.then(300, "member_restarted", restarted=[name])
    assert "clients" not in storm_of(story)["said"]
    assert "most of them" not in storm_of(story)["summary"]


@pytest.mark.parametrize(
    ("client", "host", "named"), [("c{n}", "/bad", "*@/bad"), ("c", "/h{n}", "c@*")]
)
def test_a_machine_or_a_client_that_moves_makes_a_storm(client: str, host: str, named: str) -> None:
    story = started(*"abc")
    for n in range(12):
        story.then(30, "member_left", left=["c"]).then(30, "new_member", joined=["c"])
        own = {"client_id": client.format(n=n), "client_host": host.format(n=n)}
        for member in (story._members["c"], *story.generations[-1]["members_joined"]):
            member.update(own)
        story.then(30, "member_restarted", restarted=["a" if n % 2 else "b"])
    assert storm_of(story)["said"]["clients"] == [named]


@pytest.mark.parametrize(("others", "named"), [("/10.0.0.1", ["*@/proxy"]), ("/proxy", None)])
def test_a_machine_is_named_unless_all_members_are_on_it(
    others: str, named: list[str] | None
) -> None:
    story = started(*"ab")
    for member in (*story._members.values(), *story.generations[0]["members_joined"]):
        member["client_host"] = others
    for n in range(8):  # as the instances of a REST proxy, of which each has a name of its own
        story.then(60, "new_member", joined=[f"c{n}"])
        for member in (story._members[f"c{n}"], *story.generations[-1]["members_joined"]):
            member["client_host"] = "/proxy"
        story.then(60, "member_left", left=[f"c{n}"])
    assert storm_of(story)["said"].get("clients") == named


@pytest.mark.parametrize(("client", "named"), [("c", ["c@*"]), ("", None), (None, None)])
def test_clients_without_an_id_have_none_in_common(
    client: str | None, named: list[str] | None
) -> None:
    story = started(*"ab")
    for n in range(8):
        story.then(60, "new_member", joined=[f"c{n}"])
        own = {"client_id": client, "client_host": f"/h{n}"}
        for member in (story._members[f"c{n}"], *story.generations[-1]["members_joined"]):
            member.update(own)
        story.then(60, "member_left", left=[f"c{n}"])
    assert storm_of(story)["said"].get("clients") == named


def test_deployments_of_a_part_and_one_that_takes_over_are_no_storm() -> None:
    names, half = "abcdefgh", "abcd"
    rolled_back = restarting(started(*names), *half, down=5, up=20)
    assert not kinds(restarting(rolled_back.then(300, "probing"), *half, down=5, up=20).found())
    story = restarting(started(*names), *half, down=5, up=20)
    assert not kinds(restarting(story, *names, down=5, up=20).found())
    # The rollback of that is one, too, and then it is enough.
    restarting(story, *half, down=5, up=20)
    assert "rebalance_storm" not in kinds(story.found())
    assert "rebalance_storm" in kinds(restarting(story, *half, down=5, up=20).found())


@pytest.mark.parametrize("names", [["c", "c#2"], ["c", "d", "c#2", "d#2"]])
def test_a_client_that_is_back_before_its_session_ends_has_restarted(names: list[str]) -> None:
    """Its pod, say, was killed and started again in place, each quarter of an hour."""
    story = started("a", "b", *names[: len(names) // 2])
    for n in range(12):
        old, new = names[n % len(names)], names[(n + len(names) // 2) % len(names)]
        story.then(700, "new_member", joined=[new]).then(35, "member_left", left=[old])
    assert {"rebalance_storm", "member_flapping"} <= kinds(story.found())


def test_places_that_restart_twice_an_hour_for_hours_are_a_storm() -> None:
    story = started(*"abcdefgh")
    for name in "abcdefgh" * 8:
        story.then(240, "member_restarted", restarted=[name])
    assert "rebalance_storm" in kinds(story.found())


@pytest.mark.parametrize("host", ["/10.0.0.1", "/10.0.0.9"])
def test_who_is_gone_before_its_former_self_takes_no_place(host: str) -> None:
    story = started("a", "c").then(700, "new_member", joined=["c#2"])
    story.then(20, "member_restarted", restarted=["c#2"])  # it died once more, and is back
    story._members["c#2"]["client_host"] = host
    story.then(20, "member_left", left=["c#2"]).then(5, "new_member", joined=["d"])
    story.then(5, "member_left", left=["c", "d"]).then(5, "member_left", left=["a"])
    memory: Row = {}
    for generation in story.generations:
        SlotChanges(memory, generation, generation["join_started_at"])
    assert memory["members"] == {}
    assert memory["emptied"] == story.generations[-1]["join_started_at"]


@pytest.mark.parametrize(
    ("every", "times", "is_storm"),
    [(840, 9, True), (1_500, 9, False), (2_400, 2, False), (4_000, 9, False)],
)
def test_pods_that_are_back_under_other_names_before_their_sessions_end_take_their_places(
    every: int,
    times: int,
    is_storm: bool,  # noqa: FBT001
) -> None:
    """They crash together; deployments look the same, and come no more than twice an hour."""
    pods = [[f"pod-{turn}-{n}" for n in range(4)] for turn in range(times + 1)]
    story = started(*pods[0])
    for before, after in pairwise(pods):
        story.then(every - 40, "new_member", joined=after[:2])
        story.then(5, "new_member", joined=after[2:])
        story.then(30, "member_left", left=before[:3]).then(5, "member_left", left=before[3:])
    assert ("rebalance_storm" in kinds(story.found())) == is_storm


def test_who_comes_as_another_that_has_just_come_goes_takes_no_place() -> None:
    story = started("a", "b", "c")
    for n in range(9):
        story.then(700, "new_member", joined=[f"x-{n}"]).then(5, "new_member", joined=[f"y-{n}"])
        story.then(5, "member_left", left=[f"x-{n}"])
    assert not [r for r in story.found() if r["severity"] == "critical"]


def test_members_of_one_name_that_are_started_and_stopped_have_not_restarted() -> None:
    story = started("a#1", "a#2")
    for n in range(3, 12):
        story.then(300, "new_member", joined=[f"a#{n}"])
    for n in range(3, 12):
        story.then(300, "member_left", left=[f"a#{n}"])
    assert not kinds(story.found())


@pytest.mark.parametrize(("away", "flaps"), [(400, False), (300, True)])
def test_who_is_scaled_in_and_out_under_its_own_name_does_not_flap(
    away: int,
    flaps: bool,  # noqa: FBT001
) -> None:
    story = started("a", "b", "c")
    for _ in range(5):
        story.then(600, "member_left", left=["c"]).then(away, "new_member", joined=["c"])
    assert ("member_flapping" in kinds(story.found())) == flaps


def test_the_first_join_of_an_empty_group_waits_for_nobody_that_died() -> None:
    story = started("a", "b")
    for _ in range(6):
        story.then(400, "member_left", left=["a", "b"], member_count=0)
        story.then(120, "new_member", joined=["a", "b"], join_ms=9_000, session_timeout_ms=10_000)
    assert storm_of(story)["label"] != "crash_loop"


@pytest.mark.parametrize("protocol_type", ["consumer", "connect"])
def test_a_worker_of_connect_has_no_time_to_poll(protocol_type: str) -> None:
    story = started("a", "b")
    for _ in range(8):
        story.then(320, "member_left", left=["b"], protocol_type=protocol_type)
        for member in story.generations[-1]["members_left"]:
            member["rebalance_timeout_ms"] = 300_000
        story.then(30, "new_member", joined=["b"], protocol_type=protocol_type)
    assert (storm_of(story)["label"] == "slow_members") == (protocol_type == "consumer")


@pytest.mark.parametrize("cause", ["partitions_changed", "subscription_changed"])
def test_topics_that_are_made_now_and_then_are_no_storm(cause: str) -> None:
    def told(times: int) -> Story:
        story = started("a", "b")
        for _ in range(2 * times):
            story.then(3600 / times, cause)
        return story

    assert not kinds(told(5).found())
    storm = storm_of(told(12))
    assert storm["label"] == "reconfigured"
    assert "No group comes to rest like that" in storm["summary"]
    assert "Find out what changes its topics" in storm["summary"]


def test_what_explains_other_rebalances_is_that_members_came() -> None:
    story = restarting(started(*"abcdef"), *"abc", down=5, up=60)  # a deployment: three restarts
    restarting(story, *"ddddd", down=5, up=60)
    # Who leaves explains nothing, and the first restart of `d` is the fourth.
    assert storm_of(story)["said"]["explained"] == 4
    assert "; 4 other rebalances had such a reason." in storm_of(story)["summary"]


def test_rebalances_that_begin_again_as_a_job_ends_or_starts_disturb_nobody() -> None:
    def told(**last: object) -> list[str]:
        story = started("a", "b")
        for _ in range(4):
            story.then(300, "member_left", left=["a", "b"], aborted_generations=1, **last)
            story.then(300, "new_member", joined=["a", "b"], aborted_generations=1)
        return [r["severity"] for r in story.found() if r["kind"] == "aborted_rebalances"]

    assert set(told(member_count=0)) == {"info"}
    assert "warning" in told(member_count=1)


def test_a_deployment_whose_leader_assigns_slowly_begins_again_once() -> None:
    def told(again: int) -> set[str]:
        story = started(*"abcdefgh")
        for _ in range(again):
            for name in "abcdef":
                new = {"joined": [f"{name}x"], "left": [name]}
                story.then(40, "new_member", aborted_generations=2, **new)
                story._members[name] = story._members.pop(f"{name}x")
            story.then(600, "probing")
        return {r["severity"] for r in story.found() if r["kind"] == "aborted_rebalances"}

    assert told(1) == {"info"}
    assert told(3) == {"critical"}


@pytest.mark.parametrize(("apart", "severity"), [(75, "info"), (150, "warning")])
def test_a_deployment_goes_on_where_it_does_not_begin_again(apart: int, severity: str) -> None:
    story = started(*"abcdefgh")
    for number, name in enumerate("abcdefgh"):
        attempts = {"aborted_generations": number % 2}
        story.then(apart, "member_restarted", restarted=[name], **attempts)
        story.then(5, "cooperative_follow_up")
    found = [r["severity"] for r in story.found() if r["kind"] == "aborted_rebalances"]
    assert found == [severity]


@pytest.mark.parametrize(
    ("restarted", "times", "severity"),
    [("abcde", 1, "info"), ("a", 1, "warning"), ("abcde", 3, "warning")],
    ids=["at once", "one alone", "again and again"],
)
def test_members_that_are_restarted_at_once_begin_again_for_each_of_them(
    restarted: str, times: int, severity: str
) -> None:
    story = started(*"abcdefgh")
    for _ in range(times):
        story.then(600, "member_restarted", restarted=list(restarted), aborted_generations=4)
    found = {r["severity"] for r in story.found() if r["kind"] == "aborted_rebalances"}
    assert found == {severity}


@pytest.mark.parametrize("is_scaled", [True, False])
def test_members_that_leave_after_minutes_are_slow_if_they_come_back(is_scaled: bool) -> None:  # noqa: FBT001
    story = started("a", "b")
    for n in range(8):
        name = f"pod{n}" if is_scaled else "slow"
        story.then(60, "new_member", joined=[name]).then(320, "member_left", left=[name])
        for member in story.generations[-1]["members_left"]:
            member["rebalance_timeout_ms"] = 300_000
    storms = [r for r in story.found() if r["kind"] == "rebalance_storm"]
    assert storms
    assert all((r["label"] == "slow_members") != is_scaled for r in storms)


@pytest.mark.parametrize(
    ("minutes", "timeout", "is_told"),
    [
        ((30.4, 30.2, 31), 30, True),
        ((30.4, 30.2), 30, False),
        ((30.4, 44, 31, 33.5), 30, False),
        ((60, 60, 60, 60), 30, False),  # as with a new certificate
        ((15.2, 15.1, 15.6), 15, False),  # the storm tells
    ],
)
def test_who_leaves_whenever_a_long_time_to_poll_is_over_is_told(
    minutes: tuple[float, ...],
    timeout: int,
    is_told: bool,  # noqa: FBT001
) -> None:
    story = started("a", "b").then(300, "new_member", joined=["slow"])
    for stays in minutes:
        for member in story.generations[-1]["members_joined"]:
            member["rebalance_timeout_ms"] = timeout * MINUTE_MS
        story.then(stays * 60, "member_left", left=["slow"])
        story.then(200, "new_member", joined=["slow"])
    told = [r for r in story.found() if r["label"] == "polls_too_late"]
    assert bool(told) == is_told
    for row in told:
        assert row["severity"] == "warning"
        assert (
            "left 3 times in a row when its rebalance timeout, 30 min, was over" in row["summary"]
        )


def test_a_storm_of_an_hour_begins_with_the_first_that_counts() -> None:
    story = started("a", "b", "c").then(1200, "probing")
    for _ in range(4):  # further apart than a series is
        story.then(1080, "member_restarted", restarted=["c"])
    (storm,) = [r for r in story.found() if r["kind"] == "rebalance_storm"]
    (times,) = re.findall(r"rebalanced (\d+) times", storm["summary"])
    counted = [g["stable_at"] for g in story.generations if g["cause"] == "member_restarted"]
    assert storm["started_at"] <= counted[-int(times)]


def test_aborted_rebalances_name_who_gives_joins_up() -> None:
    story = started("a")
    for n in range(3):
        story.then(300, "new_member", joined=[f"g#{n}", f"g#{n}+"], aborted_generations=2)
    (row,) = [r for r in story.found() if r["kind"] == "aborted_rebalances"]
    assert "as g@/10.0.0.1 came and went" in row["summary"]
    once = started("a").then(300, "new_member", joined=["x", "y"], aborted_generations=3)
    (row,) = [r for r in once.found() if r["kind"] == "aborted_rebalances"]
    assert "came and went" not in row["summary"]


def slow(**given: object) -> str:
    """Return what is said of a slow rebalance of a classic group."""
    story = started("a", "b", "c").then(600, "member_left", left=["c"], **given)
    return next(r["summary"] for r in story.found() if r["kind"] == "slow_rebalance")


@pytest.mark.parametrize(
    ("seconds", "returns", "is_named"),
    # Of 45 seconds a session lasts, and of five minutes a poll.
    [(46, False, True), (120, False, False), (299, False, True), (299, True, False)],
)
def test_who_left_is_named_if_all_can_have_waited_for_it(
    seconds: int,
    returns: bool,  # noqa: FBT001
    is_named: bool,  # noqa: FBT001
) -> None:
    story = started("a", "b", "c")
    joined = {"joined": ["c" if returns else "d"]}
    story.then(600, "new_member", left=["c"], join_ms=seconds * SECOND, **joined)
    began = story.generations[-1]["join_started_at"]
    ended = {"join_completed_at": began + seconds * SECOND}
    story.generations[-1] |= ended | {"join_completed_at_min": began + seconds * SECOND}
    (row,) = (r for r in story.found() if r["kind"] == "slow_rebalance")
    assert ("for c@/10.0.0.1 to join, and went on without" in row["summary"]) == is_named
    assert ("c@/10.0.0.1" in row["summary"]) != returns


def test_a_slow_rebalance_names_who_was_waited_for() -> None:
    late = {"join_completed_at": 646 * SECOND, "join_completed_at_min": 646 * SECOND}
    late |= {"stable_at": 647 * SECOND}
    assert "46.0 s at least for c@/10.0.0.1 to join, and went on without" in slow(**late)
    # It left itself: the others were slow.
    soon = {"join_completed_at": 635 * SECOND, "join_completed_at_min": 635 * SECOND}
    assert "Look at what the slowest member does" in slow(**soon, stable_at=636 * SECOND)
    assigned = slow(sync_ms=20_000, leader_client_id="lead")
    assert ": the assignment took up to 20.0 s. Look in the log of the leader, lead." in assigned
    assert "lead" not in slow(**late, leader_client_id="lead")


@pytest.mark.parametrize("group_type", ["consumer", "streams"])
def test_who_is_slow_to_assign_in_the_new_protocols_is_the_coordinator(group_type: str) -> None:
    def told(seconds: int) -> dict[str, str]:
        ended = dict.fromkeys(
            ("join_completed_at", "join_completed_at_min"), (600 + seconds) * SECOND
        )
        late = {"stable_at": (601 + seconds) * SECOND, "rebalance_ms": (seconds + 1) * SECOND}
        waits = {"waited_for": [{"client_id": "c", "client_host": "/10.0.0.1"}]}
        story = started("a", "b").then(
            600, "new_member", joined=["c"], group_type=group_type, **ended, **late, **waits
        )
        return {row["kind"]: row["summary"] for row in story.found()}

    assert not told(51)
    assert told(70)["slow_rebalance"].endswith(
        ": its coordinator took 70.0 s to assign. Look whether that broker was away, or is"
        " overloaded."
    )
    assert told(400)["stuck_rebalance"].endswith(
        "Look at its coordinator, that took most of that to assign."
    )


def test_of_a_group_that_is_not_assigned_to_the_coordinator_is_named() -> None:
    story = started("a", "b").then(600, "new_member", joined=["c"], stable_at=None)
    story.generations[-1] |= {"group_type": "consumer", "join_completed_at": None}
    since = {"started_at": 600 * SECOND, "started_at_max": 600 * SECOND, "generation": 2}
    record = {"record_partition": 0, "record_offset": 2, "record_timestamp": 600 * SECOND}
    state = {"group_type": "consumer", "state": "Assigning", **since, **record}
    (row,) = story.found((OPEN_STATE, state), lasts=3600)
    assert row["label"] == "still_rebalancing"
    assert row["summary"].endswith("Look at its coordinator, that is to assign.")


def test_a_slow_rebalance_with_aborted_attempts_names_no_phase() -> None:
    # Members had joined each attempt, and the leader was to assign: how long which took is unknown.
    late = {"join_completed_at": 646 * SECOND, "join_completed_at_min": 646 * SECOND}
    late |= {"stable_at": 647 * SECOND, "aborted_generations": 1}
    told = slow(**late)
    assert "waited 46.0 s at least, with 1 attempt aborted, for members to join or for a" in told
    assert "went on without c@/10.0.0.1" in told
    soon = {"join_completed_at": 635 * SECOND, "join_completed_at_min": 635 * SECOND}
    told = slow(**late | soon, sync_ms=7_000)
    assert "35.0 s at least, with 1 attempt aborted" in told
    assert "without" not in told
    # The sync phase is of the last attempt, and known.
    brief = {"join_completed_at": 602 * SECOND, "join_completed_at_min": 602 * SECOND}
    told = slow(**late | brief, sync_ms=20_000, leader_client_id="lead")
    assert ": the assignment took up to 20.0 s. Look in the log of the leader, lead." in told


def epochs(*ends: float, reached: bool = False, is_timed: bool = True) -> list[Row]:
    """Return what is found of a consumer group whose epochs last so many minutes each."""
    story = started()
    for row in story.generations:
        row["group_type"] = "consumer"
    for minutes in ends:
        stable = {"stable_at": story.generations[-1]["join_started_at"]} if reached else {}
        stable |= {} if is_timed else {"rebalance_ms": None}
        story.then(minutes * 60, "new_member", joined=[f"n{len(story.generations)}"])
        story.generations[-1].update({"group_type": "consumer", "stable_at": None} | stable)
        story.generations[-1]["waited_for"] = [{"client_id": "slow", "client_host": "/h"}]
    return [row for row in story.found() if row["kind"] == "stuck_rebalance"]


def test_a_group_that_never_gets_to_an_epoch_is_found() -> None:
    (row,) = epochs(*[4] * 15)
    assert (row["severity"], row["label"]) == ("warning", "never_stable")
    assert "slow@/h, that were waited for" in row["summary"]
    # That the newest one goes on is another finding, with numbers of its own.
    assert row["subject"] == "epochs"
    # Members that come one by one, and a group that gets to each of its epochs.
    assert not epochs(*[2] * 12)
    assert not epochs(*[4] * 15, reached=True)
    # A streams group that waits for its topics.
    assert not epochs(*[4] * 15, is_timed=False)


@pytest.mark.parametrize("has_returned", [True, False])
def test_a_group_whose_log_has_grown_is_not_made_anew(has_returned: bool) -> None:  # noqa: FBT001
    def told(partition: int) -> set[str]:
        story = started("a", "b").then(600, "member_left", left=["b"])
        story.generations[0]["subscribed_topics"] = ["t"]
        anew = {"record_partition": partition, "generation": 1}
        story.then(600, "group_created", joined=["c"], **anew)
        back = {"topic": "t", "topic_partition": 0, "move": "step", "previous_offset": 20_000}
        back |= {"at": 1_202 * SECOND, "previous_at": 1_100 * SECOND, "committed_offset": 9}
        back |= {"record_partition": partition, "record_offset": 9, "step": -19_991}
        columns = dict.fromkeys(COLUMNS[MOVE]) | back
        before = columns | {"at": 900 * SECOND, "step": 1, "record_partition": 0}
        before |= {"move": "returned", "previous_at": None, "record_offset": 2}
        first = first_commits("t", 0, at=1.5)
        return kinds(story.found(first, *[(MOVE, before)] * has_returned, (MOVE, columns)))

    assert {"group_recreated", "offset_rewind"} <= told(0)
    assert not {"group_recreated", "offset_rewind"} & told(7)


@pytest.mark.parametrize("given", [{}, {"generation": 0, "joined": [], "member_count": 0}])
def test_who_loses_offsets_is_told_that_its_group_was_made_anew(given: Row) -> None:
    def told(*others: tuple[str, Row], **of_group: object) -> list[Row]:
        story = started("a").then(600, "member_left", left=["a"])
        for row in story.generations:
            row.update(of_group)
        anew = {"generation": 1, "joined": ["b"], **given}
        story.then(600, "group_created", **anew, **of_group)
        if given:  # the coordinator's record of the empty new group
            story.then(3, "group_created", joined=["b"], generation=1, **of_group)
        return [row for row in story.found(*others) if row["kind"] == "group_recreated"]

    commits, later = (first_commits("t", 0, at=at) for at in (1.5, 4.5))
    gone = offset_move("deleted", "t", 0, 2.5, 1100)
    for known in ([commits], [commits, gone]):  # whether its tombstones were read or not
        (row,) = told(*known)
        assert (row["severity"], row["started_at"]) == ("info", 1200 * SECOND)
        assert json.loads(row["evidence"])["times"] == 1
    assert not told()
    assert not told(later)
    assert not told(commits, protocol_type="connect")
    (row,) = told(group_type="share")  # whose offsets are not in this log: nothing else tells
    assert row["severity"] == "warning"


def test_a_group_that_changes_its_protocol_keeps_its_offsets() -> None:
    def told(*others: tuple[str, Row], group_type: str, lives: int = 2) -> int:
        story = started("a").then(600, "member_left", left=["a"])
        for _ in range(lives - 1):
            story.then(600, "group_created", joined=["b"], generation=1, group_type=group_type)
            story.then(600, "member_left", left=["b"], group_type=group_type)
        rows = [row for row in story.found(*others) if row["kind"] == "group_recreated"]
        return sum(json.loads(row["evidence"])["times"] for row in rows)

    commits, gone = first_commits("t", 0, at=1.5), offset_move("deleted", "t", 0, 2.5, 1100)
    again = first_commits("t", 0, at=3.5)
    assert told(commits, group_type="consumer") == 0
    assert told(commits, group_type="classic") == 1
    assert told(commits, gone, group_type="consumer") == 1
    # Another life has no offsets to lose unless it has committed.
    assert told(commits, gone, group_type="classic", lives=3) == 1
    assert told(commits, gone, again, group_type="classic", lives=3) == 2


def test_an_hour_later_it_is_another_storm() -> None:
    story = started()
    for _ in range(2):
        for _ in range(5):
            story.then(60, "member_restarted", restarted=["c"])
        story.then(2 * 3600, "new_member", joined=[f"d-{len(story.generations)}"])
    storms = [row for row in story.found() if row["kind"] == "rebalance_storm"]
    assert len({row["anomaly_id"] for row in storms}) == 2


def test_few_rebalances_that_take_most_of_the_time_are_a_storm() -> None:
    story = started()
    for _ in range(3):
        story.then(900, "member_restarted", restarted=["c"], sync_ms=600_000)
    assert "rebalance_storm" in kinds(story.found())


def restarting(story: Story, *names: str, down: float = 20, up: float = 60) -> Story:
    """Restart members, one after the other."""
    for name in names:
        story.then(up, "member_left", left=[name]).then(down, "new_member", joined=[name])
    return story


def test_members_that_share_a_name_are_told_apart() -> None:
    names = [f"rdkafka#{n}" for n in range(10)]
    rolled = restarting(started(*names), *names)
    assert not rolled.found()
    assert not restarting(rolled, *names).found()  # a rollback
    loops = restarting(started(*names), *names[:5], *["rdkafka#7"] * 4)
    (row,) = (r for r in loops.found() if r["kind"] == "member_flapping")
    assert (row["subject"], row["severity"]) == ("rdkafka@/10.0.0.1", "warning")
    assert json.loads(row["evidence"])["returns"] == 4


def test_a_job_that_runs_every_few_minutes_does_not_flap() -> None:
    workers = ("a#1", "a#2")
    story = started(*workers)
    for _ in range(6):
        story.then(120, "member_left", left=["a#1"]).then(1, "member_left", left=["a#2"])
        story.then(480, "new_member", joined=["a#1"]).then(1, "new_member", joined=["a#2"])
    assert "member_flapping" not in kinds(story.found())
    # It does if somebody is disturbed.
    assert "member_flapping" in kinds(restarting(started(*workers), *["a#1"] * 3).found())


def taken(*clients: str, every: float = 30, others: tuple[str, ...] = ()) -> list[Row]:
    """Return what is found if these take the place of one instance, one after the other.

    Args:
        clients: client id and host, as in the sentences; the last one is still there.
        every: seconds that each has the place.
        others: hosts of other instances.
    """
    detector = GroupDetector(LIMITS.of("g"))
    times = [round(n * every * SECOND) for n in range(len(clients))]
    rows = []
    for client, joined, left in zip(clients, times, [*times[1:], None], strict=True):
        client_id, _, host = client.partition("@")
        row = {"group_instance_id": "i", "client_id": client_id, "client_host": host}
        row |= {"joined_at": joined, "left_at": left, "record_partition": 0}
        row |= {"end_cause": None if left is None else "static_member_replaced"}
        rows.append(row | {"record_offset": joined})
    present = [rows[-1] | {"group_instance_id": host, "client_host": host} for host in others]
    for row in (rows[-1], *present):
        detector.take(OPEN_SESSION, row)
    for row in rows[:-1]:
        detector.take(SESSION, row)
    episodes = [*detector.settled(), *detector.still_open(2 * HOUR)]
    return list(anomaly_rows([], episodes, "c", "g", LIMITS.of("g"), now=HOUR))


def told(*clients: str, **given: Any) -> list[tuple[str, str]]:  # noqa: ANN401
    return [(row["kind"], row["severity"]) for row in taken(*clients, **given)]


def test_two_clients_take_an_instance_from_each_other() -> None:
    assert told("a@/1", "b@/2", "a@/1") == [("static_member_fencing", "warning")]
    (row,) = taken("a@/1", "b@/2", "a@/1", "b@/2", "a@/1", every=5)
    assert row["severity"] == "critical"
    assert row["summary"].startswith("a@/1 and b@/2 of g share group.instance.id i: ")
    assert not told("a@/1", "b@/2")  # a pod that moved
    assert not told("a@/1", "b@/2", "c@/3")
    assert not told("a@/1", "b@/2", "c@/3", every=0)  # within a millisecond
    assert not told("a@/1", "b@/2", "a@/1", every=900)


def test_one_client_that_takes_its_own_place_restarts() -> None:
    (row,) = taken(*["a@/1"] * 5, every=40)
    assert (row["kind"], row["subject"], row["severity"]) == (
        "member_flapping",
        "instance i",
        "warning",
    )
    assert row["summary"] == (
        "Member instance i of g (a@/1) was replaced in its own place 4 times in 2 min (00:00:40 to"
        " 00:02:40 UTC). Read its logs at those times, and look for a second client with this"
        " group.instance.id, which the log may not name."
    )
    assert told(*["a@/1"] * 12, every=40) == [("member_flapping", "critical")]
    assert told("a@/1", "a@/2", "a@/3", "a@/4") == [("member_flapping", "warning")]
    assert not told(*["a@/1"] * 3)  # a deployment and its rollback
    assert not told(*["a@/1"] * 5, every=2_000)


def test_on_a_machine_with_others_a_client_may_be_two() -> None:
    on_one = {"others": ("/1", "/1")}
    (row,) = taken(*["a@/1"] * 3, **on_one)
    assert (row["kind"], row["severity"]) == ("static_member_fencing", "warning")
    assert row["summary"].startswith("Two clients of g, of which the log names a@/1, may share ")
    assert told(*["a@/1"] * 5, **on_one) == [("member_flapping", "warning")]
    assert not told(*["a@/1"] * 2, **on_one)
    assert not told(*["a@/1"] * 3, others=("/2",))


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_that_are_all_replaced_at_once_are_those_of_a_process(threads: int) -> None:
    detector, number = GroupDetector(LIMITS.of("g")), 4
    for place in range(number):
        row = {"group_instance_id": f"i-{place}", "client_id": "a", "client_host": "/1"}
        row |= {"record_partition": 0, "end_cause": "static_member_replaced"}
        times = [0, 100 * SECOND, 200 * SECOND] if place < threads else [0]
        spans = [
            (at + place * SECOND, later and later + place * SECOND)
            for at, later in zip(times, [*times[1:], None], strict=True)
        ]
        for joined, left in spans:
            one = row | {"joined_at": joined, "left_at": left, "record_offset": joined}
            detector.take(OPEN_SESSION if left is None else SESSION, one)
    found = {e.kind for e in (*detector.settled(), *detector.still_open(HOUR))}
    assert found == ({"static_member_fencing"} if threads == 1 else set())


def test_who_made_a_storm_is_known_as_long_as_it_goes_on() -> None:
    """Its advice is not to come and go with the sessions of the last hour."""

    def label(story: Story, *minutes: float) -> object:
        for number, up in enumerate(minutes):
            story.then(60 * up, "member_restarted", restarted=["ab"[number % 2]])
        (row,) = [r for r in story.found(lasts=60) if r["kind"] == "rebalance_storm"]
        return row["label"]

    story = started("a", "b", "c")
    assert label(story, *[1.25] * 40) == "short_lived_members"
    assert label(story, *[9.5] * 12) == "short_lived_members"
    assert label(started("a", "b", "c"), *[9.5] * 12) is None  # each stays for 19 minutes


def test_who_made_a_storm_is_forgotten_when_something_else_has_long_made_it() -> None:
    story = restarting(started("a", "b", "c"), *"b" * 14, down=20, up=280)
    assert storm_of(story)["label"] == "short_lived_members"
    for minutes, label in ((60, "short_lived_members"), (180, None)):
        for _ in range(minutes // 3):
            story.then(180, "leader_rejoined")
        assert storm_of(story)["label"] == label


def test_conditions_last_from_stable_till_the_next_generation() -> None:
    idle = {"idle_members": ["c-0"]}
    story = started().then(60, "new_member", joined=["d"], **idle)
    story.then(300, "new_member", joined=["e"]).then(70, "new_member", joined=["f"], **idle)
    (row,) = story.found(lasts=30)
    assert (row["kind"], row["started_at"], row["ended_at"]) == (
        "idle_members",
        61 * SECOND,
        360 * SECOND,
    )
    assert not row["is_open"]
    # The last generation's has not lasted a minute; now it has.
    assert [r["is_open"] for r in story.found(lasts=300)] == [False, True]


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("idle_members", {"idle_members": ["c-0"]}),
        ("assignment_skew", {"most_partitions": 9, "assigned_partitions": 9}),
        ("mixed_subscriptions", {"subscriptions": 2}),
        ("unread_partition", {"unowned_partitions": ["t/1"]}),
    ],
)
@pytest.mark.parametrize(
    ("absence", "stops", "times"),
    [(10, False, 1), (75, False, 2), (300, True, 1), (900, True, 2)],
    ids=["a restart", "another assignment", "all restart", "all start later"],
)
def test_a_condition_that_a_restart_interrupts_is_one_episode(
    kind: str, given: dict[str, object], absence: float, times: int, *, stops: bool
) -> None:
    """What is not there for seconds, or while nobody is, has not been mended."""
    story = started().then(60, "new_member", joined=["d"], **given)
    if stops:
        story.then(1800, "member_left", left=["a", "b", "c", "d"])
        story.then(absence, "new_member", joined=["a", "b", "c", "d"], **given)
    else:
        story.then(1800, "member_left", left=["d"])
        story.then(absence, "new_member", joined=["d"], **given)
    told = [(r["started_at"], r["is_open"]) for r in story.found() if r["kind"] == kind]
    again = (1861 + absence) * SECOND
    assert told == ([(61 * SECOND, True)] if times == 1 else [(61 * SECOND, False), (again, True)])


@pytest.mark.parametrize(("lasts", "times"), [(30, 1), (300, 2)], ids=["a restart", "it has some"])
def test_a_partition_without_owner_stays_so_while_another_has_none_for_seconds(
    lasts: float, times: int
) -> None:
    story = started("a", "b").then(60, "member_left", left=["b"], unowned_partitions=["t/3"])
    story.then(1800, "new_member", joined=["b"], unowned_partitions=["t/1"])
    story.then(lasts, "new_member", joined=["c"], unowned_partitions=["t/3"])
    told = [r["started_at"] for r in story.found() if r["subject"] == "t/3"]
    assert told == [61 * SECOND, (1861 + lasts) * SECOND][:times]


def idling(story: Story, minutes: float, *names: str) -> list[tuple[str, str]]:
    """Let members come that get nothing, and return how they are told so much later."""
    for number, name in enumerate(names, 1):
        story.then(1, "new_member", joined=[name], idle_members=[*names[:number]])
    found = story.found(lasts=60 * minutes)
    return [(row["kind"], row["severity"]) for row in found]


def test_members_without_partitions_that_came_for_a_while_are_no_alarm() -> None:
    for minutes, severity in ((90, "info"), (150, "warning")):
        grown = started("a", "b").then(1200, "leader_rejoined")
        assert idling(grown, minutes, *"cde") == [("idle_members", severity)]
    daily = started("a", "b")
    for _ in range(3):
        assert idling(daily.then(5 * 3600, "probing"), 60, *"cde")[-1] == ("idle_members", "info")
        for name in "cde":
            daily.then(3600 if name == "c" else 1, "member_left", left=[name])
    # A restart meanwhile begins nothing anew.
    grown = started("a", "b").then(1200, "probing")
    idling(grown, 0, *"cd")
    grown.then(5400, "member_left", left=["d"], idle_members=["c"])
    grown.then(10, "new_member", joined=["d"], idle_members=["c", "d"])
    told = {(row["kind"], row["severity"]) for row in grown.found(lasts=3600)}
    assert told == {("idle_members", "warning")}


@pytest.mark.parametrize("group_type", ["classic", "consumer", "streams"])
def test_an_application_that_makes_members_and_never_closes_them_is_an_alarm(
    group_type: str,
) -> None:
    def told(
        host: str, *, every: float = 60, partitions: int = 6, leave: str = "", of: str = "consumer"
    ) -> Row:
        """Return how members are told that come one by one, and stay unless some, or all, leave."""
        kind = {"group_type": group_type, "protocol_type": of}
        story, idle = started("a", "b").then(3600, "probing", **kind), 0
        for n in range(30):
            idle = max(0, n + 3 - partitions)
            given = kind | {"idle_members": [f"m{k}" for k in range(idle)]}
            story.then(every, "new_member", joined=[f"m{n}"], **given)
            story.generations[-1]["members_joined"][0]["client_host"] = host.format(n=n)
            if leave.startswith("some") and n % 5 == 4:
                reached = {} if leave == "some" else {"stable_at": None}
                story.then(5, "member_left", left=[f"m{n}"], **given | reached)
                story.generations[-1]["members_left"][0]["client_host"] = host.format(n=n)
        if leave == "all":  # who was there before stays, and has no partition either
            left = [f"m{n}" for n in range(30)]
            story.then(60, "member_left", left=left, **kind | {"idle_members": ["b"]})
            for member in story.generations[-1]["members_left"]:
                member["client_host"] = host
        found = [row for row in story.found(lasts=300) if row["kind"] == "idle_members"]
        return found[0] if found else {"severity": None, "label": None}

    row = told("/10.0.0.9")
    assert (row["severity"], row["label"]) == ("warning", "never_closed")
    assert "30 members of g came from /10.0.0.9 one by one in 29 min" in row["summary"]
    assert "26 of 32 members have no partition" in row["summary"]
    assert told("/10.0.0.9", every=40)["label"] == "never_closed"
    # An autoscaler's pods, threads that start, members that go, and such as all have work.
    for other in (
        told("/10.0.1.{n}"),
        told("/10.0.0.9", every=1),
        told("/10.0.0.9", leave="some"),
        told("/10.0.0.9", leave="some, and others come before all have learnt of it"),
        told("/10.0.0.9", partitions=40),
    ):
        assert (other["severity"] != "warning", other["label"]) == (True, None)
    assert told("/10.0.0.9", of="connect")["label"] is None
    # It is over when the application is stopped, or restarted.
    assert not told("/10.0.0.9", leave="all")["is_open"]


def test_a_group_that_gets_nothing_at_all_has_no_member_too_many() -> None:
    def told(total: int, unassigned: list[str] | None) -> list[str]:
        given = {"assigned_partitions": total, "unassigned_topics": unassigned}
        story = started("a").then(60, "new_member", joined=["b"], idle_members=["b"], **given)
        idle = [r for r in story.found(lasts=3600) if r["kind"] == "idle_members"]
        return [f"{r['label']} {r['summary'].partition(' (')[0]}" for r in idle]

    assert told(3, []) == ["None 1 of 2 members of g had no partition for 60 min"]
    # A pattern that matches no topic.
    assert told(0, None) == ["nothing_assigned No member of g had a partition for 60 min"]
    # A topic that nobody is assigned is told as that.
    assert told(0, ["gone"]) == []


def test_who_waits_for_what_others_give_up_is_not_idle() -> None:
    def told(**given: object) -> list[str]:
        story = started("a").then(60, "new_member", joined=["b"], idle_members=["b"], **given)
        return [r["kind"] for r in story.found(lasts=200)]

    assert told(unowned_partitions=[]) == ["idle_members"]
    assert told(unowned_partitions=["t/1"]) == []


def test_a_group_that_waits_for_topics_waits_for_no_member() -> None:
    (row,) = [r for r in story_in("NotReady") if r["kind"] == "stuck_rebalance"]
    assert "topics that its topology reads or needs are not there" in row["summary"]
    (row,) = [r for r in story_in("Reconciling") if r["kind"] == "stuck_rebalance"]
    assert "Look for the member that all wait for" in row["summary"]


def waits_for_topics(*epochs: dict[str, object], lasts: int = 2100) -> list[tuple[int, int, bool]]:
    """Return since when, and till when, a streams group waits, and whether it does so now.

    One epoch follows the other by half an hour; it is NotReady in the last unless that is reached.
    """
    waiting = {"group_type": "streams", "stable_at": None, "rebalance_ms": None}
    story = started("a")
    story.generations[0]["group_type"] = "streams"
    for given in epochs:
        story.then(1800, "settings_changed", **waiting | given)
    last = story.generations[-1]
    state = {"state": "NotReady", "started_at_max": last["join_started_at"]}
    of_last = {name: last[name] for name in ("generation", "record_partition", "record_offset")}
    now = [] if last["stable_at"] else [(OPEN_STATE, state | of_last | {"record_timestamp": 0})]
    rows = [r for r in story.found(*now, lasts=lasts) if r["label"] == "not_ready"]
    assert all(row["severity"] == "critical" for row in rows)
    return [(r["started_at"] // SECOND, r["ended_at"] // SECOND, r["is_open"]) for r in rows]


def test_a_group_that_waits_for_topics_does_so_from_one_epoch_to_the_next() -> None:
    """A run tells of it in each epoch, as one episode, which is over when the topics are there."""
    for epochs in (1, 2, 4):
        assert waits_for_topics(*[{}] * epochs) == [(1800, 1800 * epochs + 2100, True)]
    assert waits_for_topics({}, {}, {"stable_at": 5401 * SECOND}) == [(1800, 5400, False)]
    # A topic may be made after the application was started.
    assert waits_for_topics({}, lasts=1200) == []
    assert waits_for_topics({}, {"stable_at": 3601 * SECOND}) == []
    # One that members got to in between, or that they were waited for in, is none of it.
    ready = {"stable_at": 5401 * SECOND}
    assert waits_for_topics({}, {}, ready, {}) == [(1800, 5400, False), (7200, 9300, True)]
    assert waits_for_topics({"rebalance_ms": 60}, {"stable_at": 3601 * SECOND}) == []
    # Nor is it known what was behind missing records.
    hidden = {"aborted_evidence": "unknown"}
    assert waits_for_topics({}, hidden, {}) == [(5400, 7500, True)]


def story_in(state: str) -> list[Row]:
    """Return what is found of a group that has been in a state for hours."""
    since = {"started_at_max": 0, "generation": 1, "record_partition": 0, "record_offset": 1}
    row = since | {"state": state, "record_timestamp": 0}
    return started("a").found((OPEN_STATE, row), lasts=4 * 3600)


@pytest.mark.parametrize(
    ("state", "since", "is_told"),
    [("Reconciling", 1, False), ("Reconciling", 0, True), ("PreparingRebalance", 1, True)],
    ids=["away", "not yet there", "classic"],
)
def test_a_static_member_that_is_away_is_no_rebalance(
    state: str, since: int, *, is_told: bool
) -> None:
    """In the consumer protocol, a group falls back from an epoch that all had got to."""
    row = {"state": state, "started_at_max": since * SECOND, "generation": 1}
    row |= {"record_partition": 0, "record_offset": 1, "record_timestamp": 0}
    found = kinds(started("a").found((OPEN_STATE, row), lasts=4 * 3600))
    assert ("stuck_rebalance" in found) == is_told


def test_members_without_partitions_from_the_start_are_told_at_once() -> None:
    assert idling(started("a", "b"), 5, *"cd") == [("idle_members", "warning")]
    again = started("a", "b").then(7200, "member_left", left=["a", "b"], stable_at=None)
    again.then(60, "new_member", joined=["a", "b"])
    assert idling(again, 5, *"cd") == [("idle_members", "warning")]
    # Nobody came, and the partitions went.
    fewer = started(*"abcd").then(7200, "partitions_changed", idle_members=["c", "d"])
    assert ("idle_members", "warning") in {(r["kind"], r["severity"]) for r in fewer.found()}


def test_members_that_are_there_with_the_first_known_record_may_have_come_for_a_while() -> None:
    def known_since(cause: str) -> Story:
        return Story().then(0, cause, joined=[*"abcde"], idle_members=[*"cde"])

    for cause, minutes, severity in (
        ("unknown", 72, "info"),
        ("unknown", 150, "warning"),
        ("group_created", 5, "warning"),
    ):
        (row,) = known_since(cause).found(lasts=60 * minutes)
        assert (row["kind"], row["severity"]) == ("idle_members", severity)
    # What follows begins nothing anew: neither a restart nor records that are missing.
    story = known_since("unknown")
    story.then(5400, "member_restarted", restarted=["c"], idle_members=[*"cde"])
    story.then(5400, "unknown", idle_members=[*"cde"])
    assert {row["severity"] for row in story.found(lasts=60)} == {"warning"}


def test_who_is_in_reserve_of_a_single_partition_is_a_choice() -> None:
    def told(idle: str, names: str, total: int) -> set[str]:
        given = {"assigned_partitions": total, "idle_members": [*idle]}
        story = Story().then(0, "group_created", joined=[*names], **given)
        return {r["severity"] for r in story.found(lasts=3600) if r["kind"] == "idle_members"}

    assert told("b", "ab", 1) == told("bc", "abc", 1) == {"info"}
    assert told("b", "ab", 10) == told("bc", "abc", 2) == told("a", "a", 0) == {"warning"}


def test_range_leaves_members_without_partitions_that_are_enough_for_all() -> None:
    def told(names: str, **given: object) -> str:
        given = {"idle_members": [*"bc"], "assigned_partitions": 6, "protocol": "range"} | given
        story = Story().then(0, "group_created", joined=[*names], **given)
        (row,) = [r for r in story.found(lasts=3600) if r["kind"] == "idle_members"]
        return str(row["summary"])

    assert "though there are 6 partitions: range gives each" in told("abcde", subscriptions=1)
    fewer = "Start fewer members, or add partitions."
    for other in (
        told("abcdefgh"),
        told("abcde", protocol="stream"),
        told("abcde", subscriptions=2),  # of which some may have no partition for them
    ):
        assert other.endswith(f"). {fewer}")


@pytest.mark.parametrize(("subscriptions", "is_skew"), [(1, True), (2, False)])
def test_who_alone_subscribes_to_a_topic_has_all_of_it(subscriptions: int, is_skew: bool) -> None:  # noqa: FBT001
    given = {"assigned_partitions": 24, "most_partitions": 22, "subscriptions": subscriptions}
    story = Story().then(0, "group_created", joined=[*"abc"], **given)
    assert ("assignment_skew" in kinds(story.found())) == is_skew


# -- topics ----------------------------------------------------------------------------------------


def reading(*topics: str, assigned: tuple[str, ...] | None = None) -> dict[str, object]:
    """Return what a generation has of the topics that its members subscribe to."""
    owned = topics if assigned is None else assigned
    return {
        "subscribed_topics": sorted(topics),
        "unassigned_topics": sorted({*topics} - {*owned}),
        "join_completed_at_min": None,
    }


def first_commits(topic: str, *partitions: int, at: float) -> tuple[str, Row]:
    """Return first commits of partitions, at a place in the log between two generations."""
    firsts = [{"topic_partition": p, "record_offset": at} for p in partitions]
    return TOPIC, {"topic": topic, "record_partition": 0, "firsts": firsts}


def offset_move(  # noqa: PLR0917
    move: str, topic: str, partition: int, offset: float, at: float, idle: float = 5
) -> tuple[str, Row]:
    """Return a deleted or a returned offset: where in the log, and when, in seconds."""
    row = {
        "topic": topic,
        "topic_partition": partition,
        "move": move,
        "at": round(at * SECOND),
        "previous_offset": 7,
        "previous_at": round((at - idle) * SECOND),
        "committed_offset": None if move == "deleted" else 1,
        "step": None,
        "largest_step_before": None,
        "farthest_before": 7,
        "is_complete": True,
        "rhythm_since": None,
        "record_partition": 0,
        "record_offset": offset,
        "record_timestamp": round(at * SECOND),
    }
    return MOVE, row


def orphans(rows: list[Row]) -> list[tuple[object, ...]]:
    return [
        (r["subject"], r["label"], r["severity"], r["started_at"], r["ended_at"], r["is_open"])
        for r in rows
        if r["kind"] == "orphan_topic"
    ]


GONE = [first_commits("gone", 0, 1, at=1.1), first_commits("kept", 0, at=1.1)]
DELETED = [offset_move("deleted", "gone", p, 1.5 + p / 10, 100) for p in (0, 1)]


def test_a_topic_that_is_deleted_under_a_group_is_an_orphan_until_the_group_reads_it_no_more() -> (
    None
):
    story = started("a")
    story.generations[0] |= reading("gone", "kept")
    still = [("gone", "deleted", "warning", 100 * SECOND, 3600 * SECOND, True)]
    assert orphans(story.found(*GONE, *DELETED)) == still
    story.then(110, "topic_deleted", **reading("gone", "kept", assigned=("kept",)))
    assert orphans(story.found(*GONE, *DELETED))[0][:4] == still[0][:4]
    story.then(90, "subscription_changed", **reading("kept"))
    found = story.found(*GONE, *DELETED)
    assert orphans(found) == [("gone", "deleted", "warning", 100_000, 200_000, False)]
    (row,) = found
    assert row["summary"] == (
        "gone was deleted while g subscribed to it, and it did so for 100.0 s more"
        " (00:01:40 to 00:03:20 UTC); 2 offsets went with it. Ask who deleted it."
    )
    assert json.loads(row["evidence"])["offsets"] == ["gone/0: 7", "gone/1: 7"]


@pytest.mark.parametrize(
    ("joined", "for_s", "severity"),
    [([], 540, "info"), ([], 1200, "warning"), (["b"], 540, "warning")],
    ids=["of a pattern", "of who does not look", "of a release"],
)
def test_a_topic_that_a_pattern_found_may_go_again(
    joined: list[str], for_s: int, severity: str
) -> None:
    """Its members took it in when it was made, and drop it when they look again."""
    story = started("a")
    story.generations[0] |= reading("kept")
    cause = "new_member" if joined else "subscription_changed"
    story.then(60, cause, joined=joined, **reading("gone", "kept"))
    gone = [offset_move("deleted", "gone", p, 2.5 + p / 10, 100) for p in (0, 1)]
    commits = [first_commits("kept", 0, at=1.1), first_commits("gone", 0, 1, at=2.1)]
    story.then(for_s + 40, "subscription_changed", **reading("kept"))
    ((*_, told, since, until, _),) = orphans(story.found(*commits, *gone))
    assert (told, since, until) == (severity, 100 * SECOND, (100 + for_s) * SECOND)


def test_offsets_that_go_with_their_group_are_no_topic_that_members_read() -> None:
    """A group that is deleted is empty: where its records are missing, it has members till then."""
    story = started("a")
    story.generations[0] |= reading("gone", "kept") | {"ended_at": 100 * SECOND}
    assert orphans(story.found(*GONE, *DELETED)) == []


def test_a_topic_that_goes_while_nobody_knows_of_members_was_not_theirs() -> None:
    story = started("a").then(3600, "new_member", joined=["b"], generation=5)
    story.generations[0] |= reading("gone", "kept") | {"known_until": 90 * SECOND}
    assert orphans(story.found(*GONE, *DELETED)) == []
    story.generations[0] |= {"known_until": 100 * SECOND}
    assert len(orphans(story.found(*GONE, *DELETED))) == 1


def test_what_is_odd_about_an_assignment_is_told_as_long_as_that_is_known() -> None:
    apart = {"subscriptions": 2, "separate_subscriptions": 2}
    story = started("a", "b").then(3600, "new_member", joined=["c"], generation=5)
    for until, severity in ((None, "warning"), (600 * SECOND, "info")):
        story.generations[0] |= apart | {"known_until": until}
        (row,) = (r for r in story.found() if r["kind"] == "mixed_subscriptions")
        assert (row["severity"], row["ended_at"]) == (severity, until or 3600 * SECOND)


def test_members_that_join_without_a_deleted_topic_at_once_were_orphans_for_a_moment() -> None:
    for joined in (100.4, 99.8):  # before and after the coordinator deletes its offsets
        story = started("a")
        story.generations[0] |= reading("gone", "kept")
        story.then(joined - SECOND / 1000, "subscription_changed", **reading("kept"))
        place = 1.5 if joined > 100 else 2.5
        tombstones = [offset_move("deleted", "gone", p, place + p / 10, 100) for p in (0, 1)]
        (found,) = orphans(story.found(*GONE, *tombstones))
        assert found[:4] == ("gone", "deleted", "warning", 100 * SECOND)
        assert found[4] <= 100_400
        assert not found[5]


def test_a_deleted_topic_that_comes_back_is_an_orphan_until_then() -> None:
    story = started("a")
    story.generations[0] |= reading("gone", "kept")
    back = offset_move("returned", "gone", 0, 1.8, 130)
    assert orphans(story.found(*GONE, *DELETED, back)) == [
        ("gone", "deleted", "warning", 100 * SECOND, 130 * SECOND, False)
    ]


def test_a_topic_that_is_deleted_made_again_and_deleted_was_no_orphan_in_between() -> None:
    story = started("a")
    story.generations[0] |= reading("gone", "kept")
    story.then(110, "topic_deleted", **reading("gone", "kept", assigned=("kept",)))
    story.then(30, "partitions_changed", **reading("gone", "kept"))
    back = [offset_move("returned", "gone", p, 3.1 + p / 10, 300) for p in (0, 1)]
    again = [offset_move("deleted", "gone", p, 3.5 + p / 10, 400) for p in (0, 1)]
    first, second = orphans(story.found(*GONE, *DELETED, *back, *again))
    assert (first[3:], second[3]) == ((100 * SECOND, 140 * SECOND, False), 400 * SECOND)
    assert second[5]
    # It is one that goes on as long as nobody is assigned the topic.
    story.generations[2] |= reading("gone", "kept", assigned=("kept",))
    (row,) = orphans(story.found(*GONE, *DELETED))
    assert (row[3], row[5]) == (100 * SECOND, True)


def test_a_group_that_is_made_anew_has_lost_its_offsets_though_no_tombstone_is_left() -> None:
    def told(
        *others: tuple[str, Row], after: int = 8 * 86_400, **given: object
    ) -> list[tuple[str, list[str]]]:
        story = started("a").then(60, "member_left", left=["a"])
        story.then(after, "group_created", **{"joined": ["b"], "generation": 1, **given})
        found = [r for r in story.found(*others) if r["kind"] == "offsets_expired"]
        return [(r["severity"], json.loads(r["evidence"])["began_again"]) for r in found]

    lost = ["gone/0", "gone/1", "kept/0"]
    assert told(*GONE) == [("warning", lost)]
    assert told(*GONE, *DELETED) == [("warning", ["kept/0"])]  # those did not go with the group
    assert not told()
    assert not told(*GONE, generation=3)
    assert not told(*GONE, group_type="consumer")  # an Empty group that was converted
    assert not told(*GONE, joined=[], member_count=0)
    assert told(*GONE, generation=2) == [("warning", lost)]  # that in which it was empty
    # What goes so soon has not expired, and may have gone with its topics.
    assert told(*GONE, after=3600) == [("info", lost)]
    # The coordinator's record of the empty new group comes first.
    story = started("a").then(60, "member_left", left=["a"])
    story.then(8 * 86_400, "group_created", generation=0)
    story.then(3, "new_member", joined=["b"], generation=1)
    (row,) = (r for r in story.found(*GONE) if r["kind"] == "offsets_expired")
    assert row["severity"] == "warning"
    assert row["summary"] == (
        "3 offsets of g expired or were deleted, and the group came back (00:01:03 UTC): gone/0,"
        " gone/1, kept/0. Ask who deleted them, or raise offsets.retention.minutes above its"
        " longest pause."
    )


def test_offsets_that_go_in_another_way_are_no_deleted_topic() -> None:
    def found(*moves: tuple[str, Row], topics: tuple[str, ...] = ("gone", "kept")) -> list[object]:
        story = started("a")
        story.generations[0] |= reading(*topics)
        return [row[1] for row in orphans(story.found(*GONE, *moves))]

    assert found(*DELETED) == ["deleted"]
    assert not found(DELETED[0])  # the other partition has its offset still
    late = offset_move("deleted", "gone", 1, 1.7, 160)
    assert not found(DELETED[0], late)  # one by one, as they expire
    old = [offset_move("deleted", "gone", p, 1.5 + p, 100, idle=2 * 86_400) for p in (0, 1)]
    assert not found(*old)  # a broker before 2.1 lets them expire
    assert not found(*DELETED, topics=("kept",))  # an admin may delete them


def test_brokers_from_2_1_on_let_no_offset_expire_that_members_subscribe_to() -> None:
    story = started("a")
    modern = {"join_completed_at_min": story.generations[0]["join_completed_at"]}
    story.generations[0] |= reading("gone", "kept") | modern
    old = [offset_move("deleted", "gone", p, 1.5 + p / 10, 100, idle=9 * 86_400) for p in (0, 1)]
    found = story.found(*GONE, *old)
    assert [row[1] for row in orphans(found)] == ["deleted"]
    assert "offsets_expired" not in kinds(found)


def test_a_topic_that_a_new_coordinator_assigns_no_more_is_deleted() -> None:
    story = started("a")
    story.generations[0] |= reading("gone", "kept") | {"group_type": "consumer"}
    lost = reading("gone", "kept", assigned=("kept",)) | {"group_type": "consumer"}
    story.then(100, "partitions_changed", **lost)
    story.then(2, "subscription_changed", **reading("kept"), group_type="consumer")
    assert orphans(story.found()) == [
        ("gone", "deleted", "warning", 101 * SECOND, 102 * SECOND, False)
    ]
    # Which the leader of a classic group may do for other reasons.
    for row in story.generations:
        row["group_type"] = "classic"
    assert not orphans(story.found())


def test_a_deleted_topic_of_a_streams_group_is_an_orphan_as_long_as_its_topology_has_it() -> None:
    # What is assigned is told by subtopology, so that no topic is known to be unassigned.
    streams = reading("gone", "kept") | {"group_type": "streams", "unassigned_topics": None}
    story = started("a")
    story.generations[0] |= streams
    story.then(110, "partitions_changed", **streams)
    still = ("gone", "deleted", "warning", 100 * SECOND)
    assert orphans(story.found(*GONE, *DELETED)) == [(*still, 3710 * SECOND, True)]
    back = offset_move("returned", "gone", 0, 2.5, 130)
    assert orphans(story.found(*GONE, *DELETED, back)) == [(*still, 130 * SECOND, False)]


def not_ready(*topics: str) -> dict[str, object]:
    """Return what an epoch of a streams group has that waits for its topics."""
    of_streams = {"group_type": "streams", "unassigned_topics": None, "stable_at": None}
    return reading(*topics) | of_streams


def test_a_topic_is_an_orphan_as_long_as_a_streams_group_is_not_ready() -> None:
    story = started("a")
    story.generations[0] |= not_ready("gone", "kept") | {"stable_at": SECOND}
    story.then(110, "partitions_changed", **not_ready("gone", "kept"))
    still = ("gone", "deleted", "warning", 100 * SECOND)
    assert orphans(story.found(*GONE, *DELETED)) == [(*still, 3710 * SECOND, True)]
    story.then(1800, "settings_changed", **not_ready("gone", "kept"))
    assert orphans(story.found(*GONE, *DELETED)) == [(*still, 5510 * SECOND, True)]
    # A new topology, which does without it, ends that, whether it is ready or not.
    other = deepcopy(story).then(60, "settings_changed", **not_ready("kept"))
    assert orphans(other.found(*GONE, *DELETED)) == [(*still, 1970 * SECOND, False)]
    # If it is there again, a commit shows it.
    story.then(60, "partitions_changed", **not_ready("gone", "kept") | {"stable_at": 1971 * SECOND})
    back = offset_move("returned", "gone", 0, 4.5, 2000)
    assert orphans(story.found(*GONE, *DELETED, back)) == [(*still, 2000 * SECOND, False)]


def test_a_topic_that_goes_while_a_streams_group_is_not_ready_is_an_orphan() -> None:
    story = started("a")
    story.generations[0] |= not_ready("gone", "kept") | {"stable_at": SECOND}
    story.then(10, "partitions_changed", **not_ready("gone", "kept"))
    assert orphans(story.found(*GONE)) == []
    tombstones = [offset_move("deleted", "gone", p, 2.5 + p / 10, 900) for p in (0, 1)]
    found = orphans(story.found(*GONE, *tombstones))
    assert found == [("gone", "deleted", "warning", 900 * SECOND, 3610 * SECOND, True)]
    story = started("a")
    story.generations[0] |= not_ready("kept") | {"stable_at": SECOND}
    story.then(10, "partitions_changed", **not_ready("kept"))  # an admin deletes what nobody reads
    assert orphans(story.found(*GONE, *tombstones)) == []


@pytest.mark.parametrize("group_type", ["classic", "consumer", "share"])
@pytest.mark.parametrize(("stopped", "times"), [(60, 1), (900, 2)], ids=["a restart", "later"])
@pytest.mark.parametrize("deleted", [(), DELETED], ids=["never there", "deleted"])
def test_a_topic_that_is_not_there_after_a_restart_either_is_one_episode(
    group_type: str, stopped: int, times: int, deleted: tuple[tuple[str, Row], ...]
) -> None:
    missing = reading("gone", "kept", assigned=("kept",)) | {"group_type": group_type}
    story = started("a")
    story.generations[0] |= (reading("gone", "kept") if deleted else missing) | {
        "group_type": group_type
    }
    story.then(1800, "member_left", left=["a"], group_type=group_type)
    story.then(stopped, "new_member", joined=["a"], **missing)
    since, label = (100, "deleted") if deleted else (1, None)
    first = ("gone", label, "warning", since * SECOND)
    now = (5400 + stopped) * SECOND
    later = ("gone", None, "warning", (1801 + stopped) * SECOND, now, True)
    told = [(*first, now, True)] if times == 1 else [(*first, 1800 * SECOND, False), later]
    assert orphans(story.found(*GONE, *deleted)) == told
    # If it is there then, the first is over.
    story.generations[-1] |= {"unassigned_topics": []}
    assert orphans(story.found(*GONE, *deleted)) == [(*first, 1800 * SECOND, False)]


def test_a_topic_that_members_never_got_is_an_orphan_while_they_get_to_no_epoch() -> None:
    missing = reading("gone", "kept", assigned=("kept",)) | {"group_type": "consumer"}
    story = started("a")
    story.generations[0] |= missing
    story.then(1800, "new_member", joined=["b"], **missing | {"stable_at": None})
    ((topic, label, *_, ended, is_open),) = orphans(story.found())
    assert (topic, label, ended, is_open) == ("gone", None, 5400 * SECOND, True)
    story.generations[-1] |= {"unassigned_topics": []}  # which were assigned some of it, though
    ((*_, ended, is_open),) = orphans(story.found())
    assert (ended, is_open) == (1800 * SECOND, False)


def test_a_topic_that_the_group_has_moved_on_from_is_abandoned() -> None:
    story = started("a")
    story.generations[0] |= reading("gone", "kept")
    story.then(200, "subscription_changed", **reading("kept"))
    abandoned = ("gone", "abandoned", "info", 201 * SECOND)
    found = story.found(*GONE)
    assert orphans(found) == [(*abandoned, 3800 * SECOND, True)]
    assert found[0]["summary"] == (
        "g holds 2 offsets of gone, but no member subscribed to it for 60 min"
        " (00:03:21 to 01:03:20 UTC). Delete them if nobody needs them, or start a consumer of it."
    )
    # Until its offsets are gone, as a whole ...
    went = [offset_move("deleted", "gone", p, 2.5 + p / 10, 900 + p) for p in (0, 1)]
    assert orphans(story.found(*GONE, went[0])) == [(*abandoned, 3800 * SECOND, True)]
    assert orphans(story.found(*GONE, *went)) == [(*abandoned, 901 * SECOND, False)]
    # ... or somebody subscribes to it again.
    story.then(300, "subscription_changed", **reading("gone", "kept"))
    assert orphans(story.found(*GONE)) == [(*abandoned, 500 * SECOND, False)]


def test_lag_that_grows_makes_an_abandoned_topic_a_warning() -> None:
    def severity(*lags: int) -> object:
        story = started("a")
        story.generations[0] |= reading("gone", "kept")
        story.then(200, "subscription_changed", **reading("kept"))
        samples = [
            (LAG, {"at": (300 + n) * SECOND, "lag": lag, "topics": [{"topic": "gone", "lag": lag}]})
            for n, lag in enumerate(lags)
        ]
        ((_, _, found, *_),) = orphans(story.found(*samples, *GONE))
        return found

    assert severity(5, 5, 5) == severity(5) == "info"
    assert severity(5, 5, 6) == "warning"


@pytest.mark.parametrize(("cause", "is_found"), [("group_created", False), ("unknown", True)])
def test_offsets_of_before_the_first_generation(cause: str, is_found: bool) -> None:  # noqa: FBT001
    # They are a consumer's with assign(), or members' of whom the log tells no more.
    story = Story().then(0, cause, joined=["a"], **reading("kept"))
    assert bool(orphans(story.found(first_commits("former", 0, at=0.5)))) == is_found


@pytest.mark.parametrize(("subscriptions", "is_found"), [(1, False), (2, True)])
def test_mixed_subscriptions(subscriptions: int, is_found: bool) -> None:  # noqa: FBT001
    story = started().then(60, "subscription_changed", subscriptions=subscriptions)
    assert ("mixed_subscriptions" in kinds(story.found())) == is_found


def test_two_applications_in_one_group_are_an_alarm() -> None:
    def told(*parts: int | None, minutes: float = 12, **given: object) -> list[str]:
        """Return severities when so many parts of the group follow each other."""
        story = started().then(60, "leader_rejoined", subscriptions=1, separate_subscriptions=1)
        for n in parts:
            story.then(
                60 * minutes, "new_member", subscriptions=2, separate_subscriptions=n, **given
            )
        found = story.found(lasts=60 * minutes)
        return [r["severity"] for r in found if r["kind"] == "mixed_subscriptions"]

    assert told(2, minutes=31) == ["warning"]
    assert told(2, minutes=29) == ["info"]  # a deployment
    assert told(2, 2, 2) == ["warning"]
    assert told(2, 1, 2, 2) == ["info"]
    assert told(1, 1, 1) == told(None, None, None) == ["info"]
    assert told(2, 2, 2, group_type="share") == ["info"]


@pytest.mark.parametrize("apart", [2, -2])
def test_a_deployment_to_another_topic_is_no_second_application(apart: float) -> None:
    def told(turns: str, *, minutes: float, lasts: float = 29) -> list[str]:
        """Return how it is told that places restart, each so many minutes behind the one before."""
        story = started(*"abcdef")
        for name in turns:
            given = {"subscriptions": 2, "separate_subscriptions": 2}
            if apart > 0:  # else a pod's successor is there before it goes
                story.then(60 * minutes - 5, "member_left", left=[name], **given)
                story.then(5, "subscription_changed", joined=[name], **given)
            else:
                story.then(60 * minutes, "new_member", joined=[f"{name}+"], **given)
                story.then(5, "member_left", left=[name], **given)
                story._members[name] = story._members.pop(f"{name}+")
        story.generations[0] |= {"subscriptions": 1, "separate_subscriptions": 1}
        found = story.found(lasts=60 * lasts)
        return [r["severity"] for r in found if r["kind"] == "mixed_subscriptions"]

    assert told("abcdef", minutes=14) == ["info"]
    # It stands still, or one of two applications is deployed, or fails, again and again.
    assert told("abc", minutes=14, lasts=40) == ["warning"]
    assert told("abcdef" * 3, minutes=14) == ["warning"]
    assert told("c" * 12, minutes=4) == ["warning"]


def minute(number: int, offset: int, commits: int = 1, *keys: int) -> tuple[str, Row]:
    at = number * MINUTE_MS
    return MINUTE, {
        "keys": keys or (0,),
        "minute": number,
        "record_partition": 0,
        "commits": commits,
        "partitions": len(keys) or 1,
        "first_at": at,
        "last_at": at,
        "first_offset": offset,
        "last_offset": offset,
    }


def test_a_stall_needs_members_and_a_pause_that_is_unusual() -> None:
    steady = [minute(n, 10 + n) for n in range(1, 31)]
    stalled = [*steady, minute(60, 50)]
    (row,) = started().found(*stalled)
    assert (row["kind"], row["started_at"]) == ("commit_stall", 30 * MINUTE_MS)
    assert row["ended_at"] == 60 * MINUTE_MS
    # A batch consumer pauses like this always; a group without members has nobody to commit.
    batches = [minute(30 * n, 10 + n) for n in range(1, 6)]
    assert "commit_stall" not in kinds(started().found(*batches, lasts=9000 + 3600)[1:])
    empty = started("a").then(10, "member_left", left=["a"])
    assert not kinds(empty.found(*stalled))


def test_a_stall_matters_if_records_wait() -> None:
    commits = [minute(n, 10 + n) for n in range(1, 5)]

    def judged(
        *lags: tuple[float, int], then: int | None = None, cut: float | None = None
    ) -> tuple[str, str | None]:
        samples = [(LAG, {"at": round(at * MINUTE_MS), "lag": lag}) for at, lag in lags]
        following = [] if then is None else [minute(then, 20), minute(then + 1, 21)]
        row = started().found(*samples, *commits, *following, cut=cut)[0]
        return row["severity"], row["label"]

    assert judged() == ("info", None)
    assert judged((2, 9)) == ("info", None)  # before it stalled
    assert judged((20, 0)) == ("info", "nothing_to_read")
    assert judged((20, 0), (25, 7)) == ("warning", "records_wait")
    assert judged((20, 0), (25, 7), then=40) == ("warning", "records_wait")
    # They came just now.
    assert judged((20, 0), (55, 0), (59.9, 7)) == ("info", None)
    often = [(54 + n / 10, 7 * (n > 0)) for n in range(60)]
    assert judged(*often) == judged(*often, cut=3590) == ("info", None)
    assert judged((20, 0), (39.9, 7), then=40) == ("info", "nothing_to_read")
    assert judged((30, 7), (39.9, 7), then=40) == ("warning", "records_wait")

    def partitions(owned: int, lag: int) -> tuple[str, str | None]:
        story = started()
        story.generations[0]["assigned_partitions"] = owned
        samples = [(LAG, {"at": at * MINUTE_MS, "lag": lag}) for at in range(6, 60, 5)]
        (row,) = story.found(*samples, *commits)
        return row["severity"], row["label"]

    # A transaction's marker behind what was committed last, in each partition.
    assert partitions(1, 1) == partitions(6, 6) == ("info", "perhaps_markers")
    assert partitions(1, 2) == partitions(6, 7) == ("warning", "records_wait")


def test_records_that_wait_for_the_next_commit_are_no_stall() -> None:
    """Who commits by the number of records does so when as many have come as usual."""
    commits = [minute(n, 10 + n) for n in range(1, 5)]

    def judged(lag: int, *shown: tuple[str, Row], step: int | None = 400) -> list[object]:
        samples = [(LAG, {"at": n * MINUTE_MS, "lag": lag, "usual_step": step}) for n in (20, 40)]
        (row,) = started().found(*samples, *shown, *commits)
        return [row["severity"], row["label"], json.loads(row["evidence"])["lag"]]

    assert judged(1_200) == ["info", None, 1_200]
    assert judged(1_201) == ["warning", "records_wait", 1_201]
    assert judged(1_200, step=None) == ["warning", "records_wait", 1_200]
    assert judged(1) == ["info", "perhaps_markers", 1]
    # What others show of one partition is more.
    shown = wait(since=4, first_at=5, other_offset=500)
    assert judged(1_200, (WAIT, shown)) == ["warning", "records_wait", 490]
    assert judged(1_200, (WAIT, shown | {"usual_step": 164})) == ["info", None, 1_200]


def test_how_far_a_commit_goes_on_does_not_tell_since_when_records_waited() -> None:
    """All may have come at the end, from a producer that had been away, whoever came meanwhile."""
    commits = [minute(n, 10 + n) for n in range(1, 5)]
    following = [minute(40, 20), minute(41, 21)]

    def judged(step: int, *lags: int, changed_at: float | None = 300) -> tuple[str, str | None]:
        """Return how a stall is told that a commit ends which goes on by so many records."""
        rhythm: Row = {"previous_at": 4 * MINUTE_MS, "rhythm_since": 0, "largest_step_before": 100}
        leap = {"step": step, "committed_offset": 10 + step, "record_offset": 20}
        story = started()
        if changed_at is not None:
            story.then(changed_at, "member_restarted", restarted=["c"], record_offset=17)
        found = story.found(
            *((LAG, {"at": 20 * MINUTE_MS, "lag": lag}) for lag in lags),
            *commits,
            move("leap", 40 * MINUTE_MS, **{**rhythm, **leap}),
            *following,
        )
        row = next(r for r in found if r["kind"] == "commit_stall")
        return row["severity"], row["label"]

    # 36 minutes of 100 a minute, and a burst.
    for step in (3_000, 200_000):
        for changed_at in (None, 300, 1_200, 2_340):
            assert judged(step, changed_at=changed_at) == ("info", None)
    assert judged(3_000, 0) == ("info", "nothing_to_read")
    assert judged(3_000, 900) == ("warning", "records_wait")


@pytest.mark.parametrize(("timeout", "stalls"), [(300_000, True), (1_800_000, False)])
def test_who_works_for_as_long_as_it_said_does_not_stall(timeout: int, stalls: bool) -> None:  # noqa: FBT001
    story = started()
    story.generations[0]["rebalance_timeout_ms"] = timeout
    commits = [*(minute(n, 10 + n) for n in range(1, 5)), minute(29, 20), minute(30, 21)]
    assert ("commit_stall" in kinds(story.found(*commits, lasts=1800))) == stalls
    assert "commit_stall" in kinds(story.found(*commits, lasts=12_000))


def test_a_shorter_threshold_is_the_users_own() -> None:
    group = Membership(1, 2, 6, 0, timeout_ms=300_000)
    assert group.longest_work(5_000) == 5_000
    assert group._replace(timeout_ms=1_800_000).longest_work(5_000) == 30_000
    assert group._replace(timeout_ms=2**31 - 1).longest_work(600_000) == 6 * HOUR


def test_members_that_are_there_again_and_never_commit_stall_since_then() -> None:
    story = started("a", "b").then(300, "member_left", left=["a", "b"], record_offset=20)
    story.then(60, "new_member", joined=["a", "b"], record_offset=22)
    shown = (WAIT, wait(since=4, first_at=5, other_offset=500))
    found = story.found(*(minute(n, 10 + n) for n in range(1, 5)), shown, lasts=3600)
    (row,) = [r for r in found if r["kind"] == "commit_stall"]
    assert (row["severity"], row["label"]) == ("warning", "records_wait")
    assert row["started_at"] == 360 * SECOND
    assert "committed nothing for 60 min" in row["summary"]
    assert not story.found(*(minute(n, 10 + n) for n in range(1, 5)), shown, lasts=300)


def test_a_stall_that_a_restart_ends_is_told() -> None:
    story = started("a", "b").then(2400, "member_left", left=["a", "b"], record_offset=20)
    story.then(60, "new_member", joined=["a", "b"], record_offset=22)
    lags = [(LAG, {"at": at * MINUTE_MS, "lag": 500}) for at in (20, 30, 39)]
    commits = [*(minute(n, 10 + n) for n in range(1, 5)), minute(42, 30), minute(43, 31)]
    (row,) = [r for r in story.found(*lags, *commits) if r["kind"] == "commit_stall"]
    assert (row["severity"], row["started_at"]) == ("warning", 4 * MINUTE_MS)
    assert row["ended_at"] == 40 * MINUTE_MS


@pytest.mark.parametrize("cut", [None, 39, 60, 89, 114, 115.5])
@pytest.mark.parametrize("every", [1, 10])
def test_however_often_the_lag_is_sampled_a_pause_is_told_alike(
    every: int, cut: float | None
) -> None:
    story = started("a").then(2400, "member_left", left=["a"], record_offset=20)
    story.then(3000, "new_member", joined=["a"], record_offset=22)
    # Three may be markers.
    waits = {30: 500, 100: 500}
    lags = [(LAG, {"at": at * MINUTE_MS, "lag": waits.get(at, 3)}) for at in range(20, 145, every)]
    commits = [*(minute(n, 10 + n) for n in range(1, 7)), minute(115, 30), minute(116, 31)]
    found = story.found(*lags, *commits, cut=None if cut is None else 60 * cut)
    told = [
        (r["label"], r["severity"], r["started_at"] // MINUTE_MS, r["ended_at"] // MINUTE_MS)
        for r in found
        if not r["is_open"]
    ]
    assert told == [
        ("records_wait", "warning", 6, 40),
        ("records_wait", "warning", 90, 115),
        ("no_members", "warning", 40, 90),
    ]


def wait(since: int, first_at: int, other_offset: int) -> Row:
    """Return that others went on in a partition, times in minutes."""
    return {
        "topic": "t",
        "topic_partition": 0,
        "since": since * MINUTE_MS,
        "until": None,
        "usual_ms": MINUTE_MS,
        "usual_step": 10,
        "committed_offset": 10,
        "first_at": first_at * MINUTE_MS,
        "first_offset": 11,
        "other_offset": other_offset,
        "others": ["beside"],
        "is_complete": True,
        "record_partition": 0,
        "record_offset": 14,
        "until_offset": None,
        "owner": None,
        "now_owner": None,
        "is_owned": None,
    }


def stalls(*runs: list[tuple[str, Row]]) -> list[tuple[object, ...]]:
    """Return the stalls that are told of what each of some runs takes, and how much waited."""
    checkpoint, found, told = None, [], []
    for rows in runs:
        detector = GroupDetector(LIMITS.of("g"), checkpoint)
        detector.take(OPEN_GENERATION, started().generations[-1])
        for kind, row in rows:
            detector.take(kind, row)
        found += detector.settled()
        told = [*found, *detector.still_open(2 * HOUR)]
        checkpoint = detector.to_json()
    return [(e.severity, e.label, e.evidence["lag"]) for e in told if e.kind == "commit_stall"]


def test_what_others_showed_in_an_earlier_run_has_waited_since_then() -> None:
    commits = [minute(n, 10 + n) for n in range(1, 5)]
    first, later = (
        (WAIT, wait(since=4, first_at=at, other_offset=offset))
        for at, offset in ((5, 100), (55, 900))
    )
    assert stalls([first, *commits], [later]) == [("warning", "records_wait", 890)]


def test_a_stall_is_told_alike_whether_a_run_ends_right_behind_it_or_not() -> None:
    commits = [*(minute(n, 10 + n) for n in range(1, 5)), minute(17, 20)]
    kind, shown = WAIT, wait(since=4, first_at=5, other_offset=500)
    known = [(kind, shown | {"until": 17 * MINUTE_MS, "until_offset": 20}), *commits]
    after = [minute(18, 21), minute(19, 22)]
    # What was shown in the first tells nothing of the second.
    told = [("warning", "records_wait", 490), ("info", None, 0)]
    assert stalls([*known, *after]) == stalls(known, after) == stalls(known, [], after) == told
    assert stalls([*known, *after[:1]], after[1:]) == stalls(known) == told
    assert stalls(commits, after) == [("info", None, 0)] * 2


def job(
    *starts: float, lasts: float = 1, lags: Iterable[float] = (), cut: float | None = None
) -> list[tuple[str, str]]:
    """Return what is told of a job that commits for 30 minutes, and then starts now and then.

    Records wait at the times of samples; all times are minutes. A first run ends at the `cut`.
    """
    story, at = started("a"), 0.0
    for number, start in enumerate((31, *starts)):
        if number:
            story.then(
                (start - at) * 60, "new_member", joined=["a"], record_offset=100 + 2 * number
            )
        end = start + lasts if number else start
        offset = 101 + 2 * number
        story.then(
            (end - (start if number else 0)) * 60, "member_left", left=["a"], record_offset=offset
        )
        at = end
    samples = [(LAG, {"at": round(at * MINUTE_MS), "lag": 500}) for at in lags]
    commits = [minute(n, 10 + n) for n in range(1, 31)]
    found = story.found(*samples, *commits, lasts=60, cut=None if cut is None else 60 * cut)
    return [
        (r["kind"], r["label"]) for r in found if r["kind"] in ("commit_stall", "unread_partition")
    ]


def test_a_job_that_starts_again_and_again_and_commits_nothing_is_told() -> None:
    told = [("commit_stall", "starts_in_vain")]
    assert job(60, 80, 100, lags=(50,)) == told
    assert job(60, 80, lags=(50,)) == []  # two may be chance
    # Whether records waited then is not known, or they came before the last start alone.
    assert job(60, 80, 100) == job(60, 80, 100, lags=(95,)) == []
    # Nobody has run it since it was there last, not since it committed last.
    assert job(60, 80, lags=(50, 82)) == []
    # However often the lag is sampled, a later run knows since when records wait.
    for cut in (None, 90, 111):
        assert job(60, 80, 100, lags=range(50, 112), cut=cut) == told
        assert job(80, 100, lags=range(50, 102), cut=cut) == []
        assert job(60, 80, 100, lags=range(62, 102), cut=cut) == []


def test_nobody_runs_a_group_until_its_members_are_there_again() -> None:
    def told(*behind: tuple[str, Row], in_vain: Iterable[int] = ()) -> list[tuple[int, int]]:
        story = started("a").then(31 * 60, "member_left", left=["a"], record_offset=50)
        gone = 31
        for at in in_vain:
            story.then((at - gone) * 60, "new_member", joined=["a"], record_offset=50 + at / 60)
            gone = at + 1
            story.then(60, "member_left", left=["a"], record_offset=50 + gone / 60)
        story.then((60 - gone) * 60, "new_member", joined=["a"], record_offset=52)
        samples = [(LAG, {"at": at * MINUTE_MS, "lag": 500}) for at in (45, 59, 64)]
        found = story.found(
            *samples, *(minute(n, 10 + n) for n in range(1, 31)), *behind, lasts=300
        )
        return [
            (r["started_at"] // MINUTE_MS, r["ended_at"] // MINUTE_MS)
            for r in found
            if r["label"] == "no_members"
        ]

    assert told() == []
    assert told(minute(64, 60), minute(65, 61)) == [(31, 59)]
    # A start that commits nothing ends it, and another one begins, which may be too short.
    assert told(in_vain=[57]) == []
    assert told(minute(64, 60), minute(65, 61), in_vain=[57]) == [(31, 45)]
    assert told(minute(64, 60), minute(65, 61), in_vain=[33]) == [(34, 59)]


def test_members_hang_that_come_behind_offsets_that_were_set_while_nobody_was_there() -> None:
    def told(
        *comes: float, at: int = 35, every: int = 15, cut: float | None = None
    ) -> list[tuple[str, int, int]]:
        story = started("a").then(31 * 60, "member_left", left=["a"], record_offset=50)
        for back in comes:
            story.then((back - 31) * 60, "new_member", joined=["a"], record_offset=70)
        commits = [*(minute(n, 10 + n) for n in range(1, 31)), minute(at, 60)]
        samples = [(LAG, {"at": n * MINUTE_MS, "lag": 500}) for n in range(45, 120, every)]
        lasts = 60 * (120 - max(comes, default=31))
        found = story.found(*samples, *commits, lasts=lasts, cut=cut)
        return [
            (r["label"], r["started_at"] // MINUTE_MS, r["ended_at"] // MINUTE_MS) for r in found
        ]

    assert told(40) == [("records_wait", 40, 120)]
    assert told() == [("no_members", 35, 105)]
    # Until then nobody ran it.
    for cut in (None, 6_000):
        assert told(at=60, every=1, cut=cut) == [("no_members", 31, 60)]


def test_a_stall_that_goes_on_keeps_its_name() -> None:
    commits = [minute(n, 10 + n) for n in range(1, 5)]
    first, later = (started().found(*commits, lasts=hours * 3600) for hours in (1, 2))
    assert [row["anomaly_id"] for row in first] == [row["anomaly_id"] for row in later]
    assert first[0]["ended_at"] < later[0]["ended_at"]
    assert first[0]["is_open"]


def move(name: str, at: int, **given: object) -> tuple[str, Row]:
    row = {
        "topic": "t",
        "topic_partition": 0,
        "move": name,
        "at": at,
        "previous_offset": 10,
        "previous_at": 0,
        "committed_offset": None,
        "step": None,
        "largest_step_before": 5,
        "farthest_before": 10,
        "is_complete": True,
        "rhythm_since": None,
        "record_partition": 0,
        "record_offset": 100,
        "record_timestamp": at,
    }
    return MOVE, row | given


def test_offsets_that_expire_and_are_needed_again() -> None:
    story = started("a").then(10, "member_left", left=["a"])
    week = 7 * 24 * HOUR
    gone = move("deleted", week)
    (expired,) = story.found(gone, lasts=8 * 24 * 3600)
    assert (expired["kind"], expired["label"]) == ("offsets_expired", "group_gone")
    assert expired["severity"] == "info"
    back = move("returned", week + HOUR, committed_offset=0, record_offset=101)
    (needed,) = story.found(gone, back, lasts=8 * 24 * 3600)
    assert (needed["label"], needed["severity"]) == ("still_needed", "warning")
    assert needed["anomaly_id"] == expired["anomaly_id"]
    assert "1 offset of g expired, and the group came back" in needed["summary"]
    assert needed["summary"].endswith(" above its longest pause.")
    (open_,) = story.found(move("deleted", HOUR), move("returned", 2 * HOUR, record_offset=101))
    assert "expired or was deleted, and the group came back" in open_["summary"]
    assert "; unless it, or what the client asked for, is 60 min or less" in open_["summary"]
    assert open_["severity"] == "warning"
    assert story.found(move("deleted", HOUR))[0]["label"] == "perhaps_deleted"
    soon = move("deleted", 30 * SECOND)  # deleted by somebody
    (deleted,) = story.found(soon)
    assert (deleted["label"], deleted["severity"]) == ("deleted", "info")
    assert "1 offset of g was deleted" in deleted["summary"]
    assert "somebody deleted the group" in deleted["summary"]
    *_, again = story.found(soon, move("returned", MINUTE_MS, record_offset=101))
    assert (again["label"], again["severity"]) == ("made_again", "warning")
    assert "1 offset of g was deleted right after the group had stopped" in again["summary"]
    assert "expire" not in again["summary"]


@pytest.mark.parametrize("soon", [30 * SECOND, HOUR], ids=["at once", "later"])
@pytest.mark.parametrize("offset", [0, 10], ids=["from the start", "as it was"])
def test_offsets_of_a_topic_that_is_made_again_are_not_needed(soon: int, offset: int) -> None:
    def told(before: str | None, after: str | None) -> list[str]:
        story = started("a").then(10, "member_left", left=["a"])
        gone = move("deleted", soon, previous_topic_id=before)
        given = {"committed_offset": offset, "topic_id": after, "record_offset": 101}
        found = story.found(gone, move("returned", soon + HOUR, **given))
        return [row["severity"] for row in found if row["kind"] == "offsets_expired"]

    assert "warning" not in told("id", "another")
    # The topic is the same, or records do not say: somebody deleted the offsets, or they expired.
    for before, after in (("id", "id"), (None, "id"), ("id", None), (None, None)):
        assert "warning" in told(before, after)


def test_how_old_an_offset_was_is_not_known_without_its_commit() -> None:
    (deleted,) = simple(move("deleted", HOUR, previous_at=HOUR - 10 * SECOND))
    assert (deleted["label"], deleted["severity"]) == ("deleted", "info")
    assert not simple(move("deleted", HOUR, previous_at=None, previous_offset=None))


def test_offsets_that_go_with_their_topic_have_not_expired() -> None:
    story = started("a")
    assert not story.found(move("deleted", 2 * HOUR), lasts=3 * 3600)
    (gone,) = story.found(move("deleted", 25 * HOUR), lasts=26 * 3600)
    assert (gone["label"], gone["severity"]) == ("perhaps_deleted", "info")
    story.generations[0]["join_completed_at_min"] = None  # a broker before 2.1
    (expired,) = story.found(move("deleted", 25 * HOUR), lasts=26 * 3600)
    assert (expired["label"], expired["severity"]) == ("group_in_use", "warning")


def test_offsets_of_the_new_protocols_age_from_their_commit() -> None:
    gone = move("deleted", 10 * SECOND + 30 * SECOND, previous_at=-8 * 24 * HOUR)
    story = started("a").then(10, "member_left", left=["a"])
    assert [row["label"] for row in story.found(gone)] == ["deleted"]
    for row in story.generations:
        row["group_type"] = "consumer"
    (expired,) = story.found(gone)
    assert (expired["kind"], expired["label"]) == ("offsets_expired", "group_gone")


@pytest.mark.parametrize(
    ("topics", "label", "severity"),
    [
        (["other"], "not_subscribed", "info"),
        (["t"], "group_in_use", "warning"),
        (None, "group_in_use", "warning"),
    ],
)
def test_offsets_of_topics_that_nobody_subscribes_to_expire(
    topics: list[str] | None, label: str, severity: str
) -> None:
    story = started("a")
    story.generations[0] |= {"subscribed_topics": topics, "join_completed_at_min": None}
    found = story.found(move("deleted", 25 * HOUR), lasts=26 * 3600)
    told = [(r["label"], r["severity"]) for r in found if r["kind"] == "offsets_expired"]
    assert told == [(label, severity)]


@pytest.mark.parametrize(
    ("commits", "offsets", "severity"),
    [
        (1_200, 1_200, "warning"),  # no offset is left for a marker
        (1_200, 1_300, "warning"),
        (1_200, 1_800, "info"),  # 600 transactions of two partitions
        (2_400, 3_600, "critical"),
    ],
)
def test_commits_that_may_be_of_transactions(commits: int, offsets: int, severity: str) -> None:
    rows = []
    for number in range(4):
        kind, row = minute(number, number * offsets)
        row |= {"commits": commits, "partitions": 2, "keys": [1, 2]}
        row |= {"last_at": row["first_at"] + 59 * SECOND}
        rows.append((kind, row | {"last_offset": row["first_offset"] + offsets - 1}))
    (storm,) = simple(*rows)
    assert (storm["kind"], storm["severity"]) == ("commit_storm", severity)
    assert ("Exactly-once" in storm["summary"]) == (severity == "info")


@pytest.mark.parametrize(
    ("commits", "keys", "severity"),
    [
        (5_000, (1,), "warning"),  # of one partition, while 99 stand still
        (5_000, tuple(range(20)), None),  # after each poll, of one or the other
        (500, (1,), None),
        (6_500, tuple(range(100)), "warning"),
    ],
)
def test_one_partition_of_many_that_is_committed_all_the_time(
    commits: int, keys: tuple[int, ...], severity: str | None
) -> None:
    rows = []
    for number in range(4):
        kind, row = minute(number, 10 + number * commits, commits, *keys)
        row |= {"last_at": row["first_at"] + 59 * SECOND}
        rows.append((kind, row | {"last_offset": row["first_offset"] + commits - 1}))
    story = started()
    story.generations[0]["assigned_partitions"] = 100
    found = [r["severity"] for r in story.found(*rows) if r["kind"] == "commit_storm"]
    assert found == [severity] * (severity is not None)


@pytest.mark.parametrize(("times", "severity"), [(1, "info"), (2, "info"), (3, "warning")])
def test_a_rebalance_that_began_again_once_is_no_alarm(times: int, severity: str) -> None:
    story = started()
    for name in "defgh"[:times]:
        story.then(300, "new_member", joined=[name], aborted_generations=1)
    (row,) = story.found()
    assert (row["kind"], row["severity"]) == ("aborted_rebalances", severity)


def simple(*others: tuple[str, Row]) -> list[Row]:
    """Return what is found of a group that has no record of its own."""
    detector = GroupDetector(LIMITS.of("g"))
    for kind, row in others:
        detector.take(kind, row)
    episodes = [*detector.settled(), *detector.still_open(2 * HOUR)]
    return list(anomaly_rows([], episodes, "c", "g", LIMITS.of("g"), now=HOUR))


@pytest.mark.parametrize(
    ("times", "step", "largest", "severity"),
    [
        (5, 300, 100, "warning"),
        (2, 300, 100, "info"),
        (5, 150, 100, "info"),
        (30, 90, 100, "info"),  # commits that overtake each other
    ],
)
def test_who_seeks_again_and_again_is_told(
    times: int, step: int, largest: int, severity: str
) -> None:
    back = {"step": -step, "largest_step_before": largest, "committed_offset": 9_000}
    at = [HOUR + n * MINUTE_MS for n in range(times)]
    moves = (
        move("rewind", t, previous_at=t - SECOND, previous_offset=9_000 + step, **back) for t in at
    )
    (row,) = [r for r in started("a").found(*moves, lasts=7200) if r["kind"] == "offset_rewind"]
    assert row["severity"] == severity


def test_what_was_sought_hours_ago_is_another_matter() -> None:
    def back(minutes: float, step: int, largest: int) -> tuple[str, Row]:
        at = round(minutes * MINUTE_MS)
        own = {"step": -step, "largest_step_before": largest, "committed_offset": 9_000}
        return move("rewind", at, previous_at=at - SECOND, previous_offset=9_000 + step, **own)

    story = started("a").then(300 * 60 - 10, "probing", record_offset=15)
    later = (("rewind", 300, 60), ("rewind", 303, 60))
    moves = [back(100, 490, 100), back(101, 490, 100), *(back(at, n, 50) for _, at, n in later)]
    for number, (_, row) in enumerate(moves):
        row["record_offset"] = 10 + number if number < 2 else 20 + number
    found = [r for r in story.found(*moves) if r["kind"] == "offset_rewind"]
    assert {r["severity"] for r in found} == {"info"}


def test_a_consumer_that_was_assigned_its_partitions_may_go_back() -> None:
    back = {"previous_at": 3 * MINUTE_MS, "committed_offset": 5, "step": -5}
    in_rhythm = {"rhythm_since": 3 * MINUTE_MS - 20 * SECOND}
    rewind = move("rewind", 3 * MINUTE_MS + 5 * SECOND, **back, **in_rhythm)
    (row,) = simple(rewind)
    assert (row["kind"], row["label"], row["severity"]) == ("offset_rewind", "no_members", "info")
    # Somebody sets offsets that have been quiet, were committed a few times, or by members.
    for at, since in ((40 * MINUTE_MS, in_rhythm), (3 * MINUTE_MS + 30 * SECOND, in_rhythm)):
        assert [r["kind"] for r in simple(move("rewind", at, **back, **since))] == ["offset_reset"]
    few = move("rewind", 3 * MINUTE_MS + 5 * SECOND, **back)
    assert [r["kind"] for r in simple(few)] == ["offset_reset"]
    gone = started("a").then(170, "member_left", left=["a"])
    assert kinds(gone.found(rewind)) == {"offset_reset"}


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("hours", [-24, 24])
def test_one_clock_that_is_wrong_is_no_stall(hours: int, cut: bool) -> None:  # noqa: FBT001
    minutes = [minute(n, 2 * n, 3) for n in range(100, 130)]
    wrong = minute(115 + hours * 60, 231)
    rows = [*minutes[:16], wrong, *minutes[16:]]
    if cut:  # the run ended with that commit, within the minute
        rest = minutes[15][1] | {"commits": 1, "first_offset": 232, "last_offset": 232}
        rows = [*minutes[:15], (MINUTE, minutes[15][1] | {"commits": 2}), wrong, (MINUTE, rest)]
        rows += minutes[16:]
    assert not kinds(started().found(*rows, lasts=130 * 60))
    # A clock that goes on from there is one.
    ahead = [*minutes[:16], *(minute(n + 24 * 60, 2 * n) for n in range(116, 120))]
    assert kinds(started().found(*ahead, lasts=26 * 3600)) == {"commit_stall"}


def test_a_wrong_clock_in_the_second_minute_is_no_stall() -> None:
    for wrong in (-300, 1_000):
        rows = [minute(n, 100 + i) for i, n in enumerate((0, wrong, 1, 2, 3))]
        assert not kinds(started().found(*rows, lasts=4 * 60))


def test_the_parts_of_a_minute_begin_with_the_earliest() -> None:
    late, early = minute(5, 50), minute(5, 51)
    late[1]["first_at"] += 500
    detector = GroupDetector(LIMITS.of("g"))
    detector.take(*late)
    detector.take(*early)
    detector.take(*minute(6, 60))
    assert json.loads(detector.to_json())["minutes"]["minute"]["first_at"] == 5 * MINUTE_MS


def test_members_are_known_while_a_minute_waits() -> None:
    """Also if a run brings a generation and the move of an offset, but no minute."""
    story = started("a").then(3_800, "new_member", joined=["b"], record_offset=30)
    story.then(60, "new_member", joined=["c"], record_offset=40)
    first, second, third = story.generations
    gone = move("deleted", 3_900 * SECOND, record_offset=60)
    runs = [
        [(OPEN_GENERATION, first), minute(1, 10)],
        [(OPEN_GENERATION, third), (GENERATION, first), (GENERATION, second), gone],
        [(OPEN_GENERATION, third), minute(70, 70), minute(71, 71)],
    ]
    found, checkpoint = [], None
    for run in runs:
        detector = GroupDetector(LIMITS.of("g"), checkpoint)
        for kind, row in run:
            detector.take(kind, dict(row))
        found += detector.settled()
        checkpoint = detector.to_json()
    found += detector.still_open(72 * MINUTE_MS)
    assert "commit_stall" in {e.kind for e in found}


def test_a_topic_that_grew_is_no_stall() -> None:
    before = [minute(n, 1_000 + n) for n in range(1, 30)]
    after = [minute(n, n) for n in range(90, 120)]
    moved = [(MINUTE, row | {"record_partition": 1}) for _, row in after]
    assert not kinds(started().found(*before, *moved, lasts=120 * 60))


@pytest.mark.parametrize("cut", [False, True])
def test_a_minute_that_a_run_cut_has_all_its_partitions(cut: bool) -> None:  # noqa: FBT001
    limit = LIMITS.of("g")["commit_storm"]["a_partition_and_minute"]
    commits = round(limit * 2.5)
    rows = []
    for n in range(1, 30):
        whole = [minute(n, 90 + 2 * n, commits, 1, 2, 3)]
        parts = [minute(n, 90 + 2 * n, commits // 2, 1, 2), minute(n, 91 + 2 * n, commits // 2, 3)]
        rows += parts if cut else whole
    assert not simple(*rows)
    assert simple(*(minute(n, 90 + n, commits, 1, 2) for n in range(1, 30)))


def test_members_count_where_their_records_are() -> None:
    # The topic has grown: the group was recreated in another partition, at lower offsets.
    story = started("a")
    story.generations[0] |= {"record_partition": 1, "record_offset": 900}
    back = {"committed_offset": 5, "step": -5, "record_partition": 1, "record_offset": 950}
    assert [r["kind"] for r in story.found(move("rewind", HOUR, **back))] == ["offset_rewind"]
    elsewhere = move("rewind", HOUR, **back | {"record_partition": 0})
    assert [r["kind"] for r in story.found(elsewhere)] == ["offset_reset"]


def test_a_finding_behind_the_clock_goes_on_with_nothing_that_is_over() -> None:
    def found(*moves: tuple[str, Row], runs: int) -> list[str]:
        checkpoint, rows = None, []
        for part in (moves[:2], moves[2:]) if runs > 1 else (moves,):
            detector = GroupDetector(LIMITS.of("g"), checkpoint)
            for kind, row in part:
                detector.take(kind, row)
            rows += detector.settled()
            checkpoint = detector.to_json()
        rows += detector.still_open(2 * HOUR)
        return [f"{e.kind} {e.started_at} {e.ended_at}" for e in rows]

    reset = {"committed_offset": 5, "step": -5, "previous_at": None}
    moves = (
        move("rewind", HOUR, **reset),
        move("leap", HOUR + 2 * SECOND, **reset | {"step": None, "move": "deleted"}),
        move("rewind", HOUR - 1, **reset),
    )
    assert found(*moves, runs=1) == found(*moves, runs=2)


def test_an_open_transaction_is_no_stall() -> None:
    commits = [minute(n, 10 + n) for n in range(1, 5)]
    detector = GroupDetector(LIMITS.of("g"))
    detector.take(OPEN_GENERATION, started().generations[-1])
    for kind, row in commits:
        detector.take(kind, row)
    assert [e.kind for e in detector.still_open(HOUR)] == ["commit_stall"]
    # What follows in the partition is hidden since the last commit.
    assert not detector.still_open(detector.time(HOUR, {0: 4 * MINUTE_MS}))


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "NotReady"])
def test_a_rebalance_behind_an_open_transaction_may_be_over(state: str) -> None:
    """The log's other partitions go on, and its own is hidden since its newest record."""

    def told(known_until: dict[int, int]) -> list[str]:
        detector = GroupDetector(LIMITS.of("g"))
        detector.take(OPEN_GENERATION, started().generations[-1])
        row = {"state": state, "generation": 1, "started_at_max": MINUTE_MS}
        record = {"record_partition": 0, "record_offset": 9, "record_timestamp": MINUTE_MS}
        detector.take(OPEN_STATE, row | record)
        return [e.kind for e in detector.still_open(detector.time(HOUR, known_until))]

    assert told({}) == told({1: 4 * MINUTE_MS}) == told({0: 40 * MINUTE_MS}) == ["stuck_rebalance"]
    assert told({0: 4 * MINUTE_MS}) == []


def test_a_group_that_may_be_gone_does_not_stall() -> None:
    def told(ended_at: int | None) -> list[str]:
        detector = GroupDetector(LIMITS.of("g"))
        detector.take(OPEN_GENERATION, started().generations[-1] | {"ended_at": ended_at})
        # Its offsets are still sampled: who knows.
        for kind, row in [
            *((LAG, {"at": n * HOUR, "lag": 100 * n}) for n in range(1, 5)),
            *(minute(n, 10 + n) for n in range(1, 5)),
        ]:
            detector.take(kind, row)
        return [f"{e.kind} {e.label}" for e in detector.still_open(4 * HOUR)]

    assert told(None) == ["commit_stall records_wait"]
    assert told(10 * MINUTE_MS) == []
    # It hung while the log was read.
    assert told(3 * HOUR) == ["commit_stall records_wait"]


# -- the log ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [("", 0), ("hello", 99162322), ("polygenelubricants", 0), ("💶", 1772569), ("Aa", 2112)],
)
def test_java_hashes(text: str, number: int) -> None:
    # As Java 17 gives them; the third is the least int there is, which Kafka makes 0.
    assert java_hash(text) == number


def test_misplaced_records_are_reported_of_their_group() -> None:
    row = {"group_id": "astray", "record_partition": 3, "records": 2, "at": 1000}
    (found,) = misplaced([{**row, "expected_partition": 2, "partitions": 12}])
    assert (found.group_id, found.hit.subject) == ("astray", "3")
    assert found.hit.last_values == {"expected_partition": 2, "partitions": 12}


def groups(*newest: tuple[int, int]) -> list[Row]:
    """Return partition and time of groups' newest records."""
    return [{"record_partition": p, "newest_at": at} for p, at in newest]


def test_the_time_of_the_log_is_that_of_its_newest_record() -> None:
    assert time_of_log(groups((0, 5 * HOUR), (1, 4 * HOUR)), None, None) == 5 * HOUR
    # A broker's clock that is a day ahead moves it by no more than a minute.
    assert time_of_log(groups((0, 24 * HOUR)), 5 * HOUR, None) == 5 * HOUR + MINUTE_MS
    # Nobody commits any more, and there was nothing to read.
    assert time_of_log(groups((0, 5 * HOUR)), 5 * HOUR, 8 * HOUR) == 8 * HOUR
    assert time_of_log([], None, None) == 0


def test_a_partition_that_is_hidden_is_known_until_its_last_record() -> None:
    newest = groups((0, 5 * HOUR), (1, 3 * HOUR), (1, 2 * HOUR))
    assert known_until(newest, {1}) == {1: 3 * HOUR}


def test_findings_of_the_log_go_on_in_the_next_run() -> None:
    row = {"group_id": "g", "record_partition": 3, "records": 5}
    expected = {"expected_partition": 2, "partitions": 12}
    rows: list[Row] = []
    kept = None
    for hour in (1, 2):
        of_log = LogFindings(kept, is_backfill=False)
        for group, hit in misplaced([{**row, **expected, "at": hour * HOUR}]):
            of_log.add(group, hit)
        *rows, state = of_log.rows("c", LIMITS, hour * HOUR)
        kept = state["state"]
    (found,) = rows
    assert (found["started_at"], found["ended_at"]) == (HOUR, 2 * HOUR)
    assert json.loads(found["evidence"])["records"] == 10


def test_what_was_lost_is_remembered_from_run_to_run() -> None:
    hole = {"observed_at": HOUR, "record_partition": 3, "start_offset": 5, "reason": "truncated"}
    kept = None
    for holes in ([{**hole, "end_offset": 9}], []):
        of_log = LogFindings(kept, is_backfill=False)
        for group, hit in coverage_gaps("TRUE").found(holes):
            of_log.add(group, hit)
        assert of_log.lost == {3: 9}
        *_, state = of_log.rows("c", LIMITS, 9 * HOUR)
        kept = state["state"]


# -- thresholds ------------------------------------------------------------------------------------


def test_thresholds_of_one_group_win() -> None:
    limits = default_thresholds(
        "[rebalance_storm]\nwarning_an_hour = 4\n"
        "[[overrides]]\ngroups = 'a.*'\nrebalance_storm = {warning_an_hour = 7}\n"
    )
    assert limits.of("b")["rebalance_storm"]["warning_an_hour"] == 4
    assert limits.of("ab")["rebalance_storm"]["warning_an_hour"] == 7
    assert limits.of("ab")["rebalance_storm"]["critical_an_hour"] == 10
    assert limits.fingerprint != default_thresholds().fingerprint
    assert limits.least("rebalance_storm", "warning_an_hour") == 4


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[storm]\nx = 1", "'storm' is no kind of anomaly"),
        (
            "[rebalance_storm]\nx = 1",
            "rebalance_storm has no threshold 'x'; it has critical_an_hour",
        ),
        ("[rebalance_storm]\nwarning_an_hour = 'many'", "has to be a number, 0 or more"),
        ("[rebalance_storm]\nwarning_an_hour = -1", "has to be a number, 0 or more"),
        ("[oversized_record]\nbytes = inf", "has to be a number, 0 or more"),
        ("[oversized_record]\nbytes = nan", "has to be a number, 0 or more"),
        ("[[overrides]]\nrebalance_storm = {}", "an override has no groups"),
        ("[[overrides]]\ngroups = '('", "no regular expression"),
        ("[overrides]\ngroups = 'a'\nrebalance_storm = {}", r"written as \[\[overrides\]\]"),
        ("overrides = ['a']", r"written as \[\[overrides\]\]"),
        ("[[overrides]]\ngroups = 'a'\nhot_partition = {share = 1}", r"as \[hot_partition\]"),
        ("[[overrides]]\ngroups = 'a'\ncleaner_stalled = {}", r"as \[cleaner_stalled\]"),
        ("ignored_groups = 3", "has to be a string"),
        ("= 1", "is not TOML"),
    ],
)
def test_thresholds_that_are_none_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(ThresholdsError, match=complaint):
        default_thresholds(text)


def test_each_threshold_is_of_a_kind() -> None:
    assert LIMITS.values.keys() <= set(KINDS)


def test_a_pattern_matches_an_id_of_several_lines() -> None:
    limits = default_thresholds(
        "ignored_groups = 'test.*'\n"
        "[[overrides]]\ngroups = '.*'\nrebalance_storm = {warning_an_hour = 7}\n"
    )
    assert limits.of("one\ntwo")["rebalance_storm"]["warning_an_hour"] == 7
    assert limits.ignores("test\n1")


def test_groups_of_tools_are_ignored() -> None:
    assert LIMITS.ignores("spark-kafka-relation-1234-driver-0")
    assert not LIMITS.ignores("my-spark-kafka-relation-1")


def test_ids_tell_apart_what_differs() -> None:
    parts = [("c", "k", "g", "s", 1), ("c", "k", "gs", "", 1), ("c", "k", "g", "s", 2)]
    assert len({anomaly_id(*p) for p in parts}) == 3


ONCE_USED: Row = {
    **dict.fromkeys(("state", "since", "until")),
    "kept_at": 0,
    "partitions": 1,
    "held_partition": 0,
    "held_offset": 9,
    "held_at": 0,
}


def test_many_stale_groups_of_one_name_are_one_finding() -> None:
    def stale(group: str, days: int) -> Row:
        return ONCE_USED | {"group_id": group, "kept_at": (20 - days) * 24 * HOUR, "partitions": 2}

    alone = stale("left-behind", 8)
    many = [stale(f"console-{uuid.UUID(int=n)}", 8 + n % 3) for n in range(12)]
    fresh = stale(f"console-{uuid.UUID(int=99)}", 1)
    found = list(stale_groups([alone, *many, fresh], LIMITS, 20 * 24 * HOUR))
    assert [(f.group_id, f.hit.subject) for f in found] == [
        ("left-behind", ""),
        (None, "console-*"),
    ]
    numbers = {"idle_ms": 10 * 24 * HOUR, "partitions": 24, "groups": 12, "made": 13}
    assert found[1].hit.maxima == numbers
    assert alike(found) == sorted(row["group_id"] for row in many)
    who = {"group_id": many[3]["group_id"], "client_id": "reader", "client_host": "/10.0.0.7"}
    of_log = LogFindings(None, is_backfill=False)
    for group, hit in with_clients(found, [who]):
        of_log.add(group, hit)
    told = [r["summary"] for r in of_log.rows("c", LIMITS, 20 * 24 * HOUR) if "summary" in r]
    assert any("12 groups named console-* have had no member" in text for text in told)
    assert any("whenever it starts, reader@/10.0.0.7: give it" in text for text in told)
    assert any("10 days, of 13 in all;" in text for text in told)
    few = list(stale_groups(many[:9], LIMITS, 20 * 24 * HOUR))
    assert len(few) == 9
    assert not alike(few)
    gone = alone | {"state": "Empty", "since": 0, "until": 15 * 24 * HOUR}
    assert not list(stale_groups([gone], LIMITS, 20 * 24 * HOUR))


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        ([f"app-6d4cf56db6-x7k2{c}" for c in "bcdfghjklm"], "app-*"),
        ([f"probe_{n:08x}q" for n in range(0xA1B2C3, 0xA1B2CD)], "probe_*"),
        ([f"job-2025-09-{n}" for n in range(10, 20)], "job-*-*-*"),
        ([f"t.{uuid.UUID(int=n).hex}.dlq" for n in range(10)], "t.*.dlq"),
        # Names that people gave.
        ([f"{name}-billing" for name in "abcdefghij"], None),
    ],
)
def test_what_is_made_up_in_the_name_of_a_group(names: list[str], pattern: str | None) -> None:
    rows = [ONCE_USED | {"group_id": name} for name in names]
    found = list(stale_groups(rows, LIMITS, 20 * 24 * HOUR))
    assert [f.hit.subject for f in found] == ([""] * len(names) if pattern is None else [pattern])

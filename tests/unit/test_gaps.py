"""What is told of a group after a time in which its records were not read, or were cleaned away."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable

import pytest

from tests.support.detection import detected_history
from tests.support.history import Commit, Log, logs_of, rebuild
from tests.support.labels import path_of
from tests.support.records import HOUR, MINUTE, SECOND, START, Records
from tests.unit.test_lives import Row, generations, states, whole_and_cut
from timeline.holes import Unseen
from timeline.model import GENERATIONS, OWNERS, SESSIONS, STATES, Record

DAY = 24 * HOUR
# Of `owners`, where `c` came for `a` while records were missing: whether `b` had its partition all
# the time is not known either.
AROUND_A_GAP = [
    (0, "a", False, False),
    (0, "c", True, True),
    (1, "b", False, False),
    (1, "b", True, True),
]


def timeline(tables: dict[str, list[Row]]) -> list[tuple[str, int | None]]:
    """Return name and generation of each state."""
    rows = sorted(tables[STATES], key=lambda r: r["sequence"])
    return [(r["state"], r["generation"]) for r in rows]


def sessions(tables: dict[str, list[Row]]) -> dict[str, Row]:
    return {r["member_id"]: r for r in tables[SESSIONS]}


def owners(tables: dict[str, list[Row]]) -> list[tuple[int, str, bool, bool]]:
    """Return partition, member, whether it ended, and whether that is known, of each ownership."""
    rows = sorted(tables[OWNERS], key=lambda r: (r["topic_partition"], r["valid_from"]))
    return [
        (r["topic_partition"], r["member_id"], r["valid_to"] is None, r["known_until"] is None)
        for r in rows
    ]


def two_members() -> Records:
    """Let two members be there, each with a partition."""
    log = Records().member("a").member("b").epoch(57).target(57, a=[0], b=[1])
    return log.current("a", 57, [0]).current("b", 57, [1]).wait(MINUTE).commit()


# -- the new protocols -----------------------------------------------------------------------------


def test_a_member_that_left_unseen_is_not_waited_for() -> None:
    log = two_members()
    seen = log.clock
    # What the cleaner has left of the two days is what the member wrote that came for `a`.
    log.wait(DAY, hole=True).member("c").epoch(59).target(59, c=[0]).current("c", 59, [0])
    log.wait(5 * SECOND, hole=True).current("b", 59, [1]).wait(DAY)
    log.epoch(60).target(60).current("c", 60, [0]).wait(3 * SECOND).current("b", 60, [1])
    tables = whole_and_cut(log.log())
    assert timeline(tables)[-2:] == [("Reconciling", 60), ("Stable", 60)]
    assert not detected_history(tables, log.clock + DAY)
    assert [row["known_until"] for row in generations(tables)] == [seen, None, None]
    known = sessions(tables)
    assert known["a"]["known_until"] == seen
    assert known["a"]["left_at"] is not None
    assert [known[m]["left_at"] for m in ("b", "c")] == [None, None]
    assert [known[m]["known_until"] for m in ("b", "c")] == [None, None]
    # Whether `b` had its partition all the time is not known: epoch 58 is missing.
    assert owners(tables) == AROUND_A_GAP


def test_who_was_set_aside_stays_unknown_whoever_is_named_later() -> None:
    log = two_members().wait(DAY, hole=True).member("c").member("d").epoch(59)
    log.target(59, c=[0], d=[1]).current("c", 59, [0]).current("d", 59, [1]).wait(MINUTE, hole=True)
    log.current("c", None).member("c", gone=True).wait(SECOND, hole=True).commit()
    known = sessions(whole_and_cut(log.log()))
    assert [known[m]["known_until"] is None for m in "abcd"] == [False, False, True, False]


def test_a_member_that_was_set_aside_and_fenced_owns_nothing_after_another_gap() -> None:
    log = two_members()
    for name, epoch in (("c", 60), ("d", 65)):
        log.wait(DAY, hole=True).member(name).epoch(epoch).target(epoch, **{name: [0]})
        log.current(name, epoch, [0]).wait(HOUR).epoch(epoch + 1).target(epoch + 1)
        log.current(name, epoch + 1, [0])
    tables = whole_and_cut(log.log())
    assert {m for m, row in sessions(tables).items() if row["left_at"] is None} == {"d"}
    assert {m for _, m, is_open, _ in owners(tables) if is_open} == {"d"}
    assert len([m for _, m, *_ in owners(tables) if m in "ab"]) == len("ab")


def test_what_members_had_that_were_set_aside_is_not_without_owner() -> None:
    log = two_members().wait(DAY, hole=True).member("c").epoch(60)
    log.target(60, c=[]).current("c", 60, []).wait(DAY).commit()
    (*_, behind) = generations(tables := whole_and_cut(log.log()))
    assert (behind["generation"], behind["unassigned_topics"]) == (60, None)
    assert not [r for r in detected_history(tables, log.clock) if r["kind"] == "orphan_topic"]


def test_a_member_that_all_wait_for_is_waited_for_behind_a_hole() -> None:
    log = two_members().wait(HOUR, hole=True).epoch(58).target(58, a=[0], b=[1])
    log.current("b", 58, [1]).wait(SECOND).current("a", 57, [0], 1).wait(20 * MINUTE)
    tables = whole_and_cut(log.commit().log())
    assert timeline(tables)[-1] == ("Reconciling", 58)
    kinds = [row["kind"] for row in detected_history(tables, log.clock)]
    assert kinds == ["stuck_rebalance"]


@pytest.mark.parametrize("leaves", [True, False])
def test_a_leave_without_its_epoch_ends_no_slow_rebalance(leaves: bool) -> None:  # noqa: FBT001
    log = two_members().member("c").epoch(58).target(58, a=[2], b=[1], c=[0])
    log.current("c", 58, []).current("b", 58, [1]).current("a", 58, [], 0).wait(
        90 * SECOND, hole=True
    )
    if leaves:  # the cleaner took what `a` gave up, and the epoch that the leave of `c` began
        log.current("c", None).member("c", gone=True).wait(SECOND, hole=True)
    log.current("a", 58, [2])
    if not leaves:
        log.current("c", 58, [0])
    tables = whole_and_cut(log.wait(MINUTE).log())
    assert timeline(tables)[-1] == ("Stable", 58)
    alarms = [r["kind"] for r in detected_history(tables, log.clock) if r["severity"] != "info"]
    assert alarms == ([] if leaves else ["slow_rebalance"])


def test_members_of_one_epoch_are_those_of_the_next_record_of_it() -> None:
    log = two_members().wait(HOUR, hole=True).current("a", 57, [0])
    tables = whole_and_cut(log.log())
    assert timeline(tables) == [("Stable", 57)]
    assert all(row["known_until"] is None for row in tables[SESSIONS] + tables[OWNERS])


def test_a_tombstone_behind_a_hole_ends_a_session_that_is_borne_out() -> None:
    log = two_members().wait(HOUR, hole=True)
    log.current("a", None).member("a", gone=True).epoch(58).target(58, b=[0, 1])
    tables = whole_and_cut(log.current("b", 58, [0, 1]).log())
    row = sessions(tables)["a"]
    assert (row["left_at"], row["known_until"]) == (log.clock, None)


def test_a_state_that_is_told_late_may_have_begun_right_behind_the_gap() -> None:
    log = two_members().wait(3 * DAY, hole=True)
    # What is left of two that came and went tells of no state, and neither does the next leave.
    for name in ("x", "y"):
        log.current(name, None).member(name, gone=True).wait(HOUR, hole=True)
    log.epoch(70).target(70, a=[0], b=[1]).current("a", 70, [0]).current("b", 70, [1])
    row = max(whole_and_cut(log.log())[STATES], key=lambda r: r["sequence"])
    assert (row["state"], row["generation"]) == ("Stable", 70)
    assert (row["started_at_min"], row["started_at"]) == (START, log.clock)


def test_a_member_nobody_knows_shows_that_epochs_are_missing() -> None:
    log = two_members()
    seen = log.clock
    log.wait(DAY, hole=True).current("x", None).member("x", gone=True)
    tables = whole_and_cut(log.log())
    assert {row["known_until"] for row in tables[SESSIONS]} == {seen}


@pytest.mark.parametrize("was_empty", [False, True])
def test_epochs_that_begin_again_are_of_another_life(was_empty: bool) -> None:  # noqa: FBT001
    log = Records().joins_empty("a", 57).wait(HOUR)
    if was_empty:
        log.leaves_empty("a", 58)
    log.wait(5 * DAY, hole=True).joins_empty("b", 1)
    tables = whole_and_cut(log.log())
    assert ("consumer", "Dead") in states(tables)
    last = generations(tables)[-1]
    assert (last["generation"], last["previous_generation"], last["cause"]) == (
        *(1, None),
        "group_created",
    )
    assert [r["member_id"] for r in tables[SESSIONS] if r["left_at"] is None] == ["b"]


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
def test_an_empty_group_of_a_compacted_log_is_empty(kind: str) -> None:
    # A leave bumps the epoch alone: the target assignment is that of the epoch before.
    log = Records().wait(SECOND, hole=True)
    if kind == "streams":
        log.record("streams_group_topology", {"epoch": 0, "subtopologies": []})
    log.record(f"{kind}_group_target_assignment_metadata", {"assignment_epoch": 6})
    log.wait(SECOND, hole=True)
    log.record(f"{kind}_group_metadata", {"epoch": 7, "validated_topology_epoch": 0})
    assert states(whole_and_cut(log.log())) == [(kind, "Empty")]


def test_a_group_whose_members_may_come_yet_is_not_called_empty() -> None:
    log = Records().wait(SECOND, hole=True).epoch(7).wait(HOUR, hole=True)
    log.member("a").target(7, a=[0]).current("a", 7, [0])
    assert timeline(whole_and_cut(log.log())) == [("Stable", 7)]


@pytest.mark.parametrize("kind", ["consumer", "streams"])
def test_a_group_that_is_known_by_who_left_it_is_no_simple_one(kind: str) -> None:
    # What the cleaner leaves of a crash loop: what each member read last, and that it is gone.
    log = Records().wait(SECOND, hole=True)
    for name in "abc":
        log.commit("t", ord(name)).wait(SECOND, hole=True)
        log.record(f"{kind}_group_current_member_assignment", None, name)
        log.member(name, gone=True, kind=kind).wait(SECOND)
    log.commit("t", ord("a"), deletes=True).wait(SECOND)
    assert not [name for name, _ in timeline(whole_and_cut(log.log())) if name == "Dead"]


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
def test_a_member_without_an_epoch_is_in_no_known_state(kind: str) -> None:
    # The first record of the partition has nothing missing before it, and all the rest behind it.
    log = Records().member("a", kind=kind).wait(DAY, hole=True)
    known = [("share", "Stable")] if kind == "share" else []
    assert states(whole_and_cut(log.log())) == known


def test_a_group_of_which_the_last_that_is_left_is_empty_is_so_until_it_is_deleted() -> None:
    log = two_members()
    log.wait(HOUR, hole=True).epoch(60).wait(7 * DAY, hole=True)
    log.target(None).epoch(None)
    tables = whole_and_cut(log.log())
    assert timeline(tables) == [("Stable", 57), ("Empty", 60), ("Dead", None)]
    *_, empty, dead = sorted(tables[STATES], key=lambda r: r["sequence"])
    assert (empty["evidence"], empty["started_at"]) == ("bounded", log.clock - 7 * DAY)
    assert dead["started_at"] == log.clock


def test_a_group_that_may_have_had_members_is_not_called_empty_before_it_is_deleted() -> None:
    log = two_members().wait(HOUR, hole=True).epoch(60).target(60)
    log.wait(7 * DAY, hole=True).target(None).epoch(None)
    assert timeline(whole_and_cut(log.log())) == [("Stable", 57), ("Dead", None)]


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
@pytest.mark.parametrize("epoch", [1, 7])
def test_a_group_that_has_assigned_to_somebody_is_not_called_empty(kind: str, epoch: int) -> None:
    # Static members that come back under other ids make no epoch. Where all members have, the
    # cleaner leaves the epochs alone.
    log = Records().wait(SECOND, hole=True)
    if kind == "streams":
        log.record("streams_group_topology", {"epoch": 0, "subtopologies": []})
    metadata = {"epoch": epoch, "validated_topology_epoch": 0}
    log.record(f"{kind}_group_metadata", metadata).wait(0, hole=True)
    log.record(f"{kind}_group_target_assignment_metadata", {"assignment_epoch": epoch})
    log.wait(DAY, hole=True)
    assert timeline(whole_and_cut(log.log())) == []
    assigned = {"member_epoch": epoch, "state": 1 if kind == "streams" else 0}
    log.record(f"{kind}_group_member_metadata", {"subscribed_topic_names": ["t"]}, "b")
    log.record(f"{kind}_group_current_member_assignment", assigned, "b").wait(SECOND)
    assert timeline(whole_and_cut(log.log())) == [("Stable", epoch)]


def test_members_of_whose_leave_the_epoch_is_missing_have_left_to_others() -> None:
    log = two_members().wait(DAY, hole=True)
    for name in ("a", "b"):
        log.current(name, None).record("consumer_group_target_assignment_member", None, name)
        log.member(name, gone=True).wait(MINUTE, hole=True)
    log.record("consumer_group_target_assignment_metadata", {"assignment_epoch": 61})
    log.wait(HOUR, hole=True)
    assert timeline(whole_and_cut(log.log()))[-1] == ("Stable", 57)
    log.current("c", None).member("c", gone=True).epoch(62).wait(SECOND)
    assert timeline(whole_and_cut(log.log()))[-2:] == [("Stable", 57), ("Empty", 62)]


def test_a_new_owner_ends_the_old_one_whose_release_was_cleaned_away() -> None:
    log = two_members().wait(HOUR, hole=True).member("c").epoch(58).target(58, b=[1], c=[0])
    log.current("c", 58, [0]).wait(SECOND, hole=True).current("a", 58, []).current("b", 58, [1])
    log.wait(SECOND)
    rows = [r for r in whole_and_cut(log.log())[OWNERS] if r["topic_partition"] == 0]
    first, second = sorted(rows, key=lambda r: r["valid_from"])
    assert (first["member_id"], second["member_id"]) == ("a", "c")
    assert first["valid_to"] <= second["valid_from"]


def test_a_conversion_that_nobody_saw_ends_no_life() -> None:
    log = Records().classic(3, {"a": [0]}).wait(DAY, hole=True)
    log.current("x", None).member("x", gone=True).wait(MINUTE, hole=True)
    log.member("b").epoch(9).target(9, b=[0]).current("b", 9, [0])
    tables = whole_and_cut(log.log())
    assert states(tables)[-2:] == [("classic", "Stable"), ("consumer", "Stable")]
    assert sessions(tables)["a"]["known_until"] is not None


def test_a_conversion_that_nobody_saw_changes_no_generation_of_before() -> None:
    log = Records().classic(3, {"a": [0]}, instance="i").wait(MINUTE)
    log.classic(3, {"b": [0]}, instance="i")
    log.wait(DAY, hole=True).current("x", None).member("x", gone=True).wait(MINUTE).epoch(9)
    (before, after) = generations(whole_and_cut(log.log()))
    assert (before["generation"], before["member_count"], before["members_left"]) == (3, 1, [])
    assert (after["generation"], after["member_count"]) == (9, 0)


def test_whom_a_member_had_replaced_that_left_is_gone_too() -> None:
    def static(log: Records, name: str) -> Records:
        payload = {"client_id": "c", "client_host": "/h", "instance_id": "i"}
        return log.record("consumer_group_member_metadata", payload, name)

    def gone(log: Records, name: str) -> Records:
        log.current(name, None).record("consumer_group_target_assignment_member", None, name)
        return log.member(name, gone=True)

    log = static(Records(), "a").epoch(1).target(1, a=[0]).current("a", 1, [0]).wait(MINUTE)
    static(gone(log, "a"), "b").target(1, b=[0]).current("b", 1, [0]).wait(MINUTE)
    static(gone(log, "b"), "c").target(1, c=[0]).current("c", 1, [0]).wait(DAY, hole=True)
    (row,) = generations(whole_and_cut(gone(log, "c").wait(0, hole=True).commit().log()))
    assert [m["member_id"] for m in row["members_replaced"]] == ["b", "c"]
    # It left with an epoch that is missing, and not with this one.
    assert (row["member_count"], len(row["members_joined"]), row["members_left"]) == (1, 1, [])


@pytest.mark.parametrize("is_behind_a_hole", [True, False])
@pytest.mark.parametrize("is_missing", [True, False])
def test_who_left_with_an_epoch_that_is_missing_left_with_the_next_that_is_known(
    is_missing: bool,  # noqa: FBT001
    is_behind_a_hole: bool,  # noqa: FBT001
) -> None:
    log = two_members().wait(HOUR, hole=is_behind_a_hole).current("a", None).member("a", gone=True)
    if is_missing:
        log.wait(SECOND, hole=True)
    else:
        log.epoch(58).wait(SECOND)
    log.member("c").epoch(59).target(59, b=[1], c=[0]).current("c", 59, [0])
    rows = generations(whole_and_cut(log.log()))
    left = [(r["generation"], [m["member_id"] for m in r["members_left"]]) for r in rows]
    assert left == ([(57, []), (59, ["a"])] if is_missing else [(57, []), (58, ["a"]), (59, [])])
    assert [r["member_count"] for r in rows] == ([2, 2] if is_missing else [2, 1, 2])


@pytest.mark.parametrize("is_behind_a_hole", [True, False])
@pytest.mark.parametrize("is_missing", [True, False])
def test_who_came_with_an_epoch_that_is_missing_came_with_the_next_that_is_known(
    is_missing: bool,  # noqa: FBT001
    is_behind_a_hole: bool,  # noqa: FBT001
) -> None:
    log = two_members().wait(HOUR, hole=is_behind_a_hole).member("c")
    if is_missing:
        log.wait(SECOND, hole=True)
    else:
        log.epoch(58).wait(SECOND)
    log.member("d").epoch(59).target(59, a=[0], b=[1], c=[2]).current("a", 59, [0])
    log.current("b", 59, [1]).current("c", 59, [2])
    rows = generations(whole_and_cut(log.log()))
    came = [(r["generation"], [m["member_id"] for m in r["members_joined"]]) for r in rows]
    known = [(57, ["a", "b"]), (59, ["c", "d"])]
    assert came == (known if is_missing else [known[0], (58, ["c"]), (59, ["d"])])
    assert [r["member_count"] for r in rows] == ([2, 4] if is_missing else [2, 3, 4])


@pytest.mark.parametrize(("epoch", "is_known"), [(58, True), (61, False)])
def test_members_that_all_are_there_may_have_owned_something_else(
    epoch: int,
    is_known: bool,  # noqa: FBT001
) -> None:
    log = two_members()
    seen = log.clock
    log.wait(HOUR, hole=True).epoch(epoch).target(epoch, a=[0], b=[1]).current("a", epoch, [0])
    tables = whole_and_cut(log.current("b", epoch, [1]).wait(SECOND).log())
    assert {r["known_until"] for r in tables[SESSIONS]} == {None}
    first = min(tables[OWNERS], key=lambda r: (r["member_id"], r["valid_from"]))
    assert first["known_until"] == (None if is_known else seen)


@pytest.mark.parametrize("case", ["fenced", "stayed", "next", "whole"])
def test_who_keeps_its_id_may_have_been_away(case: str) -> None:
    log = two_members()
    seen = log.clock
    epoch = 58 if case == "next" else 63
    log.wait(HOUR, hole=case != "whole")
    if case != "stayed":
        log.member("a")  # a client that was fenced, or subscribes to something else
    log.epoch(epoch).target(epoch, a=[0], b=[1]).current("a", epoch, [0])
    log.current("b", epoch, [1]).wait(SECOND)
    rows = [r for r in whole_and_cut(log.log())[SESSIONS] if r["member_id"] == "a"]
    known = [(r["known_until"], r["left_at"]) for r in sorted(rows, key=lambda r: r["joined_at"])]
    away = [(seen, seen + HOUR), (None, None)]
    assert known == (away if case == "fenced" else [(None, None)])


@pytest.mark.parametrize("case", ["leaves", "joins", "returns", "epoch"])
def test_who_came_or_left_without_an_epoch_may_have_left_partitions_to_others(case: str) -> None:
    log = two_members()
    seen = log.clock
    log.wait(HOUR, hole=True)
    if case == "joins":
        log.member("c")
    elif case == "returns":  # of a static member, which begins no epoch
        payload = {"client_id": "c", "client_host": "/h", "instance_id": "i"}
        log.record("consumer_group_member_metadata", payload, "c")
    else:
        log.current("a", None).member("a", gone=True)
    if case == "epoch":
        log.epoch(58)
    tables = whole_and_cut(log.wait(MINUTE).commit().log())
    (known,) = (r["known_until"] for r in tables[OWNERS] if r["member_id"] == "b")
    # The batch names all that is missing of the very next epoch.
    assert known == (seen if case in ("leaves", "joins") else None)
    # An id is of one stay.
    assert case in ("joins", "returns") or sessions(tables)["a"]["known_until"] is None
    tables = whole_and_cut(log.current("b", 61, [1]).wait(SECOND).log())
    assert sessions(tables)["b"]["known_until"] is None


@pytest.mark.parametrize("kind", ["classic", "consumer"])
@pytest.mark.parametrize("is_missing", [True, False])
def test_who_took_a_static_members_place_unseen_may_not_have_been_the_first(
    kind: str,
    is_missing: bool,  # noqa: FBT001
) -> None:
    def static(log: Records, name: str) -> Records:
        if kind == "classic":
            stable = 10 if name == "a" else 3 * DAY + MINUTE  # the record of a return tells of it
            return log.classic(1, {name: [0]}, instance="i", took=stable)
        payload = {"client_id": "c", "client_host": "/h", "instance_id": "i"}
        log.record("consumer_group_member_metadata", payload, name)
        return log.epoch(1).target(1, a=[0]).current("a", 1, [0]) if name == "a" else log

    log = static(Records(), "a").wait(MINUTE).commit()
    seen = log.clock
    log.wait(3 * DAY, hole=is_missing)
    if kind == "consumer" and not is_missing:
        log.current("a", None).record("consumer_group_target_assignment_member", None, "a")
        log.member("a", gone=True)
    static(log, "c")
    if kind == "consumer":
        log.target(1, c=[0]).current("c", 1, [0])
    tables = whole_and_cut(log.wait(HOUR).commit().log())
    former, now = sessions(tables)["a"], sessions(tables)["c"]
    assert (former["left_at"], former["end_cause"]) == (log.clock - HOUR, "static_member_replaced")
    assert former["known_until"] == (seen if is_missing else None)
    assert (now["left_at"], now["known_until"]) == (None, None)
    assert [r["member_id"] for r in tables[OWNERS] if r["valid_to"] is None] == ["c"]


def test_a_static_member_whose_successor_left_too_is_known_until_the_gap() -> None:
    def static(log: Records, name: str, instance: str) -> None:
        payload = {"client_id": "c", "client_host": "/h", "instance_id": instance}
        log.record("consumer_group_member_metadata", payload, name)

    log = Records()
    static(log, "a", "i")
    static(log, "b", "j")
    log.epoch(1).target(1, a=[0], b=[1]).current("a", 1, [0]).current("b", 1, [1])
    seen = log.wait(MINUTE).commit().clock
    # `x` came for `a` while nobody read, and `c` for `x`.
    log.wait(3 * DAY, hole=True).current("x", None).member("x", gone=True)
    static(log, "c", "i")
    log.target(1, c=[0]).current("c", 1, [0])
    known = sessions(whole_and_cut(log.wait(HOUR).commit().log()))
    assert (known["a"]["known_until"], known["b"]["known_until"]) == (seen, seen)
    assert known["a"]["left_at"] == log.clock - HOUR
    assert (known["b"]["left_at"], known["c"]["known_until"]) == (None, None)


def test_who_was_set_aside_left_no_later_than_it_is_borne_out() -> None:
    log = two_members()
    seen = log.clock
    log.wait(DAY, hole=True).member("c").epoch(59).target(59, c=[0]).current("c", 59, [0])
    log.wait(MINUTE, hole=True).epoch(60).target(60).current("c", 60, [0])
    log.wait(3 * SECOND, hole=True).current("b", 60, [1]).wait(DAY).epoch(61).target(61)
    gone = log.clock
    tables = whole_and_cut(log.current("c", 61, [0]).current("b", 61, [1]).log())
    left = sessions(tables)["a"]
    assert [left[k] for k in ("left_at_min", "known_until", "left_at")] == [seen, seen, gone]
    assert sessions(tables)["b"]["known_until"] is None
    # While `a` or `b` may be there, what it was to get has an owner or has not.
    assigned = [(r["generation"], r["assigned_partitions"]) for r in generations(tables)]
    assert assigned == [(57, 2), (59, None), (60, None), (61, 2)]


@pytest.mark.parametrize("epoch", [None, 58, 59, 60])
def test_who_leaves_behind_a_hole_may_have_given_up_its_partitions_before(
    epoch: int | None,
) -> None:
    log = two_members()
    seen = log.clock
    log.wait(DAY, hole=True).current("a", None).member("a", gone=True)
    if epoch is not None:
        log.epoch(epoch).target(epoch, b=[0, 1]).current("b", epoch, [0, 1])
    tables = whole_and_cut(log.wait(HOUR).commit().log())
    (former,) = (r for r in tables[OWNERS] if r["member_id"] == "a")
    # Between two epochs that follow each other nothing was given up.
    assert former["known_until"] == (None if epoch == 58 else seen)
    # Its tombstone shows that it was there, unless it may have left and come back in between.
    assert sessions(tables)["a"]["known_until"] == (seen if epoch == 60 else None)


def test_who_was_set_aside_and_leaves_later_was_there_until_then() -> None:
    log = two_members().wait(DAY, hole=True).member("c").epoch(60)
    log.target(60, c=[]).current("c", 60, []).wait(MINUTE)
    log.current("b", None).member("b", gone=True).epoch(61).target(61, c=[1])
    tables = whole_and_cut(log.current("c", 61, [1]).wait(HOUR).commit().log())
    left = sessions(tables)["b"]
    assert (left["known_until"], left["left_at"]) == (None, log.clock - HOUR)
    assert left["left_at_min"] == left["left_at"]


def test_markers_of_transactions_leave_the_stay_of_a_static_member_known() -> None:
    log = Records().classic(1, {"a": [0]}, instance="i").wait(SECOND)
    for _ in range(5):
        log.commit().wait(SECOND, hole=True)
    log.classic(1, {"c": [0]}, instance="i")
    assert {r["known_until"] for r in whole_and_cut(log.log())[SESSIONS]} == {None}


@pytest.mark.parametrize("was_assigned", [True, False])
def test_a_group_that_was_deleted_unseen_had_been_empty_since_its_last_epoch(
    was_assigned: bool,  # noqa: FBT001
) -> None:
    log = two_members().wait(HOUR, hole=True).epoch(60)
    if was_assigned:
        log.target(60)
    emptied = log.clock
    # The cleaner has left a member of the next group before its epochs.
    log.wait(10 * DAY, hole=True).member("c").wait(SECOND, hole=True)
    log.member("d").epoch(3).target(3, c=[0], d=[1]).current("c", 3, [0]).current("d", 3, [1])
    tables = whole_and_cut(log.log())
    empty = [] if was_assigned else [("Empty", 60)]
    assert timeline(tables) == [("Stable", 57), *empty, ("Dead", None), ("Stable", 3)]
    found = [r["started_at"] for r in tables[STATES] if r["state"] == "Empty"]
    assert found == ([] if was_assigned else [emptied])
    row = next(r for r in generations(tables) if r["generation"] == 60)
    assert (row["member_count"], row["members_joined"]) == (0, [])


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("has_epoch", [True, False])
def test_who_comes_to_an_empty_group_with_an_epoch_that_is_missing_may_be_of_the_next_life(
    is_new: bool,  # noqa: FBT001
    has_epoch: bool,  # noqa: FBT001
) -> None:
    log = Records().member("a").epoch(5).target(5, a=[0]).current("a", 5, [0])
    log.wait(HOUR).leaves_empty("a", 6)
    emptied = log.clock
    number = 3 if is_new else 8
    # The cleaner took the tombstones, and each epoch but the newest.
    log.wait(9 * DAY, hole=True).member("b")
    came = log.clock
    log.wait(SECOND, hole=True).member("c").wait(SECOND, hole=True)
    if has_epoch:
        log.member("d").epoch(number).target(number, b=[0], c=[1], d=[2])
    log.current("b", number, [0]).current("c", number, [1]).current("d", number, [2])
    tables = whole_and_cut(log.log())
    rows = sorted(tables[STATES], key=lambda r: r["sequence"])
    assert ("Dead" in [r["state"] for r in rows]) == is_new
    if is_new:
        (dead,) = (r for r in rows if r["state"] == "Dead")
        assert (dead["started_at"], dead["started_at_max"]) == (emptied + 7 * DAY, came)
        assert [r["state"] for r in rows][-2:] == ["Dead", "Stable"] or not has_epoch
    new = sessions(tables)
    assert {m: (r["joined_at"], r["left_at"]) for m, r in new.items() if m in "bc"} == {
        "b": (came, None),
        "c": (came + SECOND, None),
    }
    if has_epoch:
        newest = generations(tables)[-1]
        assert (newest["generation"], newest["member_count"]) == (number, 3)


def test_what_was_not_known_before_a_hole_is_not_known_by_the_epoch_behind_it() -> None:
    log = two_members().wait(HOUR, hole=True)
    # Nothing is known of the epoch of this leave, nor whether `b` has got to it.
    log.current("a", None).member("a", gone=True).current("b", 57, [1], 0)
    log.wait(HOUR, hole=True).member("c").epoch(70).target(70, b=[0], c=[1])
    tables = whole_and_cut(log.log())
    assert ("Reconciling", 57) not in timeline(tables)


@pytest.mark.parametrize("is_rollback", [True, False])
def test_a_deployment_of_which_an_epoch_is_missing_can_be_rolled_back(
    is_rollback: bool,  # noqa: FBT001
) -> None:
    log, epoch, there = Records(), 1, ["a0", "b0", "c0", "d0", "e0"]
    for name in there:
        log.member(name)
    log.epoch(epoch).target(epoch)
    for number in range(10):
        # The deployment restarts each member once, and so does what takes it back.
        place = number % 5 if is_rollback else 0
        log.wait((1 if number % 5 else 15) * MINUTE).current(there[place], None).member(
            there[place], gone=True
        )
        if number == 5:
            log.wait(0, hole=True)
        else:
            log.epoch(epoch + 1)
        there[place] = f"{there[place][0]}{number + 1}"
        epoch += 2
        log.wait(10 * SECOND).member(there[place]).epoch(epoch).target(epoch)
        for name in there:
            log.current(name, epoch)
    found = detected_history(whole_and_cut(log.log()), log.clock + MINUTE)
    storms = [a["kind"] for a in found if a["kind"] == "rebalance_storm"]
    assert storms == ([] if is_rollback else ["rebalance_storm"])


@pytest.mark.parametrize(("is_cut", "before"), [(True, []), (False, [("classic", "Dead")])])
def test_a_tombstone_of_which_the_rest_is_missing_may_be_of_a_conversion(
    is_cut: bool,  # noqa: FBT001
    before: list[tuple[str, str]],
) -> None:
    log = Records().wait(0, hole=True).deleted().wait(DAY, hole=is_cut)
    log.wait(MINUTE, hole=True).member("b").epoch(9).target(9, b=[0]).current("b", 9, [0])
    assert states(whole_and_cut(log.log())) == [*before, ("consumer", "Stable")]


@pytest.mark.parametrize(
    ("epoch", "is_cut", "deletes", "dies"),
    [
        (73, True, False, False),
        (5, True, False, True),  # deleted, and made anew: epochs begin again
        (None, True, False, True),  # the cleaner would have left something of a group that is there
        (73, False, False, True),  # a conversion has more records
        (73, True, True, True),  # so is a group deleted
    ],
)
def test_a_group_that_had_members_is_not_deleted_but_converted(
    epoch: int | None,
    is_cut: bool,  # noqa: FBT001
    deletes: bool,  # noqa: FBT001
    dies: bool,  # noqa: FBT001
) -> None:
    log = Records().classic(37, {"a": [0], "b": [1]}).wait(DAY, hole=True)
    for partition in (0, 1) if deletes else ():
        log.commit(partition=partition, deletes=True)
    log.deleted()
    ended = log.clock
    if epoch is not None:
        # The cleaner has left of the conversion and what came after it what nothing replaced.
        log.wait(0, hole=is_cut).wait(MINUTE, hole=True).commit()
        log.current("x", None).member("x", gone=True).wait(11 * HOUR, hole=True)
        log.member("c").epoch(epoch).target(epoch, c=[0, 1]).current("c", epoch, [0, 1])
    else:
        log.wait(0, hole=is_cut)
    tables = whole_and_cut(log.log())
    dead = sorted(r["started_at"] for r in tables[STATES] if r["state"] == "Dead")
    assert bool(dead) == dies
    if epoch != 5:
        assert dead[:1] in ([], [ended])
    assert {sessions(tables)[m]["known_until"] for m in "ab"} == {START}


def test_a_group_that_was_made_anew_was_not_converted() -> None:
    for name in ("classic", "empty"):
        log = Records().classic(3, {"a": [0]}).wait(HOUR)
        if name == "empty":
            log.classic(4).wait(HOUR)
        log.wait(DAY, hole=True).deleted()
        ended = log.clock
        log.wait(0, hole=True).wait(HOUR, hole=True)
        if name == "empty":
            log.member("b").epoch(9).target(9, b=[0]).current("b", 9, [0])
        else:
            log.classic(4, {"b": [0]})
        (dead,) = (r for r in whole_and_cut(log.log())[STATES] if r["state"] == "Dead")
        assert dead["started_at"] == ended


def converted_back(*, has_members: bool = True) -> Records:
    """Let a group be converted back of which the cleaner took the classic record."""
    profile = {"client_id": "a", "client_host": "/h", "subscribed_topic_names": ["t"]}
    profile["classic_member_metadata"] = {"session_timeout_ms": 45_000}
    log = Records().record("consumer_group_member_metadata", profile, "a").member("b")
    log.epoch(7).target(7, a=[0], b=[1]).current("a", 7, [0]).current("b", 7, [1]).wait(MINUTE)
    if has_members:
        log.current("a", None).current("b", None)
    log.target(None)
    if has_members:
        log.member("a", gone=True).member("b", gone=True)
    return log.epoch(None).wait(0, hole=True)


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        (8, [("PreparingRebalance", 7), ("CompletingRebalance", 8), ("Stable", 8)]),
        (
            12,
            [
                *(("Stable", 7), ("PreparingRebalance", 7)),
                *(("CompletingRebalance", 12), ("Stable", 12)),
            ],
        ),
        (None, [("Stable", 7), ("Dead", None)]),
    ],
)
def test_a_conversion_back_of_which_the_record_is_gone_ends_no_life(
    generation: int | None, expected: list[tuple[str, int | None]]
) -> None:
    log = converted_back()
    back = log.clock
    log.wait(3 * SECOND, hole=True)
    log = log.deleted() if generation is None else log.classic(generation, {"a": [0, 1]})
    tables = whole_and_cut(log.log()._replace(names={"id-of-t": "t"}))
    assert timeline(tables) == [("Stable", 7), *expected]
    (begun,) = (r for r in tables[STATES] if r["sequence"] == 1)
    assert (begun["started_at"], begun["group_type"]) == (back, "classic")
    known = sessions(tables)
    assert known["b"]["left_at"] == back
    assert (known["a"]["left_at"] is None) == (generation is not None)
    if generation is not None:
        last = generations(tables)[-1]
        assert (last["moved_partitions"] or 0) == (generation == 8)


@pytest.mark.parametrize(("generation", "has_members"), [(1, True), (0, True), (9, False)])
def test_a_consumer_group_that_was_deleted_was_not_converted_back(
    generation: int,
    has_members: bool,  # noqa: FBT001
) -> None:
    log = converted_back(has_members=has_members)
    ended = log.clock
    log.wait(HOUR, hole=True)
    log = log.classic(generation, {"a": [0, 1]}) if generation else log.created()
    (dead,) = (r for r in whole_and_cut(log.log())[STATES] if r["state"] == "Dead")
    assert dead["started_at"] == ended


@pytest.mark.parametrize(("generation", "dies"), [(9, False), (2, True)])
def test_a_conversion_back_shows_one_that_nobody_saw(generation: int, dies: bool) -> None:  # noqa: FBT001
    log = Records().classic(3, {"a": [0]}).wait(DAY, hole=True).current("a", None)
    log.target(None).member("a", gone=True).epoch(None).classic(generation, {"a": [0, 1]})
    tables = whole_and_cut(log.log())
    assert timeline(tables)[-1] == ("Stable", generation)
    assert ("Dead" in [name for name, _ in timeline(tables)]) == dies
    assert owners(tables)[0] == (0, "a", False, False)


def test_a_rebalance_is_over_by_its_timeout_whatever_went_missing() -> None:
    log = two_members().member("c").epoch(58).wait(0).wait(3 * DAY, hole=True)
    log.member("d").epoch(70).target(70, d=[0]).current("d", 70, [0])
    rows = sorted(whole_and_cut(log.log())[STATES], key=lambda r: r["sequence"])
    (assigning,) = (r for r in rows if r["state"] == "Assigning")
    assert assigning["duration_ms"] == 5 * MINUTE
    assert rows[-1]["state"] == "Stable"


@pytest.mark.parametrize("lasts", [MINUTE, 4 * HOUR])
def test_a_rebalance_is_over_by_its_timeout_if_all_are_there_behind_the_gap(lasts: int) -> None:
    log = two_members().wait(MINUTE).member("c").wait(lasts, hole=True)  # the cleaner took 58
    log.epoch(59).target(59, a=[0], b=[1], c=[2]).current("c", 59, [2])
    tables = whole_and_cut(log.log())
    over = [("Stable", 57)] if lasts > 5 * MINUTE else []
    told = [("Stable", 57), ("Reconciling", 57), *over, ("Reconciling", 59)]
    assert timeline(tables) == told
    (_, reconciling, *stable, _) = sorted(tables[STATES], key=lambda r: r["sequence"])
    assert reconciling["duration_ms"] == min(lasts, 5 * MINUTE)
    assert reconciling["known_until"] == reconciling["started_at"]
    assert [row["known_until"] for row in stable] == [row["started_at"] for row in stable]


# -- the classic protocol --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hole", "ms", "is_told"),
    [(True, 4 * HOUR, False), (True, 4 * MINUTE, True), (False, 4 * HOUR, True)],
)
def test_an_epoch_that_was_reached_unseen_did_not_last_until_the_next(
    hole: bool,  # noqa: FBT001
    ms: int,
    is_told: bool,  # noqa: FBT001
) -> None:
    log = two_members().epoch(58).target(58, a=[0, 1], b=[]).wait(ms, hole=hole)
    log.current("a", 57, [0]).wait(SECOND).current("b", None).member("b", gone=True).epoch(59)
    tables = whole_and_cut(log.target(59, a=[0]).wait(MINUTE).log())
    row = next(r for r in generations(tables) if r["generation"] == 58)
    assert row["rebalance_ms"] == (ms + SECOND if is_told else None)
    found = {a["kind"] for a in detected_history(tables, log.clock)}
    assert ("stuck_rebalance" in found) == (is_told and ms > HOUR)


def test_generations_that_are_missing_leave_members_and_owners_unknown() -> None:
    log = Records().classic(1, {"a": [0], "b": [1]}).wait(MINUTE).commit().wait(MINUTE)
    seen = log.commit().clock
    log.wait(DAY, hole=True).classic(5, {"b": [1], "c": [0]})
    tables = whole_and_cut(log.log())
    known = sessions(tables)
    assert known["a"]["known_until"] == seen
    assert [known[m]["known_until"] for m in ("b", "c")] == [None, None]
    assert owners(tables) == AROUND_A_GAP
    assert [row["known_until"] for row in generations(tables)] == [seen, None]


@pytest.mark.parametrize("ahead", [0, 5 * HOUR])
@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_clock_that_is_ahead_bears_no_generation_out(kind: str, ahead: int) -> None:
    log = Records() if kind == "classic" else two_members()
    log.wait(MINUTE)
    log.clock += ahead
    if kind == "classic":
        log.classic(1, {"a": [0], "b": [1]})
    else:
        log.epoch(58).target(58).current("a", 58, [0]).current("b", 58, [1])
    log.clock -= ahead
    seen = log.wait(MINUTE).commit().clock
    log.wait(DAY, hole=True)
    if kind == "classic":
        log.classic(5, {"c": [0]})
    else:
        log.member("c").epoch(61).target(61, c=[0]).current("c", 61, [0])
    *_, former, _ = generations(whole_and_cut(log.log()))
    assert former["known_until"] == seen


@pytest.mark.parametrize("ahead", [0, 5 * HOUR])
@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_nothing_is_borne_out_for_longer_than_it_lasted(kind: str, ahead: int) -> None:
    """Commits come until the next generation, or are of a broker whose clock is ahead."""
    log = Records().classic(1, {"a": [0], "b": [1]}) if kind == "classic" else two_members()
    log.wait(MINUTE)
    log.clock += ahead
    log.commit()
    log.clock -= ahead
    log.wait(1, hole=True)
    if kind == "classic":
        log.classic(5, {"c": [0]})
    else:
        log.member("c").epoch(61).target(61, c=[0]).current("c", 61, [0])
    tables = whole_and_cut(log.wait(HOUR).commit().log())
    ends = {STATES: "ended_at", GENERATIONS: "ended_at", SESSIONS: "left_at", OWNERS: "valid_to"}
    for table, end in ends.items():
        doubted = [row for row in tables[table] if row["known_until"] is not None]
        assert doubted, table
        assert all(r[end] is None or r["known_until"] <= r[end] for r in doubted), table


def test_the_next_generation_leaves_nothing_unknown_in_spite_of_a_hole() -> None:
    log = Records().classic(1, {"a": [0], "b": [1]}).wait(DAY, hole=True)
    tables = whole_and_cut(log.classic(2, {"b": [1], "c": [0]}).log())
    every = [row for name in (SESSIONS, OWNERS, GENERATIONS, STATES) for row in tables[name]]
    assert all(row["known_until"] is None for row in every)


def _one() -> Records:
    """Let a classic group have a first generation."""
    return Records().classic(1, {"a": [0]})


def _emptied(epoch: int) -> Records:
    """Let a group of the consumer protocol have an epoch without members."""
    return Records().joins_empty("a", epoch - 1).wait(MINUTE).leaves_empty("a", epoch)


@pytest.mark.parametrize(
    ("before", "lasts", "behind", "unknown"),
    [
        # Others may have come and gone, ...
        (Records().classic(6), DAY, lambda log: log.classic(13), ("Empty", 6)),
        (_emptied(6), DAY, lambda log: log.epoch(13), ("Empty", 6)),
        (Records().classic(6, {"a": [0]}), DAY, lambda log: log.classic(9), ("Stable", 6)),
        (two_members(), DAY, lambda log: log.epoch(59).target(59), ("Stable", 57)),
        # ... and did, if it is empty again: the next number was not assigned to anybody.
        (Records().classic(2), DAY, lambda log: log.classic(3), ("Empty", 2)),
        (_emptied(2), DAY, lambda log: log.epoch(3), ("Empty", 2)),
        # Kafka deletes what is empty for a week, and what is made anew counts from the start.
        (Records().classic(2), 8 * DAY, lambda log: log.classic(3, {"a": [0]}), ("Empty", 2)),
        (_emptied(2), 8 * DAY, lambda log: log.joins_empty("b", 3), ("Empty", 2)),
        # What is gone may have been there again.
        (Records().classic(2).deleted(), DAY, lambda log: log.classic(1, {"a": [0]}), "Dead"),
        (Records().classic(2).deleted(), DAY, lambda log: log.commit(), "Dead"),
        (_emptied(2).epoch(None), DAY, lambda log: log.joins_empty("b", 1), "Dead"),
        # The very next one came without another in between, and so did the group that goes over.
        (Records().classic(2), DAY, lambda log: log.classic(3, {"a": [0]}), None),
        (Records().classic(2, {"a": [0]}), DAY, lambda log: log.classic(3), None),
        (_emptied(2), DAY, lambda log: log.joins_empty("b", 3), None),
        (two_members(), DAY, lambda log: log.epoch(58).target(58), None),
        (Records().classic(2, {"a": [0]}), DAY, lambda log: log.joins_empty("a", 2), None),
        # Whoever comes to an empty classic group puts off that it expires. Where Kafka counts since
        # the last commit, one who commits nothing does not; and share groups do not expire.
        (Records().classic(2), DAY, lambda log: log.deleted(), ("Empty", 2)),
        (Records().classic(2), 7 * DAY + MINUTE, lambda log: log.deleted(), None),
        (Records().commit(), 7 * DAY + MINUTE, lambda log: log.deleted(), ("Empty", 0)),
        (_emptied(2), 7 * DAY + MINUTE, lambda log: log.epoch(None), ("Empty", 2)),
        # A group with members may have become empty, expired, and been made anew as well.
        (_one(), 9 * DAY, lambda log: log.classic(2, {"z": [0]}), ("Stable", 1)),
        (_one(), 9 * DAY, lambda log: log.classic(2), ("Stable", 1)),
        (_one(), 9 * DAY, lambda log: log.classic(2, {"a": [0], "z": [1]}), None),
        (_one(), 5 * DAY, lambda log: log.classic(2, {"z": [0]}), None),
        # Who came and went with epochs that are missing has left a tombstone.
        (_emptied(2), DAY, lambda log: log.current("x", None).member("x", gone=True), ("Empty", 2)),
    ],
)
def test_a_state_is_borne_out_until_what_may_have_come_behind_it(
    before: Records, lasts: int, behind: Callable[[Records], Records], unknown: object
) -> None:
    log = copy.deepcopy(before)
    seen = log.clock
    tables = whole_and_cut(behind(log.wait(lasts, hole=True)).log())
    doubted = [row for row in tables[STATES] if row["known_until"] is not None]
    assert ["Dead" if r["state"] == "Dead" else (r["state"], r["generation"]) for r in doubted] == (
        [] if unknown is None else [unknown]
    )
    assert {row["known_until"] for row in doubted} <= {seen}
    copied = copy.deepcopy(before)
    whole = whole_and_cut(behind(copied.wait(lasts)).log())
    assert {row["known_until"] for row in whole[STATES]} == {None}


def test_a_static_member_of_another_life_is_no_return() -> None:
    """The coordinator keeps when the group became Stable, and writes it as the member returns."""
    for took, told in ((3 * DAY, [("Stable", 1)]), (10, [("Stable", 1), ("Dead", None)])):
        log = Records().classic(1, {"a": [0]}, instance="i").wait(3 * DAY, hole=True)
        tables = whole_and_cut(log.classic(1, {"b": [0]}, instance="i", took=took).log())
        names = [state for state in timeline(tables) if state[0] in ("Stable", "Dead")]
        assert names == told + [("Stable", 1)] * (len(told) - 1)


def test_a_share_group_without_its_epoch_is_not_known_to_be_as_before() -> None:
    log = Records().member("a", kind="share").record("share_group_metadata", {"epoch": 13})
    seen = log.clock
    tables = whole_and_cut(log.wait(DAY, hole=True).member("b", kind="share").wait(HOUR).log())
    assert timeline(tables) == [("Stable", 13)]
    assert [row["known_until"] for row in tables[STATES]] == [seen]


def test_a_state_that_is_named_again_behind_a_gap_lasted_all_the_time() -> None:
    """Static members that come back under other ids make no epoch."""
    log = two_members().wait(DAY, hole=True)
    for name in "cd":  # of whom the cleaner has left that they are gone
        log.current(name, None).member(name, gone=True).wait(MINUTE, hole=True)
    log.current("a", 57, [0]).current("b", 57, [1]).wait(MINUTE)
    tables = whole_and_cut(log.log())
    assert timeline(tables)[-1] == ("Stable", 57)
    assert [row["known_until"] for row in tables[STATES] if row["ended_at"] is None] == [None]


@pytest.mark.parametrize("is_known", [True, False], ids=["all are named", "one is set aside"])
@pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "joins"])
@pytest.mark.parametrize("epoch", [58, 59])
def test_of_which_epoch_a_change_of_members_was_is_not_known_before_the_next(
    epoch: int, *, leaves: bool, is_known: bool
) -> None:
    """Each begins one: that of which the log has lost the record, or the one that comes next."""
    log = Records().member("a").epoch(57).target(57, a=[0]).current("a", 57, [0])
    if not is_known:
        log.member("b").epoch(58).target(58, b=[1]).current("b", 58, [1]).current("a", 58, [0])
    first = 57 if is_known else 58
    seen = log.wait(MINUTE).commit().clock
    log.wait(HOUR, hole=True)
    if leaves:
        log.current("a", None).record("consumer_group_target_assignment_member", None, "a")
        log.member("a", gone=True)
    else:
        log.current("a", first, [0]).member("c")
    log.wait(MINUTE, hole=True)
    tables = whole_and_cut(log.log())
    assert generations(tables)[-1]["known_until"] == seen
    log.epoch(epoch - 57 + first).target(epoch - 57 + first).wait(MINUTE).commit()
    former = next(r for r in generations(whole_and_cut(log.log())) if r["generation"] == first)
    assert former["known_until"] == (None if epoch == 58 else seen)


@pytest.mark.parametrize("regex", [None, "t.*"])
def test_who_comes_to_an_empty_group_has_not_been_there(regex: str | None) -> None:
    log = two_members().wait(HOUR, hole=True).epoch(60).wait(3 * DAY)
    if regex is None:
        log.member("c")
    else:  # it begins an epoch when its expression is resolved
        member = {"client_id": "c", "client_host": "/h", "subscribed_topic_regex": regex}
        log.record("consumer_group_member_metadata", member, "c").current("c", 60).wait(SECOND)
        log.record("consumer_group_regular_expression", {"topics": ["t"]}, regex)
    log.epoch(61).target(61, c=[0]).current("c", 61, [0])
    told = timeline(whole_and_cut(log.log()))
    assert told[:2] == [("Stable", 57), ("Empty", 60)]
    assert told[-1] == ("Stable", 61)


@pytest.mark.parametrize("instance", [None, "i"])
def test_a_generation_of_that_number_with_others_is_of_another_group(instance: str | None) -> None:
    log = Records().classic(1, {"a": [0]}, instance=instance).wait(HOUR, hole=True)
    log.classic(1, {"b": [0]}, instance=instance, took=10 if instance is None else HOUR)
    tables = whole_and_cut(log.log())
    assert (("classic", "Dead") in states(tables)) == (instance is None)


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
@pytest.mark.parametrize("is_written", [True, False])
def test_an_epoch_that_is_written_again_is_of_another_group(kind: str, *, is_written: bool) -> None:
    def joins(log: Records, name: str, *, has_epoch: bool) -> Records:
        log.member(name, kind=kind)
        if has_epoch:
            metadata = {"epoch": 1, "validated_topology_epoch": 0}
            log.record(f"{kind}_group_metadata", metadata)
            assigned = {"assignment_epoch": 1}
            log.record(f"{kind}_group_target_assignment_metadata", assigned)
        stable = {"member_epoch": 1, "state": 1 if kind == "streams" else 0}
        return log.record(f"{kind}_group_current_member_assignment", stable, name).wait(SECOND)

    log = Records()
    if kind == "streams":
        log.record("streams_group_topology", {"epoch": 0, "subtopologies": []})
    joins(log, "a", has_epoch=True).wait(10 * DAY, hole=True)
    joins(log, "b", has_epoch=is_written)
    tables = whole_and_cut(log.log())
    assert ((kind, "Dead") in states(tables)) == is_written
    known = [r["known_until"] is None for r in generations(tables)]
    assert known == ([False, True] if is_written else [False])


def test_a_group_whose_next_record_is_of_its_epoch_was_not_empty() -> None:
    log = two_members().wait(HOUR, hole=True).current("a", None)
    log.record("consumer_group_target_assignment_member", None, "a").member("a", gone=True)
    log.epoch(70).wait(3 * SECOND).target(70, b=[0, 1]).current("b", 70, [0, 1])
    tables = whole_and_cut(log.log())
    assert ("consumer", "Empty") not in states(tables)
    assert timeline(tables)[-1] == ("Stable", 70)


@pytest.mark.parametrize("is_classic", [True, False])
def test_a_group_that_is_deleted_behind_a_gap_had_its_members_until_the_gap(
    is_classic: bool,  # noqa: FBT001
) -> None:
    log = Records().classic(1, {"a": [0]}).wait(MINUTE).commit() if is_classic else two_members()
    seen = log.clock
    log.wait(DAY, hole=True)
    tables = whole_and_cut((log.deleted() if is_classic else log.target(None).epoch(None)).log())
    assert generations(tables)[0]["known_until"] == seen
    # How it became Empty is missing; it may have been made anew, and deleted again.
    dead = max(tables[STATES], key=lambda r: r["sequence"])
    bounds = dead["started_at_min"], dead["started_at"], dead["started_at_max"]
    assert (dead["state"], *bounds) == ("Dead", seen, log.clock, log.clock)


@pytest.mark.parametrize("is_classic", [True, False])
def test_an_empty_group_that_is_deleted_behind_a_gap_was_empty_until_then(
    is_classic: bool,  # noqa: FBT001
) -> None:
    log = Records().classic(1, {"a": [0]}).wait(MINUTE) if is_classic else two_members()
    if is_classic:
        log.classic(2)
    else:
        log.current("a", None).member("a", gone=True).leaves_empty("b", 58)
    log.wait(DAY, hole=True)
    tables = whole_and_cut((log.deleted() if is_classic else log.target(None).epoch(None)).log())
    dead = max(tables[STATES], key=lambda r: r["sequence"])
    assert timeline(tables)[-2:] == [("Empty", 2 if is_classic else 58), ("Dead", None)]
    assert (dead["evidence"], dead["started_at"]) == ("exact", log.clock)


@pytest.mark.parametrize("others", [[], ["x"]], ids=["nobody", "another"])
def test_a_share_group_may_have_been_empty_between_those_who_left_and_those_who_came(
    others: list[str],
) -> None:
    """Whoever came and went unseen has left a tombstone: most likely nobody was there."""
    log = Records().member("a", kind="share").record("share_group_metadata", {"epoch": 13})
    log.wait(HOUR, hole=True)
    left = log.clock
    log.member("a", kind="share", gone=True).wait(HOUR, hole=True)
    for name in others:
        log.member(name, kind="share", gone=True).wait(SECOND, hole=True)
    log.member("b", kind="share")
    log.wait(SECOND, hole=True).member("c", kind="share")
    log.record("share_group_metadata", {"epoch": 16})
    rows = sorted(whole_and_cut(log.log())[STATES], key=lambda r: r["sequence"])
    empty = [] if others else [("Empty", 13), ("Stable", 13)]
    told = [("Stable", 13), *empty, ("Stable", 16)]
    assert [(r["state"], r["generation"]) for r in rows] == told
    assert rows[1 if empty else -1]["started_at_min"] <= left
    for row in rows[1:2] if empty else ():
        assert (row["started_at"], row["evidence"]) == (left, "bounded")
        assert row["started_at_max"] == row["ended_at"]


def test_a_group_that_is_deleted_with_members_and_nothing_missing_was_deleted_then() -> None:
    """Brokers before Kafka 0.10.1 have no Empty, and write nothing in between."""
    log = Records().classic(1, {"a": [0]}).wait(MINUTE).deleted()
    dead = max(whole_and_cut(log.log())[STATES], key=lambda r: r["sequence"])
    assert (dead["state"], dead["evidence"], dead["started_at"]) == ("Dead", "exact", log.clock)


def test_an_epoch_whose_records_are_all_there_began_then_whatever_is_missing_before() -> None:
    log = Records().member("a", kind="share").record("share_group_metadata", {"epoch": 13})
    log.wait(HOUR, hole=True)
    log.member("a", kind="share", gone=True).wait(HOUR, hole=True).member("b", kind="share")
    log.record("share_group_metadata", {"epoch": 15}).wait(10 * DAY).member("c", kind="share")
    log.record("share_group_metadata", {"epoch": 16})
    row = max(whole_and_cut(log.log())[STATES], key=lambda r: r["sequence"])
    assert (row["generation"], row["evidence"], row["started_at"]) == (16, "exact", log.clock)


def test_a_group_that_was_deleted_unseen_is_told_as_it_was_until_it_comes_back() -> None:
    log = Records().classic(1, {"a": [0]}).wait(MINUTE).commit()
    seen = log.clock
    log.wait(3 * DAY, hole=True)  # the tombstones were there for a day
    silent = whole_and_cut(log.log())
    assert timeline(silent)[-1] == ("Stable", 1)
    assert all(row["ended_at"] is None for row in silent[STATES] if row["state"] == "Stable")
    tables = whole_and_cut(log.created().wait(3 * SECOND).classic(1, {"b": [0]}).log())
    (dead,) = (row for row in tables[STATES] if row["state"] == "Dead")
    assert dead["started_at_min"] <= seen
    assert dead["started_at_max"] == seen + 3 * DAY
    assert sessions(tables)["a"]["known_until"] == seen
    assert owners(tables) == [(0, "a", False, False), (0, "b", True, True)]


@pytest.mark.parametrize(("took", "was_simple"), [(HOUR, False), (10, True)])
def test_commits_behind_the_state_that_a_record_tells_of_are_of_its_members(
    took: int,
    was_simple: bool,  # noqa: FBT001
) -> None:
    # A static member came back, and the cleaner took the first record of the generation.
    log = Records().wait(0, hole=True).commit().wait(MINUTE, hole=True)
    tables = whole_and_cut(log.classic(1, {"a": [0]}, took=took).log())
    assert (timeline(tables)[0] == ("Empty", 0)) == was_simple
    assert timeline(tables)[-1] == ("Stable", 1)


def test_an_empty_group_goes_when_its_offsets_expire() -> None:
    log = Records().classic(1, {"a": [0]}).wait(MINUTE).classic(2, took=0)
    emptied = log.clock
    log.wait(9 * DAY, hole=True).created()
    rows = sorted(whole_and_cut(log.log())[STATES], key=lambda r: r["sequence"])
    (dead,) = (r for r in rows if r["state"] == "Dead")
    assert dead["started_at"] == emptied + 7 * DAY
    assert (dead["started_at_min"], dead["started_at_max"]) == (emptied, log.clock)


# -- transactions ----------------------------------------------------------------------------------


def with_markers(log: Log) -> Log:
    """Let the marker of a transaction, which no reader gets, stand between all batches."""
    events: list[Record | Commit] = []
    missing: list[int] = []
    for before, event in itertools.pairwise([None, *log.events]):
        is_next = before is not None and (
            isinstance(before, Record)
            and isinstance(event, Record)
            and event.offset == before.offset + 1
            and event.timestamp == before.timestamp
        )
        if events and not is_next:
            missing.append(events[-1].offset + 1)
        offset = events[-1].offset + (1 if is_next else 2) if events else 0
        events.append(event._replace(offset=offset))  # type: ignore[union-attr]
    return log._replace(events=events, missing=tuple(missing))


@pytest.mark.parametrize("name", ["4.3.1-modern", "3.9.2-kraft-modern"])
def test_markers_between_all_batches_leave_the_new_protocols_known(name: str) -> None:
    compared = 0
    for log in logs_of(path_of(name)):
        kinds = {r.kind.partition("_group_")[0] for r in log.events if isinstance(r, Record)}
        if not kinds & {"consumer", "share", "streams"} or "group_metadata" in kinds:
            continue
        known, marked = rebuild(log), rebuild(with_markers(log))
        columns = {
            STATES: ("state", "generation", "started_at", "ended_at", "member_count"),
            SESSIONS: ("member_id", "joined_at", "left_at", "known_until"),
            OWNERS: ("topic_id", "topic_partition", "member_id", "valid_from", "valid_to"),
            GENERATIONS: ("generation", "stable_at", "sync_ms", "rebalance_ms", "member_count"),
        }
        for table, names in columns.items():
            told = [sorted(str([r[n] for n in names]) for r in t[table]) for t in (known, marked)]
            assert told[0] == told[1], (log.group_id, table)
        compared += 1
    assert compared


@pytest.mark.parametrize(
    ("kind", "days", "dead_after"),
    [("classic", 9, 7), ("consumer", 9, 7), ("share", 9, 9), ("consumer", 2, 2)],
)
def test_an_empty_group_went_when_its_offsets_expired(
    kind: str, days: int, dead_after: int
) -> None:
    log = Records()
    if kind == "classic":
        log.classic(1, {"a": [0]}).wait(HOUR).classic(2).wait(days * DAY, hole=True)
        emptied = log.clock - days * DAY
        log.classic(1, {"b": [0]}, took=0)
    else:
        log.member("a", kind=kind).record(f"{kind}_group_metadata", {"epoch": 5}).wait(HOUR)
        log.member("a", kind=kind, gone=True).record(f"{kind}_group_metadata", {"epoch": 6})
        emptied = log.clock
        log.wait(days * DAY, hole=True)
        log.member("b", kind=kind).record(f"{kind}_group_metadata", {"epoch": 1})
    [dead] = [r for r in whole_and_cut(log.log())[STATES] if r["state"] == "Dead"]
    assert dead["started_at"] == emptied + dead_after * DAY
    assert (dead["started_at_min"], dead["started_at_max"]) == (emptied, log.clock)
    assert dead["evidence"] == "bounded"


@pytest.mark.parametrize("is_later", [True, False])
def test_a_group_that_became_empty_again_in_one_generation_is_another(is_later: bool) -> None:  # noqa: FBT001
    log = Records().classic(1, {"a": [0]}).wait(HOUR).classic(2, took=0)
    emptied = log.clock
    log.wait(9 * DAY, hole=True).classic(2, took=0 if is_later else 9 * DAY)
    rows = sorted(whole_and_cut(log.log())[STATES], key=lambda r: r["sequence"])
    told = [(r["state"], r["started_at"] - emptied) for r in rows if r["started_at"] >= emptied]
    if is_later:  # the first one went when its offsets expired
        assert told[:2] == [("Empty", 0), ("Dead", 7 * DAY)]
        assert told[-1] == ("Empty", 9 * DAY)
    else:  # a coordinator that took over has written it again
        assert told == [("Empty", 0)]


@pytest.mark.parametrize(
    ("case", "unassigned"),
    [("first known", None), ("new topic", None), ("read before", ["x"]), ("dynamic", ["x"])],
)
def test_what_a_static_member_came_back_to_read_is_not_without_owner(
    case: str, unassigned: list[str] | None
) -> None:
    # A member that comes back with other topics starts no rebalance: the record that is left may
    # be of its return, and nothing was to be assigned of them.
    log, topics = Records(), ("t", "x")
    if case in ("new topic", "read before"):
        before = topics if case == "read before" else ("t",)
        log.classic(1, {"a": [0]}, instance="i", topics=before)
    instance = None if case == "dynamic" else "i"
    log.wait(3 * DAY, hole=True).classic(2, {"b": [0]}, instance=instance, topics=topics)
    tables = whole_and_cut(log.wait(DAY).commit().log())
    assert generations(tables)[-1]["unassigned_topics"] == unassigned
    told = [r for r in detected_history(tables, log.clock) if r["kind"] == "orphan_topic"]
    assert bool(told) == (unassigned is not None)
    # The next generation shows it.
    log.classic(3, {"b": [0]}, instance=instance, topics=topics).wait(DAY).commit()
    tables = whole_and_cut(log.log())
    told = [r for r in detected_history(tables, log.clock) if r["kind"] == "orphan_topic"]
    assert [(r["subject"], r["severity"]) for r in told] == [("x", "warning")]


def ends(tables: dict[str, list[Row]]) -> set[int | None]:
    """Return until when the last state and generation are known, and all members and owners."""
    last = [max(tables[STATES], key=lambda r: r["sequence"]), generations(tables)[-1]]
    known = tables[SESSIONS] + tables[OWNERS]
    return {r["ended_at"] for r in last} | {r["known_until"] for r in known}


@pytest.mark.parametrize("kind", ["classic", "consumer", "share", "not told yet"])
def test_of_a_group_without_a_record_behind_a_long_gap_nothing_is_known(kind: str) -> None:
    log = two_members()
    if kind == "classic":
        log = Records().classic(1, {"a": [0], "b": [1]}).wait(MINUTE).commit()
    elif kind == "share":
        log = Records().member("a", kind="share").record("share_group_metadata", {"epoch": 5})
    elif kind == "not told yet":  # more may have been written with its last record
        log = Records().classic(1, {"a": [0]})
    # Kafka removes the tombstone of a group delete.retention.ms after the cleaner has seen it.
    read_until, behind = log.clock + HOUR, len(log.events) + 9
    weekend = Unseen(behind, read_until, read_until + 2 * DAY)
    tables = rebuild(log.log(weekend))
    assert ends(tables) == {read_until}
    assert not [r for r in detected_history(tables, log.clock + 9 * DAY) if r["is_open"]]
    # The record behind a gap shows that it is there, and behind a shorter one its tombstone would.
    later = Unseen(behind + 9, read_until + 3 * DAY, read_until + 5 * DAY)
    assert ends(rebuild(log.log(weekend._replace(offset=0), later))) == {later.since}
    assert ends(rebuild(log.log(weekend._replace(offset=0)))) == {None}
    assert ends(rebuild(log.log(weekend._replace(until=read_until + DAY)))) == {None}


@pytest.mark.parametrize(
    ("kind", "days", "known_for"),
    [("Empty", 3, None), ("Empty", 9, 7), ("share", 9, None), ("Dead", 9, None)],
)
def test_a_group_without_members_is_told_so_for_as_long_as_brokers_keep_its_offsets(
    kind: str, days: int, known_for: int | None
) -> None:
    log = Records()
    if kind == "share":
        log.member("a", kind="share").record("share_group_metadata", {"epoch": 5}).wait(HOUR)
        log.member("a", kind="share", gone=True).record("share_group_metadata", {"epoch": 6})
    else:
        log.classic(1, {"a": [0]}).wait(HOUR)
        log = log.classic(2, took=0) if kind != "Dead" else log.deleted()
    since = log.clock
    tables = rebuild(log.log(Unseen(99, since + HOUR, since + days * DAY)))
    last = max(tables[STATES], key=lambda r: r["sequence"])
    assert last["state"] == (kind if kind == "Dead" else "Empty")
    assert last["ended_at"] == (known_for and since + known_for * DAY)

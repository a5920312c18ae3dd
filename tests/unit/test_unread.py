"""What is told of partitions that nobody reads, or two read, by recordings and made-up lives."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from detectors.detection import COLUMNS
from detectors.group import (
    GENERATION,
    LAG,
    MOVE,
    NEVER_OWNED,
    OPEN_GENERATION,
    TWO_OWNERS,
    WAIT,
    GroupDetector,
)
from detectors.group import MINUTE as MINUTE_ROW
from detectors.health import group_health
from detectors.rows import anomaly_rows
from tests.support.detection import default_thresholds, detected, detected_history
from tests.support.history import Commit, Log, rebuild
from tests.support.members import record_of
from timeline.holes import holes_of
from timeline.model import Record, partition_hash, partition_key

Row = dict[str, Any]
FIELD = Path(__file__).parents[1] / "field"
KIND = "unread_partition"
LIMITS = default_thresholds()
START = 1_700_000_000_000
MINUTE, HOUR = 60, 3_600


def alarms(recording: str, runs: int = 1) -> list[Row]:
    """Return the warnings and worse of a recording of the field."""
    (path,) = FIELD.glob(f"{recording}*")
    return [row for row in detected(path, runs) if row["severity"] != "info"]


# -- recordings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("runs", [1, 2, 7])
def test_a_partition_that_stands_still_is_told_and_what_looks_like_it_is_not(runs: int) -> None:
    (row,) = alarms("04", runs)
    assert (row["kind"], row["group_id"], row["subject"]) == (KIND, "f04-fleet", "shipments/7")
    for said in ("shipments/7", "23:09:45", "40,257 records", "f04-audit", "fleet-3", "Restart"):
        assert said in row["summary"]
    assert alarms("04")[0] == row


@pytest.mark.parametrize("runs", [1, 2])
def test_two_owners_are_told_and_handovers_share_groups_and_standby_tasks_are_not(
    runs: int,
) -> None:
    (row,) = alarms("06", runs)
    assert (row["kind"], row["severity"], row["label"]) == (KIND, "critical", "two_owners")
    assert (row["group_id"], row["subject"]) == ("f06-classic", "fares/3")
    for said in ("fares/3", "23:30:00", "farer-0@/10.4.0.11", "farer-1@/10.4.0.11", "Restart"):
        assert said in row["summary"]


def ownership(client: str, since: int, until: int | None, known_until: int | None = None) -> Row:
    """Return a row of partition_owners, its times in seconds."""
    times = {"valid_from": since, "valid_to": until, "known_until": known_until}
    return {
        **{name: None if at is None else at * 1_000 for name, at in times.items()},
        "client_id": client,
        "client_host": "h",
        "record_partition": 0,
        "record_offset": since,
    }


def owned(*runs: list[Row], partitions: tuple[int, ...] = (3,)) -> list[tuple[Any, ...]]:
    """Return what is told of ownerships that each run learns: of the last run, if it goes on."""
    checkpoint, told = None, []
    for n, rows in enumerate(runs):
        detector = GroupDetector(LIMITS.values, checkpoint)
        for partition in partitions:
            twice = {"topic": "t", "topic_partition": partition, "ownerships": rows}
            detector.take(TWO_OWNERS, twice)
        told += detector.settled()
        if n == len(runs) - 1:
            told += detector.still_open(1_000_000)
        checkpoint = detector.to_json()
    return [(e.subject, e.started_at, e.ended_at, e.evidence["partitions"]) for e in told]


def test_two_owners_whatever_the_runs() -> None:
    first, second = ownership("a", 0, 500), ownership("b", 200, None)
    going_on = [ownership("a", 0, None), second]
    assert owned([first, second]) == [("t/3", 200_000, 500_000, 1)]
    assert owned(going_on) == [("t/3", 200_000, 1_000_000, 1)]
    assert owned(going_on, [first, second]) == owned([first, second])
    assert owned(going_on, [first, second], []) == owned([first, second])
    assert owned([first, second], partitions=(4, 3)) == [("t/3", 200_000, 500_000, 2)]


def test_all_owners_of_a_partition_are_named() -> None:
    detector = GroupDetector(LIMITS.values)
    # The middle one goes first: two are left until the next does.
    until = {"a": 500, "b": 300, "c": None}
    rows = [ownership(name, 0, end) for name, end in until.items()]
    detector.take(TWO_OWNERS, {"topic": "t", "topic_partition": 3, "ownerships": rows})
    (told,) = [*detector.settled(), *detector.still_open(500_000)]
    assert (told.evidence["at_once"], told.evidence["owners"]) == (3, ["a@h", "b@h", "c@h"])
    assert (told.started_at, told.ended_at) == (0, 500_000)


def twice(partition: int, since: int, until: int | None) -> Row:
    """Return a row of `OWNERS_COLUMNS`: a partition that two own from a time on, in seconds."""
    owners = [ownership("a", since - 10, until), ownership("b", since, None)]
    return {"topic": "t", "topic_partition": partition, "ownerships": owners}


@pytest.mark.parametrize(
    ("apart", "told"),
    [(7, [("t/1", 100, 121, 3)]), (3_500, [("t/1", 100, 7_107, 3)]), (3_700, None)],
    ids=["at once", "within the hour", "later"],
)
@pytest.mark.parametrize("cuts", [[3], [1, 2], [1, 1, 1], [2, 0, 1]], ids=str)
def test_partitions_given_twice_by_one_rebalance_after_the_other_are_one_episode(
    apart: int, told: list[tuple[Any, ...]] | None, cuts: list[int]
) -> None:
    """Each time it is another partition, and a run may be given what the one before was."""
    rows = [twice(n + 1, 100 + n * apart, 107 + n * apart) for n in range(3)]
    checkpoint, found, known = None, [], 0
    for number in cuts:
        detector = GroupDetector(LIMITS.values, checkpoint)
        for row in rows[max(0, known - 1) : known + number]:
            detector.take(TWO_OWNERS, row)
        known += number
        found += detector.settled()
        checkpoint = detector.to_json()
    found += detector.still_open(12_000_000)
    seen = [
        (e.subject, e.started_at // 1_000, e.ended_at // 1_000, len(e.evidence["unread"]))
        for e in found
    ]
    apart_ones = [(f"t/{n + 1}", 100 + n * apart, 107 + n * apart, 1) for n in range(3)]
    assert seen == (apart_ones if told is None else told)


def test_an_owner_that_follows_another_is_no_second_one() -> None:
    assert owned([ownership("a", 0, 200), ownership("b", 200, None)]) == []
    assert owned([ownership("a", 0, 500, known_until=100), ownership("b", 200, None)]) == []


def never_owned(
    *runs: tuple[float, float],
    since: float = 0,
    is_there: bool = True,
    has_grown: bool = True,
    **given: object,
) -> list[tuple[Any, ...]]:
    """Return what is told of t/3, which another group commits between the times of each run."""
    generation = dict.fromkeys(COLUMNS[OPEN_GENERATION]) | {
        "group_type": "classic",
        "generation": 7,
        "member_count": 2,
        "cause": "new_member",
        "unowned_partitions": [],
        "record_partition": 0,
        "record_offset": 9,
        "stable_at": 0,
        "record_timestamp": 0,
        "join_started_at": 0,
    }
    checkpoint, told = None, []
    for n, (first, last) in enumerate(runs):
        detector = GroupDetector(LIMITS.values, checkpoint)
        times = {"first_at": round(first * 1_000), "last_at": round(last * 1_000)}
        never = {"topic_partition": 3, **times, "other_offset": 700, "others": ["audit"]}
        never["has_grown"] = has_grown and not n  # later runs know of its last commits alone
        detector.take(OPEN_GENERATION, generation | given)
        if is_there or n < len(runs) - 1:
            row = {"topic": "t", "owned_since": since * 1_000, "never": [never]}
            detector.take(NEVER_OWNED, row)
        told += [(e, False) for e in detector.settled()]
        if n == len(runs) - 1:
            told += [(e, True) for e in detector.still_open(2_000_000)]
        checkpoint = detector.to_json()
    return [(e.label, e.started_at, e.ended_at, is_open) for e, is_open in told if e.kind == KIND]


@pytest.mark.parametrize("protocol", ["classic", "consumer", "streams", "share"])
def test_a_partition_that_no_member_ever_got_is_told(protocol: str) -> None:
    told = [("never_owned", 100_000, 1_000_000, True)]
    assert never_owned((100, 1_000), group_type=protocol) == told
    # What a run knows of the other group begins with its last commits.
    assert never_owned((100, 300), (290, 1_000), group_type=protocol) == told
    # It has got an owner.
    over = [("never_owned", 100_000, 1_000_000, False)]
    assert never_owned((100, 1_000), (990, 1_100), is_there=False, group_type=protocol) == over


def test_a_partition_that_is_new_or_cannot_be_read_of_is_not_told() -> None:
    assert never_owned((100, 690)) == []  # the members' metadata are five minutes old at most
    assert never_owned((100, 1_000), since=500) == []  # the group has just begun to read the topic
    assert never_owned((100, 1_000), since=101) == []  # it was there when the group got others
    assert never_owned((100, 1_000), has_grown=False) == []  # and here, as far as anybody knows
    assert never_owned((100, 1_000), unowned_partitions=None) == []  # an assignment is no text
    assert never_owned((100, 1_000), member_count=0) == []


class Group:
    """A classic group of two members, by what its assignor gives them; times in seconds."""

    def __init__(self, protocol: str = "range") -> None:
        self._protocol = protocol
        self._records: list[Record] = []

    def assigns(
        self,
        at: float,
        first: list[int] | None,
        second: list[int] | None,
        claims: tuple[list[int], list[int]] = ([], []),
    ) -> Group:
        """Give two members partitions of t; an assignment of None cannot be read."""
        number, time = len(self._records), START + round(at * 1_000)
        members = [
            {
                "member_id": name,
                "client_id": name,
                "client_host": "h",
                "group_instance_id": None,
                "subscription": {
                    "topics": ["t"],
                    "owned_partitions": [{"topic": "t", "partitions": claimed}],
                },
                "rebalance_timeout_ms": 300_000,
                "session_timeout_ms": 45_000,
                "assignment": None
                if owned is None
                else {"partitions": [{"topic": "t", "partitions": owned}] if owned else []},
            }
            for name, owned, claimed in zip("ab", (first, second), claims, strict=True)
        ]
        payload = {
            "protocol_type": "consumer",
            "generation": number + 1,
            "leader": "a",
            "protocol": self._protocol,
            "current_state_timestamp": time,
            "members": members,
        }
        self._records.append(record_of(number, time, "group_metadata", None, payload))
        return self

    def told(self, until: float, runs: int = 1) -> list[Row]:
        history = rebuild(Log("g", 0, [*self._records]))
        rows = detected_history(history, START + round(until * 1_000), runs=runs)
        return [row for row in rows if row["kind"] == KIND]


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize(
    ("protocol", "second", "told"),
    [
        ("everything-to-everyone", [0, 1], ("info", "broadcast")),
        ("everything-to-everyone", [1, 2], ("critical", "two_owners")),
        ("range", [0, 1], ("critical", "two_owners")),
        ("stream", [0, 1], ("critical", "two_owners")),
    ],
    ids=["all of all", "one of three", "an assignor that never does", "Kafka Streams"],
)
def test_an_assignor_that_broadcasts_is_no_fault(
    runs: int, protocol: str, second: list[int], told: tuple[str, str]
) -> None:
    """Each member has each partition, by an assignor that no client brings along."""
    group = Group(protocol).assigns(0, [0, 1], second).assigns(HOUR, [0, 1], second)
    (row,) = group.assigns(2 * HOUR, [0, 1], second).told(3 * HOUR, runs)
    assert (row["severity"], row["label"]) == told


@pytest.mark.parametrize("runs", [1, 2, 3])
def test_a_topic_that_grows_under_an_assignor_that_broadcasts_is_no_fault(runs: int) -> None:
    group = Group("everything-to-everyone").assigns(0, [0, 1], [0, 1])
    group.assigns(HOUR, [0, 1, 2], [0, 1, 2])
    (row,) = group.told(3 * HOUR, runs)
    assert (row["severity"], row["label"]) == ("info", "broadcast")
    (row,) = group.assigns(2 * HOUR, [0, 1, 2], [0, 1]).told(3 * HOUR, runs)
    assert (row["severity"], row["ended_at"] - START) == ("info", 3 * HOUR * 1_000)
    # One that is left out is none that all have.
    group = Group("everything-to-everyone").assigns(0, [0, 1, 2], [0, 1])
    group.assigns(HOUR, [0, 1, 2, 3], [0, 1, 3])
    assert {row["severity"] for row in group.told(3 * HOUR, runs)} == {"critical"}


@pytest.mark.parametrize(
    ("until", "told"),
    [
        (None, [("two_owners", 100, 600)]),
        (300, [("two_owners", 100, 600)]),
        (200, [("two_owners", 100, 200), ("broadcast", 200, 600)]),
    ],
    ids=["both go on", "one is over later", "one follows the other"],
)
def test_what_an_assignor_gives_twice_is_told_once_whether_it_is_meant_or_not(
    until: int | None, told: list[tuple[Any, ...]]
) -> None:
    columns = dict.fromkeys(COLUMNS[GENERATION])
    columns |= {"group_type": "classic", "protocol_type": "consumer", "protocol": "own"}
    columns |= {"cause": "new_member", "record_partition": 0, "assigned_partitions": 2}
    detector = GroupDetector(LIMITS.values)
    for at, members in ((100, 2), (200, 3)):
        times = dict.fromkeys(("join_started_at", "stable_at", "record_timestamp"), at * 1_000)
        row = {**columns, **times, "record_offset": at, "member_count": members}
        detector.take(OPEN_GENERATION if at == 200 else GENERATION, row | {"ended_at": None})
    both = [ownership("a", 100, until), ownership("b", 100, until)]
    all_of_all = [ownership(name, 200, None) for name in "abc"]
    further = all_of_all if until == 200 else all_of_all[2:]  # who has it goes on
    for partition, rows in ((1, [*both, *further]), (2, all_of_all)):
        detector.take(TWO_OWNERS, {"topic": "t", "topic_partition": partition, "ownerships": rows})
    found = [e for e in (*detector.settled(), *detector.still_open(600_000)) if e.kind == KIND]
    assert [(e.label, e.started_at // 1_000, e.ended_at // 1_000) for e in found] == told


@pytest.mark.parametrize("runs", [1, 3])
def test_what_is_given_to_another_before_it_was_given_up_has_two_owners(runs: int) -> None:
    both = ([0, 1], [2, 3])
    group = Group("cooperative-sticky").assigns(0, *both).assigns(HOUR, [0], [1, 2, 3], both)
    group.assigns(HOUR + 2, [0], [1, 2, 3], ([0], [1, 2, 3]))
    (row,) = group.assigns(2 * HOUR, [0], [1, 2, 3], ([0], [1, 2, 3])).told(3 * HOUR, runs)
    assert (row["severity"], row["label"], row["subject"]) == ("critical", "two_owners", "t/1")
    assert [row[at] - START for at in ("started_at", "ended_at")] == [3_600_000, 3_602_000]
    for said in ("t/1 to 2 members", "a@h, b@h", "Restart"):
        assert said in row["summary"]


@pytest.mark.parametrize(
    ("protocol", "steps"),
    [
        ("cooperative-sticky", [([0], [2, 3], ([0, 1], [2, 3])), ([0], [1, 2, 3], ([0], [2, 3]))]),
        ("cooperative-sticky", [([0], [1, 2, 3], ([], [2, 3]))]),
        ("range", [([0], [1, 2, 3], ([0, 1], [2, 3]))]),
    ],
    ids=["in two steps", "its owner had lost it", "an eager assignor"],
)
def test_what_its_owner_gave_up_first_has_one(protocol: str, steps: list[Any]) -> None:
    group = Group(protocol).assigns(0, [0, 1], [2, 3])
    for number, (first, second, claims) in enumerate(steps):
        group.assigns(HOUR + number, first, second, claims)
    assert group.told(2 * HOUR) == []


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
def test_a_partition_without_owner_is_told(protocol: str) -> None:
    group = Group(protocol).assigns(0, [0, 1], [2, 3]).assigns(HOUR, [0, 1], [])
    group.assigns(2 * HOUR, [1, 0], []).assigns(3 * HOUR, [0, 1], [2, 3])
    (row,) = group.told(4 * HOUR)
    assert (row["severity"], row["label"], row["subject"]) == ("warning", "no_owner", "t/2")
    assert (row["started_at"], row["ended_at"]) == tuple(START + h * HOUR * 1_000 for h in (1, 3))
    assert "t/2, t/3" in row["summary"]


@pytest.mark.parametrize(
    "group",
    [
        Group("cooperative-sticky").assigns(0, [0, 1, 2], []).assigns(HOUR, [0, 1], []),
        Group().assigns(0, [0, 1], [2, 3]).assigns(HOUR, [0, 1], None),
        Group().assigns(0, [0, 1, 2, 3], []).assigns(HOUR, [0, 1, 2, 3], []),
        Group().assigns(0, [0, 1], [2, 3]).assigns(HOUR, [], []),
    ],
    ids=["cooperative", "cannot be read", "a spare member", "nothing is assigned"],
)
def test_what_looks_like_a_partition_without_owner_is_left_alone(group: Group) -> None:
    assert group.assigns(HOUR + 20, [0, 1], [2, 3]).told(2 * HOUR) == []


# -- lives -----------------------------------------------------------------------------------------


class Life:
    """A group, and others, that commit partitions of topics; times in seconds."""

    timeout_ms = 300_000

    def __init__(self) -> None:
        self._events: dict[str, list[Record | Commit]] = defaultdict(list)
        self._commits: dict[str, list[Row]] = defaultdict(list)
        self._planned: list[tuple[float, str, str, int, int]] = []
        self._members: list[tuple[float, tuple[Any, ...]]] = []
        self._missing: list[float] = []

    def members(
        self,
        at: float,
        *topics: str,
        name: str = "a",
        owned: tuple[int, ...] = (0, 7),
        assignor: str = "range",
    ) -> Life:
        """Let the group have a member that subscribes to topics; none without."""
        self._members.append((at, (topics, name, owned, assignor)))
        return self

    def reads(
        self,
        *partitions: int,
        until: float,
        since: float = 0,
        every: float = 10,
        group: str = "g",
        rate: float = 10,
        topic: str = "t",
    ) -> Life:
        """Commit in a rhythm what comes at a rate a second."""
        for n in range(int((until - since) / every)):
            at = since + n * every
            self._planned += [(at, group, topic, p, 100 + round(rate * at)) for p in partitions]
        return self

    def commits(self, at: float, offset: int, *, group: str = "g", partition: int = 7) -> Life:
        """Commit one offset."""
        self._planned.append((at, group, "t", partition, offset))
        return self

    def lose(self, at: float) -> Life:
        """Let a record be missing."""
        self._missing.append(at)
        return self

    def told(self, runs: int = 1, *, is_compacted: bool = True) -> list[Row]:
        """Return what is told of partitions that nobody reads.

        What is missing was compacted, or else lost before anybody read it.
        """
        planned: list[tuple[float, Any]] = [(at, rest) for at, *rest in self._planned]
        planned += [(at, topics) for at, topics in self._members]
        planned += [(at, None) for at in self._missing]
        numbers: dict[str, int] = defaultdict(int)
        missing, generation = [], 0
        for at, what in sorted(planned, key=lambda p: p[0]):
            time = START + round(at * 1_000)
            if what is None:
                missing.append(numbers["g"])
                numbers["g"] += 1
            elif isinstance(what, tuple):
                payload = _generation(generation, time, what, self.timeout_ms)
                record = record_of(numbers["g"], time, "group_metadata", None, payload)
                self._events["g"].append(record)
                numbers["g"] += 1
                generation += 1
            else:
                group, topic, partition, offset = what
                of = {"topic": topic, "topic_partition": partition, "committed_offset": offset}
                self._commit(group, numbers[group], time, of)
                numbers[group] += 1
        holes = np.array(missing, np.int64)
        history = rebuild(Log("g", 0, self._events["g"], tuple(missing)))
        others = {group: of for group, of in self._commits.items() if group != "g"}
        rows = detected_history(
            history,
            START + round(max(at for at, _ in planned) * 1_000) + 1_000,
            self._commits["g"],
            holes_of(np.zeros(len(holes), np.int64), holes, holes, {}),
            others=others,
            runs=runs,
            lost={} if is_compacted or not missing else {0: missing[-1]},
        )
        return [row for row in rows if row["severity"] != "info"]

    def _commit(self, group: str, number: int, time: int, of: Row) -> None:
        key = partition_hash(partition_key(of["topic"], of["topic_partition"]))
        self._events[group].append(Commit(number, time, key, deletes=False))
        self._commits[group].append(
            {
                **of,
                "record_partition": 0,
                "record_offset": number,
                "record_timestamp": time,
                "at": time,
                "commit_timestamp": time,
                "is_tombstone": False,
            }
        )


def _generation(number: int, time: int, of_member: tuple[Any, ...], timeout_ms: int) -> Row:
    topics, name, owned, assignor = of_member
    member = {
        "member_id": name,
        "group_instance_id": None,
        "client_id": f"client-{name}",
        "client_host": "/10.0.0.1",
        "rebalance_timeout_ms": timeout_ms,
        "session_timeout_ms": 45_000,
        "subscription": {"topics": list(topics)},
        "assignment": {"partitions": [{"topic": t, "partitions": [*owned]} for t in topics]},
    }
    return {
        "protocol_type": "consumer",
        "generation": number,
        "protocol": assignor if topics else None,
        "leader": name if topics else None,
        "current_state_timestamp": time,
        "members": [member] if topics else [],
    }


def stands_still(since: float, until: float = 4 * HOUR, *, every: float = 10) -> Life:
    """Let partition 7 not be committed any more, while 0 is, and another group reads both."""
    life = Life().reads(7, until=since, every=every).reads(0, until=until, every=every)
    return life.reads(0, 7, until=until, group="other")


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("topics", [("t",), ()], ids=["member", "assign"])
def test_a_partition_that_others_read_stands_still(topics: tuple[str, ...], runs: int) -> None:
    life = stands_still(HOUR).members(0, *topics) if topics else stands_still(HOUR)
    (row,) = life.told(runs)
    assert (row["severity"], row["subject"], row["is_open"]) == ("warning", "t/7", True)
    assert row["started_at"] == START + (HOUR - 10) * 1_000
    assert ("client-a" in row["summary"]) == bool(topics)
    # The other group reads on for three hours and ten seconds, at ten records a second.
    assert "108,000 records" in row["summary"]


@pytest.mark.parametrize("runs", [1, 3, 5])
@pytest.mark.parametrize("read_until", [HOUR + 10, 2 * HOUR], ids=["one commit beyond", "read on"])
def test_what_an_earlier_run_knows_of_others_the_next_ones_know(
    read_until: float, runs: int
) -> None:
    """A later run has the last commit alone of a group that stands still itself since then."""
    life = Life().reads(7, until=HOUR).reads(0, until=4 * HOUR)
    life.reads(7, until=read_until, group="other")
    for at in (0, HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR - 20):
        life.members(at, "t")
    told = [(row["subject"], row["is_open"]) for row in life.told(runs)]
    assert told == [("t/7", True)] * (read_until > HOUR + 10)


@pytest.mark.parametrize(
    ("is_complete", "told"), [(True, [("t/7", 40)]), (False, [])], ids=["whole", "with a hole"]
)
def test_a_pause_that_ends_between_two_commits_of_others_is_not_taken_back(
    is_complete: bool,  # noqa: FBT001
    told: list[tuple[str, int]],
) -> None:
    """The run in which it ends sees no commit of the others in the rest of it."""
    wait = dict.fromkeys(COLUMNS[WAIT]) | {
        "topic": "t",
        "topic_partition": 7,
        "since": 0,
        "usual_ms": 10_000,
        "committed_offset": 100,
        "first_at": 60_000,
        "first_offset": 200,
        "other_offset": 9_000,
        "others": ["other"],
        "is_complete": True,
        "record_partition": 0,
        "record_offset": 0,
    }
    move = dict.fromkeys(COLUMNS[MOVE]) | {
        "topic": "t",
        "topic_partition": 7,
        "move": "resumed",
        "is_complete": is_complete,
        "previous_at": 0,
        "at": 40 * 60_000,
        "record_partition": 0,
        "record_offset": 40,
    }
    checkpoint, unread = None, []
    for kind, row, minutes in ((WAIT, wait, range(40)), (MOVE, move, range(40, 60))):
        detector, now = GroupDetector(LIMITS.values, checkpoint), minutes.stop * 60_000
        detector.take(kind, row)
        for minute in minutes:
            at = {"first_at": minute * 60_000, "last_at": minute * 60_000 + 50_000}
            offsets = {"record_partition": 0, "first_offset": minute, "last_offset": minute}
            counts = {"minute": minute, "commits": 6, "partitions": 1, "keys": [0]}
            detector.take(MINUTE_ROW, {**counts, **at, **offsets})
        found = [*detector.settled(), *detector.still_open(now)]
        unread.append([(e.subject, e.is_open(now), e.ended_at // 60_000) for e in found])
        checkpoint = detector.to_json()
    assert unread[0] == [("t/7", True, 39)]
    assert unread[1] == [(subject, False, minute) for subject, minute in told]


@pytest.mark.parametrize("runs", [1, 3])
def test_who_owns_the_partition_now_is_named(runs: int) -> None:
    """The one that owned it when it was committed last may be long gone."""
    life = stands_still(HOUR).members(0, "t").members(2 * HOUR, "t", name="b")
    (row,) = life.told(runs)
    assert (
        "It is assigned to client-b@/10.0.0.1, and nobody has committed it since" in row["summary"]
    )
    assert "client-a" not in row["summary"]
    # What is over is told of who owned it then.
    over = stands_still(HOUR).members(0, "t").reads(7, since=2 * HOUR, until=4 * HOUR)
    (row,) = over.members(3 * HOUR, "t", name="b").told(runs)
    assert "Restart its owner, client-a@/10.0.0.1, and look" in row["summary"]


@pytest.mark.parametrize("runs", [1, 3, 50])
def test_who_got_the_partition_as_it_was_committed_last_does_not_read_it(runs: int) -> None:
    """The former owner commits once more as it gives it up, and may be gone by now."""
    life = stands_still(HOUR).reads(7, since=3 * HOUR, until=4 * HOUR).members(0, "t")
    life.members(HOUR + 20, "t", name="b").members(3 * HOUR - MINUTE, "t", name="c")
    (row,) = life.told(runs)
    assert "Restart its owner, client-b@/10.0.0.1, and look" in row["summary"]


@pytest.mark.parametrize("runs", [1, 3])
def test_that_nobody_owns_the_partition_now_is_told(runs: int) -> None:
    """A cooperative leader takes it from its owner, and never gives it to another."""
    life = stands_still(HOUR).members(0, "t", assignor="cooperative-sticky")
    life.members(HOUR, "t", owned=(0,), assignor="cooperative-sticky")
    (row,) = life.told(runs)
    assert "No member of g owns t/7 for 3 h" in row["summary"]


def said_of(*given: Row, **of_group: object) -> str:
    """Return what is told of partitions, 7 and on, that have not been committed for long."""
    detector = GroupDetector(LIMITS.values)
    group = {"group_type": "consumer", "generation": 7, "member_count": 2, "cause": "new_member"}
    record = {"record_partition": 0, "record_offset": 9, "assigned_partitions": 8}
    detector.take(
        OPEN_GENERATION, dict.fromkeys(COLUMNS[OPEN_GENERATION]) | record | group | of_group
    )
    waits = {"topic": "t", "since": 60_000, "until": None, "usual_ms": 60_000, "usual_step": 60}
    offsets = {
        "committed_offset": 10,
        "first_offset": 11,
        "other_offset": 900,
        "until_offset": None,
    }
    known = {"owner": {"client_id": "a", "client_host": "h"}, "now_owner": None, "is_owned": None}
    shown = {"first_at": 120_000, "others": ["b"], "is_complete": True} | record
    for partition, own in enumerate(given, 7):
        of = {"topic_partition": partition}
        detector.take(WAIT, waits | offsets | known | shown | of | own)
    for row in minutes(*range(1, 45)):
        detector.take(*row)
    (told,) = (e for e in detector.settled() + detector.still_open(45 * 60_000) if e.kind == KIND)
    (row,) = anomaly_rows([], [told], "c", "g", LIMITS.values, now=45 * 60_000)
    return str(row["summary"])


@pytest.mark.parametrize(
    ("of_wait", "of_group", "said"),
    [
        ({}, {}, "No member owns t/7 now. Restart the group"),
        ({"is_owned": True}, {}, "Restart its owner, a@h, and look"),  # not known by whom
        ({"owner": None}, {}, "Restart the consumer of it"),
        ({}, {"group_type": "classic"}, "Restart its owner, a@h"),  # an assignment cannot be read
        ({}, {"member_count": 0}, "Restart its owner, a@h"),
    ],
)
def test_a_partition_has_no_owner_if_records_show_it(
    of_wait: Row, of_group: Row, said: str
) -> None:
    assert said in said_of(of_wait, **of_group)


def owned_now(client: str | None, **given: object) -> Row:
    owner = None if client is None else {"client_id": client, "client_host": "h"}
    return {"now_owner": owner, "is_owned": True, **given}


@pytest.mark.parametrize(
    ("seventh", "eighth", "said"),
    [
        (owned_now("b"), owned_now("b"), "They are assigned to b@h, and nobody has"),
        (owned_now("b"), owned_now("c"), "assigned to b@h, c@h, and nobody has committed them"),
        (owned_now("b"), owned_now("c"), "Restart who has them and look"),
        (owned_now("b"), owned_now(None), "Restart its owner, a@h, and look"),
        (owned_now("b", until=2_400_000, until_offset=50), owned_now("c"), "its owner, a@h, and"),
        (owned_now(None, is_owned=False), owned_now("c"), "No member owns t/7 now. Restart the gr"),
    ],
    ids=["one", "both", "of both", "not known", "over", "no owner"],
)
def test_who_owns_partitions_now_is_named_if_it_is_true_of_all(
    seventh: Row, eighth: Row, said: str
) -> None:
    summary = said_of(seventh, eighth)
    assert said in summary
    assert ("assigned to" in summary) == ("assigned to" in said or "who has them" in said)


@pytest.mark.parametrize(("minutes", "is_told"), [(50, False), (70, True)])
def test_who_may_work_for_half_an_hour_is_waited_for_twice_as_long(
    minutes: int,
    is_told: bool,  # noqa: FBT001
) -> None:
    life = stands_still(HOUR, HOUR + minutes * MINUTE).members(0, "t")
    life.timeout_ms = 1_800_000
    assert bool(life.told()) == is_told


def test_the_ends_of_the_log_show_it_too() -> None:
    life = Life().reads(7, until=HOUR).reads(0, until=2 * HOUR)
    life.reads(7, until=2 * HOUR, every=15 * MINUTE, group="")
    (row,) = life.told()
    assert "as the log's end shows" in row["summary"]


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_group_that_hangs_is_told_by_what_others_read(runs: int, goes_on: bool) -> None:  # noqa: FBT001
    life = Life().members(0, "t").reads(0, 7, until=HOUR)
    life.reads(0, 7, until=2 * HOUR, group="other")
    if goes_on:
        life.reads(0, 7, since=2 * HOUR, until=3 * HOUR)
    (row,) = life.told(runs)
    assert (row["kind"], row["label"]) == ("commit_stall", "records_wait")
    assert row["started_at"] == START + (HOUR - 10) * 1_000
    assert row["is_open"] == (not goes_on)
    assert "72,000 records waited at least, as commits of other show" in row["summary"]


def over_a_hole(*, is_lost: bool) -> Life:
    """Let all partitions pause for an hour, and one go on behind it; others read all the while."""
    life = (
        Life().members(0, "t").reads(0, 7, until=2 * HOUR).reads(0, since=3 * HOUR, until=4 * HOUR)
    )
    life.reads(0, 7, until=4 * HOUR, group="other")
    return life.lose(2.5 * HOUR) if is_lost else life


@pytest.mark.parametrize("runs", [1, 3])
def test_a_pause_with_records_missing_is_no_stall(runs: int) -> None:
    told = over_a_hole(is_lost=False).told(runs)
    assert [row["kind"] for row in told] == ["commit_stall", KIND]
    # What compaction takes from the one that goes on, it leaves of the one that stands still.
    (row,) = over_a_hole(is_lost=True).told(runs)
    assert row["kind"] == KIND
    assert over_a_hole(is_lost=True).told(runs, is_compacted=False) == []


@pytest.mark.parametrize(("minutes", "is_told"), [(1, False), (9, False), (12, True)])
def test_who_commits_first_behind_an_outage_does_not_show_that_others_hang(
    minutes: int,
    is_told: bool,  # noqa: FBT001
) -> None:
    """Nothing comes for an hour, to nobody."""
    life = Life().members(0, "t").reads(0, 7, until=HOUR).reads(0, 7, until=HOUR, group="other")
    life.reads(0, 7, since=2 * HOUR, until=3 * HOUR, group="other")
    life.reads(0, 7, since=2 * HOUR + minutes * MINUTE, until=3 * HOUR)
    assert bool(life.told()) == is_told


def sink(until: float, *, hangs: float = 5 * HOUR, every: int | None = None) -> Life:
    """Let a sink commit by 1,000 records, or by time, while a twentieth comes from an hour on."""
    life = Life().members(0, "t")
    for at in range(0, round(until), 10):
        come = 10 * min(at, HOUR) + max(0, at - HOUR) // 2
        is_due = come % 1_000 == 0 if every is None else at % every == 0
        for partition in (0, 7):
            life.commits(at, 100 + come, group="other", partition=partition)
            if is_due and at <= hangs:
                life.commits(at, 100 + come, partition=partition)
    return life


@pytest.mark.parametrize("runs", [1, 3])
def test_who_commits_by_the_number_of_records_may_wait_for_more(runs: int) -> None:
    assert sink(4 * HOUR).told(runs) == []
    # Another partition goes on.
    assert sink(4 * HOUR).reads(1, until=4 * HOUR).told(runs) == []


@pytest.mark.parametrize(
    ("every", "hangs", "minutes"),
    [
        (None, 30 * MINUTE, 11),  # usual traffic
        (60, 30 * MINUTE, 11),
        (60, 2 * HOUR, 11),  # its steps have shrunk
        (60, HOUR, 61),  # just then
        (10, HOUR, 11),
    ],
)
def test_who_hangs_is_told_when_more_wait_than_three_commits_go_on_by(
    every: int | None, hangs: float, minutes: int
) -> None:
    until = hangs + minutes * MINUTE
    (row,) = sink(until, hangs=hangs, every=every).told()
    assert (row["kind"], row["label"]) == ("commit_stall", "records_wait")
    assert sink(until - 90, hangs=hangs, every=every).told() == []


@pytest.mark.parametrize("is_compacted", [True, False])
@pytest.mark.parametrize("lost_at", [0.9 * HOUR, 1.2 * HOUR])
def test_what_was_lost_behind_the_last_commit_may_be_what_goes_on(
    lost_at: float,
    is_compacted: bool,  # noqa: FBT001
) -> None:
    """What is lost before it changes nothing, nor does what the cleaner takes."""
    life = Life().members(0, "t").reads(0, 7, until=HOUR).lose(lost_at)
    life.reads(0, 7, until=2 * HOUR, group="other")
    told = life.told(is_compacted=is_compacted)
    is_told = is_compacted or lost_at < HOUR
    assert [row["kind"] for row in told] == ["commit_stall"] * is_told


@pytest.mark.parametrize(
    "life",
    [
        Life().members(0, "t").reads(0, 7, until=HOUR).reads(0, 7, until=HOUR, group="other"),
        Life().members(0, "t").reads(7, until=5 * HOUR, every=20 * MINUTE),
        Life().members(0, "t").reads(0, 7, until=HOUR).members(HOUR),
    ],
    ids=["idle", "batches", "stopped"],
)
def test_a_group_that_has_nothing_to_commit_does_not_hang(life: Life) -> None:
    assert not life.reads(1, until=2 * HOUR, group="other").told()


@pytest.mark.parametrize("runs", [1, 2, 5])
def test_it_is_over_when_the_partition_is_committed_again(runs: int) -> None:
    life = stands_still(HOUR).members(0, "t").reads(7, since=2 * HOUR, until=4 * HOUR)
    (row,) = life.told(runs)
    assert (row["is_open"], row["started_at"]) == (False, START + (HOUR - 10) * 1_000)
    assert row["ended_at"] == START + 2 * HOUR * 1_000
    assert "36,100 records" in row["summary"]


def test_what_ends_at_once_is_one_finding() -> None:
    life = Life().reads(0, until=3 * HOUR).reads(4, 5, 6, 7, until=HOUR)
    (row,) = life.reads(*range(8), until=3 * HOUR, group="other").told()
    assert "t/4, t/5, t/6 and 1 more" in row["summary"]


@pytest.mark.parametrize(
    "life",
    [
        Life().reads(7, until=HOUR).reads(0, until=4 * HOUR).reads(7, until=HOUR, group="other"),
        Life().reads(7, until=HOUR).reads(0, until=4 * HOUR),
        stands_still(HOUR).reads(7, since=HOUR + 5 * MINUTE, until=4 * HOUR),
        Life().reads(0, 7, until=HOUR).reads(0, 7, until=4 * HOUR, group="other"),
        stands_still(3 * HOUR, every=20 * MINUTE),
        Life()
        .reads(7, until=HOUR)
        .reads(0, until=4 * HOUR)
        .reads(7, until=HOUR, group="other")
        .commits(HOUR + 1, 40_000, group="other"),
        stands_still(HOUR).members(0, "t", "u").members(HOUR, "u"),
        stands_still(HOUR).reads(7, since=3 * HOUR, until=4 * HOUR).lose(2 * HOUR),
    ],
    ids=[
        "idle",
        "nobody knows",
        "short",
        "the group stops",
        "batches",
        "one commit beyond",
        "not subscribed",
        "a hole",
    ],
)
def test_what_looks_like_it_is_left_alone(life: Life) -> None:
    assert life.told() == []


# -- samples ---------------------------------------------------------------------------------------


def sample(
    at: float, *, lag: int, committed: int = 500, start: int = 0, last: float = 0, step: int = 0
) -> tuple[str, Row]:
    """Return what the lag shows of one partition, last committed then, at a time in seconds."""
    partition = {
        "topic": "t",
        "topic_partition": 7,
        "committed_offset": committed,
        "log_start_offset": start,
        "log_end_offset": 500 + lag,
        "lag": lag,
        "committed_at": round(last * 1_000),
    }
    is_odd = lag or committed > 500 + lag
    row = {"at": round(at * 1_000), "lag": lag, "usual_step": step, "committed_at": 0, "topics": []}
    return LAG, row | {"lagging": [partition] if is_odd else []}


def minutes(*numbers: int) -> list[tuple[str, Row]]:
    """Return commits of partition 7, once in each of some minutes."""
    return [
        (
            MINUTE_ROW,
            {
                "minute": n,
                "keys": [1],
                "record_partition": 0,
                "commits": 1,
                "partitions": 1,
                "first_at": n * 60_000,
                "last_at": n * 60_000,
                "first_offset": n + 10,
                "last_offset": n + 10,
            },
        )
        for n in numbers
    ]


def sampled(*rows: tuple[str, Row], now: float, runs: int = 1, gone: float | None = None) -> Any:  # noqa: ANN401
    """Return kind, label, severity, start in minutes and whether it goes on of what is told."""
    checkpoint, told, emptied = None, [], []
    if gone is not None:
        emptied = [
            {
                "group_type": "classic",
                "record_partition": 0,
                "record_offset": n,
                "record_timestamp": round(at * 60_000),
                "member_count": 1 - n // 1_000,
                "cause": "unknown",
                "generation": n,
                "ended_at": None,
            }
            for n, at in ((0, 0), (1_000, gone))
        ]
    for run in range(runs):
        detector = GroupDetector(LIMITS.values, checkpoint)
        for row in emptied:
            detector.take(OPEN_GENERATION, row)
        for kind, row in rows[len(rows) * run // runs : len(rows) * (run + 1) // runs]:
            detector.take(kind, row)
        told += detector.settled()
        checkpoint = detector.to_json()
    told += detector.still_open(round(now * 60_000))
    return [
        (e.kind, e.label, e.severity, e.started_at // 60_000, not e.is_over)
        for e in told
        if e.kind in (KIND, "commit_stall")
    ]


@pytest.mark.parametrize("gone", [None, 31], ids=["assign", "members"])
def test_a_group_that_nobody_runs_while_records_wait(gone: float | None) -> None:
    ran = minutes(*range(1, 31))
    since = 30 if gone is None else 31
    late = sample(45 * 60, lag=40_624)
    # The newest sample is taken behind the last record that was read.
    for found in (late, sample(45 * 60 + 20, lag=40_624)):
        told = sampled(found, *ran, now=45, gone=gone)
        assert told == [(KIND, "no_members", "warning", since, True)]
    for looks_like in (
        [],
        [sample(45 * 60, lag=0)],
        [sample(35 * 60, lag=40_624)],
    ):
        assert sampled(*looks_like, *ran, now=45, gone=gone) == []
    # Nothing shows that a consumer with assign() is gone: it may wait for more.
    few, more = (sample(45 * 60, lag=lag, step=20_000) for lag in (60_000, 60_001))
    assert bool(sampled(few, *ran, now=45, gone=gone)) == (gone is not None)
    assert sampled(more, *ran, now=45, gone=gone)
    # What it did since the log was read, nobody knows.
    assert sampled(late, *ran, now=35, gone=gone) == []
    assert sampled(late, *minutes(28, 29, 30), now=45, gone=gone) == []


def test_a_job_that_runs_once_in_a_while_is_not_missed_in_between() -> None:
    nights = [n for start in (0, 300, 600) for n in range(start, start + 30)]
    assert sampled(sample(800 * 60, lag=9_000), *minutes(*nights), now=800) == []
    told = sampled(sample(2_300 * 60, lag=9_000), *minutes(*nights), now=2_300)
    assert told == [(KIND, "no_members", "warning", 629, True)]


@pytest.mark.parametrize("runs", [1, 3])
def test_offsets_outside_of_the_log(runs: int) -> None:
    lost = [sample(m * 60, lag=900, start=700) for m in (10, 20)]
    found = (KIND, "before_start", "warning", 10)
    assert sampled(*lost, now=21, runs=runs) == [(*found, True)]
    assert sampled(*lost, sample(1_800, lag=0), now=31, runs=runs) == [(*found, False)]
    assert sampled(sample(600, lag=0, committed=900), now=11) == [
        (KIND, "beyond_end", "warning", 10, True)
    ]
    assert sampled(sample(600, lag=900), sample(1_200, lag=0), now=21, runs=1) == []
    # Who has not come for a day may never come back.
    assert sampled(sample(90_000, lag=900, start=700), now=1_501)[0][2] == "info"


@pytest.mark.parametrize("runs", [1, 3])
def test_an_offset_that_is_committed_again_and_again_while_the_log_goes_on(runs: int) -> None:
    def still(*lags: int, **given: Any) -> Any:  # noqa: ANN401
        rows = [
            sample(n * 600, lag=lag, last=given.get("last", n * 600 - 5))
            for n, lag in enumerate(lags, 1)
        ]
        return sampled(*rows, now=51, runs=runs)

    assert still(50, 900, 1_700) == [(KIND, "stalled", "warning", 10, True)]
    assert still(50, 900, 1_700, 0) == [(KIND, "stalled", "warning", 10, False)]
    # Markers of transactions; who commits no more; and who has just come to stand still.
    assert still(1, 1, 1) == still(50, 900, 1_700, last=600) == still(50, 900) == []
    moves = [sample(n * 600, lag=900, committed=500 + n, last=n * 600) for n in (1, 2, 3, 4)]
    assert sampled(*moves, now=41, runs=runs) == []


@pytest.mark.parametrize(
    ("now", "former", "since"),
    [
        ({"lag_status": 4, "lag_status_at": 900}, None, 900),
        ({"lag_status": 4, "lag_status_at": 900}, 400, 400),
        ({"lag_status": 1, "lag_status_at": 900}, 400, 900),  # WARN: it goes on
        ({"lag_status": 0, "lag_status_at": 900}, 400, None),
        ({}, 400, None),
    ],
)
def test_health_tells_since_when_the_lag_is_trouble(
    now: Row, former: int | None, since: int | None
) -> None:
    state = {"state": "Stable", "since": 0, "members": 1, "group_type": "classic", "until": None}
    group = {"group_id": "g", **state, "last_commit_at": 0}
    before = [] if former is None else [{"group_id": "g", "former_trouble_at": former}]
    (row,) = group_health([group], [[{"group_id": "g", **now}], before], LIMITS, 1_000)
    assert row["lag_status_since"] == since

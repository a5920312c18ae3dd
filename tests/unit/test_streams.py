"""Kafka Streams in the classic protocol: what the user data of an assignment tell."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import pytest

from tests.support.detection import detected_history
from tests.support.history import logs_of, rebuild
from tests.support.labels import path_of
from tests.support.records import HOUR, MINUTE, SECOND, START, Records, classic_member
from tests.unit.test_lives import generations, whole_and_cut
from timeline import streams
from timeline.model import Record

Row = dict[str, Any]
NEVER = 2**63 - 1
ALL = range(1, 12)


def assignment_info(
    version: int = 11,
    active: Iterable[int] = (),
    standbys: Iterable[int] = (),
    next_at: int = NEVER,
    topology: str = "",
) -> bytes:
    """Encode as AssignmentInfo.encode does: each task reads one partition of the topic `t`."""

    def text(value: str) -> bytes:
        return struct.pack(">H", len(value)) + value.encode()

    def task(number: int) -> bytes:
        named = struct.pack(">i", len(topology)) + topology.encode("utf-16-be")
        return struct.pack(">ii", 0, number) + (named if version >= 10 else b"")

    def partitions(*numbers: int) -> bytes:
        listed = b"".join(text("t") + struct.pack(">i", n) for n in numbers)
        return struct.pack(">i", len(numbers)) + listed

    active, standbys = list(active), list(standbys)
    data = struct.pack(">i", version) + (struct.pack(">i", 11) if version >= 3 else b"")
    data += struct.pack(">i", len(active)) + b"".join(map(task, active))
    data += struct.pack(">i", len(standbys))
    data += b"".join(task(n) + partitions(n) for n in standbys)
    host = text("host") + struct.pack(">i", 8080)
    if version in (2, 3, 4):
        data += struct.pack(">i", 1) + host + partitions(0)
    if version >= 5:
        by_index = struct.pack(">i", 1) + host + struct.pack(">iii", 1, 0, 0)
        data += struct.pack(">ii", 1, 0) + text("t") + by_index
        data += by_index if version >= 6 else b""
    data += struct.pack(">i", 0) if version >= 4 else b""
    return data + (struct.pack(">q", next_at) if version >= 7 else b"")


class Application(Records):
    """Members of Kafka Streams, generation by generation."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.created()

    def then(
        self,
        wait: int,
        members: dict[str, tuple[Iterable[int], bytes | None]],
        topics: tuple[str, ...] = ("t",),
    ) -> Application:
        """Let members be in a new generation, each with its partitions and its user data."""
        self.wait(wait)
        self.number += 1
        fields = []
        for name, (owned, data) in members.items():
            fields.append({**classic_member(name, list(owned), topics), "user_data": data})
        payload = {
            "protocol_type": "consumer",
            "generation": self.number,
            "protocol": "stream",
            "leader": next(iter(members)),
            "current_state_timestamp": self.clock - 20,
            "members": fields,
        }
        self.record("group_metadata", payload)
        return self

    def told(self) -> dict[str, list[Row]]:
        """Return the history, the same in one run and in several."""
        return whole_and_cut(self.log())

    def causes(self) -> list[str]:
        return [r["cause"] for r in generations(self.told())]

    def found(self, wait: int = HOUR) -> list[Row]:
        """Return the anomalies, some time after the last generation."""
        return detected_history(rebuild(self.log()), self.clock + wait)


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize("topology", ["", "größe"])
def test_each_version_tells_of_standby_tasks_and_the_next_rebalance(
    version: int, topology: str
) -> None:
    data = assignment_info(version, [0, 1, 1], [2, 3], 5_000, topology)
    told = streams.read(data)
    assert told is not None
    assert (told["version"], told["standbys"]) == (version, 2)
    assert told["rejoins_at"] == (5_000 if version >= 7 else None)
    without = streams.read(assignment_info(version, [0]))
    assert without is not None
    assert (without["standbys"], without["rejoins_at"]) == (0, None)


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "data",
    [
        # Two billion tasks, of which none is there.
        *(struct.pack(">i", version) + b"\x7f" * 40 for version in ALL),
        *(None, b"", b"\x00", struct.pack(">i", 99), struct.pack(">iii", 11, 11, 2**31 - 1)),
        struct.pack(">iiiiiii", 10, 11, 1, 0, 0, -5, 0),
        assignment_info(11, [0], [1])[:30],
    ],
)
def test_user_data_of_others_or_cut_off_say_nothing(data: bytes | None) -> None:
    assert streams.read(data) is None


@pytest.mark.parametrize("version", ALL)
def test_a_hot_standby_is_not_idle_and_a_spare_member_is(version: int) -> None:
    at_work = ([0], assignment_info(version, [0]))
    spare = Application().then(3 * SECOND, {"a": at_work, "b": ([], assignment_info(version))})
    assert [r["kind"] for r in spare.found()] == ["idle_members"]
    standby = ([], assignment_info(version, (), [0]))
    assert Application().then(3 * SECOND, {"a": at_work, "b": standby}).found() == []
    # What cannot be read may name standby tasks.
    assert Application().then(3 * SECOND, {"a": at_work, "b": ([], None)}).found() == []


def test_the_assignor_of_old_members_takes_one_step() -> None:
    for version, told in ((3, "eager"), (4, "eager"), (5, "cooperative"), (11, "cooperative")):
        group = Application().then(SECOND, {"a": ([0], assignment_info(version, [0]))})
        assert generations(group.told())[-1]["rebalance_protocol"] == told


def scaled_out(interval: int, *, says: bool = True) -> Application:
    """Let a member come to another's sixteen tasks, and take some over as it has warmed them up."""
    group = Application()
    owned, taken = list(range(16)), list[int]()

    def data(mine: Iterable[int], copies: Iterable[int] = (), at: int = NEVER) -> bytes | None:
        return assignment_info(11, mine, copies, at) if says else None

    group.then(3 * SECOND, {"a": (owned, data(owned))}).wait(HOUR)
    for _ in range(6):
        due = group.clock + interval
        group.then(0, {"a": (owned, data(owned, (), due)), "b": (taken, data(taken, owned[-2:]))})
        moving, owned = owned[-2:], owned[:-2]
        group.then(
            interval + 2 * SECOND,
            {"a": (owned, data(owned)), "b": (taken, data(taken, moving, 0))},
        )
        taken = taken + moving
        group.wait(1_500)
    return group.then(0, {"a": (owned, data(owned)), "b": (taken, data(taken))})


@pytest.mark.parametrize("interval", [MINUTE, 7 * MINUTE, 10 * MINUTE])
def test_tasks_that_move_as_they_are_warmed_up_are_no_storm(interval: int) -> None:
    group = scaled_out(interval)
    assert group.causes()[2:] == ["new_member", *["probing", "cooperative_follow_up"] * 6]
    assert group.found() == []


def test_without_user_data_the_usual_interval_tells_of_probing() -> None:
    group = scaled_out(10 * MINUTE, says=False)
    assert group.causes()[2:] == ["new_member", *["probing", "cooperative_follow_up"] * 6]
    assert group.found() == []


def test_a_rebalance_before_its_time_is_none_of_the_assignors() -> None:
    group, tasks = Application(), [0, 1]
    due = START + HOUR
    own = {"a": (tasks, assignment_info(11, tasks, (), due))}
    group.then(3 * SECOND, own).then(10 * MINUTE, own).then(55 * MINUTE, own)
    assert group.causes()[1:] == ["group_created", "leader_rejoined", "probing"]
    # Nobody is to start one: the interval alone says nothing.
    own = {"a": (tasks, assignment_info(11, tasks))}
    assert Application().then(SECOND, own).then(10 * MINUTE, own).causes()[-1] == "leader_rejoined"


def test_new_partitions_and_a_topic_that_is_gone_are_no_warm_up() -> None:
    due = START + 10 * MINUTE
    own = {"a": ([0, 1], assignment_info(11, [0, 1], (), due)), "b": ([2], assignment_info())}
    grown = {"a": ([0, 1], assignment_info(11, [0, 1])), "b": ([2, 3], assignment_info())}
    group = Application().then(3 * SECOND, own).then(10 * MINUTE, grown)
    assert group.causes()[-1] == "partitions_changed"
    nothing = {"a": ([], assignment_info()), "b": ([], assignment_info())}
    assert group.then(10 * MINUTE, nothing).causes()[-1] == "partitions_changed"


def test_members_that_await_their_turn_to_warm_up_are_neither_idle_nor_is_that_skew() -> None:
    tasks = list(range(12))
    due = START + 11 * MINUTE
    members = {
        "a": (tasks, assignment_info(11, tasks, (), due)),
        "b": ([], assignment_info(11, (), [0, 1])),
        "c": ([], assignment_info()),
    }
    group = Application().then(MINUTE, members)
    assert generations(group.told())[-1]["delay_ms"] == 10 * MINUTE
    assert group.found(9 * MINUTE) == []
    # It stays so if none is to move.
    members["a"] = (tasks, assignment_info(11, tasks))
    found = Application().then(MINUTE, members).found(9 * MINUTE)
    assert {r["kind"] for r in found} == {"idle_members", "assignment_skew"}


def test_a_leader_of_streams_that_rejoins_again_and_again_is_told() -> None:
    group, own = Application(), {"a": ([0, 1], assignment_info(11, [0, 1]))}
    for _ in range(6):
        group.then(5 * MINUTE, own)
    assert "leader_rejoin_loop" in {r["kind"] for r in group.found()}


def test_a_cooperative_leader_that_takes_partitions_away_changes_no_topic() -> None:
    log = Records().created().wait(3 * SECOND)
    log.classic(1, {"a": [0, 1, 2], "b": [3]}, protocol="cooperative-sticky").wait(HOUR)
    log.classic(2, {"a": [0, 1], "b": [3]}, protocol="cooperative-sticky").wait(SECOND)
    log.classic(3, {"a": [0, 1], "b": [3, 2]}, protocol="cooperative-sticky")
    causes = [r["cause"] for r in generations(whole_and_cut(log.log()))]
    assert causes[-2:] == ["leader_rejoined", "cooperative_follow_up"]
    eager = Records().created().wait(3 * SECOND).classic(1, {"a": [0, 1, 2], "b": [3]}).wait(HOUR)
    eager.classic(2, {"a": [0, 1], "b": [3]})
    assert generations(whole_and_cut(eager.log()))[-1]["cause"] == "partitions_changed"


def test_what_a_broker_has_stored_of_an_application_with_standby_tasks_is_read() -> None:
    (log,) = (x for x in logs_of(path_of("4.3.1-connect")) if x.group_id == "wordcount-app")
    rows = {r["generation"]: r for r in generations(rebuild(log))}
    # Its only member without a partition keeps copies of four tasks until it gets two of them.
    last = [m for r in log.events if isinstance(r, Record) for m in (r.payload or {})["members"]]
    assert all(m.streams is not None and m.streams["version"] == 11 for m in last)
    idle = [m for m in last if m.streams["standbys"] == 4 and not m.assigned]
    assert len(idle) == 1
    assert (rows[5]["idle_members"], rows[6]["cause"]) == ([], "cooperative_follow_up")

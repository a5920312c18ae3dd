"""What rebalances cost: whom they stop, for how long, and what of that the log tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.history import logs_of, rebuild
from tests.support.records import HOUR, MINUTE, SECOND, Records
from tests.unit.test_connect import Cluster, two_workers
from tests.unit.test_epochs import Group, partitions, streams, tasks
from tests.unit.test_history_truth import RECORDINGS
from tests.unit.test_join_phases import rejoining, three, working
from tests.unit.test_lives import Row, generations, whole_and_cut
from timeline.model import COST

Cost = tuple[int | None, ...]
SYNC = 10
COOPERATIVE: dict[str, Any] = {"protocol": "cooperative-sticky"}


def costs(log: Records) -> list[Cost]:
    """Return cost, least and most of each generation, the same in one run and in several."""
    return [cost(row) for row in generations(whole_and_cut(log.log()))]


def cost(row: Row) -> Cost:
    return tuple(row[name] for name in COST)


def of(row: Row, members: float) -> Cost:
    """Return what it costs that members are stopped for the whole of a classic rebalance."""
    began = (row["join_started_at"], row["join_started_at_max"], row["join_started_at_min"])
    return tuple(round(members * (row["stable_at"] - at)) for at in began)


# -- eager -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "stopped"),
    [
        ({"a": [0], "b": [1], "c": [2]}, 3),
        ({"a": [0], "b": [1], "c": [2], "d": []}, 3),  # who is new had nothing
        ({"a": [0], "b": [1, 2]}, 2),  # who is gone is no consumer
        ({"a": [0], "b": [1, 2], "d": []}, 2),  # nor who came back under another id
        ({"a": [0, 1, 2], "b": [], "c": []}, 3),  # who has nothing afterwards had something
    ],
    ids=["all", "joined", "left", "restarted", "idle"],
)
def test_an_eager_rebalance_stops_who_had_partitions_and_stays(
    after: dict[str, list[int]], stopped: int
) -> None:
    log = three().wait(2 * SECOND).classic(2, after, took=SYNC)
    row = generations(whole_and_cut(log.log()))[-1]
    assert row["rebalance_ms"] > SYNC
    assert cost(row) == of(row, stopped)
    assert row["cost_member_ms_min"] == stopped * SYNC


def test_who_had_no_partitions_has_none_to_miss() -> None:
    log = Records().created().wait(3 * SECOND).classic(1, {"a": [0], "spare": []}).wait(HOUR)
    row = generations(whole_and_cut(log.classic(2, {"a": [0], "spare": []}).log()))[-1]
    assert cost(row) == of(row, 1)


@pytest.mark.parametrize(("instance", "stopped"), [("i", 1), (None, 0)])
def test_a_static_member_is_the_same_after_its_restart(instance: str | None, stopped: int) -> None:
    log = Records().created().classic(1, {"a": [0]}, instance=instance).wait(HOUR)
    row = generations(whole_and_cut(log.classic(2, {"b": [0]}, instance=instance).log()))[-1]
    assert cost(row) == of(row, stopped)


def test_nobody_is_stopped_where_nobody_had_partitions() -> None:
    log = Records().created().wait(3 * SECOND).classic(1, {"a": [0], "b": [1]}).wait(HOUR)
    log.classic(2).wait(HOUR).classic(3, {"a": [0]})  # it is Empty in between
    assert costs(log) == [(0, 0, 0)] * 4
    # A member of the same instance id replaces another without a rebalance.
    log = Records().created().classic(1, {"a": [0]}, instance="i").wait(HOUR)
    assert costs(log.classic(1, {"b": [0]}, instance="i")) == [(0, 0, 0)] * 2


def test_attempts_that_were_given_up_are_part_of_the_cost() -> None:
    log = rejoining().wait(7 * MINUTE).classic(5, {"a": [0], "b": [1], "c": [2]})
    row = generations(whole_and_cut(log.log()))[-1]
    assert row["aborted_generations"] == 3
    assert cost(row) == of(row, 3)
    assert row["cost_member_ms"] == 3 * 7 * MINUTE


def test_commits_that_bear_out_a_join_phase_bear_out_its_cost() -> None:
    log = three().wait(2 * MINUTE).commit(partition=2).classic(2, {"a": [0], "b": [1], "c": [2]})
    row = generations(whole_and_cut(log.log()))[-1]
    assert row["cost_member_ms_min"] == 3 * SYNC
    row = generations(whole_and_cut(working(log, MINUTE, 0, 1, 2).log()))[-1]
    assert row["cost_member_ms_min"] > 3 * 110 * SECOND
    assert cost(row) == of(row, 3)


def test_an_assignment_that_cannot_be_read_leaves_the_cost_open() -> None:
    def members() -> list[Row]:
        return [{"member_id": "a"}, {"member_id": "b"}]

    log = Records().created().wait(SECOND)
    for number in (1, 2, 3):
        log.record(
            "group_metadata",
            {"protocol_type": "sr", "generation": number, "protocol": "v0", "leader": "a"}
            | {"current_state_timestamp": log.clock - SYNC, "members": members()},
        ).wait(HOUR)
    log.classic(4)
    assert costs(log) == [(0, 0, 0), (0, 0, 0), *[(None, None, None)] * 2, (0, 0, 0)]


# -- cooperative -----------------------------------------------------------------------------------


def two(*owned: int) -> Records:
    """Let one member own partitions, and give the last of them up since another joined."""
    log = Records().created().wait(3 * SECOND).classic(1, {"a": [*owned]}, **COOPERATIVE)
    return log.wait(HOUR).classic(2, {"a": [*owned[:-1]], "b": []}, **COOPERATIVE)


def test_a_cooperative_rebalance_costs_what_moves_while_it_moves() -> None:
    log = two(0, 1, 2, 3)
    told = log.clock
    log.wait(2 * SECOND).classic(3, {"a": [0, 1, 2], "b": [3]}, took=SYNC, **COOPERATIVE)
    *_, first, row = generations(whole_and_cut(log.log()))
    assert (cost(first), row["cause"]) == ((0, 0, 0), "cooperative_follow_up")
    # It gave up what it was told to at some time before it re-joined.
    quarter = of(row, 1 / 4)
    assert cost(row) == (quarter[0], round(SYNC / 4), round((log.clock - told) / 4))


def test_what_gets_its_owner_back_has_cost_too() -> None:
    log = two(0, 1).wait(2 * SECOND).classic(3, {"a": [0, 1], "b": []}, **COOPERATIVE)
    row = generations(whole_and_cut(log.log()))[-1]
    assert row["cost_member_ms"] == of(row, 1 / 2)[0] > 0


def test_what_waits_for_more_than_one_generation_counts_from_when_it_was_given_up() -> None:
    log = two(0, 1)
    told = log.clock
    log.wait(2 * SECOND).classic(3, {"a": [0], "b": [], "c": []}, **COOPERATIVE)
    log.wait(2 * SECOND).classic(4, {"a": [0], "b": [1], "c": []}, **COOPERATIVE)
    *_, waits, row = generations(whole_and_cut(log.log()))
    assert cost(waits) == (0, 0, 0)
    assert row["cost_member_ms"] == round((log.clock - waits["join_started_at"]) / 2)
    assert row["cost_member_ms_max"] == round((log.clock - told) / 2)


@pytest.mark.parametrize(
    "after",
    [
        {"a": [0], "b": []},  # nobody is to get it
        {"b": [0, 1]},  # who gave it up is gone
    ],
)
def test_what_nobody_misses_costs_nothing(after: dict[str, list[int]]) -> None:
    log = two(0, 1).wait(2 * SECOND).classic(3, after, **COOPERATIVE)
    assert costs(log)[-1] == (0, 0, 0)


def test_who_votes_for_an_eager_assignor_gives_up_all() -> None:
    log = Records().created().wait(3 * SECOND).classic(1, {"a": [0], "b": [1]}).wait(HOUR)
    log.classic(2, {"a": [0], "b": [1]}, **COOPERATIVE).wait(HOUR)
    log.classic(3, {"a": [0], "b": [1]}, **COOPERATIVE)
    *_, switched, last = generations(whole_and_cut(log.log()))
    assert cost(switched) == of(switched, 2)
    assert cost(last) == (0, 0, 0)


def test_workers_of_connect_are_stopped_as_their_protocol_has_it() -> None:
    *_, revoking, given = two_workers().rows()
    assert cost(revoking) == (0, 0, 0)
    assert given["cost_member_ms"] == round(2 / 5 * given["rebalance_ms"]) > 0
    eager = Cluster(0).generation({"w1": {"s": [-1, 0, 1]}})
    *_, row = eager.generation({"w1": {"s": [-1]}, "w2": {"s": [0, 1]}}).rows()
    assert (row["rebalance_protocol"], cost(row)) == ("eager", of(row, 1))


# -- the new protocols -----------------------------------------------------------------------------


def handed_over(log: Group | None = None) -> Group:
    """Let `a`, that has partitions 0 and 1, be told to give one up for `b`."""
    log = log or Group().joins("a").begins().assigned(a=partitions(0, 1)).later()
    log.joins("b").begins().target(log.number, a=[0], b=[1])
    log.current("a", log.number - 1, [0], 1).current("b", log.number)
    return log


def test_an_epoch_costs_what_moves_while_nobody_has_it() -> None:
    log = handed_over().later(5 * SECOND)
    log.current("a", 2, [0]).wait(3 * SECOND).current("b", 2, [1])
    first, row = generations(whole_and_cut(log.log()))
    assert cost(first) == (0, 0, 0)
    assert cost(row) == (1_500,) * 3  # half of what `a` had; it owned that till it gave it up


def test_an_epoch_counts_as_long_as_it_is_in_force() -> None:
    log = handed_over().later(5 * SECOND)
    log.current("a", 2, [0]).wait(3 * SECOND)
    log.begins(metadata_hash=78).target(3, a=[0], b=[1])
    log.wait(SECOND).current("a", 3, [0]).current("b", 3, [1])
    assert costs(log) == [(0, 0, 0), (1_500,) * 3, (500,) * 3]


@pytest.mark.parametrize("is_static", [False, True])
def test_who_leaves_gives_nothing_up_and_who_comes_back_in_its_place_had_it(
    *, is_static: bool
) -> None:
    given = {"instance_id": "i"} if is_static else {}
    log = Group().joins("a", **given).joins("z").begins()
    log.assigned(a=partitions(0, 1), z=partitions(2)).later()
    log.current("a", None).record("consumer_group_target_assignment_member", None, "a")
    log.member("a", gone=True)
    if is_static:
        log.joins("b", **given).target(1, b=[0, 1]).current("b", 1, [0, 1])
    else:
        log.begins().target(2, z=[0, 1, 2]).wait(SECOND).current("z", 2, [0, 1, 2])
    assert set(costs(log)) == {(0, 0, 0)}


def test_what_nobody_is_to_get_is_given_up_for_good() -> None:
    log = Group().joins("a").begins().assigned(a=partitions(0, 1)).later()
    log.begins(metadata_hash=78).assigned(a=partitions(0)).later(24 * HOUR)
    log.begins(metadata_hash=79).assigned(a=partitions(0, 1))
    assert costs(log) == [(0, 0, 0)] * 3


def test_a_partition_of_a_share_group_waits_while_nobody_has_it() -> None:
    def told(*others: int) -> list[Cost]:
        log = Group("share").joins("a").joins("b").begins()
        log.assigned(a=partitions(0, 1), b=partitions(*others)).later()
        log.joins("c").begins().of("target_assignment_member", partitions(0), "a")
        log.of("target_assignment_member", partitions(1), "c")
        log.of("target_assignment_metadata", {"assignment_epoch": 2})
        for name, owned in (("a", 0), ("c", 1)):
            current = {"member_epoch": 2, "previous_member_epoch": 1, "state": 0}
            current |= {"assigned_partitions": partitions(owned)["topic_partitions"]}
            log.of("current_member_assignment", current, name).later(4 * SECOND)
        return costs(log)

    assert told(2) == [(0, 0, 0), (2_000,) * 3]
    assert told(1) == [(0, 0, 0)] * 2


def test_a_task_of_a_streams_group_waits_as_a_partition_does() -> None:
    log = streams("t").joins("a").begins().assigned(a=tasks((0, 1, 2, 3))).later()
    log.joins("b").begins()
    for name, owned in (("a", (0, 1, 2)), ("b", (3,))):
        log.of("target_assignment_member", tasks(owned), name)
    log.of("target_assignment_metadata", {"assignment_epoch": log.number})
    for name, owned in (("a", (0, 1, 2)), ("b", (3,))):
        current = {"member_epoch": log.number, "previous_member_epoch": 1, "state": 1}
        log.of("current_member_assignment", {**tasks(owned), **current}, name).later(4 * SECOND)
    assert costs(log)[-1] == (1_000,) * 3


# -- what is not known -----------------------------------------------------------------------------


def test_a_hole_leaves_open_what_may_have_happened_in_it() -> None:
    unknown, nothing = (None,) * 3, (0,) * 3
    # Generations in between may have had other members; the next one has had none before it.
    log = three().wait(MINUTE, hole=True).classic(4, {"a": [0], "b": [1], "c": [2]})
    assert costs(log) == [nothing, nothing, unknown]
    log = three().wait(MINUTE, hole=True).classic(2, {"a": [0], "b": [1], "c": [2]})
    row = generations(whole_and_cut(log.log()))[-1]
    assert cost(row) == of(row, 3)
    # What is known first follows from nobody knows what, but for the first of a group.
    log = Records().wait(SECOND, hole=True).classic(7, {"a": [0]}).wait(HOUR)
    assert costs(log.classic(8))[0] == unknown
    log = Records().wait(SECOND, hole=True).classic(1, {"a": [0]}).wait(HOUR)
    assert costs(log.classic(2))[0] == nothing


def test_a_hole_in_an_epoch_leaves_it_open_and_the_next_one_not() -> None:
    log = handed_over().later(5 * SECOND).current("a", 2, [0])
    log.later(SECOND, hole=True).current("b", 2, [1])
    log.later().begins(metadata_hash=78).target(3, a=[1], b=[0])
    log.current("a", 2, [], 0).current("b", 2, [], 1)
    for name, left in (("a", 1), ("b", 0)):
        log.later(SECOND).current(name, 3)
        log.later(SECOND).current(name, 3, [left])
    assert costs(log)[:2] == [(0, 0, 0), (None, None, None)]
    # `a` has nothing for three seconds before `b` has given up the other one, which is half of it.
    assert costs(log)[2][0] is not None


@pytest.mark.parametrize("path", RECORDINGS.values(), ids=lambda p: p.stem)
def test_no_rebalance_costs_more_than_all_members_for_as_long_as_it_took(path: Path) -> None:
    found = 0
    for row in (r for log in logs_of(path) for r in rebuild(log)["group_generations"]):
        value, least, most = cost(row)
        if value is None:
            assert (least, most) == (None, None)
            continue
        assert (least or 0) <= value
        assert most is None or value <= most
        took = row["rebalance_ms"]
        if took is None or row["group_type"] == "share":  # is Stable at any time
            took = (row["ended_at"] or 2**53) - row["record_timestamp"]
        assert value <= row["member_count"] * took + 1
        found += value > 0
    assert found or path.stem in _QUIET


# Recordings in which nobody who had partitions lost one.
_QUIET = {"4.3.1-txn.read_committed", "4.3.1-compacted", "4.3.1-admin2"}

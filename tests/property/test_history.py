"""Whatever a group goes through, its history holds together, and says what the log can say."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.coordinator import DEAD, EMPTY, STABLE, Coordinator
from tests.support.history import Commit, check_timeline, rebuild
from tests.support.journal import Generation
from tests.unit.test_history_truth import assert_same, check_owners, is_legal
from timeline.model import GENERATIONS, OWNERS, SESSIONS, STATES, Record

INSTANCES = st.sampled_from([None, None, None, "instance-1", "instance-2"])
JOIN = st.tuples(st.just("join"), INSTANCES)
LEAVE = st.tuples(st.just("leave"), st.integers(0, 5))
CHANGE = st.one_of(JOIN, JOIN, LEAVE, st.just(("rejoin_leader",)))
SETTLE = [("all_rejoin",), ("sync",)]
# What happens in the life of a group, each a few steps of its members and its coordinator.
EPISODES = st.one_of(
    CHANGE.map(lambda change: [change, *SETTLE]),
    st.tuples(JOIN, JOIN).map(lambda both: [*both, *SETTLE]),
    # The leader does not assign, since something happens first.
    CHANGE.map(lambda change: [change, ("all_rejoin",), change, *SETTLE]),
    CHANGE.map(lambda change: [change, ("all_rejoin",)]),
    st.tuples(st.just("restart_static"), st.integers(0, 5)).map(lambda step: [step]),
    st.lists(st.tuples(st.just("commit"), st.integers(0, 5)), max_size=6),
    st.just([("leave", 0)] * 6),
    st.just([*[("leave", 0)] * 6, ("delete",)]),
    st.tuples(st.just("other_group"), st.integers(1, 3)).map(lambda step: [step]),
)
# A rebalance lasts no longer than its timeout, or Kafka would have ended it.
PAUSES = st.integers(1, 900)
LIVES = st.lists(st.tuples(EPISODES, PAUSES), min_size=3, max_size=30).map(
    lambda episodes: [(step, pause) for steps, pause in episodes for step in steps]
)


def lived(life: list[tuple[tuple[object, ...], int]], *, writes_creation: bool) -> Coordinator:
    coordinator = Coordinator(is_java=writes_creation)
    for (step, *arguments), pause in life:
        getattr(coordinator, str(step))(*arguments)
        coordinator.pass_time(pause)
    return coordinator


def stable_generations(group: Coordinator) -> list[Generation]:
    return [g for g in group.truth.generations if g.stable is not None]


@settings(deadline=None)
@given(LIVES, st.booleans())
def test_the_timeline_holds_together(life: list[object], writes_creation: bool) -> None:  # noqa: FBT001
    log = lived(life, writes_creation=writes_creation).log()  # type: ignore[arg-type]
    tables = rebuild(log)
    check_timeline(tables[STATES], is_legal)
    check_owners(tables[OWNERS])


@settings(deadline=None)
@given(LIVES, st.booleans())
def test_what_the_log_has_is_exact(life: list[object], writes_creation: bool) -> None:  # noqa: FBT001
    group = lived(life, writes_creation=writes_creation)  # type: ignore[arg-type]
    rows = {(r["generation"], r["stable_at"]): r for r in rebuild(group.log())[GENERATIONS]}
    for true in stable_generations(group):
        row = rows[true.number, true.stable]
        assert row["join_completed_at"] == true.completed
        assert row["aborted_generations"] == true.aborted
        assert row["aborted_evidence"] == "complete"
        assert (row["join_started_at_min"] or 0) <= true.started <= row["join_started_at_max"]
        assert row["member_count"] == len(true.members)


@settings(deadline=None)
@given(LIVES, st.booleans())
def test_the_state_is_the_brokers_where_it_is_exact(
    life: list[object],
    writes_creation: bool,  # noqa: FBT001
) -> None:
    group = lived(life, writes_creation=writes_creation)  # type: ignore[arg-type]
    entered = {(s.at, s.state) for s in group.truth.states}
    for row in rebuild(group.log())[STATES]:
        if row["evidence"] == "exact" and row["state"] in (EMPTY, STABLE, DEAD):
            assert (row["started_at"], row["state"]) in entered


@settings(deadline=None)
@given(LIVES)
def test_who_is_listed_as_a_member_is_one(life: list[object]) -> None:
    group = lived(life, writes_creation=True)  # type: ignore[arg-type]
    tables = rebuild(group.log())
    for true in stable_generations(group):
        at = true.stable or 0
        in_force = {
            r["member_id"]
            for r in tables[SESSIONS]
            if r["joined_at"] <= at and (r["left_at"] is None or r["left_at"] > at)
        }
        assert in_force == true.members, true


@settings(deadline=None)
@given(LIVES, st.lists(st.integers(0, 80), max_size=10), st.booleans())
def test_runs_tell_what_one_run_tells(
    life: list[object],
    cuts: list[int],
    writes_creation: bool,  # noqa: FBT001
) -> None:
    log = lived(life, writes_creation=writes_creation).log()  # type: ignore[arg-type]
    inside = [cut for cut in cuts if cut <= len(log.events)]
    assert_same(rebuild(log, inside), rebuild(log), log)


@settings(deadline=None)
@given(LIVES, st.integers(1, 5), LIVES)
def test_after_a_hole_nothing_is_claimed(
    before: list[object], lost: int, after: list[object]
) -> None:
    group = lived(before, writes_creation=True)  # type: ignore[arg-type]
    if not stable_generations(group) or group.state == DEAD:
        return
    group.lose(lost)
    known = len(stable_generations(group))
    for (step, *arguments), pause in after:  # type: ignore[misc]
        if step == "delete":
            continue
        getattr(group, str(step))(*arguments)
        group.pass_time(pause)
    tables = rebuild(group.log())
    check_timeline(tables[STATES], is_legal)
    log = group.log()
    hole = log.missing[0]
    behind = [r for r in tables[GENERATIONS] if r["record_offset"] > hole]
    # A static member's return repeats its generation: no other can hide in the hole before it.
    first = next((e.offset for e in log.events if is_record_behind(e, hole)), None)
    for row in behind:
        expected = "unknown" if row["record_offset"] == first else "complete"
        assert row["aborted_evidence"] == expected
    for true in stable_generations(group)[known:]:
        expected = true.number, true.stable
        (row,) = (r for r in behind if (r["generation"], r["stable_at"]) == expected)
        assert (row["join_started_at_min"] or 0) <= true.started <= row["join_started_at_max"]


def is_record_behind(event: Record | Commit, offset: int) -> bool:
    return isinstance(event, Record) and event.offset > offset

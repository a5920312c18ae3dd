"""Random lives of a group, what has to hold of their history, and the shortest life that breaks it.

A life is a list of steps, see `Coordinator`, each with the time until the next. It is one whatever
steps are taken out of it, so that one that breaks something can be made short.
"""

from __future__ import annotations

import itertools
import random
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from tests.support import coordinator
from tests.support.coordinator import (
    CLASSIC,
    CONSUMER,
    DEAD,
    EMPTY,
    PREPARING,
    SHARE,
    STABLE,
    STREAMS,
    Coordinator,
)
from tests.support.history import check_timeline, rebuild
from tests.unit.test_history_truth import assert_same, check_owners
from tests.unit.test_history_truth import is_legal as is_legal_classic
from timeline.model import GENERATIONS, OWNERS, SESSIONS, STATES

Row = dict[str, Any]
Tables = dict[str, list[Row]]
Step = tuple[int, str, tuple[Any, ...]]
KEYS = {
    STATES: ("group_id", "sequence"),
    GENERATIONS: ("group_id", "record_partition", "record_offset"),
    SESSIONS: ("group_id", "member_id", "record_partition", "record_offset"),
    OWNERS: (
        *("group_id", "topic", "topic_id", "topic_partition", "member_id"),
        *("record_partition", "record_offset"),
    ),
}
_SECOND, _HOUR = 1_000, 3_600_000
_FAR = 1 << 60


class Life(NamedTuple):
    """What happens to a group."""

    broker: dict[str, Any]  # arguments of its `Coordinator`
    steps: list[Step]  # how long after the one before, what, and with which arguments


# -- lives -----------------------------------------------------------------------------------------


def random_life(chance: random.Random) -> Life:
    """Make up a life."""
    broker = {
        "is_java": chance.random() < 0.8,
        "protocol": chance.choice(["range", "cooperative-sticky"]),
        "assigns_later": chance.random() < 0.5,
        "first_epoch": chance.choice([1, 1, 2]),
    }
    protocols = chance.choice([[CLASSIC], [CONSUMER], [CLASSIC, CONSUMER], [SHARE], [STREAMS], []])
    protocols = protocols or [CLASSIC, CONSUMER, SHARE, STREAMS]
    disturbed = chance.choice([(), (), ("skewed",), ("compacted",), ("compacted", "skewed")])
    steps: list[Step] = []
    for _ in range(chance.randint(2, 25)):
        pause = chance.choice([chance.randint(1, 900), chance.randint(1, 90) * _SECOND])
        pause = chance.choice([pause, pause, pause, chance.randint(1, 200) * _HOUR])
        for step in _episode(chance, protocols, disturbed):
            steps.append((pause, *step))
            pause = chance.choice([1, chance.randint(1, 900), chance.randint(1, 9) * _SECOND])
    return Life(broker, steps)


def _episode(
    chance: random.Random, protocols: list[str], disturbed: Iterable[str]
) -> list[tuple[str, tuple[Any, ...]]]:
    number, protocol = chance.randrange(6), chance.choice(protocols)
    instance = chance.choice([None, None, "instance-1", "instance-2"])
    change = chance.choice(
        [
            *[("join", (instance, protocol))] * 5,
            ("leave", (number,)),
            ("rejoin_leader", ()),
            ("resubscribe", (number,)),
            ("more_partitions", ()),
            ("restart_static", (number, protocol)),
        ]
    )
    settled = [("all_rejoin", ()), ("sync", ())]
    settled += [("heartbeat", (n,)) for n in chance.sample(range(6), chance.randint(0, 6))]
    gone = [("leave", (0,))] * 6
    episodes = [
        *[[change, *settled]] * 6,
        [change, *settled, ("rejoin_leader", ()), *settled],
        [change, ("all_rejoin", ()), change, *settled],
        [change, ("all_rejoin", (number,))],
        [change],
        settled,
        [("restart_static", (number, protocol))] * 2,
        [("commit", (chance.randrange(6),)) for _ in range(chance.randint(1, 6))],
        [("expire_some", (number,))],
        gone,
        [*gone, ("delete", ())],
        [("delete", ())],
        [("other_group", (chance.randint(1, 3),))],
        [("fail_over", (0,))],
        [("read", ())],
    ]
    if chance.random() < 0.1:
        episodes.append([("move", ())])
    if "skewed" in disturbed:
        skew = chance.choice([-4 * _SECOND, -_SECOND, 2 * _SECOND, 5 * _SECOND])
        episodes += [[("fail_over", (skew,))], [("day_ahead", ())]]
    if "compacted" in disturbed:
        episodes += [[("compact", (chance.randrange(6), chance.randrange(2)))]] * 3
        episodes += [[("truncate", ())], [("lose", (1,))]]
    return list(chance.choice(episodes))


def quiet_life(chance: random.Random) -> Life:
    """Make up a life in which nothing goes wrong: a few members, and one change a day at most."""
    protocol = chance.choice([CLASSIC, CONSUMER, SHARE, STREAMS])
    settled = [("all_rejoin", ()), ("sync", ()), *(("heartbeat", (n,)) for n in (0, 1, 2, 3) * 3)]
    first, join = ("join", ("instance-1", protocol)), ("join", (None, protocol))
    steps: list[Step] = [(1, *first), (100, *join), (3 * _SECOND, *settled[0])]
    steps += [(50, *step) for step in settled[1:]]
    for _ in range(chance.randint(1, 6)):
        change = chance.choice([join, ("leave", (1,)), ("more_partitions", ()), ("read", ())])
        change = chance.choice([change, ("fail_over", (0,)), ("other_group", (2,))])
        steps.append((chance.randint(30, 50) * _HOUR, *change))
        steps += [(chance.randint(50, 900), *step) for step in settled]
    return Life({"is_java": True, "assigns_later": chance.random() < 0.5}, steps)


def played(life: Life) -> Coordinator:
    """Let a life happen."""
    group = Coordinator(**life.broker)
    for pause, step, arguments in life.steps:
        group.pass_time(pause)
        getattr(group, step)(*arguments)
    return group


def history_of(life: Life) -> tuple[Coordinator, Tables]:
    """Let a life happen, and rebuild its history."""
    group = played(life)
    return group, rebuild(group.log())


# -- what has to hold ------------------------------------------------------------------------------


def check(life: Life) -> None:
    """Hold that a life's history is what it should be."""
    group, tables = check_runs(life)
    check_timeline(tables[STATES], partial(is_legal, is_complete=group.journal.is_complete))
    if group.is_skewed and group.journal.is_complete:
        check_skewed(group, tables)
    elif not group.is_skewed and not group.is_cut_off:
        check_times(group, tables)
    if group.journal.is_complete:
        check_owners(tables[OWNERS])
        check_end(group, tables)
        if not group.is_skewed:
            check_certainty(group, tables)
            check_members_and_owners(group, tables)
            check_generations(group, tables)


def check_runs(life: Life) -> tuple[Coordinator, Tables]:
    """Hold that a life's history is the same in many runs, and has no key twice; give both."""
    group, tables = history_of(life)
    log = group.log()
    check_keys(tables)
    assert_same(rebuild(log, group.journal.cuts), tables, log)
    return group, tables


def is_legal(before: Row, after: Row, *, is_complete: bool) -> bool:
    """Return whether Kafka allows a step from one state to another.

    A group of which not all members were known may have seemed to be Empty.
    """
    types = before["group_type"], after["group_type"]
    states = before["state"], after["state"]
    if before["state"] == DEAD:
        return types[1] != CLASSIC or after["state"] in (EMPTY, PREPARING)
    if after["state"] == DEAD:
        return types[0] == types[1]
    if types == (CLASSIC, CLASSIC):
        return is_legal_classic(before, after)
    if types[0] == types[1]:
        is_other = states[0] != states[1] or before["generation"] != after["generation"]
        known = {EMPTY, STABLE}
        if types[0] != SHARE:
            known |= {coordinator.ASSIGNING, coordinator.RECONCILING}
        if types[0] == STREAMS:
            known.add(coordinator.NOT_READY)
        return is_other and set(states) <= known
    if types == (CLASSIC, CONSUMER):
        return states[1] != EMPTY  # what had joined an Empty one appears with its conversion
    had_members = states[0] != EMPTY or not is_complete
    return types == (CONSUMER, CLASSIC) and had_members and states[1] in (PREPARING, STABLE)


def check_keys(tables: Tables) -> None:
    """Hold that no table has a key twice."""
    for table, columns in KEYS.items():
        keys = [tuple(row[c] for c in columns) for row in tables[table]]
        assert len(keys) == len(set(keys)), (table, "a key twice")


def check_times(group: Coordinator, tables: Tables) -> None:
    """Hold that times that are marked exact are, and that the others lie within their bounds.

    Where something vanished, that is sure of what came before, and of the exact times of
    classic groups: one record has all of them. Something may remain of the others that is over.
    """
    for row in tables[STATES]:
        same = [
            s.at
            for s in group.truth.states
            if (s.group_type, s.state) == (row["group_type"], row["state"])
            and (row["generation"] in (None, s.generation) or row["state"] == PREPARING)
        ]
        if not is_sure(group, row):
            continue
        if row["evidence"] == "exact":
            assert row["started_at"] in same, ("not exact", brief(row), same)
        earliest = -_FAR if row["started_at_min"] is None else row["started_at_min"]
        latest = _FAR if row["started_at_max"] is None else row["started_at_max"]
        assert any(earliest <= at <= latest for at in same), ("out of bounds", brief(row), same)


def is_sure(group: Coordinator, row: Row) -> bool:
    """Return whether a row has to be true, whatever vanished."""
    if group.journal.is_complete or row["record_timestamp"] < group.journal.vanished_at:
        return True
    is_classic = all(s.group_type == CLASSIC for s in group.truth.states)
    return bool(is_classic and row["evidence"] == "exact" and row["generation"])


def check_certainty(group: Coordinator, tables: Tables) -> None:
    """Hold that a group is in the state that the history says, from bound to bound."""
    rows = sorted(tables[STATES], key=lambda r: r["sequence"])
    truth = group.truth.states
    ends = [s.at for s in truth[1:]] + [_FAR]
    for row, after in itertools.pairwise(rows):
        since, until = row["started_at_max"], after["started_at_min"]
        if since is None or until is None:
            continue
        for state, end in zip(truth, ends, strict=True):
            at = max(state.at, since)
            if at >= min(end, until) or any(a <= at < b for a, b in group.truth.unseen):
                continue
            assert is_seen(row, state), ("certain, but not so", at, brief(row), state)


def is_seen(row: Row, state: coordinator.Entered) -> bool:
    """Return whether a row is of a state; aborted generations have none."""
    if row["group_type"] == state.group_type == CLASSIC and row["state"] == PREPARING:
        return state.state in (PREPARING, coordinator.COMPLETING)
    is_same = (row["group_type"], row["state"]) == (state.group_type, state.state)
    return is_same and row["generation"] in (None, state.generation)


def brief(row: Row) -> Row:
    """Return what matters of a state."""
    names = ("group_type", "state", "generation", "started_at_min", "started_at", "started_at_max")
    return {name: row[name] for name in names}


def check_skewed(group: Coordinator, tables: Tables) -> None:
    """Hold that a clock that was ahead once does not last in the history."""
    times = sorted(
        e.event.timestamp for e in group.journal.entries if e.event.timestamp is not None
    )
    if not times or len(group.journal.entries) < 2:
        return
    last = group.journal.entries[-1].event.timestamp
    rows = sorted(tables[STATES], key=lambda r: r["sequence"])
    if last is not None and last <= group.clock + 60 * _SECOND:
        for row in rows[1:]:
            assert row["started_at"] <= group.clock + 60 * _SECOND, ("ahead", brief(row))


def check_end(group: Coordinator, tables: Tables) -> None:
    """Hold that a complete log ends where the coordinator is, as far as it wrote that down."""
    journal = group.journal
    if not journal.entries or journal.entries[-1].partition != journal.partition:
        return
    group.fail_over(group.clock - group._clock)
    rows = [r for r in tables[STATES] if r["ended_at"] is None]
    state = group.truth.states[-1]
    assert [(r["group_type"], r["state"], r["generation"]) for r in rows] == [
        (state.group_type, state.state, state.generation)
    ], ("at the end", [brief(r) for r in rows], state)
    assert {r["member_id"] for r in tables[SESSIONS] if r["left_at"] is None} == set(group.members)
    assert owned(tables, _FAR) == group.truth.written[-1].owners


def check_members_and_owners(group: Coordinator, tables: Tables) -> None:
    """Hold that a complete log tells who is a member, and who owns what, at any moment."""
    at_last = {w.at: w for w in group.truth.written}
    for at, written in at_last.items():
        members = {
            r["member_id"] for r in tables[SESSIONS] if is_within(r, "joined_at", "left_at", at)
        }
        assert members == written.members, ("members", at, members, written.members)
    changes = {t for r in tables[OWNERS] for t in (r["valid_from"], r["valid_to"]) if t is not None}
    # Till something is written, a group that has moved seems to be where it was.
    moves = group.truth.moved
    changes = {t for t in changes if not any(since <= t < until for since, until in moves)}
    for at in changes | at_last.keys():
        known = [w for w in at_last.values() if w.at <= at]
        owners = max(known, key=lambda w: w.at).owners if known else frozenset()
        assert owned(tables, at) == owners, ("owners", at, owned(tables, at) ^ owners)


def is_within(row: Row, since: str, until: str, at: int) -> bool:
    """Return whether a moment lies between two times of a row."""
    return bool(row[since] <= at and (row[until] is None or row[until] > at))


def owned(tables: Tables, at: int) -> frozenset[tuple[str, int, str]]:
    """Return who owns what by the history."""
    return frozenset(
        (
            row["topic"] or row["topic_id"].removeprefix("id-of-"),
            row["topic_partition"],
            row["member_id"],
        )
        for row in tables[OWNERS]
        if is_within(row, "valid_from", "valid_to", at)
    )


def check_generations(group: Coordinator, tables: Tables) -> None:
    """Hold that a complete log tells of each generation, of its times, members and what failed."""
    rows = sorted(tables[GENERATIONS], key=lambda r: (r["record_partition"], r["record_offset"]))
    truth = group.truth.generations
    numbers = [(r["group_type"], r["generation"]) for r in rows]
    assert numbers == [(g.group_type, g.number) for g in truth], ("generations", numbers)
    for row, true in zip(rows, truth, strict=True):
        expected = row["join_completed_at"], row["stable_at"], row["member_count"]
        assert expected == (true.completed, true.stable, len(true.members)), (
            "generation",
            row,
            true,
        )
        assert row["aborted_generations"] == true.aborted, ("aborted", row, true)
        earliest, latest = row["join_started_at_min"], row["join_started_at_max"]
        if earliest is not None and latest is not None:
            assert earliest <= true.started <= latest, ("started", row, true)


# -- what breaks -----------------------------------------------------------------------------------


def failure(life: Life, holds: Callable[[Life], None] = check) -> str | None:
    """Return what a life breaks, and where; None if nothing."""
    try:
        holds(life)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
        frames = traceback.extract_tb(error.__traceback__)
        return f"{type(error).__name__} at {frames[-1].name}:{frames[-1].lineno}: {error}"
    return None


def shrunk(life: Life, holds: Callable[[Life], None] = check) -> Life:
    """Take steps and times out of a life while it breaks the same."""
    where = (failure(life, holds) or "").partition(": ")[0]

    def breaks(steps: list[Step]) -> bool:
        return (failure(Life(life.broker, steps), holds) or "").partition(": ")[0] == where

    steps, size = life.steps, max(1, len(life.steps) // 2)
    while size:
        start = 0
        while start < len(steps):
            shorter = steps[:start] + steps[start + size :]
            if breaks(shorter):
                steps = shorter
            else:
                start += size
        size //= 2
    for i, (pause, *step) in enumerate(steps):
        for less in (1, 10, 1_000):
            shorter = [*steps[:i], (less, *step), *steps[i + 1 :]]  # type: ignore[list-item]
            if less < pause and breaks(shorter):
                steps = shorter
                break
    return Life(life.broker, steps)


def of_seed(seed: int, number: int) -> Life:
    """Return one of the lives of a seed."""
    return random_life(random.Random(f"{seed} {number}"))  # noqa: S311 - not for secrets

"""What a rebalance cost: the time that members were without partitions of theirs.

Each counts by the share of its partitions that it had to give up, from then until they have an
owner again. Only who is a member before and after counts, by its id or its instance id: who is new
had nothing to give up, and who is gone is no consumer any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeAlias

from timeline.generations import Moves
from timeline.model import COST, GroupState, Member, Row
from timeline.timeline import Moment, elapsed

Waits: TypeAlias = "list[tuple[float, Moment]]"
"""How many members are without partitions, since when; one that lacks some counts by its share."""
_, LEAST, _ = COST
UNKNOWN: Row = dict.fromkeys(COST)


def of(waits: Waits, until: Moment) -> Row:
    """Return the columns of what it costs that members are without partitions until a moment."""
    spans = (
        [(n, elapsed(since.at, until.at)) for n, since in waits],
        [(n, elapsed(since.latest, until.earliest)) for n, since in waits],
        [(n, elapsed(since.earliest, until.latest)) for n, since in waits],
    )
    return dict(zip(COST, map(_total, spans), strict=True))


def _total(spans: Iterable[tuple[float, int | None]]) -> int | None:
    total = 0.0
    for number, ms in spans:
        if ms is None:
            return None
        total += number * ms
    return round(total)


# -- the classic protocol --------------------------------------------------------------------------


def stopped(state: GroupState, after: dict[str, Member], since: Moment) -> Waits | None:
    """Return the members that an eager rebalance stopped, for `of`; None if that is not known."""
    stay, state.given_up = _staying(state, after), {}
    if any(m.assigned is None for m in stay):
        return None
    number = sum(bool(m.partitions) for m in stay)
    return [(number, since)] if number else []


def moved(state: GroupState, after: dict[str, Member], moves: Moves, since: Moment) -> Waits | None:
    """Return what a cooperative rebalance handed over, for `of`; None if that is not known.

    What waits for an owner still is kept, with the moment that it was given up.
    """
    stay = _staying(state, after)
    if stay and any(m.assigned is None for m in (*stay, *after.values())):
        return None
    present = {m.identity for m in stay}
    former = {p: owner for p, owner in moves.former.items() if owner in present}
    had, known = Counter(former.values()), state.given_up
    vanished = set(moves.vanished)
    state.given_up = {
        p: known.get(p, [former[p], 1 / had[former[p]], *since])
        for p in moves.released
        if p in former and p not in vanished
    }
    again = [p for p in moves.gained if p in former]
    given = ((p, known[p][2:] if p in known else since) for p in again)
    return [(1 / had[former[p]], Moment(*moment)) for p, moment in given]


def _staying(state: GroupState, after: dict[str, Member]) -> list[Member]:
    present = {m.identity for m in after.values()}
    return [m for m in state.members.values() if m.identity in present]


# -- the new protocols -----------------------------------------------------------------------------


def follow(state: GroupState, before: dict[str, Member], when: Moment, *, is_known: bool) -> None:
    """Follow what members give up that others are to get, until it has an owner again.

    Whether all is known tells that no record is missing that may tell of others.
    """
    if not is_known:
        _forget(state)
        return
    now, wanted = state.members, state.last_owners
    given_up = {p: wait for p, wait in state.given_up.items() if p in wanted}
    gained = {p for k, m in now.items() if before.get(k) is not m for p in m.partitions}
    _charge(state, [given_up.pop(p) for p in sorted(gained & given_up.keys())], when)
    identities = {m.identity for m in now.values()}
    for member in [m for k, m in before.items() if now.get(k) is not m]:
        lost = [p for p in member.partitions if p in wanted and p not in gained]
        if state.group_type == "share":  # its partitions have many owners at once
            lost = [p for p in lost if not any(p in m.owning for m in now.values())]
        if lost and member.identity in identities:
            waiting = sum(owner == member.identity for owner, *_ in given_up.values())
            share = 1 / (len(member.partitions) + waiting)
            given_up |= {p: [member.identity, share, *when] for p in lost}
    state.given_up = given_up


def cut(state: GroupState, when: Moment, *, is_complete: bool) -> None:
    """Put down, as an epoch ends, what waits for an owner; the next one counts from there."""
    if not is_complete:
        _forget(state)
    _charge(state, state.given_up.values(), when)
    state.given_up = {p: [*wait[:2], *when] for p, wait in state.given_up.items()}


def _forget(state: GroupState) -> None:
    """Leave open what the epoch costs, of which records are missing."""
    state.given_up = {}
    row = state.generation
    if row is not None and row["group_type"] == state.group_type:
        row |= UNKNOWN


def _charge(state: GroupState, waits: Iterable[list[Any]], until: Moment) -> None:
    present = {m.identity for m in state.members.values()}
    given = [(share, Moment(*since)) for owner, share, *since in waits if owner in present]
    row = state.generation
    if not given or row is None or row["group_type"] != state.group_type:
        return
    for column, ms in of(given, until).items():
        known = row.get(column)
        row[column] = None if known is None or ms is None else known + ms

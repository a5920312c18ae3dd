"""The timeline of one group: intervals that follow each other without gap or overlap."""

from __future__ import annotations

from typing import NamedTuple

from timeline.model import STATES, GroupState, Record, Row

EMPTY = "Empty"
PREPARING = "PreparingRebalance"
COMPLETING = "CompletingRebalance"
STABLE = "Stable"
DEAD = "Dead"
ASSIGNING = "Assigning"
RECONCILING = "Reconciling"
NOT_READY = "NotReady"


class Moment(NamedTuple):
    """When something happened: the best estimate, and what is certain."""

    at: int | None  # the estimate, or the time itself where it is known
    earliest: int | None  # no earlier than this; None if nothing bounds it
    latest: int | None  # no later than this

    @property
    def is_exact(self) -> bool:
        """Return whether the log gives the very time."""
        return self.at is not None and self.earliest == self.at == self.latest


NEVER = Moment(None, None, None)
"""When nothing happened, as far as the log tells."""


def exactly(at: int | None) -> Moment:
    """Return a moment that the log has."""
    return Moment(at, at, at)


def enter(
    state: GroupState,
    name: str,
    when: Moment,
    record: Record,
    *,
    generation: int | None,
    member_count: int,
) -> None:
    """Let the group enter a state; the interval before ends there.

    Entering the state that the group is in goes on with the interval, unless the generation is a
    new one. Times never run backwards: an estimate before the interval began is taken as that
    beginning.
    """
    before = state.interval
    if before is not None:
        same = before["state"] == name and before["generation"] == generation
        if same and before["group_type"] == state.group_type:
            before["member_count"] = member_count
            return
        when = _not_before(when, before["started_at"])
        before["ended_at"] = when.at
        before["duration_ms"] = elapsed(before["started_at"], when.at)
        bound_doubt(before, when.at)
        state.output.add(STATES, before)
    state.clock = not_before(state.clock, when.at)
    columns = {
        "sequence": state.sequence,
        "state": name,
        "generation": generation,
        "started_at": when.at,
        "started_at_min": when.earliest,
        "started_at_max": when.latest,
        "evidence": "exact" if when.is_exact else "bounded",
        "member_count": member_count,
    }
    state.interval = state.begin_row(STATES, record, columns)
    state.sequence += 1


def bound_doubt(row: Row, ended_at: int | None) -> None:
    """Let a row that ends be borne out no longer than it lasted.

    Members commit until they have re-joined, so that the last that shows it may be behind the end.
    """
    if ended_at is not None and row.get("known_until") is not None:
        row["known_until"] = min(row["known_until"], ended_at)


def current(state: GroupState) -> str | None:
    """Return the state that the group is in; None before the first."""
    return None if state.interval is None else str(state.interval["state"])


def in_state_since(state: GroupState) -> int | None:
    """Return when the group entered its state, in epoch milliseconds; None if not known."""
    since: int | None = None if state.interval is None else state.interval["started_at"]
    return since


def earliest_exit(interval: Row | None) -> int | None:
    """Return the earliest time at which the group can have left its current state."""
    if interval is None:
        return None
    if interval["state"] == DEAD:
        earliest: int | None = interval["started_at_min"]
        return earliest  # its record may be the first of the group that came after
    at, own = interval["started_at"], interval["record_timestamp"]
    # The record shows that the group was in it then; if clocks differ, that is less certain.
    certain: int | None = at if own in (None, at) else interval["started_at_min"]
    return certain


def elapsed(start: int | None, end: int | None) -> int | None:
    """Return the milliseconds between two times, None unless both are known, never negative."""
    if start is None or end is None:
        return None
    return end - start if end > start else 0


def _not_before(when: Moment, start: int | None) -> Moment:
    if start is None or when.at is None or when.at >= start:
        return when
    return Moment(start, when.earliest, None if when.latest is None else max(when.latest, start))


def not_before(clock: int | None, at: int | None) -> int | None:
    """Return a time, or that of the clock if it is later; the clocks of two brokers may differ."""
    if clock is None or at is None:
        return at if clock is None else clock
    return max(clock, at)

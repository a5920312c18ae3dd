"""The lives of a group: Dead ends one, and nothing of it counts for the next.

Kafka keeps no group that is Dead: whoever joins under its id makes a new one, of whatever type,
and its generations or epochs begin again (GroupMetadataManager.maybeDeleteEmptyClassicGroup,
getOrMaybeCreateConsumerGroup, classicGroupJoinToClassicGroup).
"""

from __future__ import annotations

from collections.abc import Iterable

from timeline import gaps, generations
from timeline.holes import Unseen
from timeline.members import DELETED, follow
from timeline.model import Commits, Epochs, GroupState, Member, Record
from timeline.timeline import (
    DEAD,
    EMPTY,
    STABLE,
    Moment,
    current,
    earliest_exit,
    elapsed,
    enter,
    exactly,
    in_state_since,
    not_before,
)

# offsets.retention.check.interval.ms, how often brokers look for what has expired, is ten minutes.
_CLEANUP_MS = 3_600_000


def moment(state: GroupState, record: Record) -> Moment:
    """Return the time of a record: exact, unless it is before the group's clock, or too late.

    Times of a group never run backwards, so a record of a broker whose clock is behind counts as
    written at the time of what came before it.
    """
    clock, own = state.clock, record.timestamp
    if record.until is not None:
        at = not_before(clock, record.until)
        return Moment(at, clock, at)
    if own is None:
        return Moment(clock, clock, None)
    if clock is not None and own < clock:
        return Moment(clock, own, clock)
    return exactly(own)


def skew(state: GroupState, record: Record) -> int | None:
    """Return how far the clocks of brokers differ, in milliseconds, if a record shows it."""
    at, own = moment(state, record).at, record.timestamp
    if own is None or at is None:
        return None
    shown = [abs(at - own)]
    claimed = (record.payload or {}).get("current_state_timestamp")
    if claimed is not None:
        # The state that it tells of began behind the record before, and ended with its own.
        shown += [claimed - own, state.clock - claimed if at == own and state.clock else 0]
    return max(*shown, 0) or None


def is_alive(state: GroupState) -> bool:
    """Return whether the group is there, as far as is known."""
    return current(state) not in (None, DEAD)


def is_dead(state: GroupState) -> bool:
    """Return whether the group is known to be gone."""
    return current(state) == DEAD


def discard_simple_group(state: GroupState) -> None:
    """Discard the assumption that the group was a simple one: its earlier records are missing.

    Settled rows do not change.
    """
    if state.sequence == 1 and current(state) == EMPTY:
        state.interval, state.sequence, state.group_type, state.live = None, 0, None, []


def end_by_tombstone(
    state: GroupState, record: Record, group_type: str, *, is_complete: bool
) -> None:
    """End a group at its tombstone; its type counts if none is known yet."""
    if is_dead(state):
        _outlived(state, record, group_type)
        return
    when = moment(state, record)
    if not is_complete and not _has_expired(state, when.at):
        gaps.doubt(state)
        if current(state) not in (None, EMPTY):
            # Kafka deletes no group that has members: how it became Empty, and perhaps was made
            # anew and deleted again, is missing.
            untold = state.gap.untold
            when = when._replace(earliest=gaps.began(state) if untold is None else untold[2])
    if state.group_type not in (None, group_type):
        end_without_tombstone(state, record)  # the tombstone is of another that came after it
        return
    state.group_type = group_type
    _end(state, record, when)


def _has_expired(state: GroupState, at: int | None) -> bool:
    """Return whether a group goes as its offsets expire: whoever came would have put that off."""
    # Kafka counts so for a classic group alone that had members: else since each commit.
    if current(state) != EMPTY or state.group_type != "classic" or state.generation is None:
        return False
    late = (elapsed(in_state_since(state), at) or 0) - gaps.RETENTION_MS
    return 0 <= late <= _CLEANUP_MS


def _outlived(state: GroupState, record: Record, group_type: str) -> None:
    """Bound the end of a group that only committed, and has a tombstone behind its last offset."""
    # An admin may have deleted that. Brokers up to 3.x then end such a group at once, and write no
    # tombstone; later ones with their next cleanup (GroupCoordinatorShard.cleanupGroupMetadata).
    row, at = state.interval, moment(state, record).at
    if row is None or at is None or group_type != "classic" or row["evidence"] != "exact":
        return
    if at > row["started_at"]:
        row["started_at_max"], row["evidence"] = at, "bounded"


def end_what_is_known(state: GroupState, unseen: Iterable[Unseen]) -> int | None:
    """End what is open of a group that may be gone, since its end would have left nothing.

    What is given is since when. A group that is empty is told so for as long as brokers keep its
    offsets: if somebody deletes it before, little changes.
    """
    row, is_empty = state.interval, current(state) == EMPTY
    if row is None or row["started_at"] is None or is_dead(state):
        return None
    if is_empty and state.group_type == "share":
        return None  # Kafka does not let it expire
    first: int = row["started_at"] + (gaps.RETENTION_MS if is_empty else 0)
    until = next((max(each.since, first) for each in unseen if each.hides_an_end(first)), None)
    if until is not None:
        gaps.doubt(state, until=until)
        row["ended_at"], row["duration_ms"] = until, until - row["started_at"]
        if state.generation is not None:
            state.generation["ended_at"] = until
    return until


def end_without_tombstone(
    state: GroupState, record: Record, came: dict[str, Member] | None = None
) -> None:
    """End a group whose tombstone is missing: it was deleted before the given record.

    If the record has the time of a completed join phase, the new group existed by then. One that
    was empty for as long as brokers keep offsets went by itself, as a rule; share groups have none.
    """
    if state.group_type is None:
        return
    gaps.doubt(state)
    since = state.interval["started_at"] if state.interval is not None else None
    at = moment(state, record).at
    claimed = (record.payload or {}).get("current_state_timestamp")
    if at is not None and claimed is not None:
        at = not_before(state.clock, min(at, claimed))
    clock, stays = state.clock, [state.sessions[m] for m in came or () if m in state.sessions]
    for row in stays:
        row["first_generation"] = row["last_generation"] = None
        at, clock = _earlier(at, row["joined_at"]), _earlier(clock, row["joined_at_min"])
    latest, expires = at, current(state) == EMPTY and state.group_type != "share"
    if expires and at is not None and since is not None:
        at = min(at, max(since + gaps.RETENTION_MS, clock or since))
    _end(state, record, Moment(at, since, latest), came)
    gaps.doubt_group(state, at)  # it may have been there again in between


def _earlier(at: int | None, other: int | None) -> int | None:
    return other if at is None else at if other is None else min(at, other)


def tell_conversion(state: GroupState, record: Record, when: Moment) -> None:
    """Tell of a protocol that a group leaves with a record, if no record told a state of it."""
    interval = state.interval
    if interval is None or is_dead(state) or interval["group_type"] == state.group_type:
        return
    until = when._replace(earliest=earliest_exit(interval))
    number, count = state.epochs.group, len(state.members)
    enter(state, STABLE, until, record, generation=number, member_count=count)


def _end(
    state: GroupState, record: Record, when: Moment, came: dict[str, Member] | None = None
) -> None:
    """End all that is open of a group, but who came to the next one; it is Dead from then on."""
    gaps.clear(state)
    tell_conversion(state, record, when)
    follow(state, came or {}, record, when, generation=None, end_cause=DELETED)
    generations.end(state, when.at)
    enter(state, DEAD, when, record, generation=None, member_count=0)
    state.group_type, state.members, state.last_owners, state.given_up = None, {}, {}, {}
    state.epochs, state.commits, state.live = Epochs(), Commits(), []
    state.cycles, state.overdue, state.usual_pause, state.revoking = [], [], None, []
    state.initial_delay_ms, state.classic_since, state.beats = None, None, {}

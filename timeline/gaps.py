"""Where records are missing: which members may be gone, and up to when the others are borne out.

A member of the new protocols that leaves writes tombstones alone, which the cleaner removes a day
later: nothing tells of it then. But who is there reaches each epoch of the group, and each epoch is
written, so that a member that no record names any more may have left.
"""

from __future__ import annotations

from collections.abc import Container
from collections.abc import Set as AbstractSet

from timeline.model import Gap, GroupState, Member, Row
from timeline.timeline import DEAD, EMPTY, current, elapsed, in_state_since, not_before

USUAL_TIMEOUT_MS = 300_000
"""Default of max.poll.interval.ms, which consumers send as their rebalance timeout."""
RETENTION_MS = 7 * 24 * 3_600_000
"""Default of offsets.retention.minutes, counted since the group became empty."""


def longest_timeout(state: GroupState) -> int:
    """Return how long a rebalance of the group may take, in milliseconds."""
    timeouts = [m.rebalance_timeout_ms or USUAL_TIMEOUT_MS for m in state.members.values()]
    return max(timeouts, default=USUAL_TIMEOUT_MS)


def doubt(
    state: GroupState, member_ids: Container[str] | None = None, until: int | None = None
) -> None:
    """Note that records are missing which may tell otherwise of some members; None: of all."""
    until = began(state) if until is None else until
    _doubt(state.sessions, "joined_at", member_ids, until)
    doubt_owners(state, member_ids, until)
    if member_ids is None:
        doubt_group(state, until)


def doubt_group(state: GroupState, until: int | None) -> None:
    """Note that records are missing which may tell of what came behind the open state."""
    interval, row = state.interval, state.generation
    if interval is not None and interval.get("known_until") is None:
        interval["known_until"] = not_before(interval["started_at"], until)
    if row is not None and row.get("known_until") is None:
        # Its record's own time may be that of a clock that is ahead.
        began_at = row["join_completed_at"] or row["join_started_at"]
        row["known_until"] = not_before(began_at, until)


def bear_out_group(state: GroupState, number: int | None, at: int | None) -> None:
    """Note that a group has a generation since a time: behind the very last, nothing is missing.

    One that is converted keeps the number of its generation.
    """
    row = state.generation
    if row is None or number is None or not 0 <= number - (row["generation"] or 0) <= 1:
        return
    if not may_hide_a_life(state, at, state.members.keys()):
        row["known_until"] = None
        if state.interval is not None:
            state.interval["known_until"] = None


def may_hide_a_life(state: GroupState, at: int | None, members: AbstractSet[str]) -> bool:
    """Return whether others may have come and gone in a gap that ends with these members.

    They may if the group was gone, or was empty and still has no members, or none again. Else it
    may have been deleted and made anew in between, if that is longer than brokers keep the offsets
    of a group without members, and none of those who are there now was there before.
    """
    name = current(state)
    if name is None:
        return False
    if name == DEAD or (name == EMPTY and not members):
        return True
    if state.sessions.keys() & members or (name == EMPTY and state.group_type == "share"):
        return False  # an id is of one stay; and Kafka lets no share group expire
    is_counted = name == EMPTY and state.generation is not None  # else since the last commit
    since = in_state_since(state) if is_counted else began(state)
    return (elapsed(since, at) or 0) > RETENTION_MS


def doubt_owners(state: GroupState, member_ids: Container[str] | None, until: int | None) -> None:
    """Note that records are missing which may tell otherwise of what some members owned."""
    state.gap.has_doubts = True
    _doubt(state.owners, "valid_from", member_ids, until)


def _doubt(
    rows: dict[str, Row], start: str, member_ids: Container[str] | None, until: int | None
) -> None:
    for row in rows.values():
        is_meant = member_ids is None or row["member_id"] in member_ids
        if is_meant and row.get("known_until") is None:
            row["known_until"] = not_before(row[start], until)


def began(state: GroupState) -> int | None:
    """Return the time of the last record before those that are missing."""
    times = (state.gap.at, state.seen_at, state.clock)
    return next((at for at in times if at is not None), None)


def note(state: GroupState) -> None:
    """Note that records are missing before those to come."""
    state.gap.at = began(state)
    state.gap.epoch, state.gap.unnamed = state.epochs.group, list(state.members)


def present(state: GroupState, named: set[str]) -> dict[str, Member]:
    """Return the members, with those that are named again."""
    state.gap.unnamed = [m for m in state.gap.unnamed if m not in named]
    if state.gap.absent.keys().isdisjoint(named):
        return state.members
    back = {k: m for k, m in state.gap.absent.items() if k in named}
    state.gap.absent = {k: m for k, m in state.gap.absent.items() if k not in named}
    return {**state.members, **back}


def has_moved_on(
    state: GroupState, *, names_change: bool, has_others: bool, lacks_epoch: bool
) -> bool:
    """Return whether the group is behind the epoch of the gap, and who left for that is not known.

    The records may name who joined or left (`names_change`), or others, who came in the meantime;
    or somebody came or left with an epoch that is missing.
    """
    if state.gap.epoch is None:
        return False
    newest, number = newest_epoch(state) + lacks_epoch, state.epochs.group or 0
    if has_others or (newest > state.gap.epoch and state.gap.unnamed):
        is_next = not has_others and newest == number == state.gap.epoch + 1
        if not (is_next and names_change):
            return True
        state.gap.unnamed = []  # the epoch is the very next, and these are all of its changes
    if not state.gap.unnamed:
        if lacks_epoch or newest - state.gap.epoch > 1:
            doubt(state)  # all are there, but may have owned something else in between
        state.gap.epoch = state.gap.at = None
    return False


def set_aside(state: GroupState, at: int | None, *, has_others: bool) -> None:
    """Set the members aside that no record names, and doubt what is known of owners."""
    doubt(state, state.gap.unnamed)
    # Who has moved on to the very next epoch has missed none.
    if has_others or newest_epoch(state) - (state.gap.epoch or 0) > 1:
        doubt_owners(state, None, began(state))
        doubt_group(state, began(state))
    state.gap.absent |= {k: state.members.pop(k) for k in state.gap.unnamed if k in state.members}
    state.gap.absent_since, state.gap.epoch, state.gap.at, state.gap.unnamed = at, None, None, []


def bear_out(state: GroupState, named: set[str]) -> None:
    """Note that members were there until records name them: an id is of one stay."""
    for member_id in named & state.sessions.keys():
        state.sessions[member_id]["known_until"] = None


def awaited(state: GroupState, at: int | None) -> dict[str, Member]:
    """Return the members that were set aside, and may still be named.

    Who does not reach an epoch within its rebalance timeout is fenced
    (GroupMetadataManager.scheduleConsumerGroupRebalanceTimeout).
    """
    # Who was fenced has no session any more, also where others were set aside since.
    absent = {k: m for k, m in state.gap.absent.items() if k in state.sessions}
    if not absent or at is None or state.gap.absent_since is None:
        return absent
    waited = at - state.gap.absent_since
    return {
        k: m for k, m in absent.items() if waited <= (m.rebalance_timeout_ms or USUAL_TIMEOUT_MS)
    }


def clear(state: GroupState) -> None:
    """Forget what is missing: nothing of it concerns what the group is now."""
    state.gap = Gap(has_doubts=state.gap.has_doubts)


def newest_epoch(state: GroupState) -> int:
    """Return the newest epoch that a record of the group names; 0 if none does."""
    epochs = state.epochs
    known = (epochs.group, epochs.assignment, *epochs.member.values())
    return max((e for e in known if e is not None), default=0)

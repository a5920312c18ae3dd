"""Where records are missing: which members may be gone, and up to when the others are borne out.

A member of the new protocols that leaves writes tombstones alone, which the cleaner removes a day
later: nothing tells of it then. But who is there reaches each epoch of the group, and each epoch is
written, so that a member that no record names any more may have left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

    from timeline.model import GroupState, Member

USUAL_TIMEOUT_MS = 300_000
"""Default of max.poll.interval.ms, which consumers send as their rebalance timeout."""


def doubt(state: GroupState, member_ids: Container[str] | None = None) -> None:
    """Note that records are missing which may tell of other members and owners than those known.

    Args:
        state: the group.
        member_ids: the members that may have changed; None for all.
    """
    state.has_doubts = True
    until = borne_out_until(state) if state.gap_at is None else state.gap_at
    for row in (*state.sessions.values(), *state.owners.values()):
        if row.get("known_until") is None and (
            member_ids is None or row["member_id"] in member_ids
        ):
            row["known_until"] = until


def borne_out_until(state: GroupState) -> int | None:
    """Return the time of the last record up to which none of the group's is missing."""
    return state.clock if state.seen_at is None else state.seen_at


def note(state: GroupState, named: set[str]) -> bool:
    """Note that records are missing before some that name members.

    Returns:
        Whether one of these is not known: it came in the meantime.
    """
    if state.gap_at is None:
        state.gap_at = borne_out_until(state)
    state.gap_epoch, state.unnamed = state.epochs.group, list(state.members)
    return not named <= state.members.keys() | state.absent.keys()


def present(state: GroupState, named: set[str]) -> dict[str, Member]:
    """Return the members, with those that are named again."""
    state.unnamed = [m for m in state.unnamed if m not in named]
    back = {k: m for k, m in state.absent.items() if k in named}
    state.absent = {k: m for k, m in state.absent.items() if k not in named}
    return {**state.members, **back}


def has_moved_on(state: GroupState, *, has_others: bool) -> bool:
    """Return whether epochs may be missing, since the group is behind that of the gap."""
    if state.gap_epoch is None:
        return False
    if has_others or _newest(state) > state.gap_epoch:
        return True
    if not state.unnamed:
        state.gap_epoch = state.gap_at = None
    return False


def set_aside(state: GroupState, at: int | None, *, has_others: bool) -> None:
    """Set the members aside that no record names, and doubt what is known of owners."""
    # Who has moved on to the very next epoch has missed none.
    is_next = not has_others and _newest(state) - (state.gap_epoch or 0) == 1
    doubt(state, state.unnamed if is_next else None)
    state.absent |= {k: state.members.pop(k) for k in state.unnamed if k in state.members}
    state.absent_since, state.gap_epoch, state.gap_at, state.unnamed = at, None, None, []


def _newest(state: GroupState) -> int:
    epochs = state.epochs
    known = (epochs.group, epochs.assignment, *epochs.member.values())
    return max((e for e in known if e is not None), default=0)


def without_absent(
    state: GroupState, before: dict[str, Member], at: int | None
) -> dict[str, Member]:
    """Let go members that were not named in time, and return those before without the others.

    Who does not reach an epoch within its rebalance timeout is fenced
    (GroupMetadataManager.scheduleConsumerGroupRebalanceTimeout).
    """
    here = {k: m for k, m in before.items() if k not in state.absent}
    if state.absent and at is not None and state.absent_since is not None:
        waited = at - state.absent_since
        timeouts = {k: m.rebalance_timeout_ms or USUAL_TIMEOUT_MS for k, m in state.absent.items()}
        forget(state, [k for k, timeout in timeouts.items() if waited > timeout])
    return here


def forget(state: GroupState, gone: list[str]) -> None:
    """Let members that were set aside be gone."""
    for member_id in gone:
        del state.absent[member_id]
        for known in (state.epochs.member, state.epochs.is_stable, state.epochs.target):
            known.pop(member_id, None)

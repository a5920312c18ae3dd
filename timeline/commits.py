"""What offset commits tell of a group: its rhythm, the last sign of each member, and more.

A group that only commits, without members, has no record of its own; Kafka holds it for Empty until
its last offset is gone (GroupMetadataManager, simple consumer groups).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from timeline import classic, lives
from timeline.model import Record
from timeline.timeline import DEAD, current

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from timeline.model import GroupState, Output

COMMITS = "offset_commits"
"""The silver table of offset commits."""
# Commits of the members of one group, or of one request, come this close to each other.
_ROUND_MS = 100
NO_TIME = -1


class CommitChunk(NamedTuple):
    """Offset commits of a group, one after the other.

    Attributes:
        offsets: positions of the records.
        times: their timestamps in epoch ms, `NO_TIME` where the log has none.
        partitions: `partition_hash` of each.
        deletes: whether each is a tombstone.
    """

    offsets: np.ndarray
    times: np.ndarray
    partitions: np.ndarray
    deletes: np.ndarray


def first_time(chunk: CommitChunk) -> int | None:
    """Give the time of the first commit."""
    return None if chunk.times[0] == NO_TIME else int(chunk.times[0])


def note(state: GroupState, chunk: CommitChunk) -> None:
    """Note when the group committed; cutting commits into chunks changes nothing."""
    commits = state.commits
    owners = _owners(state)
    last, longest, by_member = commits.last, commits.longest_pause, commits.by_member
    # A rebalance comes between few commits, of which an array is no faster than a list.
    times, partitions = chunk.times.tolist(), chunk.partitions.tolist()
    for time, partition, deletes in zip(times, partitions, chunk.deletes.tolist(), strict=True):
        if deletes and partition in owners:
            commits.deleted.append(partition)
        if deletes or time == NO_TIME:
            continue
        if last is None or time > last:
            pause = 0 if last is None else time - last
            if last is None or pause > _ROUND_MS:
                commits.rounds += 1
            longest = max(longest, pause)
            last = time
        member = owners.get(partition)
        if member is not None and time >= by_member.get(member, time):
            by_member[member] = time
    commits.last, commits.longest_pause = last, longest


def is_simple(state: GroupState) -> bool:
    """Tell whether all that is known of the group are offsets."""
    return state.group_type is None or bool(state.live)


def follow_simple(
    state: GroupState,
    output: Output,
    chunk: CommitChunk,
    *,
    has_hole: Callable[[int, int], bool],
) -> None:
    """Let the group begin with its first offset, and end with its last."""
    live = set(state.live)
    for offset, time, partition, deletes in zip(
        *(column.tolist() for column in chunk), strict=True
    ):
        record = Record(offset, None if time == NO_TIME else time, COMMITS, None, None)
        if not deletes:
            live.add(partition)
            if current(state) in (None, DEAD):
                after = -1 if state.record_offset is None else state.record_offset
                is_exact = not has_hole(after, offset)
                classic.committed_first(state, output, record, is_exact=is_exact)
                if is_exact:
                    state.record_offset = offset
        elif partition in live:
            live.remove(partition)
            if not live:
                lives.deleted(state, output, record, "classic")
                state.record_offset = offset
    state.live = sorted(live)


def _owners(state: GroupState) -> dict[int, str]:
    """Tell by a partition's hash which member commits it, in a classic group."""
    if state.group_type != "classic":
        return {}
    owners: dict[int, str] = {}
    for member in state.members.values():
        owners |= member.committing
    return owners

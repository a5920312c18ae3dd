"""What offset commits tell of a group: its rhythm, the last sign of each member, and more.

A group that only commits, without members, has no record of its own; Kafka holds it for Empty until
its last offset is gone (GroupMetadataManager, simple consumer groups).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from history import classic
from history.model import Record, partition_hash
from history.timeline import DEAD, current

if TYPE_CHECKING:
    from collections.abc import Callable

    from history.model import GroupState, Output

_KIND = "offset_commits"
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


def note(state: GroupState, chunk: CommitChunk) -> None:
    """Note when the group committed; cutting commits into chunks changes nothing."""
    real = ~chunk.deletes & (chunk.times != NO_TIME)
    times = chunk.times[real]
    if not len(times):
        return
    commits = state.commits
    before = times[0] if commits.last is None else commits.last
    latest = np.maximum.accumulate(np.concatenate(([before], times)))
    pauses = times - latest[:-1]
    commits.rounds += int((pauses > _ROUND_MS).sum()) + (commits.last is None)
    commits.longest_pause = max(commits.longest_pause, int(pauses.max()))
    commits.last = int(latest[-1])
    owners = _owners(state)
    if owners:
        # The last commit of each partition: the first one from behind.
        hashes, first = np.unique(chunk.partitions[real][::-1], return_index=True)
        last = times[::-1][first]
        for number, at in zip(hashes.tolist(), last.tolist(), strict=True):
            member = owners.get(number)
            if member is not None:
                commits.by_member[member] = max(at, commits.by_member.get(member, at))


def is_simple(state: GroupState) -> bool:
    """Tell whether all that is known of the group are offsets."""
    return current(state) in (None, DEAD) or bool(state.live)


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
        record = Record(offset, None if time == NO_TIME else time, _KIND, None, None)
        if not deletes:
            live.add(partition)
            if current(state) in (None, DEAD):
                is_exact = not has_hole(-1, offset)
                classic.committed_first(state, output, record, is_exact=is_exact)
        elif partition in live:
            live.remove(partition)
            if not live:
                classic.deleted(state, output, record)
    state.live = sorted(live)


def _owners(state: GroupState) -> dict[int, str]:
    """Tell by a partition's hash which member commits it, in a classic group."""
    if state.group_type != "classic":
        return {}
    return {
        partition_hash(topic, partition): member.member_id
        for member in state.members.values()
        for topic, partitions in (member.assigned or {}).items()
        for partition in partitions
    }

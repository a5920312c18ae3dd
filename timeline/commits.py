"""What offset commits show of a group: its rhythm, the last sign of each member, and more.

A group that only commits, without members, has no record of its own; Kafka holds it for Empty until
its last offset is gone (GroupMetadataManager, simple consumer groups).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from timeline import classic, cost, lives, tasks
from timeline.model import GroupState, Record

COMMITS = "offset_commits"
"""The silver table of offset commits."""
# Commits of the members of one group, or of one request, come this close to each other.
_ROUND_MS = 100
NO_TIME = -1


class CommitChunk(NamedTuple):
    """Offset commits of a group, one after the other."""

    offsets: np.ndarray  # positions of the records
    times: np.ndarray  # their timestamps in epoch ms, `NO_TIME` where the log has none
    partitions: np.ndarray  # `partition_hash` of each
    deletes: np.ndarray  # whether each is a tombstone


def part(chunk: CommitChunk, start: int, end: int) -> CommitChunk:
    """Return some of the commits."""
    return CommitChunk(*(column[start:end] for column in chunk))


def first_time(chunk: CommitChunk) -> int | None:
    """Return the time of the first commit."""
    return None if chunk.times[0] == NO_TIME else int(chunk.times[0])


def note(state: GroupState, chunk: CommitChunk) -> None:
    """Note when the group committed; cutting commits into chunks changes nothing."""
    if state.quiet is not None:
        _note_again(state, chunk)
    tasks.note(state, chunk.partitions)
    commits = state.commits
    owners = _owners(state)
    last, by_member = commits.last, commits.by_member
    since = (state.interval or {}).get("started_at")
    # A rebalance comes between few commits, of which an array is no faster than a list.
    times, partitions = chunk.times.tolist(), chunk.partitions.tolist()
    for time, partition, deletes in zip(times, partitions, chunk.deletes.tolist(), strict=True):
        if deletes and partition in owners:
            commits.deleted.append(partition)
        if deletes or time == NO_TIME:
            continue
        if last is None or time > last:
            last = time
        member = owners.get(partition)
        if member is None:
            continue
        known = by_member.get(member)
        if known is None:
            pause = 0 if since is None else max(0, time - since)
            by_member[member] = [time, 1, pause, 0, pause, pause]
        elif time > known[0]:
            _go_on(known, time)
    commits.last = last


def _go_on(known: list[int], time: int) -> None:
    """Note the next commit of a member; see `Commits.by_member`."""
    last, moments, longest, shortest, before, _ = known
    pause = time - last
    if pause > _ROUND_MS:
        if moments > 1:
            shortest = min(shortest or before, before)
        known[1:5] = moments + 1, max(longest, pause), shortest, pause
    known[0] = time


def _note_again(state: GroupState, chunk: CommitChunk) -> None:
    """Note that partitions are committed again that were not in a join phase: `would_show`."""
    row, quiet = state.generation, state.quiet or {}
    stable = None if row is None else row["stable_at"]
    if row is None or stable is None:
        state.quiet = None
        return
    is_late = chunk.times > stable + quiet["within"]
    in_time = int(is_late.argmax()) if is_late.any() else len(is_late)
    again = np.isin(chunk.partitions[:in_time], quiet["partitions"])
    if (again & (chunk.times[:in_time] >= stable)).any():
        row["join_started_at_max"] = max(row["join_started_at"], quiet["by"])
        row["waited_for"] = [quiet["last"]] if quiet.get("last") else None
        row[cost.LEAST] = quiet.get(cost.LEAST, row.get(cost.LEAST))
        state.quiet = None
    elif in_time < len(is_late):
        state.quiet = None


def is_simple(state: GroupState) -> bool:
    """Return whether all that is known of the group are offsets."""
    # A record of it that tells no state is what the log's cleaner left of another one.
    is_another = state.interval is None and state.record_offset is not None
    return bool(state.live) or (state.group_type is None and not is_another)


def steps(state: GroupState, chunk: CommitChunk) -> Iterator[tuple[int, Record]]:
    """Find the commits with which a group begins, and ends, that has offsets alone.

    The state has to be what a commit makes of it before the next is asked for. Each comes with its
    number; the record is a tombstone if the group ends.
    """
    live = set(state.live)
    for i, (offset, time, partition, deletes) in enumerate(
        zip(*(column.tolist() for column in chunk), strict=True)
    ):
        is_alive = lives.is_alive(state)
        if not deletes:
            live.add(partition)
        is_last = deletes and live == {partition}
        if deletes:
            live.discard(partition)
        if is_last or not (is_alive or deletes):
            state.live = sorted(live)
            at = None if time == NO_TIME else time
            yield i, Record(offset, at, COMMITS, None, None if deletes else {})
    state.live = sorted(live)


def read(state: GroupState, record: Record, *, is_complete: bool) -> None:
    """Let a group begin with its first offset, or end with its last; see `steps`."""
    if record.payload is None:
        lives.end_by_tombstone(state, record, "classic", is_complete=is_complete)
        state.record_offset = record.offset
        return
    classic.begin_simple_group(state, record, is_exact=is_complete)
    if is_complete:
        state.record_offset = record.offset


def _owners(state: GroupState) -> dict[int, str]:
    """Tell by a partition's hash which member commits it, in a classic group."""
    if state.group_type != "classic":
        return {}
    owners: dict[int, str] = {}
    for member in state.members.values():
        owners |= member.committing
    return owners

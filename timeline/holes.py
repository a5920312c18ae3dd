"""What was not read: offsets that are missing, and times in which nobody looked."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

HOLE = ("record_partition", "start", "end")
"""Columns of holes in a table: their partition, first and last offset."""

_TOMBSTONE_MS = 25 * 3_600_000


class Unseen(NamedTuple):
    """A time in which a partition was not read, and of which records are missing."""

    offset: int  # the first one behind it
    since: int  # time of the log when the partition was read before, in epoch milliseconds
    until: int  # that when it was read again

    def hides_an_end(self, first: int = 0) -> bool:
        """Return whether the end of a group may have left nothing, if it came no earlier.

        The cleaner keeps tombstones for delete.retention.ms, a day by default; daily runs may
        differ by an hour.
        """
        return self.until - max(self.since, first) > _TOMBSTONE_MS


class Holes(NamedTuple):
    """Offsets of one partition that were not read, or not decoded."""

    starts: np.ndarray  # first offsets of the holes, ascending
    ends: np.ndarray  # last offsets of the holes, or of one before if that ends later
    before: int = -1  # last missing offset of the runs before; -1 if there was none
    # The times without a reading that may hide the end of a group, ascending.
    unseen: tuple[Unseen, ...] = ()

    def between(self, after: int, until: int) -> bool:
        """Return whether an offset behind `after` and before `until` is missing."""
        if self.before > after:
            return True
        behind = int(np.searchsorted(self.ends, after, "right"))
        return behind < len(self.ends) and bool(self.starts[behind] < until)

    def are_between(self, after: np.ndarray, until: np.ndarray) -> np.ndarray:
        """Return the same of many offsets."""
        is_there = self.before > after
        if len(self.ends):
            behind = np.searchsorted(self.ends, after, "right")
            first = self.starts[np.minimum(behind, len(self.ends) - 1)]
            is_there |= (behind < len(self.ends)) & (first < until)
        return is_there

    @property
    def last(self) -> int:
        """The last missing offset; -1 if there is none."""
        return max(self.before, int(self.ends[-1]) if len(self.ends) else -1)


_NONE = np.empty(0, np.int64)
NO_HOLES = Holes(_NONE, _NONE)


def holes_of(
    partitions: np.ndarray, starts: np.ndarray, ends: np.ndarray, before: dict[int, int]
) -> dict[int, Holes]:
    """Return the holes of each partition; `before` has its last one of the runs before."""
    order = np.lexsort((ends, starts, partitions))
    partitions, starts, ends = partitions[order], starts[order], ends[order]
    holes = {partition: NO_HOLES._replace(before=last) for partition, last in before.items()}
    for partition in np.unique(partitions).tolist():
        own = slice(*np.searchsorted(partitions, (partition, partition + 1)))
        until = np.maximum.accumulate(ends[own])
        holes[partition] = Holes(starts[own], until, before.get(partition, -1))
    return holes


def ranges(covered: pa.Table) -> list[tuple[int, int, int]]:
    """Return first and next offset of each partition that was read."""
    bounds = [("from_offset", "min"), ("next_offset", "max")]
    rows = covered.group_by("record_partition").aggregate(bounds)
    names = ("record_partition", "from_offset_min", "next_offset_max")
    return list(zip(*(rows[name].to_pylist() for name in names), strict=True))


def holes_in(covered: pa.Table) -> pa.Table:
    """Return partition, first and last offset of each hole; of offsets read twice, the newest."""
    rows = covered.combine_chunks()
    of_row = pc.list_parent_indices(rows["start"]).to_numpy()
    starts, ends = (pc.list_flatten(rows[name]).to_numpy() for name in ("start", "end"))
    of_hole = rows["record_partition"].to_numpy()[of_row]
    reached: dict[int, int] = {}
    names = ("record_partition", "from_offset", "next_offset")
    read = zip(*(rows[name].to_pylist() for name in names), strict=True)
    for row, (partition, first, behind) in enumerate(read):
        if first < reached.get(partition, 0):
            again = (of_hole == partition) & (of_row < row) & (starts < behind) & (ends >= first)
            rest = [(~again, starts, ends)]
            rest += [(again, starts, np.minimum(ends, first - 1))]
            rest += [(again, np.maximum(starts, behind), ends)]
            keep = [chosen & (start <= end) for chosen, start, end in rest]
            starts = np.concatenate([s[k] for (_, s, _), k in zip(rest, keep, strict=True)])
            ends = np.concatenate([e[k] for (_, _, e), k in zip(rest, keep, strict=True)])
            of_row, of_hole = (np.concatenate([c[k] for k in keep]) for c in (of_row, of_hole))
        reached[partition] = max(behind, reached.get(partition, 0))
    return pa.table([pa.array(of_hole, pa.int32()), starts, ends], names=HOLE)


def unread(
    covered: pa.Table, newest: Mapping[int, int], read_until: dict[int, int]
) -> dict[int, tuple[Unseen, ...]]:
    """Return, by partition, the times without a reading that may hide the end of a group.

    The rows of bronze.coverage have lists of the `start` and `end` of their holes, in the order of
    the runs; `newest` is the time of the newest record of all by ingest run, ascending;
    `read_until`, the same when each partition was read last, is updated.
    """
    names = ("record_partition", "ingest_run", "from_offset", "source")
    rows = zip(
        *(covered[name].to_pylist() for name in names),
        pc.greater(pc.list_value_length(covered["start"]), 0).to_pylist(),
        strict=True,
    )
    by_run = {run: list(of_run) for run, of_run in itertools.groupby(rows, itemgetter(1))}
    found: dict[int, list[Unseen]] = defaultdict(list)
    for run, newest_at in newest.items():
        of_run = by_run.get(run, ())
        for partition, _, start, _, has_holes in of_run:
            unseen = Unseen(start, read_until.get(partition, newest_at), newest_at)
            if has_holes and unseen.hides_an_end():
                found[partition].append(unseen)
        # A cluster's partition without a row had nothing new; nobody knows that of files.
        is_whole = any(source == "kafka" for *_, source, _ in of_run)
        partitions = {row[0] for row in of_run} | (read_until.keys() if is_whole else set())
        read_until |= dict.fromkeys(partitions, newest_at)
    return {partition: tuple(unseen) for partition, unseen in found.items()}

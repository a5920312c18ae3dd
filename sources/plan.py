"""How far a lakehouse has read a topic, what a source has beyond, and a name for another log."""

from __future__ import annotations

import datetime as dt
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from schemas.tables import COMPACTED, NOT_READ
from sources.coverage import Extent, Position, Range, leading

_BY_PARTITION = ("positions", "last_read")


@dataclass(frozen=True)
class State:
    """How far the lakehouse has got."""

    run: int = -1  # number of the last ingest run that is accounted for; -1 for none
    run_with_records: int = -1  # that of the last one of them that brought records
    records: int = 0  # how many all of them brought
    topic: str | None = None  # the topic that was read; None if none was
    # By partition, the offset behind the last one accounted for.
    positions: dict[Position, int] = field(default_factory=dict)
    # By partition, the offset of the last record there; not if none was.
    last_read: dict[Position, int] = field(default_factory=dict)
    # Partitions that could not be read to their end: an open transaction hides the rest.
    behind: frozenset[int] = frozenset()
    # When the source was last asked for its ends, in epoch milliseconds.
    observed_at: int | None = None
    topic_id: str | None = None  # the topic's id when it was last read; None if it had none
    # Id of the Kafka cluster that was last read; None if that is not known.
    kafka_cluster_id: str | None = None
    # What tells the files that were read last, as `parquet.noted` gives it.
    files: dict[str, Any] | None = None
    # Time of the newest record so far, in epoch milliseconds; None if none has one.
    newest_at: int | None = None

    def after(
        self, run: int, ranges: Iterable[Range], found: Mapping[Position, Extent], at: dt.datetime
    ) -> State:
        """Return the state behind the next run, which began then and brought what was found."""
        positions, last_read, behind = self.positions.copy(), self.last_read.copy(), {*self.behind}
        said: dict[str, Any] = {}
        for r in ranges:
            position = r.topic, r.record_partition
            positions[position] = max(positions.get(position, 0), r.next_offset)
            if position in found:
                last_read[position] = max(last_read.get(position, -1), found[position].last_offset)
            is_behind = (r.last_offset_available or -1) >= r.next_offset
            (behind.add if is_behind else behind.discard)(r.record_partition)
            own = {name: getattr(r, name) for name in ("topic", "topic_id", "kafka_cluster_id")}
            said |= {name: value for name, value in own.items() if value}
        observed_at = round(at.timestamp() * 1000)
        # No record is younger than when it was read, whatever its broker's clock says.
        times = [min(e.newest_at, observed_at) for e in found.values() if e.newest_at is not None]
        return replace(
            self,
            **said,
            newest_at=max(
                times if self.newest_at is None else [self.newest_at, *times], default=None
            ),
            run=run,
            run_with_records=run if found else self.run_with_records,
            records=self.records + sum(extent.records for extent in found.values()),
            positions=positions,
            last_read=last_read,
            behind=frozenset(behind),
            observed_at=observed_at,
        )

    def noted(self) -> dict[str, Any]:
        """Return the state for the ledger, less the number of the run."""
        own = {name: value for name, value in vars(self).items() if name != "run"}
        for name in _BY_PARTITION:
            own[name] = {str(partition): offset for (_, partition), offset in own[name].items()}
        return own | {"behind": sorted(self.behind)}

    @classmethod
    def of_note(cls, run: int, note: Mapping[str, Any]) -> State:
        """Return the state that the ledger has of a run."""
        by_partition = {
            name: {(note["topic"], int(p)): offset for p, offset in note[name].items()}
            for name in _BY_PARTITION
        }
        return cls(**{**note, **by_partition, "run": run, "behind": frozenset(note["behind"])})

    def reaches_back(self, found: Mapping[Position, Extent]) -> bool:
        """Return whether some records of a file may be in the lakehouse."""
        return any(e.first_offset < self.positions.get(p, 0) for p, e in found.items())

    def file_ranges(self, found: Mapping[Position, Extent]) -> list[Range]:
        """Return the offsets that a file accounts for, by the records that it holds."""
        return [
            Range(
                topic=topic,
                record_partition=partition,
                from_offset=min(self.positions.get((topic, partition), 0), extent.first_offset),
                next_offset=extent.last_offset + 1,
                first_offset_available=extent.first_offset,
                last_offset_available=extent.last_offset,
                source="parquet",
                leading=leading((topic, partition), self.positions, NOT_READ),
            )
            for (topic, partition), extent in sorted(found.items())
        ]


def is_backfill(ranges: Iterable[Range], found: Mapping[Position, Extent]) -> bool:
    """Return whether offsets between the new records may have been held before."""
    extents = ((r, found.get((r.topic, r.record_partition))) for r in ranges)
    return any(
        e is not None and e.first_offset == r.from_offset and not e.is_complete for r, e in extents
    )


def truncated(ranges: Sequence[Range]) -> list[int]:
    """Return how many offsets were deleted from the start of partitions before they were read."""
    available = [(r, r.first_offset_available or 0) for r in ranges]
    return [
        min(first, r.next_offset) - r.from_offset
        for r, first in available
        if first > r.from_offset and r.leading != COMPACTED
    ]


def by_type(found: Mapping[Position, Extent]) -> dict[str, int]:
    """Return the number of records by record type."""
    types: Counter[str] = Counter()
    for extent in found.values():
        types.update(extent.by_kind)
    return dict(sorted(types.items()))


def free_name(cluster: str, taken: Collection[str]) -> str:
    """Return the first free name of ``default.2``, ``default.3``, … behind a cluster's."""
    base, _, number = cluster.rpartition(".")
    if base not in taken or not number.isdecimal():
        base, number = cluster, "1"
    names = (f"{base}.{n}" for n in itertools.count(int(number) + 1))
    return next(name for name in names if name not in taken)

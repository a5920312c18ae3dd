"""What a run read and what it could not: positions, holes, and the reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from schemas.columns import arrow_schema
from schemas.tables import COMPACTED, COVERAGE, MARKER, NOT_READ

Position = tuple[str, int]
"""A topic and one of its partitions."""

# A key begins with its type, of 16 bits.
_TYPE_WIDTH = 2
_SIGN = 2**15


@dataclass(frozen=True)
class Range:
    """Offsets of one partition that a run accounts for, `from_offset` up to `next_offset` - 1."""

    topic: str
    record_partition: int
    from_offset: int
    next_offset: int
    first_offset_available: int | None = None
    last_offset_available: int | None = None
    source: str | None = None
    isolation_level: str | None = None
    topic_id: str | None = None
    kafka_cluster_id: str | None = None
    partitions: int | None = None  # how many the topic had; None if the source does not say
    leading: str = NOT_READ  # reason of a hole before the first record of the source


@dataclass(frozen=True)
class Extent:
    """What a set of records holds of one partition."""

    first_offset: int
    last_offset: int
    records: int
    distinct_offsets: int
    # Number of records by the kind that `extents` was given.
    by_kind: Mapping[str, int] = field(default_factory=dict)
    # Time of the newest record in epoch milliseconds; None if none has one.
    newest_at: int | None = None

    @property
    def is_complete(self) -> bool:
        """Whether every offset between the first and the last is there."""
        return self.distinct_offsets == self.last_offset - self.first_offset + 1


def record_type(key: Column) -> Column:
    """Return the record type that a key starts with, as text; empty of a key too short for one."""
    number = F.conv(F.hex(F.substring(key, 1, 2)), 16, 10).cast("int")
    signed = F.when(number < _SIGN, number).otherwise(number - 2 * _SIGN)
    return F.when(F.length(key) >= _TYPE_WIDTH, signed.cast("string")).otherwise("")


def leading(position: Position, positions: Container[Position], reason: str) -> str:
    """Return the reason of a hole before the first record of a partition that a source has.

    What a partition lacks when it is first read, compaction may have taken long before; of those
    that were read before, `reason` tells why.
    """
    return reason if position in positions else COMPACTED


def within(ranges: list[Range]) -> str:
    """Return SQL for the records that lie in some ranges, all of one topic."""
    return " OR ".join(
        f"record_partition = {r.record_partition}"
        f" AND record_offset BETWEEN {r.from_offset} AND {r.next_offset - 1}"
        for r in ranges
    )


def is_marker(key: Column) -> Column:
    """Return whether a key is that of a transaction's end: version 0, type 0 (aborted) or 1."""
    # ControlRecordType of Kafka. The key of a commit of this version takes ten bytes at least.
    return F.coalesce(key.isin([bytes(4), bytes([0, 0, 0, 1])]), F.lit(False))  # noqa: FBT003


def offsets_of(markers: DataFrame) -> dict[Position, np.ndarray]:
    """Return the offsets of markers by partition, ascending."""
    columns = ["topic", "record_partition", "record_offset"]
    found: dict[Position, list[int]] = {}
    for topic, partition, offset in markers.select(columns).distinct().sort(*columns).collect():
        found.setdefault((topic, partition), []).append(offset)
    return {position: np.array(offsets, np.int64) for position, offsets in found.items()}


def extents(records: DataFrame, kind: Column | None = None) -> dict[Position, Extent]:
    """Measure records by partition, in one pass without sorting, and count them by `kind`."""
    key = ["topic", "record_partition"]
    by_kind = (
        records.withColumn("kind", F.lit("") if kind is None else kind)
        .groupBy(*key, F.bitmap_bucket_number("record_offset").alias("bucket"), "kind")
        .agg(
            F.min("record_offset").alias("first_offset"),
            F.max("record_offset").alias("last_offset"),
            F.count(F.lit(1)).alias("records"),
            F.bitmap_construct_agg(F.bitmap_bit_position("record_offset")).alias("offsets"),
            F.max("record_timestamp").alias("newest"),
        )
    )
    by_bucket = by_kind.groupBy(*key, "bucket").agg(
        F.min("first_offset").alias("first_offset"),
        F.max("last_offset").alias("last_offset"),
        F.sum("records").alias("records"),
        F.bitmap_count(F.bitmap_or_agg("offsets")).alias("distinct_offsets"),
        F.collect_list(F.struct("kind", "records")).alias("kinds"),
        F.max("newest").alias("newest"),
    )
    by_partition = by_bucket.groupBy(*key).agg(
        F.min("first_offset").alias("first_offset"),
        F.max("last_offset").alias("last_offset"),
        F.sum("records").alias("records"),
        F.sum("distinct_offsets").alias("distinct_offsets"),
        F.flatten(F.collect_list("kinds")).alias("kinds"),
        F.unix_millis(F.max("newest")).alias("newest_at"),
    )
    found: dict[Position, Extent] = {}
    for row in by_partition.collect():
        kinds: Counter[str] = Counter()
        for part in row.kinds:
            kinds[part.kind] += part.records
        found[row.topic, row.record_partition] = Extent(
            row.first_offset,
            row.last_offset,
            row.records,
            row.distinct_offsets,
            kinds,
            row.newest_at,
        )
    return found


def inner_holes(records: DataFrame) -> dict[Position, np.ndarray]:
    """Find the offsets between records that have none: of each hole the first and the last."""
    key, offset = ("topic", "record_partition"), F.col("record_offset")
    previous = F.lag(offset).over(Window.partitionBy(*key).orderBy(offset))
    holes = (
        records.select(*key, offset, previous.alias("previous"))
        .where("record_offset > previous + 1")
        .select(*key, (F.col("previous") + 1).alias("start_offset"), offset - 1)
        .toDF(*key, "start_offset", "end_offset")
    )
    return holes_by_partition(holes.toArrow().sort_by([(c, "ascending") for c in holes.columns]))


def holes_by_partition(found: pa.Table) -> dict[Position, np.ndarray]:
    """Cut rows of holes, in the order of their partitions, where the partition changes."""
    if not found.num_rows:
        return {}
    bounds = [found[name].to_numpy() for name in ("start_offset", "end_offset")]
    holes = np.stack(bounds, axis=1).astype(np.int64)
    topics = found["topic"].combine_chunks().dictionary_encode().indices.to_numpy()
    keys = np.stack([topics, found["record_partition"].to_numpy()], axis=1)
    cuts = np.flatnonzero((np.diff(keys, axis=0) != 0).any(axis=1)) + 1
    first = found.select(["topic", "record_partition"]).take(pa.array([0, *cuts.tolist()]))
    positions = zip(*(column.to_pylist() for column in first.columns), strict=True)
    return dict(zip(positions, np.split(holes, cuts), strict=True))


def coverage(
    ranges: Iterable[Range],
    found: Mapping[Position, Extent],
    inner: Mapping[Position, np.ndarray],
    *,
    new_records: Mapping[Position, int],
    of_run: Mapping[str, object],
    markers: Mapping[Position, np.ndarray] | None = None,
) -> pa.Table:
    """Account for every offset of `ranges`, one a partition, as rows of bronze.coverage.

    The lakehouse holds what is `found` in the ranges, with the `inner` holes; some of it is new.
    Markers are the offsets of transactions' ends. The columns `of_run` are the same for all.
    """
    rows = []
    holes: list[list[tuple[str, np.ndarray]]] = []
    for r in ranges:
        position = r.topic, r.record_partition
        extent = found.get(position)
        first = r.next_offset if extent is None else extent.first_offset
        last = r.next_offset - 1 if extent is None else extent.last_offset
        available = first if r.first_offset_available is None else r.first_offset_available
        behind = min(first, max(r.from_offset, available))
        between, ends = _split(inner.get(position, _bounds()), (markers or {}).get(position))
        holes.append(
            [
                (r.leading, _bounds((r.from_offset, behind - 1))),
                (COMPACTED, _bounds((behind, first - 1))),
                (COMPACTED, between),
                (MARKER, ends),
                (COMPACTED, _bounds((last + 1, r.next_offset - 1))),
            ]
        )
        own = {name: value for name, value in asdict(r).items() if name != "leading"}
        read = {
            "record_count": new_records.get(position, 0),
            "first_offset_read": None if extent is None else first,
            "last_offset_read": None if extent is None else last,
        }
        rows.append({**own, **read, **of_run})
    schema = arrow_schema(COVERAGE.of_cluster)
    index = schema.get_field_index("holes")
    lists = _lists(holes).cast(schema.field(index).type)
    return pa.Table.from_pylist(rows, schema).set_column(index, schema.field(index), lists)


def _split(holes: np.ndarray, markers: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return holes without the markers in them, and the markers, those side by side as one hole."""
    if markers is None or not holes.size:
        return holes, _bounds()
    at = np.searchsorted(holes[:, 0], markers, "right") - 1
    markers = markers[(at >= 0) & (markers <= holes[at, 1])]
    cuts = np.flatnonzero(np.diff(markers) > 1) + 1
    runs = [(int(run[0]), int(run[-1])) for run in np.split(markers, cuts) if run.size]
    ends = _bounds(*runs)
    starts = np.sort(np.concatenate([holes[:, 0], ends[:, 1] + 1]))
    behind = np.sort(np.concatenate([holes[:, 1], ends[:, 0] - 1]))
    rest = np.stack([starts, behind], axis=1)
    return rest[rest[:, 0] <= rest[:, 1]], ends


def _bounds(*holes: tuple[int, int]) -> np.ndarray:
    return np.array([hole for hole in holes if hole[0] <= hole[1]], np.int64).reshape(-1, 2)


def _lists(rows: Sequence[Sequence[tuple[str, np.ndarray]]]) -> pa.Array:
    """Make a list of holes for each row, which has them by reason."""
    holes = [hole for row in rows for hole in row]
    sizes = np.array([len(bounds) for _, bounds in holes], np.int64)
    every = np.concatenate([_bounds(), *(bounds for _, bounds in holes)])
    reasons = pa.array([reason for reason, _ in holes], pa.string())
    reason = reasons.take(pa.array(np.repeat(np.arange(len(holes)), sizes)))
    names = ["start_offset", "end_offset", "reason"]
    columns = [pa.array(every[:, 0]), pa.array(every[:, 1]), reason]
    structs = pa.StructArray.from_arrays(columns, names)
    ends = np.cumsum([0, *(sum(len(bounds) for _, bounds in row) for row in rows)])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), structs)

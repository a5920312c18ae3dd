"""What a run read and what it could not: positions, holes, and the reasons."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame

Position = tuple[str, int]
"""A topic and one of its partitions."""

_HOLE = "ARRAY<STRUCT<start_offset: BIGINT, end_offset: BIGINT, reason: STRING>>"


@dataclass(frozen=True)
class Range:
    """Offsets of one partition that a run accounts for, `from_offset` up to `next_offset` - 1.

    Attributes:
        leading: reason of a hole before the first record of the source.
    """

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
    leading: str = "not read"


_RANGE_SCHEMA = T.StructType(
    [
        T.StructField("topic", T.StringType()),
        T.StructField("record_partition", T.IntegerType()),
        T.StructField("from_offset", T.LongType()),
        T.StructField("next_offset", T.LongType()),
        T.StructField("first_offset_available", T.LongType()),
        T.StructField("last_offset_available", T.LongType()),
        T.StructField("source", T.StringType()),
        T.StructField("isolation_level", T.StringType()),
        T.StructField("topic_id", T.StringType()),
        T.StructField("kafka_cluster_id", T.StringType()),
        T.StructField("leading", T.StringType()),
    ]
)


@dataclass(frozen=True)
class Extent:
    """What a set of records holds of one partition."""

    first_offset: int
    last_offset: int
    records: int
    distinct_offsets: int

    @property
    def is_complete(self) -> bool:
        """Whether every offset between the first and the last is there."""
        return self.distinct_offsets == self.last_offset - self.first_offset + 1


def extents(records: DataFrame) -> dict[Position, Extent]:
    """Measure records by partition, in one pass without sorting.

    Args:
        records: columns topic, record_partition, record_offset.
    """
    by_bucket = records.groupBy(
        "topic", "record_partition", F.bitmap_bucket_number("record_offset").alias("bucket")
    ).agg(
        F.min("record_offset").alias("first_offset"),
        F.max("record_offset").alias("last_offset"),
        F.count(F.lit(1)).alias("records"),
        F.bitmap_count(F.bitmap_construct_agg(F.bitmap_bit_position("record_offset"))).alias(
            "distinct_offsets"
        ),
    )
    by_partition = by_bucket.groupBy("topic", "record_partition").agg(
        F.min("first_offset").alias("first_offset"),
        F.max("last_offset").alias("last_offset"),
        F.sum("records").alias("records"),
        F.sum("distinct_offsets").alias("distinct_offsets"),
    )
    return {
        (row.topic, row.record_partition): Extent(
            row.first_offset, row.last_offset, row.records, row.distinct_offsets
        )
        for row in by_partition.collect()
    }


def coverage(
    held: DataFrame,
    ranges: Iterable[Range],
    found: Mapping[Position, Extent],
    *,
    new_records: Mapping[Position, int],
) -> DataFrame:
    """Account for every offset of `ranges`.

    Args:
        held: the records in the lakehouse that lie in the ranges; columns topic,
            record_partition, record_offset.
        ranges: one a partition.
        found: `extents` of `held`.
        new_records: how many of them are new, by partition.

    Returns:
        Rows of bronze.coverage, without its columns cluster, ingest_run and observed_at.
    """
    ranges = list(ranges)
    spark = held.sparkSession
    rows = spark.createDataFrame([asdict(r) for r in ranges], _RANGE_SCHEMA)
    counts = spark.createDataFrame(
        [
            (t, p, e.first_offset, e.last_offset, new_records.get((t, p), 0))
            for (t, p), e in found.items()
        ],
        "topic STRING, record_partition INT, first_offset_read BIGINT, last_offset_read BIGINT,"
        " record_count BIGINT",
    )
    incomplete = [position for position, extent in found.items() if not extent.is_complete]
    keys = ["topic", "record_partition"]
    inner = _inner_holes(held, incomplete)
    joined = rows.join(F.broadcast(counts), keys, how="left")
    # Without a hole there is nothing to look for in the records, which takes longest.
    joined = (
        joined.join(inner, keys, how="left")
        if incomplete
        else joined.withColumn("inner", F.lit(None).cast(_HOLE))
    )
    first = F.coalesce("first_offset_read", "next_offset")
    start = F.greatest("from_offset", F.coalesce("first_offset_available", first))
    leading_end = F.least(first, start)
    return joined.select(
        *keys,
        "source",
        "isolation_level",
        "topic_id",
        "kafka_cluster_id",
        "first_offset_available",
        "last_offset_available",
        "from_offset",
        "next_offset",
        F.coalesce("record_count", F.lit(0)).alias("record_count"),
        "first_offset_read",
        "last_offset_read",
        F.concat(
            _hole(F.col("from_offset"), leading_end - 1, F.col("leading")),
            _hole(leading_end, first - 1, F.lit("compacted")),
            F.coalesce("inner", F.lit([]).cast(_HOLE)),
            _hole(
                F.coalesce("last_offset_read", F.col("next_offset") - 1) + 1,
                F.col("next_offset") - 1,
                F.lit("compacted"),
            ),
        ).alias("holes"),
    )


def _hole(start: F.Column, end: F.Column, reason: F.Column) -> F.Column:  # type: ignore[name-defined]
    hole = F.array(
        F.struct(start.alias("start_offset"), end.alias("end_offset"), reason.alias("reason"))
    ).cast(_HOLE)
    return F.when(start <= end, hole).otherwise(F.lit([]).cast(_HOLE))


def _inner_holes(held: DataFrame, incomplete: list[Position]) -> DataFrame:
    """Find the holes between records, of the partitions that have any."""
    keys = ["topic", "record_partition"]
    some = held.sparkSession.createDataFrame(incomplete, "topic STRING, record_partition INT")
    order = Window.partitionBy(*keys).orderBy("record_offset")
    gaps = (
        held.join(F.broadcast(some), keys, how="left_semi")
        .select(*keys, "record_offset", F.lag("record_offset").over(order).alias("previous"))
        .where(F.col("record_offset") > F.col("previous") + 1)
    )
    hole = F.struct(
        (F.col("previous") + 1).alias("start_offset"),
        (F.col("record_offset") - 1).alias("end_offset"),
        F.lit("compacted").alias("reason"),
    )
    return gaps.groupBy(*keys).agg(
        F.array_sort(F.collect_list(hole)).cast(_HOLE).alias("inner"),
    )

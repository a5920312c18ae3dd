"""The only module here that uses Spark: from commits, offset progress; with log ends, the lag."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from offsets import progress
from offsets.burrow import SEVERITY
from offsets.ends import EndHistory
from offsets.measure import Lag, measure
from schemas.columns import ArrayOf, Column, Primitive
from schemas.gold import ERR, LAG, OK, WARN
from schemas.ledger import is_beyond
from schemas.placement import placed
from schemas.tagged import ddl, tagged, tagged_columns

FOLLOWED = tagged_columns(progress.TABLES)
"""Columns of the rows that `follow_offsets` gives."""
_union = partial(DataFrame.unionByName, allowMissingColumns=True)
_LOG = ("topic", "topic_partition")
_COMMITTED = ("group_id", *_LOG, "committed_offset", "committed_at")
_MEASURED = tuple(c for c in LAG if c.name in Lag._fields)
_NUMBERS = ArrayOf(Primitive("bigint"))
_SAMPLES = (
    Column("sample_at", _NUMBERS, "Times of a log's samples in microseconds."),
    Column("sample_ends", _NUMBERS, "The log's end at each."),
)


def follow_offsets(
    commits: DataFrame, former: DataFrame | None, holes: Mapping[int, progress.Holes] | None = None
) -> DataFrame:
    """Return how offsets went on: rows of the tables of `progress.TABLES`, for `rows_of`.

    They are moves and hours of the commits, and the last commit of each partition, of those in
    `former`, too: rows of committed_offsets as of before. Commits that are not where their group
    belongs, as the column `placement.HOME` tells, come first.
    """
    at_home = placed(commits.columns)
    parts = [commits.select(_number(progress.COMMIT), *progress.COMMIT_COLUMNS, *at_home)]
    if former is not None:
        parts.append(_of_table(progress.LATEST, progress.LAST_COMMIT, former))
    return _followed(reduce(_union, parts), holes)


def is_followed(committed: DataFrame | None, before: Mapping[int, int]) -> bool:
    """Return whether last commits are of offsets from which on a run follows, by partition.

    They are written behind its moves. To follow its commits once more would find rewinds that were
    none.
    """
    if committed is None or not before:
        return False
    return not committed.where(is_beyond(before)).isEmpty()


def joined_hours(hours: DataFrame) -> DataFrame:
    """Make one row, for `rows_of`, of those of offset_progress that an hour cut by runs has."""
    return _followed(_of_table(progress.HOURS, progress.AN_HOUR, hours))


def _of_table(table: str, kind: int, rows: DataFrame) -> DataFrame:
    row = F.struct(*(c.name for c in progress.TABLES[table])).alias(table)
    position = ("record_partition", "record_offset")
    return rows.select(_number(kind), *progress.PARTITION, *position, row)


def _number(kind: int) -> SparkColumn:
    return F.lit(kind).alias(progress.KIND)


def _followed(rows: DataFrame, holes: Mapping[int, progress.Holes] | None = None) -> DataFrame:
    at_home = placed(rows.columns)
    position = (progress.KIND, *at_home, "record_partition", "record_offset")
    by_partition = rows.repartition(*progress.PARTITION)
    ordered = by_partition.sortWithinPartitions(*progress.PARTITION, *position)
    known = dict(holes or {})

    def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return tagged(progress.follow(batches, known), FOLLOWED)

    return ordered.drop(*at_home).mapInArrow(rows_of, ddl(FOLLOWED))


# -- lag -------------------------------------------------------------------------------------------


def with_samples(logs: DataFrame, former: DataFrame) -> DataFrame:
    """Add what was sampled now to what is known of each log, as end_samples of log_offsets has it.

    The logs have topic, topic_partition, log_start_offset, log_end_offset, sampled_at, and problem:
    why there are no offsets.
    """
    known = former.select(*_LOG, "end_samples")
    joined = logs.join(known, list(_LOG), how="left").select(
        *logs.columns, *_numbers("end_samples", "sampled_at", "log_end_offset")
    )
    sampled = joined.mapInArrow(_add_samples, _ddl(logs, logs.columns, _SAMPLES))
    samples = F.zip_with(
        "sample_at",
        "sample_ends",
        lambda at, end: F.struct(
            F.timestamp_micros(at).alias("sampled_at"), end.alias("log_end_offset")
        ),
    )
    return sampled.select(*logs.columns, samples.alias("end_samples"))


def measured(committed: DataFrame, logs: DataFrame, known_until: Mapping[int, int]) -> DataFrame:
    """Return how far behind each partition of each group is, as gold.lag without the run.

    The logs are what `with_samples` gives, all partitions of `committed`, without those deleted,
    among them; commits are known until then, in microseconds, by partition of their topic.
    """
    is_timed = F.filter("recent_commits", lambda c: c["committed_at"].isNotNull())
    joined = (
        committed.select(*_COMMITTED, "record_partition", is_timed.alias("commits"))
        .join(logs, list(_LOG), how="inner")
        .select(
            *_COMMITTED,
            *("record_partition", "log_start_offset", "log_end_offset", "sampled_at", "problem"),
            *_numbers("commits", "committed_at", "committed_offset"),
            *_numbers("end_samples", "sampled_at", "log_end_offset"),
        )
    )
    kept = (*_COMMITTED, "log_start_offset", "log_end_offset", "sampled_at")
    rows = joined.mapInArrow(
        partial(_measure, kept=kept, known_until=known_until), _ddl(joined, kept, _MEASURED)
    )
    severities = F.create_map(*(F.lit(x) for pair in SEVERITY.items() for x in pair))
    worst = F.max(severities[F.col("status")]).over(Window.partitionBy("group_id"))
    group_status = F.element_at(F.array(F.lit(OK), F.lit(WARN), F.lit(ERR)), worst + 1)
    return rows.withColumn("group_status", group_status)


def _numbers(structs: str, time: str, offset: str) -> tuple[SparkColumn, SparkColumn]:
    """Take times in microseconds and offsets out of an array of structs, for Arrow to pass on."""
    return (
        F.transform(structs, lambda s: F.unix_micros(s[time])).alias(f"{structs}_at"),
        F.transform(structs, lambda s: s[offset]).alias(f"{structs}_offset"),
    )


def _ddl(rows: DataFrame, names: Iterable[str], more: Iterable[Column]) -> str:
    own = [f"{name} {rows.schema[name].dataType.simpleString()}" for name in names]
    return ", ".join([*own, ddl(more)])


def _add_samples(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        every = zip(
            batch.column("sampled_at").cast(pa.int64()).to_pylist(),
            batch.column("log_end_offset").to_pylist(),
            _histories(batch),
            strict=True,
        )
        known = [ends if end is None else ends.with_sample(now, end) for now, end, ends in every]
        samples = {"sample_at": [k.at for k in known], "sample_ends": [k.ends for k in known]}
        names = [name for name in batch.schema.names if not name.startswith("end_samples_")]
        yield _with_columns(batch, names, samples, _SAMPLES)


def _measure(
    batches: Iterable[pa.RecordBatch], kept: Iterable[str], known_until: Mapping[int, int]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        every = zip(
            batch.column("committed_offset").to_pylist(),
            [known_until[p] for p in batch.column("record_partition").to_pylist()],
            batch.column("log_start_offset").to_pylist(),
            batch.column("problem").to_pylist(),
            batch.column("commits_offset").to_pylist(),
            batch.column("commits_at").to_pylist(),
            _histories(batch),
            strict=True,
        )
        rows = [
            Lag(status_reason=problem, commits_known_until=until)
            if start is None
            else measure(
                committed,
                start,
                ends,
                commits=offsets or (),
                commits_at=at or (),
                known_until=until,
            )
            for committed, until, start, problem, offsets, at, ends in every
        ]
        columns = {c.name: [getattr(row, c.name) for row in rows] for c in _MEASURED}
        yield _with_columns(batch, kept, columns, _MEASURED)


def _histories(batch: pa.RecordBatch) -> list[EndHistory]:
    at = batch.column("end_samples_at").to_pylist()
    ends = batch.column("end_samples_offset").to_pylist()
    return [EndHistory(a or (), e or ()) for a, e in zip(at, ends, strict=True)]


def _with_columns(
    batch: pa.RecordBatch, names: Iterable[str], more: dict[str, list[Any]], types: Iterable[Column]
) -> pa.RecordBatch:
    columns = {name: batch.column(name) for name in names}
    columns |= {c.name: pa.array(more[c.name], c.type.arrow()) for c in types}
    return pa.RecordBatch.from_pydict(columns)

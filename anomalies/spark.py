"""The watch's one seam to Spark: rows of gold and silver in, anomalies out."""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING, NamedTuple

import orjson
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from anomalies.group import (
    GENERATION,
    LAG,
    MINUTE,
    MOVE,
    OPEN_GENERATION,
    OPEN_STATE,
    OPEN_STAY,
    STAY,
)
from anomalies.model import MINUTE_MS
from anomalies.watching import (
    GENERATION_COLUMNS,
    HEAD,
    MOVE_COLUMNS,
    OUTPUT,
    STATE_COLUMNS,
    STAY_COLUMNS,
    TURNS,
    batch_of,
    watched,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import Column as Expression

    from anomalies.model import Row
    from anomalies.thresholds import Thresholds

# Rows of a batch that a task gives.
_BATCH_ROWS = 5_000

_EVENTS = T.StructType(
    [
        T.StructField("group_id", T.StringType()),
        T.StructField("turn", T.IntegerType()),
        T.StructField("place", T.LongType()),
        T.StructField("second_place", T.LongType()),
        T.StructField("kind", T.StringType()),
        T.StructField("tie", T.StringType()),
        T.StructField("payload", T.StringType()),
    ]
)


class Sources(NamedTuple):
    """What a watch looks at.

    Attributes:
        generations: rows of group_generations: the settled ones that are new, and all open ones.
        states: the rows of group_states of the states that groups are in.
        stays: rows of member_sessions that ended: those settled that are new, and all open ones.
        moves: the rows of offset_moves that are new.
        minutes: what `commit_minutes` gives of the commits that are new.
        lags: columns group_id, at (epoch milliseconds) and lag: the newest sample of each group.
        heads: anomaly_heads.
    """

    generations: DataFrame
    states: DataFrame
    stays: DataFrame
    moves: DataFrame
    minutes: DataFrame
    lags: DataFrame
    heads: DataFrame


def commit_minutes(commits: DataFrame) -> DataFrame:
    """Sum up commits by group and minute.

    Args:
        commits: rows of offset_commits.

    Returns:
        Columns group_id, record_partition, minute (since the epoch), commits, partitions, first_at
        and last_at in epoch milliseconds, first_offset and last_offset of their records.
    """
    at = F.unix_millis(F.coalesce("record_timestamp", "commit_timestamp"))
    timed = commits.where(~F.col("is_tombstone")).withColumn("at", at).where("at IS NOT NULL")
    minute = F.floor(F.col("at") / MINUTE_MS).cast("bigint").alias("minute")
    of_partition = timed.groupBy(
        "group_id", "record_partition", minute, "topic", "topic_partition"
    ).agg(
        F.count("*").alias("commits"),
        F.min("at").alias("first_at"),
        F.max("at").alias("last_at"),
        F.min("record_offset").alias("first_offset"),
        F.max("record_offset").alias("last_offset"),
    )
    return of_partition.groupBy("group_id", "record_partition", "minute").agg(
        F.sum("commits").alias("commits"),
        F.count("*").alias("partitions"),
        F.min("first_at").alias("first_at"),
        F.max("last_at").alias("last_at"),
        F.min("first_offset").alias("first_offset"),
        F.max("last_offset").alias("last_offset"),
    )


def events(sources: Sources) -> DataFrame:
    """Bring all that a watch looks at into one shape and order."""
    generations, stays = sources.generations, _told(sources.stays)
    is_open = ~F.col("is_settled")
    place = {"place": "record_offset"}
    stay = {
        "place": F.unix_millis("left_at"),
        "second_place": "record_offset",
        "tie": F.col("member_id"),
    }
    parts = [
        _shaped(sources.heads, HEAD, payload=F.col("state")),
        _shaped(generations.where(is_open), OPEN_GENERATION, GENERATION_COLUMNS, **place),  # type: ignore[arg-type]
        _shaped(stays.where(is_open), OPEN_STAY, STAY_COLUMNS, **stay),  # type: ignore[arg-type]
        _shaped(sources.states, OPEN_STATE, STATE_COLUMNS),
        _shaped(sources.lags, LAG, ("at", "lag")),
        _shaped(generations.where(~is_open), GENERATION, GENERATION_COLUMNS, **place),  # type: ignore[arg-type]
        _shaped(stays.where(~is_open), STAY, STAY_COLUMNS, **stay),  # type: ignore[arg-type]
        _shaped(sources.moves, MOVE, MOVE_COLUMNS, **place),  # type: ignore[arg-type]
        _shaped(
            sources.minutes,
            MINUTE,
            tuple(c for c in sources.minutes.columns if c != "group_id"),
            place="first_offset",
        ),
    ]
    return reduce(DataFrame.unionByName, parts)


def _told(stays: DataFrame) -> DataFrame:
    """Take the stays that a detector asks for, and of all others the time of the last."""
    is_replaced = F.col("end_cause") == "static_member_replaced"
    asked_for = stays.where(is_replaced & F.col("group_instance_id").isNotNull())
    last = stays.groupBy("group_id", "is_settled").agg(F.max("left_at").alias("left_at"))
    return asked_for.unionByName(last, allowMissingColumns=True)


def _shaped(
    rows: DataFrame,
    kind: str,
    columns: Iterable[str] = (),
    *,
    place: Expression | str | None = None,
    second_place: str | None = None,
    tie: Expression | None = None,
    payload: Expression | None = None,
) -> DataFrame:
    if payload is None:
        types = {f.name: f.dataType for f in rows.schema.fields}
        plain = [
            F.unix_millis(name).alias(name) if types[name] == T.TimestampType() else F.col(name)
            for name in columns
        ]
        payload = F.to_json(F.struct(*plain), {"ignoreNullFields": "false"})
    given: dict[str, Expression] = {
        "group_id": F.col("group_id"),
        "turn": F.lit(TURNS[kind]),
        "place": _expression(place),
        "second_place": _expression(second_place),
        "kind": F.lit(kind),
        "tie": F.lit(None) if tie is None else tie,
        "payload": payload,
    }
    return rows.select(*(given[f.name].cast(f.dataType).alias(f.name) for f in _EVENTS.fields))


def _expression(name: Expression | str | None) -> Expression:
    if name is None:
        return F.lit(0)
    return F.col(name) if isinstance(name, str) else name


def watch(
    ordered: DataFrame,
    *,
    thresholds: Thresholds,
    cluster: str,
    now: int,
    schema: T.StructType,
    tasks: int,
) -> DataFrame:
    """Watch each group.

    Args:
        ordered: what `events` gives.
        thresholds: the thresholds in force.
        cluster: name of the cluster, which is part of the anomalies' ids.
        now: time of the log in epoch milliseconds.
        schema: Spark's type of `OUTPUT`.
        tasks: number of tasks to share the groups among.

    Returns:
        The anomalies that are settled now, all open ones, and the heads.
    """
    groups = ordered.repartition(tasks, "group_id").sortWithinPartitions(
        "group_id", "turn", "place", "second_place", "kind", F.col("tie").asc_nulls_first()
    )
    return groups.mapInArrow(partial(_watch_batches, thresholds, cluster, now), schema)


def _watch_batches(
    thresholds: Thresholds, cluster: str, now: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    rows: list[Row] = []
    for row in watched(_told_rows(batches), thresholds, cluster, now):
        rows.append(row)
        if len(rows) >= _BATCH_ROWS:
            yield batch_of(rows, OUTPUT)
            rows = []
    if rows:
        yield batch_of(rows, OUTPUT)


def _told_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, str, Row | str]]:
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("group_id", "kind", "payload"))
        for group_id, kind, payload in zip(*columns, strict=True):
            yield group_id, kind, payload if kind == HEAD else orjson.loads(payload)

"""The history's one seam to Spark: decoded records in, rows of the gold tables out."""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from schemas.tagged import ddl, tagged, tagged_columns
from timeline import arrow, groups, modern
from timeline.commits import COMMITS, NO_TIME
from timeline.fold import GROUP_METADATA
from timeline.groups import HEADS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import Column as Expression

_COLUMNS = tagged_columns(groups.OUTPUT)
_union = partial(DataFrame.unionByName, allowMissingColumns=True)


def timeline(
    silver: Mapping[str, DataFrame], heads: DataFrame | None, holes: Mapping[int, groups.Holes]
) -> DataFrame:
    """Tell what the records of some groups make known.

    Args:
        silver: rows of the silver tables by name, those to be folded.
        heads: rows of group_heads, of the groups that go on; None if none does.
        holes: what is missing, by partition of the records.

    Returns:
        Rows of the tables of `groups.OUTPUT`, for `rows_of`. All open rows of the groups are among
        them, so that they replace the former.
    """
    parts = [_events(name, rows) for name, rows in silver.items()]
    if heads is not None:
        state = F.col("state").alias("payload")
        parts.append(_shaped(heads.select(_kind(HEADS), "group_id", state, "told_since")))
    position = ("group_id", "record_partition", "record_offset")
    ordered = reduce(_union, parts).repartition("group_id").sortWithinPartitions(*position)
    return ordered.mapInArrow(partial(_timeline, dict(holes)), ddl(_COLUMNS))


def _timeline(
    holes: dict[int, groups.Holes], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    return tagged(groups.fold(arrow.read(batches), holes), _COLUMNS)


def _events(name: str, rows: DataFrame) -> DataFrame:
    """Give the events of a silver table."""
    deletes = F.col("is_tombstone")
    if name == COMMITS:
        is_named = F.col("topic_id").isNotNull()
        partition = F.concat_ws("/", F.coalesce("topic", F.lit("")), "topic_partition")
        own = {
            "at": F.unix_millis(F.coalesce("record_timestamp", "commit_timestamp")),
            "deletes": deletes,
            "partition_hash": F.crc32(partition),
            "topic": F.when(is_named, F.col("topic")),
        }
    else:
        payload = _group_metadata() if name == GROUP_METADATA else _payload(rows)
        own = {
            "at": F.unix_millis("record_timestamp"),
            "kind": F.lit(name),
            name if name == GROUP_METADATA else "payload": F.when(~deletes, payload),
        }
    own["at"] = F.coalesce(own["at"], F.lit(NO_TIME))
    plain = ("group_id", "record_partition", "record_offset", "member_id", "topic_id")
    return _shaped(
        rows.select(
            *(name for name in plain if name in rows.columns),
            *(expression.alias(name) for name, expression in own.items()),
        )
    )


def _shaped(rows: DataFrame) -> DataFrame:
    """Give rows the columns of `arrow.COLUMNS` that they lack."""
    usual = {"record_partition": -1, "record_offset": -1, "at": NO_TIME, "deletes": False}
    common = (
        (F.col(name) if name in rows.columns else F.lit(usual.get(name))).cast(kind).alias(name)
        for name, kind in arrow.COLUMNS.items()
    )
    return rows.select(*common, *(c for c in rows.columns if c not in arrow.COLUMNS))


def _kind(name: str) -> Expression:
    return F.lit(name).alias("kind")


def _group_metadata() -> Expression:
    # A column of all members takes Spark far less than a struct for each.
    members = {name: name for name in (*arrow.SCALARS, *arrow.BYTES)} | arrow.DECODED
    return F.struct(
        *(name for name in arrow.OWN if name != "current_state_timestamp"),
        F.unix_millis("current_state_timestamp").alias("current_state_timestamp"),
        *(F.col(f"members.{path}").alias(name) for name, path in members.items()),
    )


def _payload(rows: DataFrame) -> Expression:
    read = [c for c in rows.columns if c in modern.COLUMNS]
    return F.to_json(F.struct(*read)) if read else F.lit("{}")


def rows_of(rows: DataFrame, table: str) -> DataFrame:
    """Pick the rows of one table of those that `timeline` gave."""
    return rows.where(F.col("table") == table).select(f"{table}.*")

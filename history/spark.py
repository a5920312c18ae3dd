"""The history's one seam to Spark: decoded records in, rows of the gold tables out."""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from history import arrow, groups, modern, offsets
from history.commits import COMMITS, NO_TIME
from history.fold import GROUP_METADATA
from history.groups import HEADS
from schemas.columns import Column, StructOf, arrow_schema, column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import Column as Expression

_TABLES = {**groups.OUTPUT, **offsets.TABLES}
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
    return ordered.mapInArrow(partial(_timeline, dict(holes)), _SCHEMA)


def _timeline(
    holes: dict[int, groups.Holes], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    return _tagged(groups.fold(arrow.read(batches), holes))


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


def follow_offsets(commits: DataFrame, former: DataFrame | None) -> DataFrame:
    """Tell how offsets went on.

    Args:
        commits: rows of offset_commits.
        former: rows of committed_offsets as of before them; None if there is none.

    Returns:
        Rows of the tables of `offsets.TABLES`, for `rows_of`: the moves of the commits and their
        hours, and the last commit of each partition, of those in `former`, too.
    """
    parts = [commits.select(_number(offsets.COMMIT), *offsets.COMMIT_COLUMNS)]
    if former is not None:
        parts.append(_of_table(offsets.LATEST, offsets.LAST_COMMIT, former))
    return _followed(reduce(_union, parts))


def joined_hours(hours: DataFrame) -> DataFrame:
    """Make one row of those that an hour cut by runs has.

    Args:
        hours: rows of offset_progress, of some runs.
    """
    given = _of_table(offsets.HOURS, offsets.AN_HOUR, hours)
    return rows_of(_followed(given), offsets.HOURS)


def _of_table(table: str, kind: int, rows: DataFrame) -> DataFrame:
    row = F.struct(*(c.name for c in offsets.TABLES[table])).alias(table)
    position = ("record_partition", "record_offset")
    return rows.select(_number(kind), *offsets.PARTITION, *position, row)


def _number(kind: int) -> Expression:
    return F.lit(kind).alias(offsets.KIND)


def _followed(rows: DataFrame) -> DataFrame:
    position = (*offsets.PARTITION, offsets.KIND, "record_partition", "record_offset")
    by_partition = rows.repartition(*offsets.PARTITION)
    return by_partition.sortWithinPartitions(*position).mapInArrow(_follow, _SCHEMA)


def _follow(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return _tagged(offsets.follow(batches))


# -- rows of several tables ------------------------------------------------------------------------

# The column `table` names the table that a row is of, and the struct column of that name has the
# row itself.
_COLUMNS = (
    column("table", "string", "Table that the row is of."),
    *(Column(name, StructOf(columns), f"A row of {name}.") for name, columns in _TABLES.items()),
)
_SCHEMA = ", ".join(f"`{c.name}` {c.type.sql()}" for c in _COLUMNS)


def rows_of(rows: DataFrame, table: str) -> DataFrame:
    """Pick the rows of one table of those that `timeline` or `follow_offsets` gave."""
    return rows.where(F.col("table") == table).select(f"{table}.*")


def _tagged(rows: Iterable[tuple[str, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(_COLUMNS)
    for table, batch in rows:
        given = {
            "table": pa.repeat(table, batch.num_rows),
            table: pa.StructArray.from_arrays(batch.columns, names=batch.schema.names),
        }
        columns = [
            given[f.name].cast(f.type) if f.name in given else pa.nulls(batch.num_rows, f.type)
            for f in schema
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)

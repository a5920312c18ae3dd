"""The history's one seam to Spark: decoded records in, rows of the gold tables out."""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from history import arrow, groups, modern, offsets
from history.arrow import COMMITS
from history.commits import NO_TIME
from history.fold import GROUP_METADATA
from history.groups import HEADS, TOPIC_NAME
from schemas.columns import Column, StructOf, arrow_schema, column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import Column as Expression

MODERN_TYPES = ("consumer", "share")
"""Types of the groups whose records have ids of topics."""
BEGIN_MODERN = (
    "consumer_group_metadata",
    "consumer_group_member_metadata",
    "share_group_metadata",
    "share_group_member_metadata",
)
"""Tables of which each such group has a record when it begins."""
_TABLES = {**groups.OUTPUT, **offsets.TABLES}


def timeline(
    silver: Mapping[str, DataFrame],
    heads: DataFrame | None,
    modern_groups: DataFrame | None,
    holes: Mapping[int, groups.Holes],
) -> DataFrame:
    """Tell what the records of some groups make known.

    Args:
        silver: rows of the silver tables by name, those to be folded.
        heads: rows of group_heads, of the groups that go on; None if none does.
        modern_groups: column group_id; the groups whose topics need a name; None if there is none.
        holes: what is missing, by partition of the records.

    Returns:
        Rows of the tables of `groups.OUTPUT`, for `rows_of`. All open rows of the groups are among
        them, so that they replace the former.
    """
    parts = {name: _records(name, rows) for name, rows in silver.items()}
    if heads is not None:
        state = F.struct("state", "told_since")
        parts[HEADS] = heads.select("group_id", state.alias(HEADS))
    if modern_groups is not None and COMMITS in silver:
        parts[TOPIC_NAME] = _names(silver[COMMITS], modern_groups)
    # Those of one offset are taken in this order: the name of a topic before its commit.
    own = sorted(silver.keys() - {COMMITS})
    kinds = (HEADS, *own, TOPIC_NAME, COMMITS)
    events = reduce(
        partial(DataFrame.unionByName, allowMissingColumns=True),
        (_shaped(rows, kinds.index(kind)) for kind, rows in parts.items()),
    )
    position = ("group_id", "record_partition", "record_offset", "kind")
    ordered = events.repartition("group_id").sortWithinPartitions(*position)
    return ordered.mapInArrow(partial(_timeline, kinds, dict(holes)), _SCHEMA)


def _timeline(
    kinds: tuple[str, ...], holes: dict[int, groups.Holes], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    return _tagged(groups.fold(arrow.read(batches, kinds), holes))


def _shaped(rows: DataFrame, kind: int) -> DataFrame:
    """Give the rows all columns of `arrow.COMMON`."""
    usual = {
        "record_partition": -1,
        "record_offset": -1,
        "kind": kind,
        "at": NO_TIME,
        "member_id": None,
        "deletes": False,
        "partition_hash": None,
    }
    common = [
        (F.col(name) if name in rows.columns else F.lit(usual[name])).cast(kind_of).alias(name)
        for name, kind_of in arrow.COMMON.items()
    ]
    return rows.select(*common, *(c for c in rows.columns if c not in arrow.COMMON))


def _records(name: str, rows: DataFrame) -> DataFrame:
    """Give the events of a silver table."""
    columns = {
        "at": F.unix_millis("record_timestamp"),
        "deletes": F.col("is_tombstone"),
    }
    if name == COMMITS:
        columns["at"] = F.unix_millis(F.coalesce("record_timestamp", "commit_timestamp"))
        partition = F.concat_ws("/", F.coalesce("topic", F.lit("")), "topic_partition")
        columns["partition_hash"] = F.crc32(partition)
    else:
        payload = _group_metadata() if name == GROUP_METADATA else _payload(rows)
        columns[name] = F.when(~F.col("is_tombstone"), payload)
    columns["at"] = F.coalesce(columns["at"], F.lit(NO_TIME))
    of_record = ("group_id", "record_partition", "record_offset", "member_id")
    return rows.select(
        *(name for name in of_record if name in rows.columns),
        *(expression.alias(name) for name, expression in columns.items()),
    )


def _group_metadata() -> Expression:
    # Spark takes a column of all members several times as fast as it makes structs of theirs.
    members = {name: name for name in (*arrow.SCALARS, *arrow.BYTES)} | arrow.DECODED
    return F.struct(
        *("protocol_type", "generation", "protocol", "leader"),
        F.unix_millis("current_state_timestamp").alias("current_state_timestamp"),
        *(F.col(f"members.{path}").alias(name) for name, path in members.items()),
    )


def _payload(rows: DataFrame) -> Expression:
    return F.struct(*([c for c in rows.columns if c in modern.COLUMNS] or ["value_version"]))


def _names(commits: DataFrame, modern_groups: DataFrame) -> DataFrame:
    """Give the first commit of each topic that has both an id and a name."""
    named = commits.where(F.col("topic_id").isNotNull())
    of_groups = named.join(F.broadcast(modern_groups), "group_id", how="left_semi")
    first = of_groups.groupBy("group_id", "topic_id", "topic", "record_partition").agg(
        F.min("record_offset").alias("record_offset")
    )
    name = F.struct("topic_id", "topic").alias(TOPIC_NAME)
    return first.select("group_id", "record_partition", "record_offset", name)


def follow_offsets(
    commits: DataFrame, former: DataFrame | None, hours: DataFrame | None
) -> DataFrame:
    """Tell how offsets went on, as `history.offsets.follow` does.

    Args:
        commits: rows of offset_commits.
        former: rows of committed_offsets as of before them; None if there is none.
        hours: rows of offset_progress, those that the commits may belong to; None if there is none.

    Returns:
        Rows of the tables of `offsets.TABLES`, for `rows_of`.
    """
    known = ((offsets.HOURS, offsets.AN_HOUR, hours), (offsets.LATEST, offsets.LAST_COMMIT, former))
    kind = F.lit(offsets.COMMIT).alias(offsets.KIND)
    parts = [commits.select(kind, *offsets.COMMIT_COLUMNS)]
    for table, number, rows in known:
        if rows is not None:
            row = F.struct(*(c.name for c in offsets.TABLES[table])).alias(table)
            kind = F.lit(number).alias(offsets.KIND)
            parts.append(rows.select(kind, *offsets.PARTITION, row))
    together = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts)
    position = (*offsets.PARTITION, offsets.KIND, "record_partition", "record_offset")
    ordered = together.repartition(*offsets.PARTITION).sortWithinPartitions(*position)
    return ordered.mapInArrow(_follow, _SCHEMA)


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

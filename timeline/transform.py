"""The only module of the history that uses Spark: decoded records in, rows of gold out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from schemas.ledger import is_beyond
from schemas.memory import seldom_collect
from schemas.placement import HOME, KAFKA, REDPANDA, Placement, inferred, placed
from schemas.tagged import ddl, tagged, tagged_columns
from timeline import arrow, groups, payloads
from timeline.commits import COMMITS, NO_TIME
from timeline.fold import GROUP_METADATA
from timeline.holes import Holes
from timeline.homes import Found, Locations, Second, likeliest, name_of_second, sorted_out
from timeline.model import CHECKPOINTS

_COLUMNS = tagged_columns(groups.OUTPUT)
_POSITION = ("record_partition", "record_offset")
_GROUP = ("group_id", "record_partition")
_STRAYS = "group_id STRING, record_partition INT, until BIGINT"
_union = partial(DataFrame.unionByName, allowMissingColumns=True)


def timeline(
    silver: Mapping[str, DataFrame],
    checkpoints: DataFrame | None,
    holes: Mapping[int, Holes],
    placement: Placement | None = None,
) -> DataFrame:
    """Return what the records of some groups make known: rows of `groups.OUTPUT`, for `rows_of`.

    Records that are not where their group belongs, as the column `placement.HOME` tells, come
    first. All open rows of the groups are among the rows, so that they replace the former.
    """
    parts = [_events(name, rows) for name, rows in silver.items()]
    if checkpoints is not None:
        kind, state = F.lit(CHECKPOINTS).alias("kind"), F.col("state").alias("payload")
        parts.append(
            _shaped(checkpoints.select(kind, "group_id", "record_offset", state, "rebuilt_run"))
        )
    events = reduce(_union, parts).repartition("group_id")
    order = ("group_id", *placed(events.columns), *_POSITION)
    ordered = events.sortWithinPartitions(*order, F.col("more").desc())
    known = dict(holes)

    def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seldom_collect()
        return tagged(groups.fold(arrow.read(batches), known, placement), _COLUMNS)

    return ordered.mapInArrow(rows_of, ddl(_COLUMNS))


def _events(name: str, rows: DataFrame) -> DataFrame:
    """Return the events of a silver table."""
    at, deletes = F.unix_millis("record_timestamp"), F.col("is_tombstone")
    if name == COMMITS:
        is_named = F.col("topic_id").isNotNull()
        partition = F.concat_ws("/", F.coalesce("topic", F.lit("")), "topic_partition")
        at = F.unix_millis(F.coalesce("record_timestamp", "commit_timestamp"))
        own = {
            "topic_id": F.col("topic_id"),
            "topic": F.when(is_named, F.col("topic")),
            "partition_hash": F.crc32(partition),
            "deletes": deletes,
        }
    elif name == GROUP_METADATA:
        rows = _by_members(rows)
        payload = F.array(F.struct(*arrow.OWN, *arrow.SCALARS, *arrow.BYTES, *arrow.DECODED))
        own = {name: F.when(~deletes, payload), "more": F.col("more")}
    else:
        read = [c for c in rows.columns if c in payloads.COLUMNS]
        payload = F.to_json(F.struct(*read)) if read else F.lit("{}")
        own = {"payload": F.when(~deletes, payload)}
        if "member_id" in rows.columns:
            own["member_id"] = F.col("member_id")
    own["at"] = F.coalesce(at, F.lit(NO_TIME))
    columns = (expression.alias(column) for column, expression in own.items())
    kind = F.lit(None if name == COMMITS else name).alias("kind")
    return _shaped(rows.select("group_id", *_POSITION, kind, *columns, *placed(rows.columns)))


def _by_members(rows: DataFrame) -> DataFrame:
    """Return the columns that are read of group_metadata, few members a row."""
    # A column of all members takes Spark far less than a struct for each.
    members = {name: name for name in (*arrow.SCALARS, *arrow.BYTES)} | arrow.DECODED
    lists = rows.select(
        *("group_id", *_POSITION, "record_timestamp", "is_tombstone"),
        *placed(rows.columns),
        *(name for name in arrow.OWN if name != "current_state_timestamp"),
        F.unix_millis("current_state_timestamp").alias("current_state_timestamp"),
        *(F.col(f"members.{path}").alias(name) for name, path in members.items()),
    )
    most = F.lit(arrow.MEMBERS)
    parts = F.greatest(F.ceil(F.size("member_id") / most).cast("int"), F.lit(1))
    numbered = lists.select("*", parts.alias("parts")).select(
        "*", F.explode(F.sequence(F.lit(1), "parts")).alias("part")
    )
    start = (F.col("part") - 1) * most + 1
    return numbered.select(
        *(c for c in lists.columns if c not in members),
        *(F.slice(name, start, most).alias(name) for name in members),
        (F.col("parts") - F.col("part")).alias("more"),
    )


def _shaped(rows: DataFrame) -> DataFrame:
    """Return rows with the columns of `arrow.COLUMNS`, defaults for those that they lack."""
    usual = {"record_partition": -1, "record_offset": -1, "at": NO_TIME, "deletes": False}
    usual["more"] = 0
    common = (
        (F.col(name) if name in rows.columns else F.lit(usual.get(name))).cast(kind).alias(name)
        for name, kind in arrow.COLUMNS.items()
    )
    return rows.select(*common, *(c for c in rows.columns if c not in arrow.COLUMNS))


def late_groups(
    new: Mapping[str, DataFrame], checkpoints: DataFrame, before: Mapping[int, int], late: set[int]
) -> list[str]:
    """Return the groups to rebuild: those of late records, and all in the same partitions.

    Late are those in front of the offset that each partition was processed `before`; in partitions
    `late`, offsets were. Whether offsets are missing in a partition concerns all groups in it.
    """
    positions = (rows.select(*_GROUP, "record_offset") for rows in new.values())
    rows = reduce(DataFrame.unionByName, positions).where(f"NOT ({is_beyond(before)})")
    found = rows.select(*_GROUP).distinct()
    partitions = late | {row.record_partition for row in found.collect()}
    there = checkpoints.where(F.col("record_partition").isin(*partitions))
    moved = checkpoints.join(found.select("group_id"), "group_id", how="left_semi")
    groups = there.unionByName(moved).select("group_id").distinct().collect()
    return [row.group_id for row in groups]


# -- where records are -----------------------------------------------------------------------------


def locate(
    silver: Mapping[str, DataFrame],
    checkpoints: DataFrame | None,
    counts: Sequence[int],
    is_new: str,
    by: Sequence[str] = (KAFKA, REDPANDA),
    *,
    second: Sequence[Second] = (),
) -> Locations:
    """Look where the records of some groups are.

    No run has looked at rows that are new. The checkpoints are those before the run; whoever may
    have placed the groups comes likeliest first; `second` are the second coordinators that earlier
    runs have found.
    """
    at = F.unix_millis("record_timestamp")
    every = (
        rows.select(
            *_GROUP,
            "record_timestamp",
            F.expr(is_new).alias("is_new"),
            # A coordinator that has lost a group's members writes that it is empty, or nothing.
            (~F.col("is_tombstone") & F.lit(table == COMMITS)).alias("is_commit"),
        )
        for table, rows in silver.items()
    )
    counted = (
        reduce(DataFrame.unionByName, every)
        .groupBy(*_GROUP)
        .agg(
            F.count_if("is_new"),
            F.min(at),
            F.max(F.when(F.col("is_new"), at)),
            F.max(F.when(F.col("is_new") & F.col("is_commit"), at)),
        )
    )
    found = [Found(*row) for row in counted.collect()]
    located = [(row.group, row.partition) for row in found]
    known: dict[str, int] = {}

    def all_located() -> list[tuple[str, int]]:
        rows = [] if checkpoints is None else checkpoints.select(*_GROUP).collect()
        return [*located, *((row.group_id, row.record_partition) for row in rows)]

    if not counts or any(row.partition >= counts[-1] for row in found):
        # Files do not say it; the groups do, since nearly all of them are where they belong.
        placement = inferred(all_located(), by)
        if placement is None:
            return Locations([], [], [], by[0], second)
        counts = [*counts, placement.partitions]
    else:
        placement = likeliest(located, counts[-1], by)
        if placement.by != by[0]:  # a few groups may be where they are by chance
            placement = likeliest(all_located(), counts[-1], by)
    astray = {group for group, partition in located if partition != placement.of(group)}
    if not astray:
        return Locations(list(counts), [], [], placement.by, second)
    if checkpoints is not None:
        of_them = (
            checkpoints.where(F.col("group_id").isin(*sorted(astray))).select(*_GROUP).collect()
        )
        known = {row.group_id: row.record_partition for row in of_them}
    return sorted_out(found, known, counts, placement.by, second)


def by_coordinator(rows: DataFrame, second: Sequence[Second]) -> DataFrame:
    """Give rows of silver that a second coordinator has written the name of its history."""
    if not second:
        return rows
    named = [(*row, name_of_second(row[0], row[1])) for row in second]
    given = rows.sparkSession.createDataFrame(named, f"{_STRAYS}, second STRING")
    joined = rows.join(F.broadcast(given), list(_GROUP), how="left")
    is_second = F.unix_millis("record_timestamp") >= F.col("until")
    name = F.when(is_second, F.col("second")).otherwise(F.col("group_id"))
    return joined.withColumn("group_id", name).select(*rows.columns)


def at_home(silver: dict[str, DataFrame], locations: Locations) -> dict[str, DataFrame]:
    """Leave out the records that are no part of their groups' history.

    The others have a column `placement.HOME` if some are not where they belong; what a second
    coordinator has written is of its own history.
    """
    if not locations.elsewhere or not silver:
        return silver
    spark = next(iter(silver.values())).sparkSession
    strays = F.broadcast(
        spark.createDataFrame(locations.elsewhere, _STRAYS).withColumn(HOME, F.lit(0))
    )
    at = F.unix_millis("record_timestamp")
    counts = F.col(HOME).isNull() | F.col("until").isNull() | (at < F.col("until"))
    return {
        table: by_coordinator(rows, locations.second)
        .join(strays, list(_GROUP), how="left")
        .where(counts)
        .select(*rows.columns, F.col(HOME).isNull().alias(HOME))
        for table, rows in silver.items()
    }

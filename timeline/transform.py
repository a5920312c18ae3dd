"""The only module of the history that uses Spark: decoded records in, rows of gold out."""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from schemas.placement import placed
from schemas.tagged import ddl, tagged, tagged_columns
from timeline import arrow, groups, modern
from timeline.commits import COMMITS, NO_TIME
from timeline.fold import GROUP_METADATA
from timeline.model import CHECKPOINTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from schemas.placement import Placement

_COLUMNS = tagged_columns(groups.OUTPUT)
_POSITION = ("record_partition", "record_offset")
_union = partial(DataFrame.unionByName, allowMissingColumns=True)


def timeline(
    silver: Mapping[str, DataFrame],
    checkpoints: DataFrame | None,
    holes: Mapping[int, groups.Holes],
    placement: Placement | None = None,
) -> DataFrame:
    """Return what the records of some groups make known.

    Args:
        silver: rows of the silver tables by name, those to be folded. Those that are not where
            their group belongs, as the column `placement.HOME` tells, come first.
        checkpoints: rows of group_checkpoints, of the groups that go on; None if none does.
        holes: what is missing, by partition of the records.
        placement: how groups are placed in the topic; None if that is not known.

    Returns:
        Rows of the tables of `groups.OUTPUT`, for `rows_of`. All open rows of the groups are among
        them, so that they replace the former.
    """
    parts = [_events(name, rows) for name, rows in silver.items()]
    if checkpoints is not None:
        kind, state = F.lit(CHECKPOINTS).alias("kind"), F.col("state").alias("payload")
        parts.append(_shaped(checkpoints.select(kind, "group_id", state, "rebuilt_run")))
    events = reduce(_union, parts).repartition("group_id")
    order = ("group_id", *placed(events.columns), *_POSITION)
    ordered = events.sortWithinPartitions(*order, F.col("more").desc())
    return ordered.mapInArrow(partial(_timeline, dict(holes), placement), ddl(_COLUMNS))


def _timeline(
    holes: dict[int, groups.Holes],
    placement: Placement | None,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    return tagged(groups.fold(arrow.read(batches), holes, placement), _COLUMNS)


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
        payload = F.struct(*arrow.OWN, *arrow.SCALARS, *arrow.BYTES, *arrow.DECODED)
        own = {name: F.when(~deletes, payload), "more": F.col("more")}
    else:
        read = [c for c in rows.columns if c in modern.COLUMNS]
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

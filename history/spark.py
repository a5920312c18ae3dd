"""The history's one seam to Spark: decoded records in, rows of the gold tables out."""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from history import groups, offsets
from history.commits import NO_TIME
from history.fold import GROUP_METADATA
from history.groups import TOPIC_NAME
from schemas.columns import Column, StructOf, arrow_schema, column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import Column as Expression
    from pyspark.sql.pandas.group_ops import PandasCogroupedOps

    from history.model import Row

COMMITS = "offset_commits"
MODERN_TYPES = ("consumer", "share")
"""Types of the groups whose records have ids of topics."""
BEGIN_MODERN = (
    "consumer_group_metadata",
    "consumer_group_member_metadata",
    "share_group_metadata",
    "share_group_member_metadata",
)
"""Tables of which each such group has a record when it begins."""
_HEAD = "head"
_SHARE = "share"

_EVENTS = T.StructType(
    [
        T.StructField("group_id", T.StringType()),
        T.StructField("record_partition", T.IntegerType()),
        T.StructField("record_offset", T.LongType()),
        T.StructField("at", T.LongType()),
        T.StructField("kind", T.StringType()),
        T.StructField("member_id", T.StringType()),
        T.StructField("payload", T.StringType()),
        T.StructField("partition_hash", T.LongType()),
        T.StructField("deletes", T.BooleanType()),
    ]
)
_MEMBER_FIELDS = (
    "member_id",
    "group_instance_id",
    "client_id",
    "client_host",
    "rebalance_timeout_ms",
    "session_timeout_ms",
)


# -- what the fold reads ---------------------------------------------------------------------------


def events(
    tables: Mapping[str, DataFrame], heads: DataFrame, modern_groups: DataFrame | None
) -> DataFrame:
    """Bring the records of all types into one shape, with the state of their groups.

    Args:
        tables: rows of the silver tables by name, those to be folded.
        heads: group_heads of the groups that have such rows.
        modern_groups: column group_id; the groups of new protocols, whose topics need a name.
    """
    parts = [_record_events(name, rows) for name, rows in tables.items() if name != COMMITS]
    if COMMITS in tables:
        parts.append(_commit_events(tables[COMMITS]))
        if modern_groups is not None:
            parts.append(_name_events(tables[COMMITS], modern_groups))
    parts.append(
        _shaped(
            heads,
            kind=F.lit(_HEAD),
            payload=F.col("state"),
            # Before all records of the group.
            record_partition=F.lit(-1),
            record_offset=F.lit(-1),
        )
    )
    return reduce(DataFrame.unionByName, parts)


def _shaped(rows: DataFrame, **given: Expression) -> DataFrame:
    columns = {"at": F.lit(None), "member_id": F.lit(None), "payload": F.lit(None)}
    columns |= {"partition_hash": F.lit(None), "deletes": F.lit(None), **given}
    return rows.select(
        *(columns.get(f.name, F.col(f.name)).cast(f.dataType).alias(f.name) for f in _EVENTS.fields)
    )


def _record_events(name: str, rows: DataFrame) -> DataFrame:
    if name == GROUP_METADATA:
        payload = F.to_json(_classic_payload())
    else:
        known = ("cluster", "group_id", "member_id", "is_tombstone", "decode_run", "decode_notes")
        own = [c for c in rows.columns if c not in known and not c.startswith("record_")]
        payload = F.to_json(F.struct(*own))
    return _shaped(
        rows,
        kind=F.lit(name),
        at=F.unix_millis("record_timestamp"),
        member_id=F.col("member_id") if "member_id" in rows.columns else F.lit(None),
        payload=F.when(~F.col("is_tombstone"), payload),
    )


def _classic_payload() -> Expression:
    return F.struct(
        "protocol_type",
        "generation",
        "protocol",
        "leader",
        F.unix_millis("current_state_timestamp").alias("current_state_timestamp"),
        F.transform("members", _member_payload).alias("members"),
    )


def _member_payload(member: Expression) -> Expression:
    return F.struct(
        *(member[name].alias(name) for name in _MEMBER_FIELDS),
        F.when(
            member["subscription"].isNotNull(),
            F.struct(member["subscription"]["topics"].alias("topics")),
        ).alias("subscription"),
        F.when(
            member["assignment"].isNotNull(),
            F.struct(member["assignment"]["partitions"].alias("partitions")),
        ).alias("assignment"),
        # Kafka gives a member without partitions no bytes at all, in some versions.
        (F.length(member["assignment_bytes"]) == 0).alias("has_empty_assignment"),
        F.when(
            member["connect_assignment"].isNotNull(),
            F.struct(member["connect_assignment"]["assignment"].alias("assignment")),
        ).alias("connect_assignment"),
    )


def _commit_events(commits: DataFrame) -> DataFrame:
    partition = F.concat_ws("/", F.coalesce("topic", F.lit("")), "topic_partition")
    return _shaped(
        commits,
        kind=F.lit(None),
        at=F.unix_millis(F.coalesce("record_timestamp", "commit_timestamp")),
        partition_hash=F.crc32(partition),
        deletes=F.col("is_tombstone"),
    )


def _name_events(commits: DataFrame, modern_groups: DataFrame) -> DataFrame:
    """Give the first commit of each topic that has both an id and a name."""
    named = commits.where(F.col("topic_id").isNotNull())
    of_groups = named.join(F.broadcast(modern_groups), "group_id", how="left_semi")
    first = of_groups.groupBy("group_id", "topic_id", "topic", "record_partition").agg(
        F.min("record_offset").alias("record_offset")
    )
    payload = F.to_json(F.struct("topic_id", "topic"))
    return _shaped(first, kind=F.lit(TOPIC_NAME), payload=payload)


# -- the fold --------------------------------------------------------------------------------------


def fold(
    records: DataFrame, holes: Mapping[int, groups.Holes], schema: T.StructType, tasks: int
) -> DataFrame:
    """Fold the records of each group into the rows that they make known.

    Args:
        records: what `events` gives.
        tasks: number of tasks to share the groups among.
        holes: what is missing, by partition of the records.
        schema: Spark's type of the rows: that of `row_columns` of `groups.OUTPUT`.

    Returns:
        Rows of all tables, see `row_columns`. All open rows of the groups are among them, so that
        they replace the former.
    """
    ordered = records.repartition(tasks, "group_id").sortWithinPartitions(
        "group_id", "record_partition", "record_offset", F.col("kind").asc_nulls_last()
    )
    return ordered.mapInArrow(partial(_fold_batches, dict(holes)), schema)


def _fold_batches(
    holes: dict[int, groups.Holes], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(row_columns(groups.OUTPUT))
    for table, rows in groups.fold(map(_Events, batches), holes):
        yield _of_table(table, rows, schema)


class _Events:
    """A batch of Spark's rows as the fold takes them; the head of a group comes first of it."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        get = {name: batch.column(i) for i, name in enumerate(batch.schema.names)}
        self._group_ids = get["group_id"].to_pylist()
        self._kinds = get["kind"].to_pylist()
        self._member_ids = get["member_id"]
        self._payloads = get["payload"]
        self.partitions = get["record_partition"].to_numpy()
        self.offsets = get["record_offset"].to_numpy()
        self.at = get["at"].fill_null(NO_TIME).to_numpy()
        self.hashes = get["partition_hash"].fill_null(0).to_numpy()
        is_deleted = get["deletes"].fill_null(pa.scalar(value=False))
        self.deletes = is_deleted.to_numpy(zero_copy_only=False)
        self._codes = get["group_id"].dictionary_encode().indices.to_numpy()
        self._is_commit = get["kind"].is_null().to_numpy(zero_copy_only=False)

    def runs(self) -> Iterator[tuple[int, int]]:
        return groups.runs(self._codes, self.partitions, self._is_commit)

    def group_id(self, event: int) -> str:
        return str(self._group_ids[event])

    def kind(self, event: int) -> str | None:
        kind: str | None = self._kinds[event]
        return kind

    def member_id(self, event: int) -> str | None:
        member_id: str | None = self._member_ids[event].as_py()
        return member_id

    def payload(self, event: int) -> Row | None:
        payload = self._payloads[event].as_py()
        return None if payload is None else orjson.loads(payload)

    def head(self, _: str, event: int) -> str | None:
        head: str | None = None
        if self._kinds[event] == _HEAD:
            head = self._payloads[event].as_py()
        return head


# -- offsets ---------------------------------------------------------------------------------------


def follow_offsets(
    commits: DataFrame, former: DataFrame, schema: T.StructType, tasks: int
) -> DataFrame:
    """Tell how offsets went on, as `history.offsets.follow` does.

    Args:
        commits: rows of offset_commits.
        former: committed_offsets as of before them.
        schema: Spark's type of the rows: that of `row_columns` of `offsets.TABLES`.
        tasks: number of tasks to share the partitions of topics among.

    Returns:
        Rows of all tables, see `row_columns`.
    """
    known = former.select(*(c.name for c in offsets.TABLES[offsets.LATEST]))
    own = commits.select(*offsets.COMMIT_COLUMNS)
    return _together(own, known, tasks).applyInArrow(_follow, schema)


def _follow(commits: pa.Table, former: pa.Table) -> pa.Table:
    schema = arrow_schema(row_columns(offsets.TABLES))
    return pa.Table.from_batches(
        [
            _of_table(table, batch, schema)
            for table, rows in offsets.follow(commits, former).items()
            for batch in rows.to_batches()
        ],
        schema,
    )


def joined_hours(
    earlier: DataFrame, later: DataFrame, schema: T.StructType, tasks: int
) -> DataFrame:
    """Make one row of the two that an hour cut by a run has, as `history.offsets` does.

    Args:
        earlier: rows of offset_progress.
        later: rows of it, of the records behind them.
        schema: Spark's type of such rows.
        tasks: number of tasks to share the partitions of topics among.
    """
    both = _together(earlier.select(*schema.names), later.select(*schema.names), tasks)
    return both.applyInArrow(offsets.joined_hours, schema)


def _together(first: DataFrame, second: DataFrame, tasks: int) -> PandasCogroupedOps:
    """Bring what two tables have of a partition of a topic into one task."""
    share = F.pmod(F.hash(*offsets.PARTITION), F.lit(tasks)).alias(_SHARE)
    grouped = (rows.select(share, "*").groupBy(_SHARE) for rows in (first, second))
    return next(grouped).cogroup(next(grouped))


# -- rows of several tables ------------------------------------------------------------------------


def row_columns(tables: Mapping[str, tuple[Column, ...]]) -> tuple[Column, ...]:
    """Give the columns of rows of several tables.

    The column `table` names the table that a row is of, and the struct column of that name has the
    row itself.
    """
    structs = [Column(n, StructOf(columns), f"A row of {n}.") for n, columns in tables.items()]
    return (column("table", "string", "Table that the row is of."), *structs)


def rows_of(rows: DataFrame, table: str) -> DataFrame:
    """Pick the rows of one table of those that `fold` or `follow_offsets` gave."""
    return rows.where(F.col("table") == table).select(f"{table}.*")


def _of_table(table: str, rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    given = {
        "table": pa.array([table] * rows.num_rows, pa.string()),
        table: pa.StructArray.from_arrays(rows.columns, names=rows.schema.names),
    }
    columns = [
        given[f.name].cast(f.type) if f.name in given else pa.nulls(rows.num_rows, f.type)
        for f in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)

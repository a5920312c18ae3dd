"""The fold's one seam to Spark: records in the order of the log in, rows of the gold tables out."""

from __future__ import annotations

from bisect import bisect_right
from functools import partial, reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from history.commits import NO_TIME, CommitChunk
from history.fold import GROUP_METADATA, Fold
from history.model import GENERATIONS, OWNERS, SESSIONS, STATES, GroupState, Record
from schemas import gold
from schemas.columns import Column, StructOf, array_of_millis, arrow_schema, column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import Column as Expression

    from history.model import Row

COMMITS = "offset_commits"
_HEAD = "head"
_TOPIC_NAME = "topic_name"

TABLES: dict[str, tuple[Column, ...]] = {
    STATES: gold.GROUP_STATES,
    GENERATIONS: gold.GROUP_GENERATIONS,
    SESSIONS: gold.MEMBER_SESSIONS,
    OWNERS: gold.PARTITION_OWNERS,
}
HEADS = "group_heads"
# What the run itself adds to a head.
_OF_THE_RUN = ("history_run", "told_since")
_OUTPUT = {**TABLES, HEADS: tuple(c for c in gold.GROUP_HEADS if c.name not in _OF_THE_RUN)}

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


class Holes(NamedTuple):
    """Offsets of one partition that were not read, or not decoded.

    Attributes:
        starts: first offsets of the holes, ascending.
        ends: last offsets of them.
        before: last missing offset of the runs before; -1 if there was none.
    """

    starts: Sequence[int]
    ends: Sequence[int]
    before: int = -1

    def between(self, after: int, until: int) -> bool:
        """Tell whether an offset behind `after` and before `until` is missing."""
        if self.before > after:
            return True
        behind = bisect_right(self.ends, after)
        return behind < len(self.ends) and self.starts[behind] < until


_NO_HOLES = Holes((), ())


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


def _name_events(commits: DataFrame, groups: DataFrame) -> DataFrame:
    """Give the first commit of each topic that has both an id and a name."""
    named = commits.where(F.col("topic_id").isNotNull())
    of_groups = named.join(F.broadcast(groups), "group_id", how="left_semi")
    first = of_groups.groupBy("group_id", "topic_id", "topic", "record_partition").agg(
        F.min("record_offset").alias("record_offset")
    )
    payload = F.to_json(F.struct("topic_id", "topic"))
    return _shaped(first, kind=F.lit(_TOPIC_NAME), payload=payload)


# -- the fold --------------------------------------------------------------------------------------


def fold(
    records: DataFrame, holes: Mapping[int, Holes], schema: T.StructType, tasks: int
) -> DataFrame:
    """Fold the records of each group into the rows that they make known.

    Args:
        records: what `events` gives.
        tasks: number of tasks to share the groups among.
        holes: what is missing, by partition of the records.
        schema: Spark's type of the rows, see `row_columns`.

    Returns:
        Rows of all tables: the column `table` names it, and the struct column of that name has the
        row itself. All open rows of the groups are among them, so that they replace the former.
    """
    ordered = records.repartition(tasks, "group_id").sortWithinPartitions(
        "group_id", "record_partition", "record_offset", F.col("kind").asc_nulls_last()
    )
    return ordered.mapInArrow(partial(_fold_batches, dict(holes)), schema)


def row_columns() -> tuple[Column, ...]:
    """Give the columns of what `fold` returns."""
    structs = [
        Column(name, StructOf(columns), f"A row of {name}.") for name, columns in _OUTPUT.items()
    ]
    return (column("table", "string", "Table that the row is of."), *structs)


def rows_of(folded: DataFrame, table: str) -> DataFrame:
    """Pick the rows of one table."""
    return folded.where(F.col("table") == table).select(f"{table}.*")


class _Rows:
    """Collects rows by column, since a column at a time becomes Arrow fastest."""

    def __init__(self) -> None:
        self._columns = {t: {c.name: c.type for c in columns} for t, columns in _OUTPUT.items()}
        self._schema = arrow_schema(row_columns())
        self._start()

    def _start(self) -> None:
        self.count = 0
        self._rows: dict[str, list[Row]] = {t: [] for t in self._columns}

    def add(self, table: str, row: Row) -> None:
        """Take a row."""
        self._rows[table].append(row)
        self.count += 1

    def take(self) -> Iterator[pa.RecordBatch]:
        """Give what was collected, and begin anew."""
        for table, rows in self._rows.items():
            if rows:
                yield self._batch(table, rows)
        self._start()

    def _batch(self, table: str, rows: list[Row]) -> pa.RecordBatch:
        fields = self._columns[table]
        arrays = [
            array_of_millis([row.get(name) for row in rows], kind) for name, kind in fields.items()
        ]
        struct = pa.StructArray.from_arrays(arrays, names=list(fields))
        given = {
            "table": pa.array([table] * len(rows), pa.string()),
            table: struct,
        }
        columns = [
            given[f.name].cast(f.type) if f.name in given else pa.nulls(len(rows), f.type)
            for f in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


_BATCH_ROWS = 5_000
_GROUP_ROWS = 1_000


def _fold_batches(
    holes: dict[int, Holes], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    rows = _Rows()
    group: _Group | None = None
    for batch in batches:
        columns = _Events(batch)
        for start, end in columns.runs():
            group_id = columns.group_ids[start]
            if group is None or group.group_id != group_id:
                if group is not None:
                    group.finish(rows)
                group = _Group(group_id, holes)
            group.take(columns, start, end, rows)
            if rows.count >= _BATCH_ROWS:
                yield from rows.take()
    if group is not None:
        group.finish(rows)
    yield from rows.take()


class _Events:
    """A batch of events as columns that Python reads fast."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        get = {name: batch.column(i) for i, name in enumerate(batch.schema.names)}
        self.group_ids = get["group_id"].to_pylist()
        self.kinds = get["kind"].to_pylist()
        self.member_ids = get["member_id"]
        self.payloads = get["payload"]
        self.partitions = get["record_partition"].to_numpy()
        self.offsets = get["record_offset"].to_numpy()
        self.at = get["at"].fill_null(NO_TIME).to_numpy()
        self.hashes = get["partition_hash"].fill_null(0).to_numpy()
        self.deletes = (
            get["deletes"].fill_null(pa.scalar(value=False)).to_numpy(zero_copy_only=False)
        )
        self._codes = get["group_id"].dictionary_encode().indices.to_numpy()
        self._is_commit = get["kind"].is_null().to_numpy(zero_copy_only=False)

    def runs(self) -> Iterator[tuple[int, int]]:
        """Cut the batch: commits of a group in one partition together, other records one by one."""
        if not len(self._codes):
            return
        same = (self._codes[1:] == self._codes[:-1]) & (self.partitions[1:] == self.partitions[:-1])
        together = same & self._is_commit[1:] & self._is_commit[:-1]
        starts = np.concatenate(([0], np.flatnonzero(~together) + 1)).tolist()
        yield from zip(starts, [*starts[1:], len(self._codes)], strict=True)


class _Group:
    """One group while its events pass by."""

    def __init__(self, group_id: str, holes: dict[int, Holes]) -> None:
        self.group_id = group_id
        self._holes = holes
        self._head: str | None = None
        self._fold: Fold | None = None
        self._offset = -1

    def take(self, columns: _Events, start: int, end: int, rows: _Rows) -> None:
        """Take the events of one run of `_Events.runs`, and give the rows that are settled."""
        kind = columns.kinds[start]
        if kind == _HEAD:
            self._head = columns.payloads[start].as_py()
            return
        partition = int(columns.partitions[start])
        fold = self._begin(partition)
        if fold.state.partition != partition:
            return  # a group has one partition; a record elsewhere is not its history
        self._offset = int(columns.offsets[end - 1])
        if kind is None:
            part = slice(start, end)
            fold.commits(
                CommitChunk(
                    columns.offsets[part],
                    columns.at[part],
                    columns.hashes[part],
                    columns.deletes[part],
                )
            )
            return
        payload = columns.payloads[start].as_py()
        given: Row | None = None if payload is None else orjson.loads(payload)
        if kind == _TOPIC_NAME and given is not None:
            fold.name_topic(given["topic_id"], given["topic"])
            return
        at = int(columns.at[start])
        member_id = columns.member_ids[start].as_py()
        time = None if at == NO_TIME else at
        fold.record(Record(self._offset, time, kind, member_id, given))
        if fold.output.count >= _GROUP_ROWS:
            _settle(rows, fold.output.take())

    def _begin(self, partition: int) -> Fold:
        if self._fold is None:
            state, pending = GroupState(self.group_id, partition), []
            if self._head is not None:
                head = orjson.loads(self._head)
                state = GroupState.from_json(head["state"])
                pending = [Record(*fields) for fields in head["pending"]]
            holes = self._holes.get(state.partition, _NO_HOLES)
            self._fold = Fold(state, pending, has_hole=holes.between)
        return self._fold

    def finish(self, rows: _Rows) -> None:
        """Give the group's rows, and what the next run needs."""
        if self._fold is None:
            return
        settled, still_open = self._fold.finish()
        _settle(rows, settled)
        for table in TABLES:
            for row in still_open[table]:
                rows.add(table, {**row, "is_settled": False})
        state = self._fold.state
        head = {"state": state.to_json(), "pending": [list(r) for r in self._fold.pending]}
        rows.add(
            HEADS,
            {
                "group_id": self.group_id,
                "record_partition": state.partition,
                "record_offset": self._offset,
                "group_type": state.group_type,
                "state": orjson.dumps(head).decode(),
            },
        )


def _settle(rows: _Rows, settled: dict[str, list[Row]]) -> None:
    for table, of_table in settled.items():
        for row in of_table:
            row["is_settled"] = True
            rows.add(table, row)

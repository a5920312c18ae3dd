"""History where tables are files on a disk that driver and tasks share.

Each task reads what came of some partitions of the topic, folds their groups, follows their
offsets, and writes files of the gold tables. It takes groups whose records are in one partition
each, as Kafka writes them; `jobs.runtime.history` lets Spark tell of others.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from history import groups, offset_arrays
from history.commits import NO_TIME
from history.fold import GROUP_METADATA
from history.model import Member, partition_hash, partition_key
from history.spark import BEGIN_MODERN, COMMITS, MODERN_TYPES
from schemas import gold
from schemas.columns import arrow_schema
from schemas.silver import decoded_columns
from schemas.tables import COMMITTED_OFFSETS, GROUP_HEADS, OFFSET_MOVES, OFFSET_PROGRESS, all_tables
from storage.files import FileWriter, read_where

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from history.model import Row
    from schemas.tables import TableSpec
    from storage.files import DataFile

_T = TypeVar("_T")
_R = TypeVar("_R")

_POSITION = ("group_id", "record_partition", "record_offset", "record_timestamp", "is_tombstone")
_OWN = ("protocol_type", "generation", "protocol", "leader", "current_state_timestamp")
_SCALARS = (
    *("member_id", "group_instance_id", "client_id", "client_host"),
    *("rebalance_timeout_ms", "session_timeout_ms"),
)
# Where a member's assignment is: a struct, its list of structs, their key and their numbers.
_ASSIGNMENTS = (
    ("assignment", "partitions", "topic", "partitions"),
    ("connect_assignment", "assignment", "connector", "tasks"),
)
_BYTES = ("subscription_bytes", "assignment_bytes")
_LEAVES = (
    *_SCALARS,
    *_BYTES,
    "subscription.topics",
    *(f"{name}.{part}" for name, part, _, _ in _ASSIGNMENTS),
)
# Rows are made of columns so many at a time.
_WINDOW = 200
_KNOWN_MEMBERS = 100_000
# A record of a group's state takes the fold as long as so many commits.
_WEIGHT = 100
_A_TASK = 500_000


@dataclass(frozen=True)
class Source:
    """What a run reads.

    Attributes:
        silver: by table, the files with what is new.
        after: of their rows, those of the decode runs behind this,
        to: up to and with this.
        heads: files of group_heads.
        committed: files of committed_offsets.
    """

    silver: dict[str, list[str]]
    after: int
    to: int
    heads: list[str]
    committed: list[str]


@dataclass(frozen=True)
class Target:
    """Where rows go, and what they say of the run.

    Attributes:
        root: folder of the lakehouse.
        cluster: whose rows they are.
        history_run: number of the run.
    """

    root: str
    cluster: str
    history_run: int


def places(spark: SparkSession, source: Source) -> Counter[tuple[str, int]]:
    """Tell in which partitions the groups with new records are, and were before.

    Returns:
        By group and partition, about how long their records take, in commits.
    """
    given = [(table, path) for table, paths in source.silver.items() for path in paths]
    parts = _in_tasks(spark, given, partial(_places, source.after, source.to))
    found: Counter[tuple[str, int]] = Counter()
    for part in parts:
        found.update(part)
    told = {group for group, _ in found}
    fields = [pa.field("group_id", pa.string()), pa.field("record_partition", pa.int32())]
    for row in read_where(source.heads, fields).to_pylist():
        if row["group_id"] in told:
            found[row["group_id"], row["record_partition"]] += 0
    return found


def _in_tasks(spark: SparkSession, given: Sequence[_T], task: Callable[[_T], _R]) -> list[_R]:
    if not given:
        return []
    return spark.sparkContext.parallelize(given, len(given)).map(task).collect()


def _places(after: int, to: int, given: tuple[str, str]) -> Counter[tuple[str, int]]:
    table, path = given
    fields = [f for f in _fields(table) if f.name in ("group_id", "record_partition")]
    rows = read_where([path], fields, between={"decode_run": (after + 1, to)})
    counts = rows.group_by(["group_id", "record_partition"]).aggregate([([], "count_all")])
    weight = 1 if table == COMMITS else _WEIGHT
    return Counter(
        {
            (row["group_id"], row["record_partition"]): weight * row["count_all"]
            for row in counts.to_pylist()
        }
    )


def write(
    spark: SparkSession,
    source: Source,
    target: Target,
    holes: dict[int, groups.Holes],
    weights: dict[int, int],
) -> list[tuple[str, DataFile]]:
    """Tell the history of what is new, and write files of it, to be added to their tables.

    The rows of offset_progress are of the new commits alone.

    Args:
        spark: the session.
        source: what to read.
        target: where to.
        holes: what is missing, by partition.
        weights: by partition of the topic, about how long its records take, in commits.

    Returns:
        Files with the names of their tables.
    """
    cores = spark.sparkContext.defaultParallelism
    share = max(1, min(_A_TASK, sum(weights.values()) // (4 * cores)))
    shares: list[list[int]] = []
    room = 0
    for number in sorted(weights):
        if room <= 0:
            shares.append([])
            room = share
        shares[-1].append(number)
        room -= weights[number]
    # The longest first, so that none of them is alone at the end.
    shares.sort(key=lambda numbers: -sum(weights[n] for n in numbers))
    parts = _in_tasks(spark, shares, partial(_write, source, target, holes))
    return [file for part in parts for file in part]


def _write(
    source: Source, target: Target, holes: dict[int, groups.Holes], partitions: list[int]
) -> list[tuple[str, DataFile]]:
    """Tell of the groups of some partitions of the topic."""
    tables = {}
    for table, paths in source.silver.items():
        rows = read_where(
            paths,
            _fields(table),
            between={"decode_run": (source.after + 1, source.to)},
            among={"record_partition": partitions},
            leaves={"members": _LEAVES} if table == GROUP_METADATA else None,
        )
        if rows.num_rows:
            tables[table] = rows
    names = pc.unique(_joined(rows["group_id"] for rows in tables.values()))
    of_groups = {"group_id": names.to_pylist()}
    heads = read_where(source.heads, arrow_schema(GROUP_HEADS.in_files), among=of_groups)
    writer = FileWriter(target.root, target.cluster)
    told_since = dict(zip(*(heads[n].to_pylist() for n in ("group_id", "told_since")), strict=True))
    for table, rows in groups.fold([_Events(tables, names, heads)], holes):
        spec = all_tables()[f"gold.{table}"]
        if spec is GROUP_HEADS:
            since = [told_since.get(name) for name in rows["group_id"].to_pylist()]
            filled = pa.array(since, pa.int64()).fill_null(target.history_run)
            told = rows.append_column("told_since", filled)
        else:
            told = rows
        for part, values in _apart(spec, told):
            writer.add(spec, _of_run(spec, part, target), values)
    if COMMITS in source.silver:
        fields = arrow_schema(COMMITTED_OFFSETS.in_files)
        former = read_where(source.committed, fields, among=of_groups)
        offsets = {COMMITTED_OFFSETS: former}
        if COMMITS in tables:
            progress = offset_arrays.follow(tables[COMMITS], former)
            offsets = {OFFSET_PROGRESS: progress.hours, OFFSET_MOVES: progress.moves}
            offsets[COMMITTED_OFFSETS] = progress.latest
        for spec, found in offsets.items():
            for batch in found.to_batches():
                writer.add(spec, _of_run(spec, batch, target))
    return writer.close()


def keep(
    spark: SparkSession, former: Mapping[str, list[str]], told: Collection[str], target: Target
) -> list[tuple[str, DataFile]]:
    """Write the rows of the groups that a run does not tell of once more, of files to be replaced.

    Args:
        spark: the session.
        former: the files, by table.
        told: the groups that are left out.
        target: where to.
    """
    given = [(table, paths) for table, paths in former.items() if paths]
    parts = _in_tasks(spark, given, partial(_keep, pa.array(list(told), pa.string()), target))
    return [file for part in parts for file in part]


def _keep(
    told: pa.Array, target: Target, given: tuple[str, list[str]]
) -> list[tuple[str, DataFile]]:
    table, paths = given
    spec = all_tables()[table]
    rows = read_where(paths, arrow_schema(spec.in_files))
    rows = rows.filter(pc.invert(pc.is_in(rows["group_id"], told)))
    writer = FileWriter(target.root, target.cluster)
    values = {"is_settled": "false"} if "is_settled" in spec.partitions else None
    for batch in rows.to_batches():
        if batch.num_rows:
            writer.add(spec, batch, values)
    return writer.close()


def _apart(
    spec: TableSpec, rows: pa.RecordBatch
) -> Iterator[tuple[pa.RecordBatch, dict[str, str] | None]]:
    """Take rows that are settled apart from those that are open."""
    if "is_settled" not in spec.partitions:
        yield rows, None
        return
    settled = rows["is_settled"]
    for part, value in ((settled, "true"), (pc.invert(settled), "false")):
        chosen = rows.filter(part)
        if chosen.num_rows:
            yield chosen, {"is_settled": value}


def _of_run(spec: TableSpec, rows: pa.RecordBatch, target: Target) -> pa.RecordBatch:
    """Bring rows into the form of a table's files."""
    number = pa.repeat(pa.scalar(target.history_run, pa.int64()), rows.num_rows)
    schema = arrow_schema(spec.in_files)
    columns = [
        (number if f.name == gold.HISTORY_RUN.name else rows[f.name]).cast(f.type) for f in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# -- what the fold reads ---------------------------------------------------------------------------


def _fields(table: str) -> list[pa.Field]:
    """Give the columns that are read of a silver table."""
    fields = arrow_schema(decoded_columns(table))
    if table == COMMITS:
        return [fields.field(name) for name in offset_arrays.COMMIT_COLUMNS]
    if table == GROUP_METADATA:
        return [fields.field(name) for name in (*_POSITION, *_OWN, "members")]
    known = ("key_version", "value_version", "decode_notes")
    return [f for f in fields if f.name not in known]


def _joined(columns: Iterable[pa.ChunkedArray]) -> pa.Array:
    chunks = [chunk for column in columns for chunk in column.chunks]
    return pa.chunked_array(chunks, pa.string()).combine_chunks()


class _Events:
    """The records of some partitions as the fold takes them; implements `groups.Events`."""

    def __init__(self, tables: dict[str, pa.Table], names: pa.Array, heads: pa.Table) -> None:
        self._names = names.to_pylist()
        head_columns = (heads[n].to_pylist() for n in ("group_id", "state"))
        self._heads = dict(zip(*head_columns, strict=True))
        self._kinds: list[str | None] = [t for t in tables if t != COMMITS]
        self._rows: list[_Rows] = []
        parts: list[dict[str, np.ndarray]] = []
        for number, kind in enumerate(self._kinds):
            rows = tables[kind or ""]
            position = _position(rows, names, number)
            order = np.lexsort(tuple(position[n] for n in ("offset", "partition", "group")))
            self._rows.append(_Rows(kind or "", rows.take(pa.array(order))))
            ordered = {name: column[order] for name, column in position.items()}
            parts.append(ordered | {"row": np.arange(len(order))})
        if COMMITS in tables:
            rows = tables[COMMITS]
            modern = self._modern(tables, heads)
            self._kinds += [groups.TOPIC_NAME, None]
            named, position = _named(rows, names, modern, len(self._kinds) - 2)
            self._rows.append(_Rows(groups.TOPIC_NAME, named))
            parts.append(position)
            parts.append(_commits(rows, names, len(self._kinds) - 1))
        columns = {
            name: np.concatenate([p.get(name, np.zeros(len(p["group"]), np.int64)) for p in parts])
            for name in ("group", "partition", "offset", "at", "kind", "row", "hash", "deletes")
        }
        order = np.lexsort(tuple(columns[n] for n in ("kind", "offset", "partition", "group")))
        columns = {name: column[order] for name, column in columns.items()}
        self._groups, self._kind, self._row = (columns[n] for n in ("group", "kind", "row"))
        self.partitions, self.offsets = columns["partition"], columns["offset"]
        self.at, self.hashes = columns["at"], columns["hash"]
        self.deletes = columns["deletes"].astype(np.bool_)
        self._is_commit = np.array([k is None for k in self._kinds], np.bool_)[self._kind]

    @staticmethod
    def _modern(tables: dict[str, pa.Table], heads: pa.Table) -> pa.Array:
        """Name the groups whose records have ids of topics."""
        is_modern = pc.is_in(heads["group_type"], pa.array(MODERN_TYPES))
        known = [tables[t]["group_id"] for t in BEGIN_MODERN if t in tables]
        return pc.unique(_joined([heads["group_id"].filter(is_modern), *known]))

    def runs(self) -> Iterator[tuple[int, int]]:
        return groups.runs(self._groups, self.partitions, self._is_commit)

    def group_id(self, event: int) -> str:
        return str(self._names[self._groups[event]])

    def kind(self, event: int) -> str | None:
        return self._kinds[int(self._kind[event])]

    def member_id(self, event: int) -> str | None:
        return self._record(event)[0]

    def payload(self, event: int) -> Row | None:
        return self._record(event)[1]

    def _record(self, event: int) -> tuple[str | None, Row | None]:
        return self._rows[int(self._kind[event])].at(int(self._row[event]))

    def head(self, group_id: str, _: int) -> str | None:
        head: str | None = self._heads.get(group_id)
        return head


def _position(rows: pa.Table, names: pa.Array, kind: int) -> dict[str, np.ndarray]:
    at = rows["record_timestamp"]
    if "commit_timestamp" in rows.schema.names:
        at = pc.coalesce(at, rows["commit_timestamp"])
    millis = at.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    return {
        "group": pc.index_in(rows["group_id"], names).to_numpy(),
        "partition": rows["record_partition"].to_numpy(),
        "offset": rows["record_offset"].to_numpy(),
        "at": millis.fill_null(NO_TIME).to_numpy(),
        "kind": np.full(rows.num_rows, kind),
    }


def _commits(rows: pa.Table, names: pa.Array, kind: int) -> dict[str, np.ndarray]:
    topics = rows["topic"].combine_chunks().dictionary_encode()
    numbers = rows["topic_partition"].to_numpy().astype(np.int64)
    topic = topics.indices.fill_null(-1).to_numpy().astype(np.int64)
    known, place = np.unique(topic * 2**32 + numbers, return_inverse=True)
    texts = [*topics.dictionary.to_pylist(), ""]  # a topic that is not known is the last
    pairs = (divmod(code, 2**32) for code in known.tolist())
    hashes = [partition_hash(partition_key(texts[topic], number)) for topic, number in pairs]
    return _position(rows, names, kind) | {
        "hash": np.array(hashes, np.int64)[place],
        "deletes": rows["is_tombstone"].to_numpy(),
    }


def _named(
    rows: pa.Table, names: pa.Array, modern: pa.Array, kind: int
) -> tuple[pa.Table, dict[str, np.ndarray]]:
    """Give the first commit of each topic that has both an id and a name."""
    is_named = pc.and_(pc.is_valid(rows["topic_id"]), pc.is_in(rows["group_id"], modern))
    key = ["group_id", "topic_id", "topic", "record_partition"]
    first = (
        rows.filter(is_named).group_by(key, use_threads=False).aggregate([("record_offset", "min")])
    )
    first = first.rename_columns([*key, "record_offset"])
    count = first.num_rows
    position = {
        "group": pc.index_in(first["group_id"], names).to_numpy(),
        "partition": first["record_partition"].to_numpy(),
        "offset": first["record_offset"].to_numpy(),
        "at": np.full(count, NO_TIME),
        "kind": np.full(count, kind),
        "row": np.arange(count),
    }
    return first, position


class _Rows:
    """Records of one kind, made into what they say a window at a time, as they are asked for."""

    def __init__(self, kind: str, rows: pa.Table) -> None:
        self._rows = rows
        self._make = _GroupMetadata() if kind == GROUP_METADATA else _as_they_are
        self._start = 0
        self._window: list[tuple[str | None, Row | None]] = []

    def at(self, row: int) -> tuple[str | None, Row | None]:
        """Give the member id of a record's key, and its payload."""
        if not self._start <= row < self._start + len(self._window):
            self._start = row
            self._window = self._make(self._rows.slice(row, _WINDOW))
        return self._window[row - self._start]


def _as_they_are(rows: pa.Table) -> list[tuple[str | None, Row | None]]:
    return [
        (row.get("member_id"), None if row.get("is_tombstone") else _plain(row))
        for row in rows.to_pylist()
    ]


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a row holds
    """Give what JSON can hold, and the fold reads: no bytes, and no times."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return None if isinstance(value, (bytes, dt.datetime)) else value


class _GroupMetadata:
    """Makes payloads of group_metadata; members that are the same in many are made once."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Member] = {}

    def __call__(self, rows: pa.Table) -> list[tuple[str | None, Row | None]]:
        lists = rows["members"].combine_chunks()
        members = self._members(_values(lists))
        own = rows.select([*_OWN, "is_tombstone"])
        time = own["current_state_timestamp"].cast(pa.timestamp("ms", "UTC"), safe=False)
        at = own.schema.get_field_index("current_state_timestamp")
        own = own.set_column(at, "current_state_timestamp", time.cast(pa.int64()))
        made: list[tuple[str | None, Row | None]] = []
        for row, bounds in zip(own.to_pylist(), _bounds(lists), strict=True):
            is_tombstone = row.pop("is_tombstone")
            row["members"] = members[slice(*(bounds or (0, 0)))]
            made.append((None, None if is_tombstone else row))
        return made

    def _members(self, structs: pa.StructArray) -> list[Member]:
        """Make members column by column: by rows that takes several times as long."""
        if len(self._known) > _KNOWN_MEMBERS:
            self._known.clear()
        columns = [structs.field(name).to_pylist() for name in (*_SCALARS, *_BYTES)]
        decoded: _Decoded | None = None
        members = []
        for i, key in enumerate(zip(*columns, strict=True)):
            member = self._known.get(key)
            if member is None:
                decoded = decoded or _Decoded(structs)
                scalars = dict(zip(_SCALARS, key, strict=False))
                assigned = decoded.assigned(i)
                if assigned is None and key[-1] == b"":
                    assigned = {}  # Kafka gives a member without partitions no bytes at all
                member = Member(**scalars, topics=decoded.topics[i], assigned=assigned)  # type: ignore[arg-type]
                self._known[key] = member
            members.append(member)
        return members


class _Decoded:
    """What is decoded of the bytes that members come with."""

    def __init__(self, structs: pa.StructArray) -> None:
        subscriptions = structs.field("subscription")
        known = subscriptions.is_valid().to_pylist()
        lists = _lists(subscriptions.field("topics"))
        given = zip(lists, known, strict=True)
        self.topics = [(names or []) if is_known else None for names, is_known in given]
        self._parts = []
        for name, part, key, numbers in _ASSIGNMENTS:
            given = structs.field(name)
            lists = given.field(part)
            values = _values(lists)
            keys, held = values.field(key).to_pylist(), _lists(values.field(numbers))
            self._parts.append((given.is_valid().to_pylist(), _bounds(lists), keys, held))

    def assigned(self, member: int) -> dict[str, list[int]] | None:
        """Give the partitions of a member by topic, or tasks by connector; None if not decoded."""
        for known, bounds, keys, held in self._parts:
            if known[member]:
                assigned: dict[str, list[int]] = {}
                for i in range(*(bounds[member] or (0, 0))):
                    assigned.setdefault(keys[i] or "", []).extend(held[i] or ())
                return assigned
        return None


def _values(lists: pa.ListArray) -> pa.Array:
    first, last = lists.offsets[0].as_py(), lists.offsets[len(lists)].as_py()
    return lists.values.slice(first, last - first)


def _bounds(lists: pa.ListArray) -> list[tuple[int, int] | None]:
    offsets = lists.offsets.to_numpy()
    ends = (offsets - offsets[0]).tolist()
    known = lists.is_valid().to_pylist()
    return [(ends[i], ends[i + 1]) if is_known else None for i, is_known in enumerate(known)]


def _lists(lists: pa.ListArray) -> list[list[Any] | None]:
    values = _values(lists).to_pylist()
    return [None if b is None else values[b[0] : b[1]] for b in _bounds(lists)]

"""Silver rows, as Arrow reads them, in the form that the fold takes; the counterpart of Spark's."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from history import groups, offsets
from history.commits import NO_TIME
from history.fold import GROUP_METADATA
from history.model import Member, partition_hash, partition_key
from history.spark import BEGIN_MODERN, COMMITS, MODERN_TYPES
from schemas.columns import arrow_schema, in_millis, millis_of
from schemas.silver import decoded_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from history.model import Row

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
LEAVES = (
    *_SCALARS,
    *_BYTES,
    "subscription.topics",
    *(f"{name}.{part}" for name, part, _, _ in _ASSIGNMENTS),
)
# Rows are made of columns so many at a time.
_WINDOW = 200
_KNOWN_MEMBERS = 100_000


def fields(table: str) -> list[pa.Field]:
    """Give the columns that are read of a silver table."""
    declared = arrow_schema(decoded_columns(table))
    if table == COMMITS:
        return [declared.field(name) for name in offsets.COMMIT_COLUMNS]
    if table == GROUP_METADATA:
        return [declared.field(name) for name in (*_POSITION, *_OWN, "members")]
    known = ("key_version", "value_version", "decode_notes")
    return [f for f in declared if f.name not in known]


def joined(columns: Iterable[pa.ChunkedArray]) -> pa.Array:
    """Put columns of text behind each other."""
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
            self._rows.append(_Rows(kind or "", rows, order))
            ordered = {name: column[order] for name, column in position.items()}
            parts.append(ordered | {"row": np.arange(len(order))})
        if COMMITS in tables:
            rows = tables[COMMITS]
            modern = self._modern(tables, heads)
            self._kinds += [groups.TOPIC_NAME, None]
            named, position = _named(rows, names, modern, len(self._kinds) - 2)
            self._rows.append(_Rows(groups.TOPIC_NAME, named, np.arange(named.num_rows)))
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
        return pc.unique(joined([heads["group_id"].filter(is_modern), *known]))

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


def events(tables: dict[str, pa.Table], names: pa.Array, heads: pa.Table) -> groups.Events:
    """Put the records of some partitions into the order of the fold.

    Args:
        tables: by silver table, its rows with the columns of `fields`.
        names: the groups that they are of.
        heads: group_heads of those groups that have one.
    """
    return _Events(tables, names, heads)


def _position(rows: pa.Table, names: pa.Array, kind: int) -> dict[str, np.ndarray]:
    at = rows["record_timestamp"]
    if "commit_timestamp" in rows.schema.names:
        at = pc.coalesce(at, rows["commit_timestamp"])
    millis = millis_of(at)
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

    def __init__(self, kind: str, rows: pa.Table, order: np.ndarray) -> None:
        self._count = len(order)
        self._make = (_GroupMetadata if kind == GROUP_METADATA else _AsTheyAre)(rows, order)
        self._start = 0
        self._window: list[tuple[str | None, Row | None]] = []

    def at(self, row: int) -> tuple[str | None, Row | None]:
        """Give the member id of a record's key, and its payload; `row` counts by the order."""
        if not self._start <= row < self._start + len(self._window):
            self._start = row
            self._window = self._make(row, min(row + _WINDOW, self._count))
        return self._window[row - self._start]


class _AsTheyAre:
    """Makes payloads of what is in the columns."""

    def __init__(self, rows: pa.Table, order: np.ndarray) -> None:
        self._rows = rows.take(pa.array(order))

    def __call__(self, start: int, end: int) -> list[tuple[str | None, Row | None]]:
        return [
            (row.get("member_id"), None if row.get("is_tombstone") else _plain(row))
            for row in self._rows.slice(start, end - start).to_pylist()
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

    def __init__(self, rows: pa.Table, order: np.ndarray) -> None:
        self._own = in_millis(rows.select([*_OWN, "is_tombstone"]).take(pa.array(order)))
        self._order = order
        chunks = [chunk for chunk in rows["members"].chunks if len(chunk)]
        self._rows_before = np.cumsum([0, *map(len, chunks)])[:-1]
        self._chunks = [_Memberships(chunk) for chunk in chunks]
        self._known: dict[tuple[object, ...], Member] = {}

    def __call__(self, start: int, end: int) -> list[tuple[str | None, Row | None]]:
        own = self._own.slice(start, end - start).to_pylist()
        made: list[tuple[str | None, Row | None]] = []
        for row, members in zip(own, self._members(self._order[start:end]), strict=True):
            is_tombstone = row.pop("is_tombstone")
            row["members"] = members
            made.append((None, None if is_tombstone else row))
        return made

    def _members(self, rows: np.ndarray) -> list[list[Member]]:
        if len(self._known) > _KNOWN_MEMBERS:
            self._known.clear()
            for memberships in self._chunks:
                memberships.made.clear()
        chunk_of = np.searchsorted(self._rows_before, rows, "right") - 1
        members: list[list[Member]] = [[] for _ in range(len(rows))]
        for number in np.unique(chunk_of).tolist():
            here = np.flatnonzero(chunk_of == number)
            memberships = self._chunks[number]
            lists = memberships.of((rows[here] - self._rows_before[number]).tolist(), self._known)
            for at, given in zip(here.tolist(), lists, strict=True):
                members[at] = given
        return members


class _Memberships:
    """Lists of members beside each other: each has a number for what is the same in many.

    Most generations have the members of the one before, so that there are far fewer numbers than
    members.
    """

    def __init__(self, lists: pa.ListArray) -> None:
        self.made: dict[int, Member] = {}
        self._structs = _values(lists)
        self._bounds = _bounds(lists)
        self._numbers, self._first = _numbered(
            [self._structs.field(name) for name in (*_SCALARS, *_BYTES)]
        )

    def of(self, rows: list[int], known: dict[tuple[object, ...], Member]) -> list[list[Member]]:
        """Give the members of some of the lists; those that are `known` are the same objects."""
        numbers = [self._numbers[slice(*(self._bounds[row] or (0, 0)))].tolist() for row in rows]
        missing = sorted({n for given in numbers for n in given}.difference(self.made))
        if missing:
            structs = self._structs.take(pa.array(self._first[missing]))
            self.made.update(zip(missing, _members(structs, known), strict=True))
        return [[self.made[n] for n in given] for given in numbers]


def _numbered(columns: list[pa.Array]) -> tuple[np.ndarray, np.ndarray]:
    """Number the rows of some columns, the same rows by the same number.

    Returns:
        The number of each row; and of each number, the first row that has it.
    """
    numbers = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        # A row that is null has no index.
        codes = coded.indices.fill_null(-1).to_numpy().astype(np.int64) + 1
        both = pa.array(numbers * (len(coded.dictionary) + 1) + codes).dictionary_encode()
        numbers = both.indices.to_numpy().astype(np.int64)
    count = int(numbers.max(initial=-1)) + 1
    first = np.empty(count, np.int64)
    first[numbers[::-1]] = np.arange(len(numbers))[::-1]
    return numbers, first


def _members(structs: pa.StructArray, known: dict[tuple[object, ...], Member]) -> list[Member]:
    """Make members column by column: by rows that takes several times as long."""
    columns = [structs.field(name).to_pylist() for name in (*_SCALARS, *_BYTES)]
    decoded: _Decoded | None = None
    members = []
    for i, key in enumerate(zip(*columns, strict=True)):
        member = known.get(key)
        if member is None:
            decoded = decoded or _Decoded(structs)
            scalars = dict(zip(_SCALARS, key, strict=False))
            assigned = decoded.assigned(i)
            if assigned is None and key[-1] == b"":
                assigned = {}  # Kafka gives a member without partitions no bytes at all
            member = Member(**scalars, topics=decoded.topics[i], assigned=assigned)
            known[key] = member
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

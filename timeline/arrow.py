"""Events as Spark's Arrow batches bring them, in the form that the fold takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from timeline import connect, streams
from timeline.fold import GROUP_METADATA
from timeline.model import CHECKPOINTS, Member, Row, Worker

COLUMNS = {
    "group_id": "string",
    # Those of a checkpoint come before all records.
    "record_partition": "int",
    "record_offset": "bigint",
    # In epoch ms; `NO_TIME` where the log has none.
    "at": "bigint",
    # `CHECKPOINTS`, or that of a `Record`; null for an offset commit.
    "kind": "string",
    "member_id": "string",
    # Whether a commit is a tombstone.
    "deletes": "boolean",
    # The `partition_hash` of a commit; its topic's name, if it has the id, too.
    "partition_hash": "bigint",
    "topic_id": "string",
    "topic": "string",
    # The state of a checkpoint, or what a record says, as JSON; null for a tombstone.
    "payload": "string",
    "rebuilt_run": "bigint",
    # How many more events the record has: one has at most `MEMBERS`.
    "more": "int",
}
"""Columns of an event, with their types by Spark's names. Only those of `GROUP_METADATA` have a
payload in columns of its own: with their members these are nearly all of the bytes. It is the one
struct of a list, since a struct that is null costs what its columns cost."""
MEMBERS = 20
"""Members of an event at most; a batch has so many rows, whatever they hold."""

SCALARS = (
    *("member_id", "group_instance_id", "client_id", "client_host"),
    *("rebalance_timeout_ms", "session_timeout_ms"),
)
BYTES = ("subscription_bytes", "assignment_bytes")
DECODED = {
    "topics": "subscription.topics",
    "assigned": "assignment.partitions",
    "claimed": "subscription.owned_partitions",
    "user_data": "assignment.user_data",
    # Whole structs: most members have none, which takes less than a column for each part.
    "connect_subscription": "connect_subscription",
    "connect_assignment": "connect_assignment",
}
"""What else is read of a record's members, each in a column of lists, and where it comes from."""
OWN = ("protocol_type", "generation", "protocol", "leader", "current_state_timestamp")
# Rows are made of columns so many at a time.
_WINDOW = 200
_KNOWN_MEMBERS = 100_000


def read(batches: Iterable[pa.RecordBatch]) -> Iterator[Events]:
    """Return the events of batches, which come by group, partition and offset."""
    known: dict[tuple[object, ...], Member] = {}
    for batch in batches:
        if len(known) > _KNOWN_MEMBERS:
            known.clear()
        yield Events(batch, known)


class Checkpoint(NamedTuple):
    """Where the last run left a group, as gold.group_checkpoints has it."""

    state: str
    rebuilt_run: int | None
    record_offset: int


class Events:
    """The events of a batch: by group, partition, offset.

    Attributes:
        partitions: of the topic, of each event.
        offsets: of the records.
        at: times in epoch ms, `NO_TIME` where the log has none.
        hashes: `partition_hash` of each offset commit.
        deletes: whether an offset commit is a tombstone.
    """

    def __init__(self, batch: pa.RecordBatch, known: dict[tuple[object, ...], Member]) -> None:
        self._group_ids = batch["group_id"]
        self._groups = batch["group_id"].dictionary_encode().indices.to_numpy()
        self._kinds = batch["kind"].to_pylist()
        self._is_commit = batch["kind"].is_null().to_numpy(zero_copy_only=False)
        self.partitions = batch["record_partition"].to_numpy()
        self.offsets = batch["record_offset"].to_numpy()
        self.at = batch["at"].to_numpy()
        self.hashes = batch["partition_hash"].fill_null(0).to_numpy()
        self.deletes = batch["deletes"].to_numpy(zero_copy_only=False)
        self._member_ids, self._payloads = batch["member_id"], batch["payload"]
        self._rebuilt_run = batch["rebuilt_run"]
        self._more = batch["more"].to_pylist()
        self._topics = batch.select(["topic_id", "topic"])
        self._is_named = self._topics["topic_id"].is_valid().to_numpy(zero_copy_only=False)
        if GROUP_METADATA in batch.schema.names:
            lists = batch[GROUP_METADATA]
            told = pc.indices_nonzero(lists.is_valid()).to_pylist()
            self._metadata_rows = {event: row for row, event in enumerate(told)}
            self._metadata = _GroupMetadata(lists.flatten(), known)

    def runs(self) -> Iterator[tuple[int, int]]:
        """Cut them: commits of a group in one partition together, other events one by one."""
        groups, partitions, is_commit = self._groups, self.partitions, self._is_commit
        if not len(groups):
            return
        same = (groups[1:] == groups[:-1]) & (partitions[1:] == partitions[:-1])
        together = same & is_commit[1:] & is_commit[:-1]
        starts = np.concatenate(([0], np.flatnonzero(~together) + 1)).tolist()
        yield from zip(starts, [*starts[1:], len(groups)], strict=True)

    def group_id(self, event: int) -> str:
        """Name an event's group."""
        return str(self._group_ids[event])

    def kind(self, event: int) -> str | None:
        """Return the kind of a record, see `Record`; None for offset commits."""
        kind: str | None = self._kinds[event]
        return kind

    def member_id(self, event: int) -> str | None:
        """Return the member id of a record's key."""
        member_id: str | None = self._member_ids[event].as_py()
        return member_id

    def payload(self, event: int) -> Row | None:
        """Return what a record says; None for a tombstone."""
        if self._kinds[event] == GROUP_METADATA:
            row = self._metadata_rows.get(event)
            return None if row is None else self._metadata.at(row)
        payload = self._payloads[event].as_py()
        return None if payload is None else orjson.loads(payload)

    def goes_on(self, event: int) -> bool:
        """Return whether the next event has more members of the same record."""
        return bool(self._more[event])

    def topics(self, start: int, end: int) -> list[tuple[str, str]]:
        """Return id and name of the topics that some commits have both of."""
        rows = start + np.flatnonzero(self._is_named[start:end])
        if not len(rows):
            return []
        both = self._topics.take(pa.array(rows)).columns
        _, first = _numbered(both)
        names = (column.take(pa.array(first)).to_pylist() for column in both)
        return list(zip(*names, strict=True))

    def checkpoint(self, event: int) -> Checkpoint | None:
        """Return a checkpoint; None if the event is none."""
        if self._kinds[event] != CHECKPOINTS:
            return None
        return Checkpoint(
            self._payloads[event].as_py(),
            self._rebuilt_run[event].as_py(),
            int(self.offsets[event]),
        )


class _GroupMetadata:
    """Records of group metadata, made a window at a time, as they are asked for."""

    def __init__(self, structs: pa.StructArray, known: dict[tuple[object, ...], Member]) -> None:
        self._own = pa.table([structs.field(name) for name in OWN], names=OWN)
        self._memberships = _Memberships(structs, known)
        self._start = 0
        self._window: list[Row] = []

    def at(self, row: int) -> Row:
        """Return what a record says."""
        if not self._start <= row < self._start + len(self._window):
            self._start = row
            self._window = self._own.slice(row, _WINDOW).to_pylist()
            lists = self._memberships.of(row, row + len(self._window))
            for record, members in zip(self._window, lists, strict=True):
                record["members"] = members
        return self._window[row - self._start]


class _Memberships:
    """Lists of members beside each other: each has a number for what is the same in many."""

    # Most generations have the members of the one before: there are far fewer numbers than members.

    def __init__(self, structs: pa.StructArray, known: dict[tuple[object, ...], Member]) -> None:
        self._known = known
        self._made: dict[int, Member] = {}
        self._bounds = _bounds(structs.field("member_id"))
        names = (*SCALARS, *BYTES, *DECODED)
        self._columns = {name: _values(structs.field(name)) for name in names}
        self._numbers, self._first = _numbered([self._columns[n] for n in (*SCALARS, *BYTES)])

    def of(self, start: int, end: int) -> list[list[Member]]:
        """Return the members of some of the lists; those that are `known` are the same objects."""
        bounds = self._bounds[start:end]
        numbers = [self._numbers[slice(*(of_list or (0, 0)))].tolist() for of_list in bounds]
        missing = sorted({n for given in numbers for n in given}.difference(self._made))
        if missing:
            rows_at = pa.array(self._first[missing])
            columns = {name: column.take(rows_at) for name, column in self._columns.items()}
            made = _members(columns, self._known)
            self._made.update(zip(missing, made, strict=True))
        return [[self._made[n] for n in given] for given in numbers]


def _members(columns: dict[str, pa.Array], known: dict[tuple[object, ...], Member]) -> list[Member]:
    """Make members column by column: by rows that takes several times as long."""
    keys = zip(*(columns[name].to_pylist() for name in (*SCALARS, *BYTES)), strict=True)
    decoded: _Decoded | None = None
    members = []
    for i, key in enumerate(keys):
        member = known.get(key)
        if member is None:
            decoded = decoded or _Decoded(columns)
            assigned = decoded.assigned(i)
            if assigned is None and key[-1] == b"":
                assigned = {}  # Kafka gives a member without partitions no bytes at all
            scalars = dict(zip(SCALARS, key, strict=False))
            member = Member(
                **scalars,
                topics=decoded.topics[i],
                assigned=assigned,
                claimed=decoded.claimed.of(i),
                worker=decoded.worker(i),
                streams=streams.read(decoded.user_data[i]),
            )
            known[key] = member
        members.append(member)
    return members


class _Decoded:
    """What is decoded of the bytes that members come with."""

    def __init__(self, columns: dict[str, pa.Array]) -> None:
        self.topics = _lists(columns["topics"])
        self.user_data = columns["user_data"].to_pylist()
        self.claimed = _Partitions(columns["claimed"])
        self._assigned = _Partitions(columns["assigned"])
        self._connect = [
            _structs(columns[f"connect_{of}"]) for of in ("subscription", "assignment")
        ]

    def assigned(self, member: int) -> dict[str, list[int]] | None:
        """Return a member's partitions by topic, or tasks by connector; None if not decoded."""
        given = self._connect[1][member]
        return self._assigned.of(member) if given is None else connect.tasks_of(given["assignment"])

    def worker(self, member: int) -> Worker | None:
        """Return what is known of a worker of Connect; None of other members."""
        return connect.worker_of(*(column[member] for column in self._connect))


class _Partitions:
    """Partitions by topic, of each member."""

    def __init__(self, lists: pa.ListArray) -> None:
        values = _values(lists)
        self._bounds, self._topics = _bounds(lists), values.field("topic").to_pylist()
        self._numbers = _lists(values.field("partitions"))

    def of(self, member: int) -> dict[str, list[int]] | None:
        """Return a member's; None if nothing was decoded."""
        bounds = self._bounds[member]
        if bounds is None:
            return None
        found: dict[str, list[int]] = {}
        for i in range(*bounds):
            found.setdefault(self._topics[i] or "", []).extend(self._numbers[i] or ())
        return found


def _structs(column: pa.StructArray) -> list[Row | None]:
    if column.null_count == len(column):
        return [None] * len(column)
    structs: list[Row | None] = column.to_pylist()
    return structs


def _numbered(columns: list[pa.Array]) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of each row, the same for the same, and the first row of each number."""
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

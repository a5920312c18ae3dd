"""What a group's coordinator wrote, as a reader finds it, and what was true meanwhile."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.support.history import Commit, Log
from tests.support.members import record_of
from timeline.model import Record, partition_hash, partition_key

Row = dict[str, Any]
Key = tuple[Any, ...]


class Entry(NamedTuple):
    """A record in its partition; a later one of the same key supersedes it."""

    partition: int
    event: Record | Commit
    key: Key
    is_tombstone: bool


class Entered(NamedTuple):
    """When a group entered a state."""

    at: int
    group_type: str | None
    state: str
    generation: int | None


class Written(NamedTuple):
    """What was so once some records were written.

    Attributes:
        offset: how many records the journal held then, those that vanished since among them.
        members: their ids.
        owners: topic, partition and member id of all that is owned.
    """

    at: int
    members: frozenset[str]
    owners: frozenset[tuple[str, int, str]]


@dataclass
class Generation:
    """A generation that the log tells of."""

    group_type: str
    number: int
    started: int  # when the rebalance began; the same for all that were given up on the way
    completed: int | None  # when the join phase ended, or a target assignment was there
    stable: int | None  # when it was Stable; None if it never was
    members: frozenset[str]
    aborted: int = 0  # how many generations were given up before it


@dataclass
class Truth:
    """All that the coordinator knew, and no record may show."""

    states: list[Entered] = field(default_factory=list)
    generations: list[Generation] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    # Times in which it was in states that no record will ever show.
    unseen: list[tuple[int, int]] = field(default_factory=list)
    # Times between the growth of the topic and the group's first record elsewhere.
    moved: list[tuple[int, int]] = field(default_factory=list)

    def at(self, time: int) -> Entered | None:
        """Return the state that the group was in."""
        return next((s for s in reversed(self.states) if s.at <= time), None)


class Journal:
    """The group's records in the order of its partition.

    Attributes:
        cuts: numbers of entries before which a run of the reader began.
        is_complete: whether nothing vanished before it was read.
        vanished_at: time of the first record that did.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.cuts: list[int] = []
        self.is_complete = True
        self.vanished_at = 1 << 60
        self.partition = 0
        self._next: dict[int, int] = defaultdict(int)
        self._missing: dict[int, list[int]] = defaultdict(list)

    def skip(self, count: int) -> None:
        """Let other groups write to the partition."""
        self._next[self.partition] += count

    def lose(self, at: int, count: int) -> None:
        """Let what other groups wrote to the partition be lost."""
        first = self._next[self.partition]
        self.skip(count)
        self._missing[self.partition] += range(first, first + count)
        self.is_complete, self.vanished_at = False, min(self.vanished_at, at)

    def record(self, at: int, kind: str, member: str | None, payload: Row | None) -> None:
        """Append a record of a group or a member."""
        record = record_of(self._take(), at, kind, member, payload)
        self._append(record, (kind, member), is_tombstone=payload is None)

    def commit(self, at: int, partition: int, *, deletes: bool = False) -> None:
        """Append an offset commit, or its tombstone."""
        hashed = partition_hash(partition_key("t", partition))
        self._append(Commit(self._take(), at, hashed, deletes), (hashed,), is_tombstone=deletes)

    def _take(self) -> int:
        self.skip(1)
        return self._next[self.partition] - 1

    def _append(self, event: Record | Commit, key: Key, *, is_tombstone: bool) -> None:
        self.entries.append(Entry(self.partition, event, key, is_tombstone))

    # -- what becomes of it ------------------------------------------------------------------------

    def read(self) -> None:
        """Let the reader take all that is new; a later run goes on behind it."""
        self.cuts.append(len(self.entries))

    def compact(self, keeping: int, *, tombstones: bool) -> None:
        """Let the cleaner pass over what nobody has read (LogCleaner, CleanedTransactionMetadata).

        Args:
            keeping: the last so many entries are in the active segment, which it leaves alone.
            tombstones: whether those are old enough to go as well.
        """
        unread = self.cuts[-1] if self.cuts else 0
        until = max(unread, len(self.entries) - keeping)
        last = {(e.partition, e.key): i for i, e in enumerate(self.entries[:until])}
        self._drop(
            i
            for i, e in enumerate(self.entries[unread:until], unread)
            if last[e.partition, e.key] != i or (tombstones and e.is_tombstone)
        )

    def truncate(self) -> None:
        """Let all that nobody has read be deleted (DeleteRecords, retention)."""
        self._drop(range(self.cuts[-1] if self.cuts else 0, len(self.entries)))

    def _drop(self, numbers: Any) -> None:  # noqa: ANN401 - any iterable of int
        gone = set(numbers)
        for i in gone:
            event = self.entries[i].event
            self._missing[self.entries[i].partition].append(event.offset)
            self.is_complete = False
            self.vanished_at = min(self.vanished_at, event.timestamp or 0)
        self.entries = [e for i, e in enumerate(self.entries) if i not in gone]

    def move(self) -> None:
        """Let the topic grow, so that the group's records go to another partition."""
        self.partition += 1

    def log(self) -> Log:
        """Return what a reader sees of the group."""
        moves = {
            i: e.partition
            for i, e in enumerate(self.entries)
            if i == 0 or self.entries[i - 1].partition != e.partition
        }
        missing = {p: tuple(sorted(m)) for p, m in self._missing.items()}
        first = moves.pop(0, 0)
        others = {p: missing.get(p, ()) for p in moves.values()}
        events = [e.event for e in self.entries]
        return Log("g", first, events, missing.get(first, ()), moves, others)

"""Folds events of many groups, one group after the other, into rows of the gold tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa

from schemas import gold
from schemas.columns import array_of_millis
from schemas.placement import Placement
from timeline.arrow import Checkpoint, Events
from timeline.commits import COMMITS, NO_TIME, CommitChunk
from timeline.fold import Fold, resumed
from timeline.holes import NO_HOLES, Holes, Unseen
from timeline.model import CHECKPOINTS, IS_SETTLED, TABLES, GroupState, Member, Record, Row

OUTPUT = {
    **TABLES,
    CHECKPOINTS: tuple(c for c in gold.GROUP_CHECKPOINTS if c is not gold.HISTORY_RUN),
}
"""Columns of the rows that the fold gives, by table, without `HISTORY_RUN`, which the run adds."""

_BATCH_ROWS = 5_000
_GROUP_ROWS = 1_000


def fold(
    parts: Iterable[Events], holes: dict[int, Holes], placement: Placement | None
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Fold the records of each group into rows of the tables of `OUTPUT`.

    The events of a group come one after the other; `holes` are what is missing, by partition.
    """
    rows = _Rows()
    group: _Group | None = None
    may_be_gone = any(of_partition.unseen for of_partition in holes.values())
    for events in parts:
        for start, end in events.runs():
            group_id = events.group_id(start)
            if group is None or group.group_id != group_id:
                if group is not None:
                    group.finish(rows, may_be_gone=may_be_gone)
                group = _Group(group_id, holes, placement, events.checkpoint(start))
            group.take(events, start, end, rows)
            if rows.count >= _BATCH_ROWS:
                yield from rows.take()
    if group is not None:
        group.finish(rows, may_be_gone=may_be_gone)
    yield from rows.take()


class _Rows:
    """Collects rows by column, since a column at a time becomes Arrow fastest."""

    def __init__(self) -> None:
        self._columns = {t: {c.name: c.type for c in columns} for t, columns in OUTPUT.items()}
        self._start()

    def _start(self) -> None:
        self.count = 0
        self._rows: dict[tuple[str, bool], list[Row]] = defaultdict(list)

    def add(self, table: str, rows: list[Row], *, is_settled: bool = False) -> None:
        """Take rows of a table."""
        self._rows[table, is_settled] += rows
        self.count += len(rows)

    def take(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Return what was collected, by table, and clear it."""
        for (table, is_settled), rows in self._rows.items():
            if rows:
                yield table, self._batch(table, rows, is_settled=is_settled)
        self._start()

    def _batch(self, table: str, rows: list[Row], *, is_settled: bool) -> pa.RecordBatch:
        fields = self._columns[table]
        own = [name for name in fields if name != IS_SETTLED]
        arrays = {
            name: array_of_millis(values, fields[name])
            for name, values in zip(own, _columns(rows, own), strict=True)
        }
        if IS_SETTLED in fields:
            arrays[IS_SETTLED] = pa.repeat(is_settled, len(rows))
        return pa.RecordBatch.from_arrays([arrays[name] for name in fields], names=list(fields))


def _columns(rows: list[Row], names: list[str]) -> list[Sequence[Any]]:
    """Return columns of rows; a row that a former release left open may lack some."""
    try:
        return list(zip(*map(itemgetter(*names), rows), strict=True))
    except KeyError:
        return [[row.get(name) for row in rows] for name in names]


class _Group:
    """One group while its events pass by."""

    def __init__(
        self,
        group_id: str,
        holes: dict[int, Holes],
        placement: Placement | None,
        checkpoint: Checkpoint | None,
    ) -> None:
        self.group_id = group_id
        self._holes = holes
        self._placement = placement
        self._checkpoint = checkpoint
        self._fold: Fold | None = None
        self._offset = -1
        # Those of a record that came already.
        self._members: list[Member] = []

    def take(self, events: Events, start: int, end: int, rows: _Rows) -> None:
        """Take the events of one run of `Events.runs`, and give the rows that are settled."""
        partition = int(events.partitions[start])
        if partition < 0:
            return  # the checkpoint
        fold = self._begin(partition)
        is_moved = fold.state.partition != partition
        if is_moved and (self._placement is None or partition != self._placement.of(self.group_id)):
            return  # a record that is not where its group belongs is not its history
        self._offset = int(events.offsets[end - 1])
        at, kind = int(events.at[start]), events.kind(start)
        time = None if at == NO_TIME else at
        if kind is None:
            if is_moved:
                first = Record(int(events.offsets[start]), time, COMMITS, None, None)
                fold.move(partition, first, has_hole=self._has_hole(partition))
            for topic_id, name in events.topics(start, end):
                fold.name_topic(topic_id, name)
            part = slice(start, end)
            fold.commits(
                CommitChunk(
                    events.offsets[part], events.at[part], events.hashes[part], events.deletes[part]
                )
            )
            return
        given = events.payload(start)
        if given is not None and self._members:
            given["members"] = self._members + given["members"]
        self._members = given["members"] if given is not None and events.goes_on(start) else []
        if self._members:
            return
        record = Record(self._offset, time, kind, events.member_id(start), given)
        if is_moved:
            fold.move(partition, record, has_hole=self._has_hole(partition))
        fold.record(record)
        if fold.state.output.count >= _GROUP_ROWS:
            _settle(rows, fold.state.output.take())

    def _begin(self, partition: int) -> Fold:
        if self._fold is None:
            self._fold = self._resumed() or Fold(
                GroupState(self.group_id, partition), has_hole=self._has_hole(partition)
            )
            self._fold.state.gone_since = None  # it is there
        return self._fold

    def _resumed(self) -> Fold | None:
        """Return the group as the last run left it; None if no run knew it."""
        if self._checkpoint is None:
            return None
        state, pending = resumed(self._checkpoint.state)
        return Fold(state, pending, has_hole=self._has_hole(state.partition))

    def _has_hole(self, partition: int) -> Callable[[int, int], bool]:
        return self._holes.get(partition, NO_HOLES).between

    def finish(self, rows: _Rows, *, may_be_gone: bool) -> None:
        """Return the group's rows, and what the next run needs."""
        unseen = self._unseen() if may_be_gone else []
        if self._fold is None or self._offset < 0:
            return  # none of the records is of its history
        settled, still_open = self._fold.finish(unseen)
        _settle(rows, settled)
        for table in TABLES:
            rows.add(table, still_open[table])
        state = self._fold.state
        checkpoint_row = {
            "group_id": self.group_id,
            "record_partition": state.partition,
            "record_offset": self._offset,
            "group_type": (state.interval or {}).get("group_type", state.group_type),
            "state": self._fold.to_json(),
            "rebuilt_run": None if self._checkpoint is None else self._checkpoint.rebuilt_run,
        }
        rows.add(CHECKPOINTS, [checkpoint_row])

    def _unseen(self) -> list[Unseen]:
        """Return the times without a reading behind the last record, also of a group without new.

        Once it may be gone, nothing more is to be told.
        """
        fold, offset = self._fold, self._offset
        if fold is None and self._checkpoint is not None:
            fold, offset = self._resumed(), self._checkpoint.record_offset
        if fold is None or fold.state.gone_since is not None:
            return []
        holes = self._holes.get(fold.state.partition, NO_HOLES)
        if unseen := [each for each in holes.unseen if each.offset > offset]:
            self._fold, self._offset = fold, offset
        return unseen


def _settle(rows: _Rows, settled: dict[str, list[Row]]) -> None:
    for table, of_table in settled.items():
        rows.add(table, of_table, is_settled=True)

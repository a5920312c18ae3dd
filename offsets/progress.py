"""How offsets went on: what each group committed hour by hour, what stood out, what came last.

The rows of a partition that a group commits come one behind the other: its hours and its last
commit as earlier runs left them, then its new commits in the order of the log. A partition may have
more rows than a batch: what is known of it at the end of a batch goes in front of the next one, in
the form in which it came from the earlier runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas import gold
from schemas.columns import Column, arrow_schema
from schemas.silver import decoded_columns

COMMIT_COLUMNS = (
    *("group_id", "topic", "topic_partition"),
    *("record_partition", "record_offset", "record_timestamp"),
    *("committed_offset", "leader_epoch", "metadata", "topic_id", "is_tombstone"),
    *("commit_timestamp", "value_version"),
)
"""Columns of offset_commits that are read."""

# A commit that goes on by so much more than any before stands out.
JUMP_FACTOR = 10
JUMP_LEAST = 1_000
RECENT_COMMITS = 10
"""Commits of a partition that are kept to judge it by: as many as Burrow keeps."""
PAUSE_US = 600_000_000
PAUSE_FACTOR = 5
"""A commit ends a pause that is longer, and by as much longer than the partition's rhythm."""

PARTITION = ("group_id", "topic", "topic_partition")
"""Columns that name a partition that a group commits."""
KIND = "kind"
"""Column that orders the rows of a partition: `AN_HOUR`, `LAST_COMMIT`, `COMMIT`."""
AN_HOUR, LAST_COMMIT, COMMIT = range(3)

HOURS, MOVES, LATEST = "offset_progress", "offset_moves", "committed_offsets"
TABLES: dict[str, tuple[Column, ...]] = {
    HOURS: gold.OFFSET_PROGRESS,
    # The last is what the run itself adds.
    MOVES: gold.OFFSET_MOVES[:-1],
    LATEST: gold.COMMITTED_OFFSETS,
}
"""Columns of the rows that `follow` gives, by table."""

_COMMITS = arrow_schema(decoded_columns("offset_commits"))
_ROWS = pa.schema(
    [
        *(_COMMITS.field(name) for name in COMMIT_COLUMNS),
        pa.field(KIND, pa.int32()),
        *(pa.field(t, pa.struct(arrow_schema(TABLES[t]))) for t in (HOURS, LATEST)),
    ]
)

_SUMS = (
    *("commits", "tombstones", "distinct_offsets", "rewinds", "jumps", "no_progress_commits"),
    *("rewound_offsets", "progressed_offsets", "log_bytes"),
)
_OF_HOURS = (*_SUMS, "first_committed_offset", "first_commit_at", "last_commit_at", "largest_step")
# What tells of the longest time without progress.
_UNCHANGED = ("unchanged_since", "unchanged_until", "unchanged_commits", "unchanged_offset")
_TIME = pa.timestamp("us", "UTC")
_HOUR_US = 3_600_000_000
_MOST = 2**63 - 1
_LOW = 2**32 - 1


class Holes(Protocol):
    """Offsets of one partition of the log that were not read, or not decoded."""

    def are_between(self, after: np.ndarray, until: np.ndarray) -> np.ndarray:
        """Return whether any lies behind the first and before the second of two offsets."""


_NO_HOLES: Mapping[int, Holes] = MappingProxyType({})


class Numbers(NamedTuple):
    """Whole numbers of which some may be missing."""

    values: np.ndarray
    known: np.ndarray

    def at(self, rows: np.ndarray) -> Numbers:
        """Pick some rows; there is none below zero."""
        is_row = rows >= 0
        safe = np.where(is_row, rows, 0)
        if not len(self.values):
            return Numbers(np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_))
        return Numbers(self.values[safe], self.known[safe] & is_row)

    def arrow(self, kind: pa.DataType) -> pa.Array:
        """Return them as an Arrow array."""
        return pa.array(self.values, pa.int64(), mask=~self.known).cast(kind)


def follow(
    batches: Iterable[pa.RecordBatch], holes: Mapping[int, Holes] = _NO_HOLES
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Return how offsets went on.

    A number that 64 bits cannot hold is as great as they can: clients commit whatever they like.

    Args:
        batches: rows in the order of `PARTITION`, `KIND`, record_partition and record_offset, with
            `COMMIT_COLUMNS`, of which those that are no commit have only `PARTITION`. Those of
            `AN_HOUR` have a row of offset_progress in the struct column of that name, those of
            `LAST_COMMIT` a row of committed_offsets in the one of that name. Columns that all rows
            lack may be missing.
        holes: what is missing, by partition of the records.

    Yields:
        Rows of a table, with its name; its columns are in `TABLES`: all hours, moves
        and the last commit of each partition that was given.
    """
    known: pa.Table | None = None
    for batch in batches:
        rows = _whole(batch)
        if known is not None:
            rows = pa.concat_tables([known, rows])
        if not rows.num_rows:
            continue
        results = _results(rows, holes)
        last = max(keys.max(initial=-1) for keys, _ in results.values())
        for table, (keys, of_table) in results.items():
            # Nothing more can become known of a move.
            yield from _batches(table, of_table, np.logical_or(keys < last, table == MOVES))
        known = _known(
            {t: rows.filter(pa.array(keys == last)) for t, (keys, rows) in results.items()}
        )
    if known is not None:
        for table, of_table in _given(known).items():
            yield from _batches(table, of_table)


def _results(rows: pa.Table, holes: Mapping[int, Holes]) -> dict[str, tuple[np.ndarray, pa.Table]]:
    """Return what the rows make known, by table, with the number of each row's partition."""
    partitions, kinds = _partitions(rows), _numbers(rows, KIND).values
    of_hours, of_former, of_commits = (
        partitions[kinds == kind] for kind in (AN_HOUR, LAST_COMMIT, COMMIT)
    )
    given = _given(rows)
    results = {HOURS: (of_hours, given[HOURS]), LATEST: (of_former, given[LATEST])}
    if len(of_commits):
        commits = rows.filter(pa.array(kinds == COMMIT)).select(COMMIT_COLUMNS)
        steps = _Steps(commits, of_commits, given[LATEST], of_former)
        results = {HOURS: steps.hours(), MOVES: steps.moves(holes), LATEST: steps.latest()}
    if len(of_hours):
        later = results[HOURS] if len(of_commits) else (of_hours[:0], given[HOURS].slice(0, 0))
        results[HOURS] = _joined(of_hours, given[HOURS], *later)
    return results


def _given(rows: pa.Table) -> dict[str, pa.Table]:
    """Return the hours and last commits that are among the rows."""
    kinds, given = _numbers(rows, KIND).values, {}
    for kind, table in ((AN_HOUR, HOURS), (LAST_COMMIT, LATEST)):
        structs = rows[table].filter(pa.array(kinds == kind)).combine_chunks()
        given[table] = pa.Table.from_struct_array(structs).cast(arrow_schema(TABLES[table]))
    return given


def _known(results: dict[str, pa.Table]) -> pa.Table:
    """Bring hours and last commits into the form in which `follow` is given them."""
    parts = []
    for kind, table in ((AN_HOUR, HOURS), (LAST_COMMIT, LATEST)):
        of_table = results[table].combine_chunks()
        columns = {name: of_table[name] for name in PARTITION}
        columns[KIND] = pa.repeat(kind, of_table.num_rows)
        columns[table] = of_table.to_struct_array()
        parts.append(_whole(pa.table(columns)))
    return pa.concat_tables(parts)


def _whole(rows: pa.Table | pa.RecordBatch) -> pa.Table:
    """Give rows all columns that `follow` reads, and no offset where one is below zero."""
    missing = {*_ROWS.names}.difference(rows.schema.names)
    columns = {
        f.name: pa.nulls(rows.num_rows, f.type) if f.name in missing else rows[f.name].cast(f.type)
        for f in _ROWS
    }
    # Brokers take any number, and clients take one below zero for none
    # (`ConsumerCoordinator.fetchCommittedOffsets`).
    committed = columns["committed_offset"]
    columns["committed_offset"] = pc.if_else(pc.less(committed, 0), None, committed)
    return pa.table(columns, schema=_ROWS)


def _joined(
    of_earlier: np.ndarray, earlier: pa.Table, of_later: np.ndarray, later: pa.Table
) -> tuple[np.ndarray, pa.Table]:
    """Make one row of the two that an hour has of which later records came."""
    schema = arrow_schema(TABLES[HOURS])
    begun = np.isin(of_later, of_earlier)
    both = pa.concat_tables([earlier, later.filter(pa.array(begun))]).combine_chunks()
    partitions = np.concatenate((of_earlier, of_later[begun]))
    hours = both["hour"].combine_chunks().dictionary_encode()
    codes = hours.indices.fill_null(len(hours.dictionary)).to_numpy()
    keys = partitions * (len(hours.dictionary) + 1) + codes
    position = (_numbers(both, n).values for n in ("record_offset", "record_partition"))
    order = np.lexsort((*position, keys))
    both, keys, partitions = both.take(pa.array(order)), keys[order], partitions[order]
    starts, ends = _runs(keys)
    own = {name: _numbers(both, name) for name in _OF_HOURS}
    given = {name: pa.array(_sums(own[name].values, starts)) for name in _SUMS}
    for name, most in (("first_commit_at", np.minimum), ("last_commit_at", np.maximum)):
        given[name] = _bound(own[name], most, starts)
    given["largest_step"] = _bound(own["largest_step"], np.maximum, starts)
    committed = own["first_committed_offset"]
    first = _bound(Numbers(np.arange(len(keys)), committed.known), np.minimum, starts)
    index = np.where(first.known, first.values, -1)
    given["first_committed_offset"] = committed.at(index)
    since, until = (_numbers(both, name) for name in _UNCHANGED[:2])
    lasted = np.where(since.known, np.maximum(until.values - since.values, 0), -1)
    longest = both.take(pa.array(_longest(lasted, starts)))
    given |= {name: longest[name] for name in _UNCHANGED}
    joined = _table(HOURS, both.take(pa.array(ends - 1)), given)
    rest = later.filter(pa.array(~begun)).cast(schema)
    return (
        np.concatenate((partitions[starts], of_later[~begun])),
        pa.concat_tables([joined, rest]),
    )


def _batches(
    table: str, rows: pa.Table, chosen: np.ndarray | None = None
) -> Iterator[tuple[str, pa.RecordBatch]]:
    some = rows if chosen is None else rows.filter(pa.array(chosen))
    for batch in some.combine_chunks().to_batches():
        yield table, batch


def _partitions(rows: pa.Table) -> np.ndarray:
    """Number the partitions of the rows, as they follow each other."""
    is_next = np.zeros(rows.num_rows, np.bool_)
    for name in PARTITION:
        coded = rows[name].combine_chunks().dictionary_encode().indices
        codes = coded.fill_null(-1).to_numpy()
        is_next[1:] |= codes[1:] != codes[:-1]
    return np.cumsum(is_next)


def _runs(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tell where equal keys in a row begin and where they end; there is one at least."""
    starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    return starts, np.append(starts[1:], len(keys))


def _numbers(table: pa.Table, name: str) -> Numbers:
    column = table[name].combine_chunks()
    if pa.types.is_timestamp(column.type):
        column = column.cast(_TIME).cast(pa.int64())
    known = column.is_valid().to_numpy(zero_copy_only=False)
    return Numbers(column.cast(pa.int64()).fill_null(0).to_numpy(), known)


def _either(first: Numbers, second: Numbers) -> Numbers:
    """Coalesce."""
    return Numbers(np.where(first.known, first.values, second.values), first.known | second.known)


def _greater(first: Numbers, second: Numbers) -> Numbers:
    """Return the greater of two numbers, of those that are known."""
    own, other = (np.where(n.known, n.values, -_MOST) for n in (first, second))
    return Numbers(np.maximum(own, other), first.known | second.known)


class _Steps:
    """Commits in order of their partitions and positions, and how far each went on.

    The last commits before them come one per partition; `keys` and `known` number the partitions.
    """

    def __init__(
        self, commits: pa.Table, keys: np.ndarray, former: pa.Table, known: np.ndarray
    ) -> None:
        self._commits, self._keys, self._former, self._known = commits, keys, former, known
        count = len(keys)
        self._starts, self._ends = _runs(keys)
        self._is_first = np.zeros(count, np.bool_)
        self._is_first[self._starts] = True
        row_of_key = np.full(max(keys.max(), known.max(initial=-1)) + 1, -1, np.int64)
        row_of_key[known] = np.arange(len(known))
        self._of_row = row_of_key[keys]
        self._former_of_key = self._of_row[self._starts]
        self._committed = _numbers(commits, "committed_offset")
        self._deleted = _numbers(commits, "is_tombstone").values.astype(np.bool_)
        # The last deletion up to each commit, of whichever partition.
        self._deletions = np.maximum.accumulate(np.where(self._deleted, np.arange(count), -1))
        times = [_numbers(commits, name) for name in ("record_timestamp", "commit_timestamp")]
        self._at, self._committed_at = _either(*times), _either(*reversed(times))
        self._previous = self._before(self._committed, self._last("committed_offset"))
        former_at = _either(*map(self._last, ("record_timestamp", "committed_at")))
        self._previous_at = self._before(self._at, former_at)
        record = _numbers(commits, "record_offset")
        self._previous_record = self._before(record, self._last("record_offset"))
        was = Numbers(self._deleted.astype(np.int64), np.ones(count, np.bool_))
        was = self._before(was, self._last("is_deleted"))
        self._was_deleted = was.known & (was.values != 0)
        has_step = self._committed.known & self._previous.known
        step = _difference(self._committed.values, self._previous.values)
        step = np.where(has_step, step, 0)
        self._step = Numbers(step, has_step)
        self._farthest, self._farthest_before = self._most_committed()
        skipped = _difference(self._committed.values, self._farthest_before.values)
        is_ahead = has_step & self._farthest_before.known
        # How far it went beyond where the partition had been.
        self._skipped = Numbers(np.where(is_ahead, skipped, 0), is_ahead)
        self._unchanged_since, self._unchanged_commits = self._unchanged()
        so_far = _running_most(np.where(step > 0, step, 0), keys)
        earlier = np.concatenate(([0], so_far[:-1]))
        earlier[self._is_first] = 0
        largest = self._last("largest_step")
        self._largest, self._largest_before = _most(so_far, largest), _most(earlier, largest)

    def _last(self, name: str) -> Numbers:
        """Return a column of the last commit before, of each commit's partition."""
        return _numbers(self._former, name).at(self._of_row)

    def _before(self, numbers: Numbers, first: Numbers) -> Numbers:
        """Return the number of the commit before, of a partition's first one what is given."""
        values, known = (np.concatenate((a[:1], a[:-1])) for a in numbers)
        is_first = self._is_first
        return Numbers(
            np.where(is_first, first.values, values), np.where(is_first, first.known, known)
        )

    def _most_committed(self) -> tuple[Numbers, Numbers]:
        """Return the greatest offset up to each commit, and before it; a deletion begins anew."""
        own = np.where(self._committed.known, self._committed.values, -_MOST)
        own = _running_most(own, np.cumsum(self._is_first | self._deleted))
        so_far = Numbers(own, own > -_MOST)
        earlier = self._last("farthest_offset")
        start = np.repeat(self._starts, self._ends - self._starts)
        goes_on = Numbers(earlier.values, earlier.known & (self._deletions < start))
        so_far = _greater(so_far, goes_on)
        return so_far, self._before(so_far, earlier)

    def moves(self, holes: Mapping[int, Holes]) -> tuple[np.ndarray, pa.Table]:
        """Return the commits that did not just go on, and the number of their partitions."""
        step, before, skipped = self._step, self._largest_before, self._skipped
        ends_pause = self._end_of_pauses()
        leaps = skipped.known & (skipped.values > JUMP_LEAST)
        leaps &= ~before.known | _leaps(skipped, before)
        move = np.select(
            [
                self._deleted & ~self._was_deleted,
                self._deleted,
                self._was_deleted,
                step.known & (step.values < 0),
                leaps,
                ends_pause,
            ],
            [1, 0, 2, 3, 4, 5],
            0,
        )
        names = pa.array([None, "deleted", "returned", "rewind", "leap", "resumed"])
        chosen = np.flatnonzero(move)
        rows = self._commits.take(pa.array(chosen))
        given = {
            "move": names.take(pa.array(move[chosen])),
            "at": self._at.at(chosen),
            "previous_offset": self._previous.at(chosen),
            "previous_at": self._previous_at.at(chosen),
            "previous_record_offset": self._previous_record.at(chosen),
            "previous_topic_id": self._topic_id_before(chosen),
            "step": step.at(chosen),
            "largest_step_before": before.at(chosen),
            "farthest_before": self._farthest_before.at(chosen),
            "is_complete": self._is_complete(chosen, holes),
            **self._last_there(chosen),
            **dict(zip(("rhythm_since", "rhythm_offset"), self._fifth(chosen), strict=True)),
        }
        return self._keys[chosen], _table(MOVES, rows, given)

    def _topic_id_before(self, chosen: np.ndarray) -> pa.Array:
        """Return the topic id that the commit before has, of some commits."""
        own, former = (t["topic_id"].combine_chunks() for t in (self._commits, self._former))
        is_first = self._is_first[chosen]
        row = np.where(is_first, self._of_row[chosen], chosen - 1)
        row = np.where(is_first & (row >= 0), row + len(own), row)
        both = pa.concat_arrays([own, former.cast(own.type)])
        return both.take(pa.array(row, mask=row < 0))

    def _end_of_pauses(self) -> np.ndarray:
        """Tell the commits before which the partition was not committed for long."""
        pause = self._at.values - self._previous_at.values
        ends = self._step.known & self._at.known & self._previous_at.known & (pause > PAUSE_US)
        chosen = np.flatnonzero(ends)
        since, _ = self._fifth(chosen)
        rhythm = (self._previous_at.at(chosen).values - since.values) // (gold.RHYTHM_COMMITS - 1)
        ends[chosen] = since.known & (pause[chosen] > PAUSE_FACTOR * rhythm)
        return np.asarray(ends)

    def _last_there(self, chosen: np.ndarray) -> dict[str, pa.Array]:
        """Return when rewinds had been where they go to, among the commits of this run."""
        before = np.full(len(chosen), -1, np.int64)
        back = np.flatnonzero(self._step.known[chosen] & (self._step.values[chosen] < 0))
        if len(back):
            is_there = np.isin(self._keys, self._keys[chosen[back]]) & self._committed.known
            rows = np.flatnonzero(is_there)
            offsets, keys = self._committed.values[rows], self._keys[rows]
            order = np.lexsort((rows, offsets, keys))
            is_same = (offsets[order][1:] == offsets[order][:-1]) & (
                keys[order][1:] == keys[order][:-1]
            )
            last = np.full(len(self._keys), -1, np.int64)
            last[rows[order[1:]]] = np.where(is_same, rows[order[:-1]], -1)
            before[back] = last[chosen[back]]
        behind = np.where(before >= 0, before + 1, -1)
        return {"last_there_at": self._at.at(before), "last_there_until": self._at.at(behind)}

    def _is_complete(self, chosen: np.ndarray, holes: Mapping[int, Holes]) -> pa.Array:
        """Tell of some commits whether all records since the one before were read."""
        partition, offset = (
            _numbers(self._commits, name) for name in ("record_partition", "record_offset")
        )
        there = self._before(partition, self._last("record_partition")).at(chosen)
        after = self._previous_record.at(chosen)
        here, until = partition.at(chosen).values, offset.at(chosen).values
        # In another partition, nobody knows what came between.
        is_complete = there.values == here
        for number in np.unique(here).tolist():
            if (missing := holes.get(number)) is not None:
                has_hole = missing.are_between(after.values, until)
                is_complete &= (here != number) | ~has_hole
        return pa.array(is_complete, mask=~after.known)

    def _fifth(self, chosen: np.ndarray) -> tuple[Numbers, Numbers]:
        """Return time and offset of the commit that is `RHYTHM_COMMITS` before each of some."""
        run = (np.cumsum(self._is_first) - 1)[chosen]
        start, former = self._starts[run], self._former_of_key[run]
        deletion = np.concatenate(([-1], self._deletions[:-1]))[chosen]
        fifth = chosen - gold.RHYTHM_COMMITS
        own = np.where((fifth >= start) & (deletion < fifth), fifth, -1)
        at, offset = self._committed_at.at(own), self._committed.at(own)
        if not self._former.num_rows:
            return at, offset
        # The rest of them are among those that earlier runs have kept.
        lists = self._former["recent_commits"].combine_chunks()
        ends = lists.offsets.to_numpy().astype(np.int64)
        safe = np.where(former >= 0, former, 0)
        of_former = ends[safe + 1] - (start - fifth)
        is_kept = (fifth < start) & (deletion < start) & (former >= 0) & (of_former >= ends[safe])
        kept, there = pa.Table.from_struct_array(lists.values), np.where(is_kept, of_former, -1)
        return (
            _either(at, _numbers(kept, "committed_at").at(there)),
            _either(offset, _numbers(kept, "committed_offset").at(there)),
        )

    def _unchanged(self) -> tuple[Numbers, Numbers]:
        """Return since when each commit and those before it were of one offset, and how many."""
        index = np.arange(len(self._keys))
        goes_on = self._step.known & (self._step.values == 0)
        first = np.maximum.accumulate(np.where(goes_on & ~self._is_first, -1, index))
        is_former = goes_on[first]
        row = np.where(is_former, self._of_row, -1)
        since, count = (
            _numbers(self._former, name).at(row)
            for name in ("unchanged_since", "unchanged_commits")
        )
        own = self._at.at(first)
        own = Numbers(own.values, own.known & ~is_former & ~self._deleted)
        number = index - first + 1 + np.where(count.known, count.values, 0)
        return _either(own, since), Numbers(number, ~self._deleted)

    def hours(self) -> tuple[np.ndarray, pa.Table]:
        """Sum up the commits of each partition by the hour; return its number, too."""
        hour = np.where(self._at.known, self._at.values // _HOUR_US, -(2**40))
        codes = np.unique(hour, return_inverse=True)[1]
        keys = self._keys * (int(codes.max()) + 1) + codes
        order = np.argsort(keys, kind="stable")
        starts, ends = _runs(keys[order])
        last = order[ends - 1]
        is_commit = ~self._deleted[order]
        columns = (self._step, self._largest_before, self._skipped)
        step, before, beyond = (numbers.at(order) for numbers in columns)
        is_jump = (
            before.known & beyond.known & (beyond.values > JUMP_LEAST) & _leaps(beyond, before)
        )

        def total(numbers: np.ndarray) -> pa.Array:
            return pa.array(_sums(numbers.astype(np.int64), starts))

        at = Numbers(self._at.values[order], self._at.known[order] & is_commit)
        is_offset = self._committed.known[order]
        first = _bound(Numbers(np.arange(len(order)), is_offset), np.minimum, starts)
        first_commit = np.where(first.known, order[np.where(first.known, first.values, 0)], -1)
        ahead = Numbers(step.values, step.known & (step.values > 0))
        rows = self._commits.take(pa.array(last))
        start = Numbers(hour[last] * _HOUR_US, self._at.known[last])
        given = {
            "hour": start,
            "first_committed_offset": self._committed.at(first_commit),
            "last_committed_offset": rows["committed_offset"],
            "first_commit_at": _bound(at, np.minimum, starts),
            "last_commit_at": _bound(at, np.maximum, starts),
            "commits": total(is_commit),
            "tombstones": total(~is_commit),
            "distinct_offsets": total(is_commit & (~step.known | (step.values != 0))),
            "rewinds": total(step.known & (step.values < 0)),
            "jumps": total(is_jump),
            "no_progress_commits": total(step.known & (step.values == 0)),
            "rewound_offsets": total(np.where(step.values < 0, -step.values, 0)),
            "progressed_offsets": total(np.where(step.values > 0, step.values, 0)),
            "largest_step": _bound(ahead, np.maximum, starts),
            "log_bytes": total(_log_bytes(self._commits)[order]),
            **self._longest_unchanged(order, starts),
        }
        return self._keys[last], _table(HOURS, rows, given)

    def _longest_unchanged(self, order: np.ndarray, starts: np.ndarray) -> dict[str, Numbers]:
        """Return the longest time without progress, of runs of commits in some order."""
        since, number = self._unchanged_since, self._unchanged_commits
        is_repeated = since.known & self._at.known & (number.values > 1)
        lasted = np.where(is_repeated, np.maximum(self._at.values - since.values, 0), -1)[order]
        longest = order[_longest(lasted, starts)]
        longest = np.where(is_repeated[longest], longest, -1)
        columns = (since, self._at, number, self._committed)
        return {name: c.at(longest) for name, c in zip(_UNCHANGED, columns, strict=True)}

    def latest(self) -> tuple[np.ndarray, pa.Table]:
        """Return the last commit of each partition, new or known before, and its number."""
        last = self._ends - 1
        rows = self._commits.take(pa.array(last))
        given = {
            "committed_at": self._committed_at.at(last),
            "is_deleted": rows["is_tombstone"],
            "unchanged_since": self._unchanged_since.at(last),
            "unchanged_commits": self._unchanged_commits.at(last),
            "largest_step": self._largest.at(last),
            "farthest_offset": self._farthest.at(last),
            "recent_commits": self._recent(),
        }
        now = _table(LATEST, rows, given)
        is_untouched = ~np.isin(self._known, self._keys)
        untouched = self._former.filter(pa.array(is_untouched))
        keys = np.concatenate((self._keys[last], self._known[is_untouched]))
        return keys, pa.concat_tables([now, untouched])

    def _recent(self) -> pa.Array:
        """Return each partition's last commits, earlier ones among them; a deletion ends them."""
        deletion = self._deletions[self._ends - 1]
        since = np.maximum(self._starts, self._ends - RECENT_COMMITS)
        is_cut = deletion >= since
        since = np.where(is_cut, deletion + 1, since)
        count = self._ends - since
        lists = self._former["recent_commits"].combine_chunks()
        offsets = lists.offsets.to_numpy().astype(np.int64)
        has_former = (self._former_of_key >= 0) & ~is_cut
        row = np.where(has_former, self._former_of_key, 0)
        room = RECENT_COMMITS - count
        if self._former.num_rows:
            held = np.where(has_former, offsets[row + 1] - offsets[row], 0)
            kept = np.minimum(held, room)
            begin = np.where(has_former, offsets[row + 1], 0) - kept
        else:
            kept = begin = np.zeros(len(count), np.int64)
        values = lists.values
        behind = len(values)
        picked = _ranges(
            np.stack((begin, since + behind), axis=1).ravel(),
            np.stack((kept, count), axis=1).ravel(),
        )
        own = {"committed_offset": self._committed, "committed_at": self._committed_at}
        both = (
            pa.concat_arrays([values.field(name), numbers.arrow(values.field(name).type)])
            for name, numbers in own.items()
        )
        structs = pa.StructArray.from_arrays([b.take(pa.array(picked)) for b in both], [*own])
        ends = np.concatenate(([0], np.cumsum(kept + count))).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(ends), structs)


def _leaps(step: Numbers, before: Numbers) -> np.ndarray:
    """Tell steps of more than so many times the largest before, which may be as large as can be."""
    return (step.values - 1) // JUMP_FACTOR >= before.values


def _bound(numbers: Numbers, most: np.ufunc, starts: np.ndarray) -> Numbers:
    """Return the least or the greatest number of each run of rows."""
    worst = _MOST if most is np.minimum else -_MOST
    best = most.reduceat(np.where(numbers.known, numbers.values, worst), starts)
    return Numbers(best, np.logical_or.reduceat(numbers.known, starts))


def _longest(lasted: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the index of the greatest number of each run of rows, of equal ones the last."""
    run = np.zeros(len(lasted), np.int64)
    run[starts[1:]] = 1
    order = np.lexsort((lasted, np.cumsum(run)))
    return np.asarray(order[np.append(starts[1:], len(lasted)) - 1])


def _difference(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Subtract; what goes beyond 64 bits is the most that they hold."""
    exact = values - others
    is_beyond = (values ^ others) & (values ^ exact) < 0
    return np.maximum(np.where(is_beyond, np.where(values > others, _MOST, -_MOST), exact), -_MOST)


def _sums(numbers: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Add up numbers that are not negative; what goes beyond 64 bits is the most that they hold."""
    high, low = (np.add.reduceat(half, starts) for half in (numbers >> 32, numbers & _LOW))
    is_beyond = high + (low >> 32) > _LOW >> 1
    return np.where(is_beyond, _MOST, (high << 32) + low)


def _ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Join ranges of whole numbers into one array."""
    ends = np.cumsum(lengths)
    whole = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(whole)


def _most(values: np.ndarray, former: Numbers) -> Numbers:
    """Return the maximum of a step so far, 0 for none, and the largest step before it."""
    most = np.maximum(values, np.where(former.known, former.values, 0))
    return Numbers(most, (values > 0) | former.known)


def _running_most(values: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return the greatest value so far of each key; the keys ascend."""
    # By their ranks, since a key in front of the values themselves would overflow.
    sizes, rank = np.unique(values, return_inverse=True)
    number = np.cumsum(np.concatenate(([0], keys[1:] != keys[:-1])))
    most = np.maximum.accumulate(number * len(sizes) + rank)
    return np.asarray(sizes[most - number * len(sizes)])


def _log_bytes(commits: pa.Table) -> np.ndarray:
    """Return the size of each commit's key and value by their layouts (OffsetCommitKey, -Value)."""

    def length(name: str) -> np.ndarray:
        lengths = pc.binary_length(commits[name]).combine_chunks().fill_null(0)
        return np.asarray(lengths.to_numpy())

    metadata, version = length("metadata"), _numbers(commits, "value_version")
    # Version, offset and commit time; the length of a short string takes two bytes, or a varint.
    plain = 2 + 8 + 8 + metadata
    size_of_length = np.select([metadata < 2**7 - 1, metadata < 2**14 - 1], [1, 2], 3)
    topic_id = np.where(np.asarray(commits["topic_id"].is_valid()), 2 + 16, 0)
    value = np.select(
        [
            ~version.known,
            version.values == 1,
            version.values == 3,  # noqa: PLR2004 - with a leader epoch
            version.values >= 4,  # noqa: PLR2004 - flexible
        ],
        [plain + 2, plain + 2 + 8, plain + 2 + 4, plain + size_of_length + 4 + 1 + topic_id],
        plain + 2,
    )
    deleted = _numbers(commits, "is_tombstone").values != 0
    key = 2 + 2 + 2 + 4 + length("group_id") + length("topic")
    return np.asarray(key + np.where(deleted, 0, value), np.int64)


def _table(table: str, rows: pa.Table, given: Mapping[str, Numbers | pa.Array]) -> pa.Table:
    schema = arrow_schema(TABLES[table])
    arrays = [_array(given[f.name] if f.name in given else rows[f.name], f.type) for f in schema]
    return pa.table(arrays, schema=schema)


def _array(given: Numbers | pa.Array, kind: pa.DataType) -> pa.Array:
    return given.arrow(kind) if isinstance(given, Numbers) else given.cast(kind)

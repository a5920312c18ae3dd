"""Tells the history of decoded records without Spark, in one run or cut into many."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from decoders.records import decode
from tests.support.members import record_of
from timeline.commits import NO_TIME, CommitChunk
from timeline.fold import GROUP_METADATA, Fold, resumed
from timeline.holes import Unseen
from timeline.model import (
    GENERATIONS,
    OWNERS,
    SESSIONS,
    STATES,
    GroupState,
    Record,
    partition_hash,
    partition_key,
)

Row = dict[str, Any]
TABLES = (STATES, GENERATIONS, SESSIONS, OWNERS)
COMMITS = "offset_commits"


class Commit(NamedTuple):
    """An offset commit as the fold sees it; `topic` are the id and the name of its topic."""

    offset: int
    timestamp: int | None
    partition: int
    deletes: bool
    topic: tuple[str, str] | None = None


class Log(NamedTuple):
    """The events of one group in the order of its partition, and what is missing there."""

    group_id: str
    partition: int
    events: list[Record | Commit]
    missing: tuple[int, ...] = ()
    # Where the topic grew: the partition that the group's events are in from one on.
    moves: Mapping[int, int] = MappingProxyType({})
    missing_there: Mapping[int, tuple[int, ...]] = MappingProxyType({})  # what is missing in those
    # Topics by their ids that offset commits before the first event have named.
    names: Mapping[str, str] = MappingProxyType({})
    # Times without a reading behind the last event, see `holes.Unseen`.
    unseen: tuple[Unseen, ...] = ()

    def has_hole(self, after: int, until: int, partition: int | None = None) -> bool:
        """Return whether an offset in between is missing."""
        there = partition not in (None, self.partition)
        missing = self.missing_there[partition or 0] if there else self.missing
        behind = bisect_right(missing, after)
        return behind < len(missing) and missing[behind] < until


def rebuild(log: Log, cuts: Iterable[int] = ()) -> dict[str, list[Row]]:
    """Tell a group's history.

    Args:
        log: its events.
        cuts: numbers of events before which a new run begins, with only the checkpoint of the last
            one.
    """
    borders = [0, *sorted(set(cuts)), len(log.events)]
    settled: dict[str, list[Row]] = {t: [] for t in TABLES}
    still_open: dict[str, list[Row]] = {t: [] for t in TABLES}
    checkpoint = None
    for start, end in itertools.pairwise(borders):
        if start < end:
            closed, still_open, checkpoint = _run(log, start, end, checkpoint)
            _add(settled, closed)
    return {t: settled[t] + still_open[t] for t in TABLES}


def cut_anywhere(log: Log) -> Iterator[dict[str, list[Row]]]:
    """Tell a group's history once for each place where it can be cut.

    Up to that place there are as many runs as can be, and all that follows is one more. Among
    commits in a row the first, the middle and the last are places.
    """
    settled: dict[str, list[Row]] = {t: [] for t in TABLES}
    checkpoint = None
    for start, cut in itertools.pairwise(_places(log.events)):
        closed, _, checkpoint = _run(log, start, cut, checkpoint)
        _add(settled, closed)
        closed, still_open, _ = _run(log, cut, len(log.events), checkpoint)
        yield {t: settled[t] + closed[t] + still_open[t] for t in TABLES}


def _places(events: list[Record | Commit]) -> list[int]:
    places, end = {0}, 0
    for is_commit, alike in itertools.groupby(events, lambda event: isinstance(event, Commit)):
        start, end = end, end + len(list(alike))
        few = {start + 1, (start + end) // 2, end - 1, end}
        places |= few if is_commit else {*range(start + 1, end + 1)}
    return sorted(places - {len(events)})


def _run(
    log: Log, start: int, end: int, checkpoint: str | None
) -> tuple[dict[str, list[Row]], dict[str, list[Row]], str]:
    """Tell what some events settle and leave open, and give the checkpoint behind them."""
    fold = _resumed(log, checkpoint)
    for topic_id, name in log.names.items():
        fold.name_topic(topic_id, name)
    bounds = [start, *(i for i in sorted(log.moves) if start < i < end), end]
    for first, last in itertools.pairwise(bounds):
        if first in log.moves:
            _move(fold, log, first)
        for event in _chunks(log.events[first:last]):
            if isinstance(event, Record):
                fold.record(event)
            else:
                for topic in dict.fromkeys(commit.topic for commit in event):
                    if topic is not None:
                        fold.name_topic(*topic)
                fold.commits(_chunk(event))
    last = log.events[end - 1].offset
    unseen = log.unseen if end == len(log.events) else ()
    closed, still_open = fold.finish([each for each in unseen if each.offset > last])
    return closed, still_open, fold.to_json()


def _add(settled: dict[str, list[Row]], closed: dict[str, list[Row]]) -> None:
    """Add rows through JSON, as between two runs."""
    for table in TABLES:
        settled[table] += json.loads(json.dumps(closed[table]))


def _resumed(log: Log, checkpoint: str | None) -> Fold:
    if checkpoint is None:
        return Fold(GroupState(log.group_id, log.partition), has_hole=log.has_hole)
    state, pending = resumed(checkpoint)
    return Fold(state, pending, has_hole=partial(log.has_hole, partition=state.partition))


def _move(fold: Fold, log: Log, number: int) -> None:
    """Let the group's events be in another partition from one on, as `groups.fold` does."""
    partition, event = log.moves[number], log.events[number]
    if isinstance(event, Commit):
        event = Record(event.offset, event.timestamp, COMMITS, None, None)
    fold.move(partition, event, has_hole=partial(log.has_hole, partition=partition))


def _chunks(events: list[Record | Commit]) -> Iterable[Record | list[Commit]]:
    run: list[Commit] = []
    for event in events:
        if isinstance(event, Record):
            if run:
                yield run
                run = []
            yield event
        else:
            run.append(event)
    if run:
        yield run


def _chunk(commits: list[Commit]) -> CommitChunk:
    return CommitChunk(
        np.array([c.offset for c in commits], np.int64),
        np.array([NO_TIME if c.timestamp is None else c.timestamp for c in commits], np.int64),
        np.array([c.partition for c in commits], np.int64),
        np.array([c.deletes for c in commits], np.bool_),
    )


@cache
def commits_of(recording: Path) -> dict[str, list[Row]]:
    """Decode the offset commits of a recording, by group, in the order of the log."""
    rows = [r for part in decoded(recording).get(COMMITS, ()) for r in part.to_pylist()]
    commits: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda r: (r["record_partition"], r["record_offset"])):
        plain = in_millis(row)
        plain["at"] = plain["record_timestamp"] or plain["commit_timestamp"]
        commits[row["group_id"]].append(plain)
    return dict(commits)


def decoded(recording: Path) -> dict[str, list[pa.RecordBatch]]:
    """Decode a recording into batches by silver table, and the quarantine."""
    table = pq.read_table(recording)
    batch = pa.RecordBatch.from_arrays(
        [
            table["partition"].combine_chunks().cast(pa.int32()),
            table["offset"].combine_chunks().cast(pa.int64()),
            _timestamps(table["timestamp"].combine_chunks()),
            table["key"].combine_chunks().cast(pa.binary()),
            table["value"].combine_chunks().cast(pa.binary()),
        ],
        names=["record_partition", "record_offset", "record_timestamp", "key", "value"],
    )
    return decode(batch).tables


@cache
def logs_of(recording: Path) -> list[Log]:
    """Decode a recording into the logs of its groups."""
    read: dict[int, set[int]] = defaultdict(set)
    events: dict[tuple[str, int], list[Record | Commit]] = defaultdict(list)
    for name, batches in decoded(recording).items():
        for row in (row for part in batches for row in part.to_pylist()):
            read[row["record_partition"]].add(row["record_offset"])
            if "group_id" in row:
                events[row["group_id"], row["record_partition"]].append(_event(name, row))
    missing = {p: tuple(sorted(set(range(max(o) + 1)) - o)) for p, o in read.items()}
    return [
        Log(*place, sorted(of_group, key=lambda e: e.offset), missing[place[1]])
        for place, of_group in sorted(events.items())
    ]


@cache
def histories_of(recording: Path) -> dict[str, dict[str, list[Row]]]:
    """Tell the history of each group of a recording, in one run; not to be changed."""
    return {log.group_id: rebuild(log) for log in logs_of(recording)}


def _timestamps(epoch_ms: pa.Array) -> pa.Array:
    return epoch_ms.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))


def _event(name: str, row: Row) -> Record | Commit:
    at = in_millis(row["record_timestamp"])
    if name == COMMITS:
        hashed = partition_hash(partition_key(row["topic"], row["topic_partition"]))
        topic = None if row["topic_id"] is None else (row["topic_id"], row["topic"])
        return Commit(row["record_offset"], at, hashed, row["is_tombstone"], topic)
    payload = None if row["is_tombstone"] else in_millis(row)
    if payload is not None and name == GROUP_METADATA:
        for member, given in zip(payload["members"], row["members"], strict=True):
            member["has_empty_assignment"] = given["assignment_bytes"] == b""
            member["user_data"] = (given["assignment"] or {}).get("user_data")
    return record_of(row["record_offset"], at, name, row.get("member_id"), payload)


def in_millis(value: Any) -> Any:  # noqa: ANN401 - whatever a row holds
    """Return times as epoch milliseconds, and no bytes."""
    if isinstance(value, dt.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, dict):
        return {k: in_millis(v) for k, v in value.items()}
    if isinstance(value, list):
        return [in_millis(v) for v in value]
    return None if isinstance(value, bytes) else value


def check_timeline(states: list[Row], is_legal: Callable[[Row, Row], bool]) -> None:
    """Hold that intervals follow each other without gap or overlap, by legal steps."""
    rows = sorted(states, key=lambda r: r["sequence"])
    assert [r["sequence"] for r in rows] == list(range(len(rows)))
    for before, after in itertools.pairwise(rows):
        assert before["ended_at"] == after["started_at"]
        assert before["started_at"] <= before["ended_at"]
        assert is_legal(before, after), (before["state"], after["state"])
    for row in rows:
        earliest, latest = row["started_at_min"], row["started_at_max"]
        assert earliest is None or earliest <= row["started_at"]
        assert latest is None or row["started_at"] <= latest
        assert (row["evidence"] == "exact") == (earliest == row["started_at"] == latest)
    assert all(r["ended_at"] is not None for r in rows[:-1])
    assert not rows or rows[-1]["ended_at"] is None

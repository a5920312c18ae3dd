"""How offsets go on, against a model that takes one commit after the other; whatever the runs."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from history import offsets
from schemas.columns import arrow_schema
from schemas.silver import decoded_columns

Row = dict[str, Any]

START = datetime(2026, 1, 1, 23, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
FIELDS = [arrow_schema(decoded_columns("offset_commits")).field(n) for n in offsets.COMMIT_COLUMNS]
HELD = arrow_schema(offsets.TABLES[offsets.LATEST])
SUMS = (
    *("commits", "tombstones", "distinct_offsets", "rewinds", "jumps", "no_progress_commits"),
    *("rewound_offsets", "progressed_offsets", "log_bytes"),
)
# Small steps and great ones, and what a client may commit by mistake.
OFFSETS = st.one_of(
    st.integers(0, 50), st.integers(0, 100_000), st.sampled_from([-1, 2**62, 2**63 - 1])
)


@st.composite
def commits(draw: st.DrawFn) -> list[Row]:
    """Draw commits of few partitions in the order of the log, some of them tombstones."""
    rows = []
    at = START
    for offset in range(draw(st.integers(0, 40))):
        at += timedelta(minutes=draw(st.integers(0, 40)))
        is_tombstone = draw(st.integers(0, 9)) == 0
        has_time, has_commit_time = draw(st.sampled_from([(1, 1), (1, 0), (0, 1), (0, 0)]))
        version = None if is_tombstone else draw(st.sampled_from([0, 1, 2, 3, 4]))
        rows.append(
            {
                "group_id": draw(st.sampled_from(["g", "gruppe-ä"])),
                "topic": draw(st.sampled_from(["t", "u"])),
                "topic_partition": draw(st.integers(0, 1)),
                "record_partition": 7,
                "record_offset": offset,
                "record_timestamp": at if has_time else None,
                "committed_offset": None if is_tombstone else draw(OFFSETS),
                "leader_epoch": None,
                "metadata": None if is_tombstone else draw(st.sampled_from(["", "ö", "m" * 127])),
                "topic_id": "id" if version == 4 and draw(st.booleans()) else None,
                "is_tombstone": is_tombstone,
                "commit_timestamp": at + HOUR if has_commit_time and not is_tombstone else None,
                "value_version": version,
            }
        )
    return rows


def key(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in offsets.PARTITION)


def held(number: int) -> int:
    """Give what 64 bits hold of a number."""
    return max(-(2**63) + 1, min(2**63 - 1, number))


def log_bytes(row: Row) -> int:
    """Count the bytes of a commit, field by field (OffsetCommitKey and OffsetCommitValue)."""
    size = 2 + (2 + len(row["group_id"].encode())) + (2 + len(row["topic"].encode())) + 4
    if row["is_tombstone"]:
        return size
    version, metadata = row["value_version"], len(row["metadata"].encode())
    size += 2 + 8 + 8 + metadata  # version, offset, commit timestamp
    if version >= 4:
        return size + 4 + (1 if metadata + 1 < 128 else 2) + 1 + 18 * (row["topic_id"] is not None)
    return size + 2 + {0: 0, 1: 8, 2: 0, 3: 4}[version]


class Model:
    """All partitions, told of one commit after the other."""

    def __init__(self) -> None:
        self.last: dict[tuple[object, ...], Row] = {}
        self.largest: dict[tuple[object, ...], int] = {}
        self.recent: dict[tuple[object, ...], list[Row]] = defaultdict(list)
        self.moves: list[tuple[object, ...]] = []
        self.hours: dict[tuple[object, ...], Row] = {}

    def take(self, row: Row) -> None:
        of = key(row)
        last, largest = self.last.get(of), self.largest.get(of)
        at = row["record_timestamp"] or row["commit_timestamp"]
        before = None if last is None else last["committed_offset"]
        own = row["committed_offset"]
        step = None if own is None or before is None else held(own - before)
        move = self._move(row, last, step, largest)
        if move is not None:
            self.moves.append((*of, row["record_offset"], move, step, largest))
        self._sum_up(row, at, step, largest)
        if step is not None and step > 0:
            self.largest[of] = max(step, largest or 0)
        if row["is_tombstone"]:
            self.recent[of].clear()
        else:
            committed_at = row["commit_timestamp"] or row["record_timestamp"]
            self.recent[of].append({"committed_offset": own, "committed_at": committed_at})
        self.last[of] = row

    @staticmethod
    def _move(row: Row, last: Row | None, step: int | None, largest: int | None) -> str | None:
        was_deleted = last is not None and last["is_tombstone"]
        if row["is_tombstone"]:
            return None if was_deleted else "deleted"
        if was_deleted:
            return "returned"
        if step is not None and step < 0:
            return "rewind"
        if step is not None and step > 1_000 and step > 10 * (largest or 0):
            return "leap"
        return None

    def _sum_up(self, row: Row, at: datetime | None, step: int | None, largest: int | None) -> None:
        hour = None if at is None else at.replace(minute=0)
        sums = self.hours.setdefault(
            (*key(row), hour),
            dict.fromkeys(SUMS, 0) | {"first": None, "largest": None, "times": []},
        )
        sums["log_bytes"] += log_bytes(row)
        sums["last"] = row["committed_offset"]
        if row["is_tombstone"]:
            sums["tombstones"] += 1
            return
        if not sums["commits"]:
            sums["first"] = row["committed_offset"]
        sums["commits"] += 1
        sums["times"] += [] if at is None else [at]
        sums["distinct_offsets"] += step != 0
        if step is None:
            return
        sums["no_progress_commits"] += step == 0
        sums["rewinds"] += step < 0
        sums["rewound_offsets"] += max(0, -step)
        sums["progressed_offsets"] += max(0, step)
        if step > 0:
            sums["largest"] = max(step, sums["largest"] or 0)
        # Of a partition that never went on before, no step says that it jumped.
        sums["jumps"] += largest is not None and step > 1_000 and step > 10 * largest


def table(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, pa.schema(FIELDS))


@settings(deadline=None)
@given(commits(), st.lists(st.integers(0, 40), max_size=3), st.randoms())
def test_moves_and_last_commits_whatever_the_runs(rows: list[Row], cuts: list[int], chance) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    held = pa.Table.from_pylist([], HELD)
    moves = []
    for start, end in pairwise([0, *sorted(min(c, len(rows)) for c in cuts), len(rows)]):
        part = rows[start:end]
        chance.shuffle(part)
        found = offsets.follow(table(part), held)
        held = found[offsets.LATEST]
        moves += found[offsets.MOVES].to_pylist()
    model = Model()
    for row in rows:
        model.take(row)
    named = ("record_offset", "move", "step", "largest_step_before")
    assert sorted((*key(m), *(m[n] for n in named)) for m in moves) == sorted(model.moves)
    latest = {key(row): row for row in held.to_pylist()}
    assert len(latest) == held.num_rows
    assert {of: row["recent_commits"] for of, row in latest.items()} == {
        of: model.recent[of][-10:] for of in model.last
    }
    for of, row in latest.items():
        assert row["record_offset"] == model.last[of]["record_offset"]
        assert row["committed_offset"] == model.last[of]["committed_offset"]
        assert row["is_deleted"] == model.last[of]["is_tombstone"]
        assert row["largest_step"] == model.largest.get(of)


@settings(deadline=None)
@given(commits(), st.lists(st.integers(0, 40), max_size=3))
def test_hours(rows: list[Row], cuts: list[int]) -> None:
    latest = pa.Table.from_pylist([], HELD)
    hours = pa.Table.from_pylist([], arrow_schema(offsets.TABLES[offsets.HOURS]))
    for start, end in pairwise([0, *sorted(min(c, len(rows)) for c in cuts), len(rows)]):
        told = offsets.follow(table(rows[start:end]), latest)
        latest = told[offsets.LATEST]
        hours = offsets.joined_hours(hours, told[offsets.HOURS])
    found = hours.to_pylist()
    model = Model()
    for row in rows:
        model.take(row)
    assert len(found) == len(model.hours)
    for row in found:
        sums = model.hours[(*key(row), row["hour"])]
        assert {n: row[n] for n in SUMS} == {n: held(sums[n]) for n in SUMS}
        assert row["first_committed_offset"] == sums["first"]
        assert row["last_committed_offset"] == sums["last"]
        assert row["largest_step"] == sums["largest"]
        assert row["first_commit_at"] == min(sums["times"], default=None)
        assert row["last_commit_at"] == max(sums["times"], default=None)

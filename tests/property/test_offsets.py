"""How offsets go on, against a model that takes one commit after the other; whatever the runs."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from offsets import progress as offsets
from schemas.columns import arrow_schema
from schemas.gold import RHYTHM_COMMITS
from schemas.silver import decoded_columns
from timeline.holes import Holes

Row = dict[str, Any]

START = datetime(2026, 1, 1, 23, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
NO_TIME = timedelta(0)
FIELDS = [
    *(arrow_schema(decoded_columns("offset_commits")).field(n) for n in offsets.COMMIT_COLUMNS),
    pa.field(offsets.KIND, pa.int32()),
    *(
        pa.field(table, pa.struct(arrow_schema(offsets.TABLES[table])))
        for table in (offsets.HOURS, offsets.LATEST)
    ),
]
SUMS = (
    *("commits", "tombstones", "distinct_offsets", "rewinds", "jumps", "no_progress_commits"),
    *("rewound_offsets", "progressed_offsets", "log_bytes"),
)
# Small steps and great ones, and what a client may commit by mistake.
OFFSETS = st.one_of(
    st.integers(0, 1),
    st.integers(0, 50),
    st.integers(0, 100_000),
    st.sampled_from([-(2**63), -1, 2**62, 2**63 - 1]),
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


def hour_of(row: Row) -> datetime | None:
    at: datetime | None = row["record_timestamp"] or row["commit_timestamp"]
    return None if at is None else at.replace(minute=0)


def held(number: int) -> int:
    """Return what 64 bits hold of a number."""
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
    """All partitions, followed one commit after the other."""

    def __init__(self) -> None:
        self.last: dict[tuple[object, ...], Row] = {}
        self.largest: dict[tuple[object, ...], int] = {}
        self.farthest: dict[tuple[object, ...], int] = {}
        self.recent: dict[tuple[object, ...], list[Row]] = defaultdict(list)
        self.moves: list[tuple[object, ...]] = []
        self.hours: dict[tuple[object, ...], Row] = {}
        # By commits of one offset: time of the first, and how many.
        self.unchanged: dict[tuple[object, ...], tuple[datetime | None, int]] = {}

    def take(self, row: Row) -> None:
        if (row["committed_offset"] or 0) < 0:  # to clients it is none
            row = {**row, "committed_offset": None}
        of = key(row)
        last, largest = self.last.get(of), self.largest.get(of)
        at = row["record_timestamp"] or row["commit_timestamp"]
        before = None if last is None else last["committed_offset"]
        own = row["committed_offset"]
        step = None if own is None or before is None else held(own - before)
        farthest = self.farthest.get(of)
        skipped = None if step is None or farthest is None else held(own - farthest)
        recent = self.recent[of][-RHYTHM_COMMITS:]
        is_full = len(recent) == RHYTHM_COMMITS
        since = recent[0]["committed_at"] if is_full else None
        there = recent[0]["committed_offset"] if is_full else None
        move = self._move(row, last, step, largest, skipped)
        if move is None and step is not None and self._ends_pause(at, last, since):
            move = "resumed"
        if move is not None:
            known = (step, largest, farthest, since, there)
            self.moves.append((*of, row["record_offset"], move, *known))
        since, count = self.unchanged.get(of, (at, 0)) if step == 0 else (at, 0)
        self.unchanged[of] = (None, 0) if row["is_tombstone"] else (since, count + 1)
        self._sum_up(row, at, step, largest, skipped)
        if row["is_tombstone"]:
            self.farthest.pop(of, None)
        elif own is not None:
            self.farthest[of] = max(own, self.farthest.get(of, own))
        if step is not None and step > 0:
            self.largest[of] = max(step, largest or 0)
        if row["is_tombstone"]:
            self.recent[of].clear()
        else:
            committed_at = row["commit_timestamp"] or row["record_timestamp"]
            self.recent[of].append({"committed_offset": own, "committed_at": committed_at})
        self.last[of] = row

    @staticmethod
    def _move(
        row: Row, last: Row | None, step: int | None, largest: int | None, skipped: int | None
    ) -> str | None:
        was_deleted = last is not None and last["is_tombstone"]
        if row["is_tombstone"]:
            return None if was_deleted else "deleted"
        if was_deleted:
            return "returned"
        if step is not None and step < 0:
            return "rewind"
        if skipped is not None and skipped > 1_000 and skipped > 10 * (largest or 0):
            return "leap"
        return None

    @staticmethod
    def _ends_pause(at: datetime | None, last: Row | None, since: datetime | None) -> bool:
        before = None if last is None else last["record_timestamp"] or last["commit_timestamp"]
        if at is None or before is None or since is None:
            return False
        return at - before > max(timedelta(minutes=10), 5 * ((before - since) / 4))

    def _sum_up(
        self,
        row: Row,
        at: datetime | None,
        step: int | None,
        largest: int | None,
        skipped: int | None,
    ) -> None:
        hour = hour_of(row)
        sums = self.hours.setdefault(
            (*key(row), hour),
            dict.fromkeys(SUMS, 0)
            | {"first": None, "largest": None, "times": [], "unchanged": (None, None, None, None)},
        )
        sums["log_bytes"] += log_bytes(row)
        sums["last"] = row["committed_offset"]
        if row["is_tombstone"]:
            sums["tombstones"] += 1
            return
        if sums["first"] is None:
            sums["first"] = row["committed_offset"]
        sums["commits"] += 1
        sums["times"] += [] if at is None else [at]
        sums["distinct_offsets"] += step != 0
        since, count = self.unchanged[key(row)]
        if since is not None and at is not None and count > 1:
            best = sums["unchanged"]
            if best[0] is None or max(at - since, NO_TIME) >= max(best[1] - best[0], NO_TIME):
                sums["unchanged"] = (since, at, count, row["committed_offset"])
        if step is None:
            return
        sums["no_progress_commits"] += step == 0
        sums["rewinds"] += step < 0
        sums["rewound_offsets"] += max(0, -step)
        sums["progressed_offsets"] += max(0, step)
        if step > 0:
            sums["largest"] = max(step, sums["largest"] or 0)
        # No step says that a partition jumped that never went on before.
        is_far = skipped is not None and skipped > 1_000
        sums["jumps"] += is_far and largest is not None and skipped > 10 * largest


def run_over(
    rows: list[Row],
    earlier: dict[str, list[Row]],
    size: int,
    holes: dict[int, Holes] | None = None,
) -> dict[str, list[Row]]:
    """Return what a run makes of commits and of what earlier runs wrote, in batches."""
    given = [
        *({"kind": offsets.AN_HOUR, offsets.HOURS: r} for r in earlier[offsets.HOURS]),
        *({"kind": offsets.LAST_COMMIT, offsets.LATEST: r} for r in earlier[offsets.LATEST]),
        *({"kind": offsets.COMMIT, **r} for r in rows),
    ]
    for row in given:
        known = row.get(offsets.HOURS) or row.get(offsets.LATEST) or {}
        row |= {name: known[name] for name in offsets.PARTITION if name in known}
    given.sort(key=lambda r: (*key(r), r["kind"], r.get("record_offset") or 0))
    batches = pa.Table.from_pylist(given, pa.schema(FIELDS)).to_batches(max_chunksize=size)
    found: dict[str, list[Row]] = {table: [] for table in offsets.TABLES}
    for table, batch in offsets.follow(batches, holes or {}):
        assert batch.schema.equals(arrow_schema(offsets.TABLES[table]))
        found[table] += batch.to_pylist()
    return found


def runs_of(
    rows: list[Row],
    cuts: list[int],
    size: int,
    *,
    all_hours: bool,
    missing: np.ndarray | None = None,
) -> dict[str, list[Row]]:
    """Tell commits in some runs; give all hours, all moves, and the latest commits."""
    found: dict[str, list[Row]] = {table: [] for table in offsets.TABLES}
    for start, end in pairwise([0, *sorted(min(c, len(rows)) for c in cuts), len(rows)]):
        # Hours that no commit belongs to may be left out.
        begun = {(*key(r), hour_of(r)) for r in rows[start:end]}
        is_given = [all_hours or (*key(r), r["hour"]) in begun for r in found[offsets.HOURS]]
        hours = [r for r, given in zip(found[offsets.HOURS], is_given, strict=True) if given]
        rest = [r for r, given in zip(found[offsets.HOURS], is_given, strict=True) if not given]
        # A run knows its own holes, and of those before the last one.
        first = rows[start]["record_offset"] if start < len(rows) else 0
        own = np.empty(0, np.int64) if missing is None else missing
        last = int(own[own < first].max(initial=-1))
        holes = {7: Holes(own[own > first], own[own > first], last)}
        of_run = run_over(rows[start:end], found | {offsets.HOURS: hours}, size, holes)
        found[offsets.HOURS] = rest + of_run[offsets.HOURS]
        found[offsets.MOVES] += of_run[offsets.MOVES]
        found[offsets.LATEST] = of_run[offsets.LATEST]
    return found


CUTS = st.lists(st.integers(0, 40), max_size=3)
SIZES = st.integers(1, 50)


@settings(deadline=None)
@given(commits(), CUTS, SIZES, st.booleans())
def test_moves_and_last_commits_and_hours_whatever_the_runs(
    rows: list[Row],
    cuts: list[int],
    size: int,
    all_hours: bool,  # noqa: FBT001
) -> None:
    found = runs_of(rows, cuts, size, all_hours=all_hours)
    model = Model()
    for row in rows:
        model.take(row)
    check_moves(found[offsets.MOVES], model)
    check_last_commits(found[offsets.LATEST], model)
    check_hours(found[offsets.HOURS], model)


def check_moves(found: list[Row], model: Model) -> None:
    named = ("record_offset", "move", "step", "largest_step_before", "farthest_before")
    named += ("rhythm_since", "rhythm_offset")
    moves = [(*key(m), *(m[n] for n in named)) for m in found]
    assert sorted(moves, key=str) == sorted(model.moves, key=str)


def check_last_commits(found: list[Row], model: Model) -> None:
    latest = {key(row): row for row in found}
    assert len(latest) == len(found)
    assert {of: row["recent_commits"] for of, row in latest.items()} == {
        of: model.recent[of][-10:] for of in model.last
    }
    for of, row in latest.items():
        assert row["record_offset"] == model.last[of]["record_offset"]
        assert row["committed_offset"] == model.last[of]["committed_offset"]
        is_deleted = model.last[of]["is_tombstone"]
        since, count = (None, None) if is_deleted else model.unchanged[of]
        assert (row["unchanged_since"], row["unchanged_commits"]) == (since, count)
        assert row["is_deleted"] == model.last[of]["is_tombstone"]
        assert row["largest_step"] == model.largest.get(of)
        assert row["farthest_offset"] == model.farthest.get(of)


def check_hours(found: list[Row], model: Model) -> None:
    assert len(found) == len(model.hours)
    for row in found:
        sums = model.hours[(*key(row), row["hour"])]
        assert {n: row[n] for n in SUMS} == {n: held(sums[n]) for n in SUMS}
        assert row["first_committed_offset"] == sums["first"]
        assert row["last_committed_offset"] == sums["last"]
        assert row["largest_step"] == sums["largest"]
        assert row["first_commit_at"] == min(sums["times"], default=None)
        assert row["last_commit_at"] == max(sums["times"], default=None)
        names = ("since", "until", "commits", "offset")
        assert tuple(row[f"unchanged_{name}"] for name in names) == sums["unchanged"]


@settings(deadline=None)
@given(commits(), st.sets(st.integers(0, 40)), CUTS, SIZES)
def test_a_move_over_a_hole_is_not_complete(
    rows: list[Row], gaps: set[int], cuts: list[int], size: int
) -> None:
    spread = [row | {"record_offset": 2 * row["record_offset"]} for row in rows]
    missing = np.array(sorted(2 * gap + 1 for gap in gaps), np.int64)
    found = runs_of(spread, cuts, size, all_hours=True, missing=missing)
    last: dict[tuple[object, ...], int] = {}
    before = {}
    for row in spread:
        before[row["record_offset"]] = last.get(key(row))
        last[key(row)] = row["record_offset"]
    for move in found[offsets.MOVES]:
        after = before[move["record_offset"]]
        between = range(0 if after is None else after, move["record_offset"])
        is_known = None if after is None else not any(m in between for m in missing.tolist())
        assert move["is_complete"] == is_known

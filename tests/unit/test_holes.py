"""What a run did not read: the newest reading of an offset counts; and times nobody looked."""

from __future__ import annotations

import pyarrow as pa

from timeline.holes import HOLE, Unseen, holes_in, ranges, unread

DAY = 86_400_000
COVERED = pa.schema(
    [
        pa.field("record_partition", pa.int32()),
        pa.field("ingest_run", pa.int64()),
        pa.field("from_offset", pa.int64()),
        pa.field("next_offset", pa.int64()),
        pa.field("source", pa.string()),
        pa.field("start", pa.list_(pa.int64())),
        pa.field("end", pa.list_(pa.int64())),
    ]
)


def covered(
    *rows: tuple[int, int, tuple[int, int], list[tuple[int, int]]], source: str = "kafka"
) -> pa.Table:
    """Return rows of bronze.coverage: partition, run, first and next offset, holes."""
    return pa.Table.from_pylist(
        [
            {
                "record_partition": partition,
                "ingest_run": run,
                "from_offset": first,
                "next_offset": behind,
                "source": source,
                "start": [start for start, _ in holes],
                "end": [end for _, end in holes],
            }
            for partition, run, (first, behind), holes in rows
        ],
        COVERED,
    )


def told(table: pa.Table) -> list[tuple[int, int, int]]:
    return sorted(zip(*(table[name].to_pylist() for name in HOLE), strict=True))


def test_ranges_are_from_the_first_offset_read_to_the_next_to_read() -> None:
    rows = covered((0, 0, (5, 20), []), (1, 0, (0, 9), []), (0, 1, (20, 30), []))
    assert sorted(ranges(rows)) == [(0, 5, 30), (1, 0, 9)]


def test_of_offsets_read_twice_the_newest_reading_counts() -> None:
    first = (0, 0, (0, 100), [(10, 19), (40, 59), (90, 99)])
    # Another partition has holes at the same offsets, and was read once.
    beside = (1, 0, (0, 100), [(40, 59)])
    again = (0, 1, (15, 50), [(45, 46)])
    assert told(holes_in(covered(first, beside))) == [
        *((0, 10, 19), (0, 40, 59), (0, 90, 99)),
        (1, 40, 59),
    ]
    assert told(holes_in(covered(first, beside, again))) == [
        *((0, 10, 14), (0, 45, 46), (0, 50, 59), (0, 90, 99)),
        (1, 40, 59),
    ]


def test_a_weekend_without_a_reading_may_hide_an_end_where_records_are_missing() -> None:
    rows = covered(
        *((0, 0, (0, 10), []), (1, 0, (0, 10), [])),
        *((0, 1, (10, 30), [(12, 14)]), (1, 1, (10, 20), [])),
    )
    until: dict[int, int] = {}
    assert unread(rows, {0: DAY, 1: 3 * DAY}, until) == {0: (Unseen(10, DAY, 3 * DAY),)}
    assert until == {0: 3 * DAY, 1: 3 * DAY}
    # For a day a tombstone is kept: nobody ended without one.
    assert unread(rows, {0: DAY, 1: 2 * DAY}, {}) == {}


def test_a_partition_that_was_not_named_had_nothing_new_by_a_cluster_and_is_unknown_by_files() -> (
    None
):
    begun = {0: DAY, 1: DAY}
    run = (0, 1, (10, 20), [])
    behind = (1, 2, (10, 20), [(11, 12)])
    newest = {1: 3 * DAY, 2: 4 * DAY}
    assert unread(covered(run, behind), newest, {**begun}) == {}
    of_files = covered(run, behind, source="a folder")
    assert unread(of_files, newest, {**begun}) == {1: (Unseen(10, DAY, 4 * DAY),)}


def test_runs_go_on_from_the_time_of_those_before() -> None:
    until = {0: DAY}
    assert unread(covered((0, 5, (10, 20), [(10, 10)])), {5: 3 * DAY}, until) == {
        0: (Unseen(10, DAY, 3 * DAY),)
    }
    assert unread(covered((0, 6, (20, 30), [(20, 20)])), {6: 4 * DAY}, until) == {}
    assert until == {0: 4 * DAY}
    # Nothing is known of a log without times.
    assert unread(covered((0, 7, (30, 40), [(30, 30)])), {}, until) == {}
    assert until == {0: 4 * DAY}

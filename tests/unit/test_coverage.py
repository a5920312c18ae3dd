"""Which offsets a run accounts for, and why some have no record."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from sources.coverage import Extent, Range, coverage, holes_by_partition
from sources.plan import State, truncated

TOPIC = "__consumer_offsets"


def rows_of(
    *ranges: Range, found: dict[int, Extent], inner: dict[int, list[tuple[int, int]]]
) -> list:  # type: ignore[type-arg]
    rows = coverage(
        ranges,
        {(TOPIC, p): extent for p, extent in found.items()},
        {(TOPIC, p): np.array(holes, np.int64) for p, holes in inner.items()},
        new_records={(TOPIC, p): extent.records for p, extent in found.items()},
        of_run={"ingest_run": 3},
    )
    return [
        (
            *(row["record_partition"], row["ingest_run"], row["record_count"]),
            *(row["first_offset_read"], row["last_offset_read"]),
            [tuple(hole.values()) for hole in row["holes"]],
        )
        for row in rows.to_pylist()
    ]


def test_no_ranges_give_no_rows() -> None:
    assert rows_of(found={}, inner={}) == []


def test_every_offset_without_a_record_has_a_reason() -> None:
    ranges = [
        # Deleted up to 5, compacted up to 8, between the records, and behind the last one.
        Range(TOPIC, 0, 0, 20, first_offset_available=5, leading="truncated"),
        # All there.
        Range(TOPIC, 1, 10, 20, first_offset_available=0),
        # Nothing left of what was there; of a killed run, nobody knows what was available.
        Range(TOPIC, 2, 0, 4, first_offset_available=2),
        Range(TOPIC, 3, 0, 4),
    ]
    found = {0: Extent(8, 17, 6, 6), 1: Extent(10, 19, 10, 10), 3: Extent(2, 3, 2, 2)}
    assert rows_of(*ranges, found=found, inner={0: [(9, 9), (12, 14)]}) == [
        (
            *(0, 3, 6, 8, 17),
            [
                (0, 4, "truncated"),
                (5, 7, "compacted"),
                (9, 9, "compacted"),
                (12, 14, "compacted"),
                (18, 19, "compacted"),
            ],
        ),
        (1, 3, 10, 10, 19, []),
        (2, 3, 0, None, None, [(0, 1, "not read"), (2, 3, "compacted")]),
        (3, 3, 2, 2, 3, [(0, 1, "not read")]),
    ]


def test_ends_of_transactions_are_told_apart_from_what_is_compacted() -> None:
    position = TOPIC, 0
    markers = np.array([1, 4, 5, 8, 11, 30], np.int64)  # those of records, or beyond, do not count
    table = coverage(
        [Range(TOPIC, 0, 0, 14)],
        {position: Extent(0, 13, 5, 5)},
        {position: np.array([(1, 1), (3, 6), (8, 9), (12, 12)], np.int64)},
        new_records={position: 5},
        of_run={"ingest_run": 0},
        markers={position: markers},
    )
    (row,) = table.to_pylist()
    assert [tuple(hole.values()) for hole in row["holes"]] == [
        *((a, b, "compacted") for a, b in ((3, 3), (6, 6), (9, 9), (12, 12))),
        *((a, b, "transaction marker") for a, b in ((1, 1), (4, 5), (8, 8))),
    ]


def test_what_a_partition_lacked_when_it_was_first_read_was_not_lost() -> None:
    found = {(TOPIC, 0): Extent(5, 9, 5, 5), (TOPIC, 1): Extent(5, 9, 5, 5)}
    known, new = State(positions={(TOPIC, 0): 3}).file_ranges(found)
    assert (known.from_offset, known.leading) == (3, "not read")
    assert (new.from_offset, new.leading) == (0, "compacted")
    gone = [replace(r, leading="truncated") for r in (known,)]
    assert (truncated([new]), truncated(gone)) == ([], [2])


@pytest.mark.parametrize("partitions", [0, 1, 50, 100])
def test_each_partition_has_its_own_holes(partitions: int) -> None:
    """However many have some: as Spark gives them, by topic, partition and offset."""
    holes = [
        (topic, partition, 10 * (n + 1), 10 * (n + 1) + partition % 7)
        for topic in (TOPIC, "another")
        for partition in range(partitions)
        for n in range(1 + partition % 3)
    ]
    names = ["topic", "record_partition", "start_offset", "end_offset"]
    kinds = [pa.string(), pa.int32(), pa.int64(), pa.int64()]
    of_names = zip(*holes, strict=True) if holes else [()] * len(names)
    columns = [pa.array(values, kind) for values, kind in zip(of_names, kinds, strict=True)]
    found = holes_by_partition(pa.table(columns, names=names))
    assert len(found) == 2 * partitions
    assert [
        (*position, *hole) for position, of_it in found.items() for hole in of_it.tolist()
    ] == holes

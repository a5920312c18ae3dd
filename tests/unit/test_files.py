"""Files for Delta tables: their rows, and what Delta is told of them to skip them by."""

from __future__ import annotations

import datetime as dt
import gc
import json
import resource
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.columns import ArrayOf, Column, Primitive, arrow_schema, column
from schemas.tables import TableSpec
from sources.coverage import Extent
from sources.parquet import COLUMNS, plain_extents
from storage.errors import LakehouseError
from storage.files import DataFile, FileWriter, RowGroups, read, read_where, shares

if TYPE_CHECKING:
    from collections.abc import Iterator

_TIME = dt.datetime(2026, 1, 2, 3, 4, 5, 678_000, dt.timezone.utc)
_SPEC = TableSpec(
    name="silver.things",
    grain="One row per thing.",
    columns=(
        column("record_offset", "bigint", "Place."),
        column("at", "timestamp", "When."),
        column("group_id", "string", "Whose."),
        column("note", "string", "What for."),
        Column("marks", ArrayOf(Primitive("smallint")), "Marks."),
    ),
    key=("record_offset",),
    skipping=("record_offset", "at", "group_id", "note"),
)


def rows(first: int, group_id: str) -> pa.RecordBatch:
    things = [
        {"record_offset": first + i, "at": _TIME + i * dt.timedelta(milliseconds=1)}
        | {"group_id": group_id, "marks": [i, None] if i else None}
        for i in range(3)
    ]
    return pa.RecordBatch.from_pylist(things, arrow_schema(_SPEC.columns))


def write(root: Path, *batches: pa.RecordBatch) -> DataFile:
    writer = FileWriter(str(root), "blue")
    for batch in batches:
        writer.add(_SPEC, batch)
    ((_, file),) = writer.close()
    return file


def test_a_file_has_its_rows_and_their_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.files._MAX_WAITING", 1)  # a row group for each batch
    batches = rows(10, "b"), rows(0, "a")
    file = write(tmp_path, *batches)
    assert pq.read_table(file.path, partitioning=None) == pa.Table.from_batches(batches)
    assert pq.ParquetFile(file.path).num_row_groups == 2
    assert file.path.startswith(f"{tmp_path}/silver/things/cluster=blue/part-")
    assert (file.records, file.size) == (6, (tmp_path / file.path).stat().st_size)
    assert json.loads(file.stats) == {
        "numRecords": 6,
        "minValues": {"record_offset": 0, "at": "2026-01-02T03:04:05.678Z", "group_id": "a"},
        "maxValues": {"record_offset": 12, "at": "2026-01-02T03:04:05.680Z", "group_id": "b"},
        "nullCount": {"record_offset": 0, "at": 0, "group_id": 0, "note": 6},
    }


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("waiting", [1, 2**20])
def test_files_that_cannot_be_written_say_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiting: int
) -> None:
    monkeypatch.setattr("storage.files._MAX_WAITING", waiting)
    other = replace(_SPEC, name="silver.others")

    def fill() -> None:
        writer = FileWriter(str(tmp_path), "blue")
        for number in range(100):
            writer.add(other if number % 2 else _SPEC, rows(number, "a"))
        writer.close()

    with files_no_larger_than(100):
        with pytest.raises(OSError, match="File too large"):
            fill()
        gc.collect()  # what is left open would complain here


def test_a_long_text_bounds_only_from_below(tmp_path: Path) -> None:
    stats = json.loads(write(tmp_path, rows(0, "x" * 40)).stats)
    assert stats["minValues"]["group_id"] == "x" * 32
    assert "group_id" not in stats["maxValues"]


@pytest.mark.parametrize("most", [1, 3, 20])
def test_each_row_group_is_in_one_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("storage.files._SHARE_BYTES", 1)
    paths = [str(tmp_path / f"{n}.parquet") for n in range(2)]
    numbers = pa.table({"number": pa.array(range(50)), "text": ["some"] * 50})
    for path in paths:
        pq.write_table(numbers, path, row_group_size=10)
    shared = shares(paths, most)
    assert len(shared) == min(most, 10)
    found = [b for share in shared for b in read(share, ["number"])]
    assert [n for batch in found for n in batch["number"].to_pylist()] == [*range(50)] * 2
    assert {batch.num_columns for batch in found} == {1}


def test_nothing_is_shared_out_as_nothing() -> None:
    assert shares([], 4) == []


_TOPIC = "__consumer_offsets"


def recorded(path: Path, *offsets: tuple[int, int], topic: str = _TOPIC) -> str:
    """Write a file of records by partition and offset."""
    partitions, numbers = zip(*offsets, strict=True)
    columns = {name: pa.nulls(len(offsets)) for name in COLUMNS}
    columns |= {"topic": pa.array([topic] * len(offsets))}
    columns |= {"partition": pa.array(partitions), "offset": pa.array(numbers)}
    pq.write_table(pa.table(columns), path, row_group_size=2)
    return str(path)


def test_records_that_are_there_once_and_in_order_are_measured(tmp_path: Path) -> None:
    paths = [
        recorded(tmp_path / "a", (0, 5), (1, 7), (0, 6), (0, 9)),
        recorded(tmp_path / "b", (1, 0), (0, 10)),
        recorded(tmp_path / "c", (0, 5), topic="another"),
    ]
    assert plain_extents(paths, _TOPIC) == {
        (_TOPIC, 0): Extent(5, 10, 4, 4),
        (_TOPIC, 1): Extent(0, 7, 2, 2),
    }


@pytest.mark.parametrize(
    "offsets",
    [
        [(0, 5), (0, 5)],
        [(0, 5), (1, 5), (0, 4)],
        [(0, 5), (0, 6), (0, 7), (0, 6)],
        [(0, -1), (0, 0)],
        [(-1, 0)],
        [(None, 0)],
        [(0, None)],
    ],
)
def test_records_that_are_not_are_left_to_a_query(
    tmp_path: Path, offsets: list[tuple[int, int]]
) -> None:
    assert plain_extents([recorded(tmp_path / "a", *offsets)], _TOPIC) is None


def test_columns_that_are_elsewhere_are_left_to_spark(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a", (0, 5))
    pq.write_table(pq.read_table(path).drop_columns(["key"]), path)
    assert plain_extents([path], _TOPIC) is None


def test_files_that_overlap_are_left_to_a_query(tmp_path: Path) -> None:
    paths = [recorded(tmp_path / "a", (0, 1), (0, 5)), recorded(tmp_path / "b", (0, 3))]
    assert plain_extents(paths, _TOPIC) is None
    (tmp_path / "c").write_text("no Parquet")
    assert plain_extents([str(tmp_path / "c")], _TOPIC) is None


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    file = Path(write(tmp_path, rows(0, "g")).path)
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    share = [RowGroups(str(file), (0,))]
    with pytest.raises(LakehouseError, match=f"{file} is damaged"):
        list(read(share, ["group_id"]))
    with pytest.raises(LakehouseError, match=f"{file} is damaged"):
        read_where([str(file)], arrow_schema(_SPEC.columns))

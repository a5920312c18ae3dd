"""Files for Delta tables: their rows, and what Delta is told of them to skip them by."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.columns import ArrayOf, Column, Primitive, arrow_schema, column
from schemas.tables import TableSpec
from storage.files import DataFile, FileWriter

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

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
    (file,) = writer.close().values()
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


def test_a_long_text_bounds_only_from_below(tmp_path: Path) -> None:
    stats = json.loads(write(tmp_path, rows(0, "x" * 40)).stats)
    assert stats["minValues"]["group_id"] == "x" * 32
    assert "group_id" not in stats["maxValues"]

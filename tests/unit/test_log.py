"""Logs of tables, as delta-rs reads and writes them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import DeltaError
from deltalake.schema import PrimitiveType

from schemas.columns import column
from schemas.tables import TableSpec
from storage.errors import LakehouseError
from storage.files import DataFile, FileWriter
from storage.log import Log, make, opened

if TYPE_CHECKING:
    from pathlib import Path

SPEC = TableSpec(
    name="gold.rows",
    grain="rows",
    columns=(
        column("cluster", "string", "c"),
        column("group_id", "string", "g"),
        column("number", "bigint", "n"),
        column("is_settled", "boolean", "s"),
    ),
    key=("cluster", "group_id"),
    skipping=("group_id", "number"),
    partitions=("cluster", "is_settled"),
)
OPEN = {"cluster": "blue", "is_settled": "false"}


def test_of_many_that_make_a_table_at_once_one_does(tmp_path: Path) -> None:
    schema = Schema([Field("cluster", PrimitiveType("string"))]).to_json()

    def is_made(number: int) -> bool:
        try:
            make(tmp_path, schema, partitions=["cluster"], description=str(number), properties={})
        except DeltaError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        (number,) = [n for n, made in enumerate(pool.map(is_made, range(8))) if made]
    table = DeltaTable(tmp_path)
    assert table.version() == 0
    assert table.metadata().description == str(number)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "gold" / "rows"
    types = {"cluster": pa.string(), "group_id": pa.string(), "number": pa.int64()}
    schema = pa.schema({**types, "is_settled": pa.bool_()})
    DeltaTable.create(path, schema, partition_by=list(SPEC.partitions))
    return path


def written(root: Path, *rows: tuple[str, int, bool], cluster: str = "blue") -> list[DataFile]:
    """Write a file for each partition of some rows."""
    writer = FileWriter(str(root), cluster)
    group, number, is_settled = (list(column) for column in zip(*rows, strict=True))
    columns = {"group_id": group, "number": number, "is_settled": is_settled}
    writer.add(SPEC, pa.RecordBatch.from_pydict(columns))
    return [file for _, file in writer.close()]


def log_of(folder: Path) -> Log:
    log = opened(folder)
    assert log is not None
    return log


def add(
    log: Log, files: list[DataFile], application: str, version: int, places: dict[str, str] | None
) -> bool:
    """Add files, in the place of those of some partitions if they are given."""
    return log.add(files, application, version, () if places is None else log.files(places))


def held(folder: Path) -> list[tuple[str, str, int, bool]]:
    rows = DeltaTable(folder).to_pyarrow_table().to_pylist()
    return sorted((r["cluster"], r["group_id"], r["number"], r["is_settled"]) for r in rows)


def test_files_take_the_place_of_those_of_a_partition(folder: Path, tmp_path: Path) -> None:
    for cluster in ("blue", "red"):
        files = written(tmp_path, ("a", 1, True), ("b", 2, False), cluster=cluster)
        assert log_of(folder).add(files, cluster, 0)
    files = written(tmp_path, ("b", 3, True), ("c", 4, False))
    assert add(log_of(folder), files, "blue", 1, OPEN)
    of_red = [("red", "a", 1, True), ("red", "b", 2, False)]
    of_blue = [("blue", "a", 1, True), ("blue", "b", 3, True), ("blue", "c", 4, False)]
    assert held(folder) == of_blue + of_red
    assert log_of(folder).last_write("blue") == 1
    assert log_of(folder).last_write("green") == -1
    (still_open,) = log_of(folder).files(OPEN)
    assert (still_open["min"]["number"], still_open["max"]["number"]) == (4, 4)
    assert still_open["path"] == files[1].path


@pytest.mark.parametrize("instead_of", [None, {"cluster": "blue"}])
def test_of_two_writes_of_one_application_one_is_done(
    folder: Path, tmp_path: Path, instead_of: dict[str, str] | None
) -> None:
    first, second = log_of(folder), log_of(folder)
    assert add(first, written(tmp_path, ("a", 1, True)), "history", 0, instead_of)
    assert not add(second, written(tmp_path, ("a", 2, True)), "history", 0, instead_of)
    assert held(folder) == [("blue", "a", 1, True)]


@pytest.mark.parametrize("instead_of", [None, {"cluster": "red"}])
def test_a_write_that_another_came_before_is_not_done(
    folder: Path, tmp_path: Path, instead_of: dict[str, str] | None
) -> None:
    late = log_of(folder)
    assert log_of(folder).add(written(tmp_path, ("a", 1, True)), "blue", 0)
    files = written(tmp_path, ("a", 1, True), cluster="red")
    assert not add(late, files, "red", 0, instead_of)
    assert add(log_of(folder), files, "red", 0, instead_of)
    assert [row[0] for row in held(folder)] == ["blue", "red"]


def test_files_that_were_put_together_in_between_are_not_replaced_twice(
    folder: Path, tmp_path: Path
) -> None:
    for number in range(2):
        assert log_of(folder).add(written(tmp_path, ("a", number, True)), "history", number)
    late = log_of(folder)
    DeltaTable(folder).optimize.compact()
    files = written(tmp_path, ("b", 5, True))
    assert not add(late, files, "history", 2, {"cluster": "blue"})
    assert add(log_of(folder), files, "history", 2, {"cluster": "blue"})
    assert held(folder) == [("blue", "b", 5, True)]


def test_a_long_log_is_summed_up(folder: Path, tmp_path: Path) -> None:
    for number in range(25):
        files = written(tmp_path, ("a", number, False))
        assert add(log_of(folder), files, "history", number, OPEN)
    checkpoints = sorted(p.name[:20] for p in (folder / "_delta_log").glob("*.checkpoint.parquet"))
    assert [int(name) for name in checkpoints] == [10, 20]
    for commit in range(15):
        (folder / "_delta_log" / f"{commit:020}.json").unlink()
    assert log_of(folder).last_write("history") == 24
    assert held(folder) == [("blue", "a", 24, False)]


@pytest.mark.parametrize("damage", ["missing", "first missing", "cut off", "empty", "empty last"])
def test_a_log_that_is_not_whole(folder: Path, tmp_path: Path, damage: str) -> None:
    for number in range(3):
        assert log_of(folder).add(written(tmp_path, ("a", number, True)), "history", number)
    at = {"first missing": 0, "empty last": 3}.get(damage, 1)
    commit = folder / "_delta_log" / f"{at:020}.json"
    if damage.endswith("missing"):
        commit.unlink()
    else:
        content = commit.read_bytes()
        commit.write_bytes(content[: len(content) // 2] if damage == "cut off" else b"")
    with pytest.raises(LakehouseError, match=r"gold/rows: files of the table's log are missing"):
        opened(folder)


def test_no_table(tmp_path: Path) -> None:
    assert opened(tmp_path / "none") is None
    (tmp_path / "begun" / "_delta_log").mkdir(parents=True)
    assert opened(tmp_path / "begun") is None

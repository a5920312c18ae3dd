"""Which files of a folder are read without asking Spark for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sources.parquet import plain_files
from tests.conftest import RECORDINGS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b", "a"):
        (tmp_path / f"{name}.parquet").symlink_to(RECORDINGS / "4.3.1-storm.parquet")
    return tmp_path


def test_files_of_a_folder_but_for_those_that_spark_takes_for_none(folder: Path) -> None:
    for name in ("_SUCCESS", ".a.parquet.crc", "c.parquet._COPYING_"):
        (folder / name).touch()
    both = [str(folder / name) for name in ("a.parquet", "b.parquet")]
    assert plain_files(str(folder)) == both
    assert plain_files(both[1]) == both[1:]


@pytest.mark.parametrize("name", ["_day=1.parquet", "_metadata", "c.parquet"])
def test_what_spark_has_to_look_at(folder: Path, name: str) -> None:
    end = -1 if name == "c.parquet" else None
    (folder / name).write_bytes((folder / "a.parquet").read_bytes()[:end])
    assert plain_files(str(folder)) is None


def test_columns_that_are_of_other_types(folder: Path) -> None:
    records = pq.read_table(folder / "a.parquet")
    at = records.schema.get_field_index("offset")
    other = records.set_column(at, "offset", records["offset"].cast(pa.string()))
    pq.write_table(other, folder / "c.parquet")
    assert plain_files(str(folder)) is None


@pytest.mark.parametrize("path", ["", "none", "a.parquet/b", "part"])
def test_what_is_no_file(folder: Path, path: str) -> None:
    (folder / "part" / "inner").mkdir(parents=True)
    assert plain_files(str(folder / path)) is None


def test_a_url_is_for_spark(folder: Path) -> None:
    assert plain_files((folder / "a.parquet").as_uri()) is None

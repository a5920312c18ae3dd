"""What is asked of a lakehouse on this machine without Spark."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakehouse.local import NeedsSparkError, asked_here

if TYPE_CHECKING:
    from pathlib import Path

AT = dt.datetime(2026, 11, 21, 7, tzinfo=dt.timezone.utc)
AT_MS = int(AT.timestamp() * 1_000)
CLUSTER = "eu/west 1"
READ = {"rows": "SELECT observed_at, source FROM bronze.coverage WHERE observed_at <= :at"}


def write(root: Path, cluster: str, **columns: object) -> None:
    rows = pa.table({"cluster": [cluster], **{name: [value] for name, value in columns.items()}})
    path = str(root / "bronze/coverage")
    write_deltalake(path, rows, mode="append", partition_by=["cluster"], schema_mode="merge")


def test_rows_are_those_of_the_cluster_as_any_release_wrote_them(tmp_path: Path) -> None:
    write(tmp_path, CLUSTER, observed_at=AT)
    write(tmp_path, CLUSTER, observed_at=AT, source="kafka")
    write(tmp_path, CLUSTER, observed_at=AT + dt.timedelta(seconds=1), source="later")
    write(tmp_path, "other", observed_at=AT, source="other")
    rows = asked_here(tmp_path, CLUSTER)(READ, {"at": AT, "unused": 1})["rows"]
    assert sorted(rows.to_pylist(), key=str) == [
        {"observed_at": AT_MS, "source": "kafka"},
        {"observed_at": AT_MS, "source": None},
    ]


def test_a_column_that_no_release_wrote_yet_is_null(tmp_path: Path) -> None:
    write(tmp_path, CLUSTER, observed_at=AT)
    rows = asked_here(tmp_path, CLUSTER)(READ, {"at": AT})["rows"]
    assert rows.to_pylist() == [{"observed_at": AT_MS, "source": None}]


def test_a_table_that_nobody_made_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "bronze").mkdir()
    assert asked_here(tmp_path, CLUSTER)(READ, {"at": AT})["rows"].num_rows == 0


def test_what_is_damaged_is_left_to_spark(tmp_path: Path) -> None:
    write(tmp_path, CLUSTER, observed_at=AT)
    (data,) = tmp_path.glob("bronze/coverage/cluster=*/*.parquet")
    data.write_bytes(b"PAR1 and no more")
    with pytest.raises(NeedsSparkError):
        asked_here(tmp_path, CLUSTER)(READ, {"at": AT})
    (tmp_path / "bronze/coverage/_delta_log/00000000000000000000.json").write_text("{")
    with pytest.raises(NeedsSparkError):
        asked_here(tmp_path, CLUSTER)(READ, {"at": AT})


def test_what_is_not_on_this_machine_is_left_to_spark(tmp_path: Path) -> None:
    with pytest.raises(NeedsSparkError):
        asked_here(tmp_path, CLUSTER)(READ, {"at": AT})


def test_a_sum_is_a_whole_number(tmp_path: Path) -> None:
    (tmp_path / "bronze").mkdir()
    query = {"sum": "SELECT sum(CAST(1 AS BIGINT)) AS n, count_if(true) AS m"}
    assert asked_here(tmp_path, CLUSTER)(query, {})["sum"].to_pylist() == [{"n": 1, "m": 1}]

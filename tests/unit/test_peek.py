"""What is read of a table's files without Spark."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.peek import rows_in_files
from reporting.read import log_in_files
from schemas.tables import COVERAGE, GROUP_STATES

if TYPE_CHECKING:
    from pathlib import Path

AT = dt.datetime(2026, 11, 21, 7, tzinfo=dt.timezone.utc)
AT_MS = int(AT.timestamp() * 1_000)
TWO = "eu/west 1"


def folder_of(root: Path, table: str, cluster: str) -> Path:
    folder = root / table / f"cluster={cluster}"
    folder.mkdir(parents=True)
    (root / table / "_delta_log").mkdir(exist_ok=True)
    (root / table / "_delta_log" / "0.checkpoint.parquet").write_bytes(b"is no file of rows")
    return folder


def test_rows_are_of_the_cluster_and_of_every_release(tmp_path: Path) -> None:
    newer, older = (
        pa.table({"observed_at": [AT], "source": ["kafka"]}),
        pa.table({"observed_at": [AT]}),
    )
    pq.write_table(newer, folder_of(tmp_path, "bronze/coverage", "eu%2Fwest 1") / "1.parquet")
    pq.write_table(older, tmp_path / "bronze/coverage/cluster=eu%2Fwest 1/2.parquet")
    pq.write_table(newer, folder_of(tmp_path, "bronze/coverage", "other") / "1.parquet")
    rows = rows_in_files(tmp_path, TWO, COVERAGE, ["observed_at", "source"])
    assert rows is not None
    assert sorted(rows.to_pylist(), key=str) == [
        {"observed_at": AT_MS, "source": "kafka"},
        {"observed_at": AT_MS, "source": None},
    ]


def test_a_table_that_nobody_made_has_no_rows(tmp_path: Path) -> None:
    rows = rows_in_files(tmp_path, TWO, COVERAGE, ["observed_at"])
    assert rows is not None
    assert rows.num_rows == 0


def test_half_a_file_and_no_group_leave_the_answer_to_spark(tmp_path: Path) -> None:
    states = {"group_id": ["orders"], "started_at": [AT], "record_timestamp": [AT]}
    folder = folder_of(tmp_path, "gold/group_states", "one")
    pq.write_table(pa.table(states), folder / "1.parquet")
    known = log_in_files(tmp_path, "one")
    assert known is not None
    assert (known.groups, known.first, known.known_until) == (["orders"], AT_MS, AT_MS)
    assert log_in_files(tmp_path, "two") is None
    (folder / "2.parquet").write_bytes(b"PAR1 and no more")
    assert rows_in_files(tmp_path, "one", GROUP_STATES, ["group_id"]) is None
    assert log_in_files(tmp_path, "one") is None

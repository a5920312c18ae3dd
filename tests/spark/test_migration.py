"""A lakehouse that a release of format 1 wrote goes on as if this one had written it."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from lakehouse.tables import Lakehouse
from schemas.tables import decoded_table
from tests.conftest import RECORDINGS
from tests.support.jobs import contents, is_balanced, succeed
from tests.support.parts import parts_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Two of three parts of a recording, each brought by one pipeline.
FORMER = Path(__file__).parents[1] / "data" / "lakehouse-of-format-1.tar.gz"
# Which run wrote a row, and what detectors remember, is no matter of the rows themselves.
_OF_RUNS = ("gold.group_checkpoints", "gold.anomaly_checkpoints")
# Rows of silver stay as they were decoded: what columns were added since is null there.
_METADATA = decoded_table("group_metadata")
_ADDED = ("allocation", "allocation_error")


@pytest.fixture
def former(tmp_path: Path) -> str:
    root = tmp_path / "lakehouse"
    with tarfile.open(FORMER) as archive:
        archive.extractall(root, filter="data")
    return str(root)


def test_it_goes_on_where_it_was(spark: SparkSession, former: str, tmp_path: Path) -> None:
    parts = parts_of(RECORDINGS / "4.3.1-connect.parquet", tmp_path, 3)
    nothing = succeed("decode", "--lakehouse", former)
    assert nothing["records_read"] == 0
    summary = succeed("pipeline", "--records", parts[2], "--lakehouse", former)
    assert 0 < summary["records_ingested"] == summary["records_read"]
    whole = str(tmp_path / "whole")
    for part in parts:
        succeed("pipeline", "--records", part, "--lakehouse", whole)
    ours, theirs = (
        {
            name: _as_then(spark, root) if name == _METADATA.name else rows
            for name, rows in contents(spark, root).items()
            if name not in _OF_RUNS
        }
        for root in (former, whole)
    )
    assert ours == theirs
    assert is_balanced(spark, former)


def _as_then(spark: SparkSession, root: str) -> list[str]:
    """Return the rows of group_metadata with the columns that the former release knew."""
    worker = "connect_subscription"
    members = F.transform(
        "members", lambda m: m.withField(worker, m[worker].dropFields(*_ADDED))
    ).alias("members")
    rows = Lakehouse(spark, root, "default").read(_METADATA).drop("decode_run")
    found = rows.select(*(c for c in rows.columns if c != "members"), members).collect()
    return sorted(map(repr, found))


def test_its_runs_are_in_the_ledger(spark: SparkSession, former: str) -> None:
    runs = Lakehouse(spark, former, "default").runs
    decode, history = runs.last("decode"), runs.last("history")
    assert decode is not None
    assert history is not None
    assert (decode.run, decode.after_run, decode.to_run) == (1, 0, 1)
    assert decode.rows["silver.offset_commits"] > 0
    assert (history.run, history.to_run) == (1, 1)
    assert history.details["positions"]
    assert [row.run for row in runs.done("decode", -1, 1)] == [0, 1]
    assert (runs.last_number("ingest"), runs.last_number("anomalies")) == (1, 1)

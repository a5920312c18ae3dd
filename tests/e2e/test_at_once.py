"""Two runs on one lakehouse, started together as processes: one does the work, one says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import RECORDINGS
from tests.support.jobs import contents, differences, everything, is_balanced, succeed
from tests.support.kills import Job
from tests.support.parts import parts_of


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_two_pipelines_at_once(spark: SparkSession, tmp_path: Path) -> None:
    lakehouse, whole = tmp_path / "lakehouse", tmp_path / "whole"
    first, second = parts_of(RECORDINGS / "4.3.1-connect.parquet", tmp_path, 2)
    argv = ("pipeline", "--lakehouse", lakehouse, "--records")
    with Job(*argv, first) as one, Job(*argv, first) as other:
        statuses = [job.wait() for job in (one, other)]
    # The other is turned away, or comes late and finds nothing new.
    assert sorted(statuses) in ([0, 1], [0, 0]), one.err + other.err
    complaints = one.complaints + other.complaints
    assert len(complaints) == sum(statuses)
    assert all("another" in line for line in complaints)
    for part in (first, second):
        succeed("pipeline", "--records", part, "--lakehouse", whole)
    succeed("pipeline", "--records", second, "--lakehouse", lakehouse)
    assert differences(everything(spark, str(lakehouse)), everything(spark, str(whole))) == {}
    assert contents(spark, str(lakehouse)) == contents(spark, str(whole))
    assert is_balanced(lakehouse)

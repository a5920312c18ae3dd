"""A run by executors that are processes of their own, and have of ours what is sent to them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from jobs.runtime import jars
from tests.conftest import RECORDINGS
from tests.support.jobs import contents, differences, everything, succeed
from tests.support.kills import Job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

RECORDING = RECORDINGS / "4.3.1-connect.parquet"


@pytest.fixture
def _no_leftovers() -> Iterator[None]:
    """Clear away what a local cluster leaves beside Spark's JARs."""
    yield
    shutil.rmtree(jars.pyspark_home() / "work", ignore_errors=True)


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("_no_leftovers")
def test_a_cluster_gives_the_same_tables(spark: SparkSession, tmp_path: Path) -> None:
    lakehouse, here = tmp_path / "lakehouse", tmp_path / "here"
    argv = ("pipeline", "--records", RECORDING, "--lakehouse", lakehouse)
    # Two executors of one core and 1,024 MB.
    with Job(*argv, "--master", "local-cluster[2,1,1024]") as job:
        assert job.wait() == 0, job.err
    succeed("pipeline", "--records", RECORDING, "--lakehouse", here)
    assert differences(everything(spark, str(lakehouse)), everything(spark, str(here))) == {}
    assert contents(spark, str(lakehouse)) == contents(spark, str(here))

"""Runs by executors that are processes of their own, and have of ours what is sent to them.

Any test that runs jobs in the session runs on a cluster, too: ``./run-tests.sh --workers 2 FILE``.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs.demo import CHECKOUT
from jobs.demo import RECORDING as OF_DEMO
from launch import jars
from tests.conftest import RECORDINGS
from tests.support.cluster import FEW_TASKS, Standalone, standalone
from tests.support.jobs import Outcome, contents, differences, everything, succeed
from tests.support.kills import BRIEF, Job
from tests.support.parts import parts_of

RECORDING = RECORDINGS / "4.3.1-connect.parquet"


@pytest.fixture
def _no_leftovers() -> Iterator[None]:
    """Clear away what a local cluster leaves beside Spark's JARs."""
    yield
    shutil.rmtree(jars.pyspark_home() / "work", ignore_errors=True)


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("_no_leftovers")
def test_a_cluster_gives_the_same_tables(
    spark: SparkSession, demo: Outcome, tmp_path: Path
) -> None:
    lakehouse, here = str(tmp_path / "lakehouse"), str(Path(demo.summary["report"]).parent)
    argv = ("pipeline", "--records", CHECKOUT / OF_DEMO, "--skip", "report", "--lakehouse")
    of_executors = ("--conf", "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1")
    # Two executors of one core and 1,024 MB.
    there = ("--master", "local-cluster[2,1,1024]", *BRIEF, *of_executors)
    with Job(*argv, lakehouse, *there) as job:
        assert job.wait() == 0, job.err
    assert differences(everything(spark, lakehouse), everything(spark, here)) == {}
    assert contents(spark, lakehouse) == contents(spark, here)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    with standalone(2, tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return parts_of(RECORDING, tmp_path_factory.mktemp("parts"), 2)


@pytest.fixture(scope="module")
def whole(
    spark: SparkSession, parts: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[str]]:
    """What the tables hold when nothing happens."""
    root = str(tmp_path_factory.mktemp("whole") / "lakehouse")
    for part in parts:
        succeed("pipeline", "--records", part, "--lakehouse", root)
    return contents(spark, root)


def pipeline(cluster: Standalone, part: Path, root: Path) -> Job:
    argv = ("pipeline", "--records", part, "--lakehouse", root)
    return Job(*argv, "--master", cluster.master, "--conf", FEW_TASKS)


@pytest.mark.cluster
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("goes", ["a worker", "the driver"])
def test_what_goes_amid_a_run_changes_nothing(
    spark: SparkSession,
    cluster: Standalone,
    parts: list[Path],
    whole: dict[str, list[str]],
    tmp_path: Path,
    *,
    goes: str,
) -> None:
    root = tmp_path / "lakehouse"
    with pipeline(cluster, parts[0], root) as job:
        if goes == "a worker":
            assert job.await_file(root, "silver/offset_commits/_delta_log/*.json"), job.out
            cluster.kill_worker(0)
            assert job.wait() == 0, job.out
        else:
            assert job.kill_when(root, "gold/group_states/_delta_log/*.json"), job.out
    for part in parts:  # of the first one nothing is new, or the rest of what was planned
        with pipeline(cluster, part, root) as job:
            assert job.wait() == 0, job.out
    assert contents(spark, str(root)) == whole

"""What a cluster needs is written, and the command that is printed runs a pipeline there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from launch import packaging
from tests.conftest import RECORDINGS
from tests.support.cluster import FEW_TASKS, Standalone, standalone
from tests.support.jobs import contents, succeed
from tests.support.kills import Job

RECORDING = RECORDINGS / "4.3.1-connect.parquet"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    with standalone(1, tmp_path / "cluster") as cluster:
        yield cluster


@pytest.mark.cluster
@pytest.mark.timeout(1_800)
def test_the_command_that_is_printed_runs_a_pipeline(
    spark: SparkSession, cluster: Standalone, tmp_path: Path
) -> None:
    out, lakehouse, here = (tmp_path / name for name in ("out", "lakehouse", "here"))
    with Job("package", "--out", out, "--lakehouse", lakehouse) as job:
        assert job.wait() == 0, job.err
    line = job.out.replace("MASTER", f"{cluster.master} --conf {FEW_TASKS}")
    line = line.replace("--bootstrap-servers HOST:PORT", f"--records {RECORDING}")
    bin_ = os.path.dirname(sys.executable)  # noqa: PTH120 - not where the link points to
    env = {name: value for name, value in os.environ.items() if not name.startswith("PY")}
    env["PATH"] = f"{bin_}{os.pathsep}{env['PATH']}"
    done = subprocess.run(
        ["/bin/bash", "-c", line],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (unpacked,) = (tmp_path / "cluster").glob("worker-0/*/*/environment/bin/python")
    assert unpacked.exists()
    succeed("pipeline", "--records", RECORDING, "--lakehouse", here)
    assert contents(spark, str(lakehouse)) == contents(spark, str(here))


@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_executors_without_a_library_are_told_before_any_table_is_touched(
    cluster: Standalone, tmp_path: Path
) -> None:
    bare = os.path.realpath(sys.executable)
    argv = ("pipeline", "--records", RECORDING, "--lakehouse", tmp_path / "lakehouse")
    options = ("--master", cluster.master, "--conf", f"spark.pyspark.python={bare}")
    with Job(*argv, *options) as job:
        assert job.wait() == 1, job.err
    (line,) = [line for line in job.out.splitlines() if line.startswith("groupledger:")]
    assert re.search(r"executors on .+ lack .*pyarrow: give them the environment", line), line
    assert not (tmp_path / "lakehouse").exists()


def test_what_is_no_environment_is_not_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    with pytest.raises(packaging.PackageError, match="in no virtual environment"):
        packaging.package(str(tmp_path), "/data")
    monkeypatch.undo()
    (tmp_path / "file").touch()
    with pytest.raises(packaging.PackageError, match="cannot be written: File exists"):
        packaging.package(str(tmp_path / "file"), "/data")

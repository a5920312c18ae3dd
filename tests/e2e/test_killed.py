"""A pipeline killed by SIGKILL at telling moments, then run to its end, leaves what one run has."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from jobs.runtime import launch
from schemas.tables import COVERAGE, RECORDS
from tests.conftest import RECORDINGS
from tests.support import clients
from tests.support.jobs import contents, is_balanced, succeed, table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.broker import Broker

RECORDING = RECORDINGS / "4.3.1-connect.parquet"

# Each is a file whose appearance says how far the run is; the kill follows at once.
OF_INGEST = {
    "first data file of bronze": "bronze/records/cluster=default/*.parquet",
    "bronze committed, coverage not": "bronze/records/_delta_log/*1.json",
}
OF_PIPELINE = {
    "decode run planned": "silver/decode_runs/_delta_log/*1.json",
    "first data file of silver": "silver/*/cluster=default/*.parquet",
    "one silver table committed": "silver/offset_commits/_delta_log/*1.json",
    "one gold table committed": "gold/group_states/_delta_log/*1.json",
}


def start(*argv: str) -> subprocess.Popen[bytes]:
    target = launch.choose_target(None, {})
    command, env = launch.job_process(target, argv, {})
    return subprocess.Popen(
        command,
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def kill_when(process: subprocess.Popen[bytes], lakehouse: Path, pattern: str) -> bool:
    """Kill a job's processes as soon as a file is there; tell whether the job still ran."""
    seen = set(lakehouse.glob(pattern))
    while process.poll() is None:
        if set(lakehouse.glob(pattern)) - seen:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return True
        time.sleep(0.002)
    return False


@pytest.mark.timeout(900)
def test_a_pipeline_killed_again_and_again_loses_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    lakehouse = tmp_path / "lakehouse"
    argv = ("pipeline", "--records", str(RECORDING), "--lakehouse", str(lakehouse))
    killed = {
        moment: kill_when(start(*argv), lakehouse, pattern)
        for moment, pattern in OF_PIPELINE.items()
    }
    # A moment that a former kill has already passed does not come again.
    assert sum(killed.values()) >= 2, killed
    succeed(*argv)
    whole = str(tmp_path / "whole")
    succeed("pipeline", "--records", RECORDING, "--lakehouse", whole)
    assert contents(spark, str(lakehouse)) == contents(spark, whole)
    assert is_balanced(spark, str(lakehouse))
    offsets = ("topic", "record_partition", "from_offset", "next_offset", "record_count", "holes")
    ours, theirs = (
        sorted(map(repr, table(spark, root, COVERAGE.name).select(*offsets).collect()))
        for root in (str(lakehouse), whole)
    )
    assert ours == theirs


def test_an_ingest_from_a_cluster_killed_twice_loses_and_doubles_nothing(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    lakehouse = tmp_path / "lakehouse"
    argv = (
        *("ingest", "--bootstrap-servers", broker.bootstrap, "--topic", "killed"),
        *("--lakehouse", str(lakehouse)),
    )
    clients.create_topic(broker.bootstrap, "killed", partitions=2)
    for partition in range(2):
        clients.produce(broker.bootstrap, "killed", 10, partition=partition)
    assert all(kill_when(start(*argv), lakehouse, pattern) for pattern in OF_INGEST.values())
    clients.produce(broker.bootstrap, "killed", 1, partition=1)
    succeed(*argv)
    records = table(spark, str(lakehouse), RECORDS.name).collect()
    expected = [(0, offset) for offset in range(10)] + [(1, offset) for offset in range(11)]
    assert sorted((r.record_partition, r.record_offset) for r in records) == expected
    covered = table(spark, str(lakehouse), COVERAGE.name).collect()
    assert not any(r.holes for r in covered)
    assert sorted((r.record_partition, r.from_offset, r.next_offset) for r in covered) == [
        (0, 0, 10),
        (1, 0, 10),
        (1, 10, 11),
    ]

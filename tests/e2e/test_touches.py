"""How often a run asks its tables and commits to them: what a run has made, it does not read."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import touches
from tests.conftest import RECORDINGS
from tests.support.jobs import succeed
from tests.support.parts import parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

# Of the run behind the first: what other runs made and this one goes on from, by table.
SCANS = {
    "bronze.runs": 1,
    # Where each group and partition is, and who goes on.
    "gold.group_checkpoints": 2,
    "gold.committed_offsets": 1,
    "gold.anomaly_checkpoints": 1,
    # Rows that are open, or go on; two suites and the page look back.
    "gold.group_states": 3,
    "gold.group_generations": 4,
    "gold.member_sessions": 2,
    "gold.partition_owners": 3,
    "gold.offset_progress": 4,
    "gold.anomalies": 2,
    # The page and the summary say how much is missing.
    "bronze.coverage": 1,
    "silver.quarantine": 1,
    "dq.results": 1,
}
LEDGER = 5
"""Commits to the ledger: the plans of four stages, and the end."""


@contextmanager
def noted(spark: SparkSession, events: Path) -> Iterator[Path]:
    """Have Spark write an event log of what its session does meanwhile."""
    events.mkdir()
    jvm, context = spark._jvm, spark.sparkContext._jsc.sc()
    conf = context.conf().clone().set("spark.eventLog.compress", "false")
    conf = conf.set("spark.eventLog.rolling.enabled", "false")
    where = jvm.java.net.URI(events.as_uri())  # type: ignore[union-attr]
    none, listeners = jvm.scala.Option.apply(None), jvm.org.apache.spark.scheduler  # type: ignore[union-attr]
    listener = listeners.EventLoggingListener("touches", none, where, conf)
    listener.start()
    context.addSparkListener(listener)
    try:
        yield events / "touches"
    finally:
        context.listenerBus().waitUntilEmpty()
        context.removeSparkListener(listener)
        listener.stop()


@pytest.mark.timeout(600)
def test_a_run_asks_for_what_others_made_and_commits_once_a_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    recorded, some = pq.read_table(RECORDINGS / "4.3.1-modern.parquet"), tmp_path / "some.parquet"
    # Classic and consumer groups: those of the other protocols have a table for each record type.
    is_of_these = pa.array([key[1] <= 8 for key in recorded["key"].to_pylist()])
    pq.write_table(recorded.filter(is_of_these), some)
    first, second = parts_of(some, tmp_path / "parts", 2)
    lakehouse = tmp_path / "lakehouse"
    succeed("pipeline", "--records", first, "--lakehouse", lakehouse)
    before = touches.commits(lakehouse)
    with noted(spark, tmp_path / "events") as log:
        succeed("pipeline", "--records", second, "--lakehouse", lakehouse)
    scans, commits = touches.scans(log), touches.commits(lakehouse) - before
    assert scans["gold.group_states"]
    assert not scans - Counter(SCANS)
    assert commits.pop("bronze.runs") <= LEDGER
    assert set(commits.values()) == {1}

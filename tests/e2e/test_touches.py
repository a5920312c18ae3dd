"""How often Spark scans the tables in a run, and how often a run commits to them.

What a run has made, Spark does not read again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from benchmarks import touches
from tests.conftest import RECORDINGS
from tests.support.jobs import succeed
from tests.support.parts import parts_of

# What other runs made and the run behind the first goes on from, by table. What has few rows as an
# answer is asked without Spark here: what the page shows, what is validated, how groups are.
SCANS = {
    # Where each group and partition is, and who goes on.
    "gold.group_checkpoints": 2,
    "gold.committed_offsets": 1,
    "gold.anomaly_checkpoints": 1,
    # Rows that are open, or go on.
    "gold.group_states": 1,
    "gold.group_generations": 1,
    "gold.member_sessions": 1,
    "gold.partition_owners": 1,
    "gold.offset_progress": 3,
}
LEDGER = 4
"""Commits to the ledger: the plans of three stages, and the end."""


@contextmanager
def noted(spark: SparkSession, events: Path) -> Iterator[None]:
    """Write an event log of what the session does meanwhile, the only file of a folder."""
    events.mkdir()
    context, jvm = spark._jsc.sc(), spark._jvm
    conf, nothing = context.getConf(), jvm.scala.Option.apply(None)
    for name in ("compress", "rolling.enabled"):
        conf.set(f"spark.eventLog.{name}", "false")
    folder = jvm.java.net.URI(events.as_uri())
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener("noted", nothing, folder, conf)
    listener.start()
    context.addSparkListener(listener)
    try:
        yield
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
    kept = recorded.filter(is_of_these)
    # Without holes, for which a run looks into its records.
    following: Counter[int] = Counter()
    offsets = []
    for partition in kept["partition"].to_pylist():
        offsets.append(following[partition])
        following[partition] += 1
    number = kept.schema.get_field_index("offset")
    pq.write_table(kept.set_column(number, "offset", pa.array(offsets, pa.int64())), some)
    first, second = parts_of(some, tmp_path / "parts", 2)
    lakehouse = tmp_path / "lakehouse"
    succeed("pipeline", "--records", first, "--lakehouse", lakehouse, "--skip", "report")
    before = touches.commits(lakehouse)
    with noted(spark, tmp_path / "events"):
        succeed("pipeline", "--records", second, "--lakehouse", lakehouse)
    (log,) = (tmp_path / "events").glob("[!.]*")
    scans, commits = touches.scans(log), touches.commits(lakehouse) - before
    assert scans
    assert scans - Counter(SCANS) == Counter()
    assert commits.pop("bronze.runs") <= LEDGER
    assert set(commits.values()) == {1}

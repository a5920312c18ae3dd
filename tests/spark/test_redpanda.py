"""A topic of Redpanda's, which is Kafka's but for its members, some keys, and where groups are."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from jobs.check import _vendor
from sources import parquet
from tests.conftest import FIELD
from tests.support.jobs import asked, succeed

FILE = FIELD / "redpanda.parquet"


@pytest.mark.parametrize(
    ("file", "vendor"), [(FILE, "Redpanda"), (FIELD / "written-by-spark.parquet", None)]
)
def test_check_knows_who_wrote_files(spark: SparkSession, file: Path, vendor: str | None) -> None:
    assert _vendor(parquet.read(spark, str(file))) == vendor


@pytest.mark.usefixtures("spark")
def test_groups_of_redpanda_are_like_any_others(tmp_path: Path) -> None:
    """Two runs: the second one has a group of its own and the wrapped tombstone."""
    records = pq.read_table(FILE)
    is_first = pa.compute.less(records["offset"], 150)
    root = f"{tmp_path}/lakehouse"
    steps = ((records.filter(is_first), "validate,report"), (records, "report"))
    for number, (some, skipped) in enumerate(steps):
        path = f"{tmp_path}/{number}.parquet"
        pq.write_table(some, path)
        line = ("--records", path, "--lakehouse", root, "--strict", "--skip", skipped)
        summary = succeed("pipeline", *line)
        assert summary["quarantined"] == 0
    assert summary["expectations_failed"] == 0
    assert summary["expectations"] > 50
    states = asked(root, "SELECT group_id, state FROM gold.group_states WHERE ended_at IS NULL")
    stable = {row["group_id"] for row in states if row["state"] == "Stable"}
    assert stable == {f"f01-app-{n}" for n in range(6)}
    owners = asked(root, "SELECT DISTINCT group_id FROM gold.partition_owners")
    assert {row["group_id"] for row in owners} == {*stable, "f01-wrapped"}
    of_wrapped = (
        "SELECT topic_partition, is_deleted FROM gold.committed_offsets"
        " WHERE group_id = 'f01-wrapped'"
    )
    offsets = {row["topic_partition"]: row["is_deleted"] for row in asked(root, of_wrapped)}
    assert offsets == {0: True, 1: False}
    kinds = {row["kind"] for row in asked(root, "SELECT kind FROM gold.anomalies")}
    assert not kinds & {"misplaced_record", "undecodable_records"}

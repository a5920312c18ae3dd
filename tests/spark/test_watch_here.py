"""A watch of few records is done in the driver's process, and finds what Spark's tasks find."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jobs.runtime import anomalies
from schemas.tables import ANOMALIES, ANOMALY_HEADS, GROUP_HEALTH
from tests.conftest import RECORDINGS
from tests.support.jobs import differences, everything, succeed
from tests.support.parts import parts_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

JOBS = ("decode", "history", "anomalies")


@pytest.mark.parametrize("name", ["4.3.1-storm", "4.3.1-modern"])
def test_the_driver_finds_what_tasks_find(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    found = []
    parts = parts_of(RECORDINGS / f"{name}.parquet", tmp_path / "parts", 3)
    # The second comes last, so that groups are told of anew.
    order = [parts[0], parts[2], parts[1]]
    for way, records in (("here", 500_000), ("tasks", -1)):
        monkeypatch.setattr(anomalies, "_RECORDS_HERE", records)
        root = tmp_path / way
        for part in order:
            succeed("ingest", "--records", part, "--lakehouse", root)
            for job in JOBS:
                succeed(job, "--lakehouse", root)
        held = everything(spark, str(root))
        found.append({spec.name: held[spec.name] for spec in (ANOMALIES, ANOMALY_HEADS)})
        assert held[GROUP_HEALTH.name]
    assert differences(*found) == {}
    assert all(found[0].values())

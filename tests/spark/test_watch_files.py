"""A watch finds the same in the driver's process, in tasks that read files, and by Spark."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from jobs.runtime import anomalies, watch_files
from jobs.runtime.shares import shared_out
from jobs.runtime.watch_files import Place, Watch
from schemas.tables import ANOMALIES, ANOMALY_HEADS, GROUP_HEALTH
from storage import queries
from tests.conftest import RECORDINGS
from tests.support.jobs import by_spark, differences, everything, run_of, succeed
from tests.support.parts import parts_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from jobs.runtime.shares import Share

# How many records are watched here, and whether tasks may read files.
WAYS = {"here": (500_000, True), "in_tasks": (-1, True), "by_spark": (-1, False)}


# So that there is something to find out about the log.
LIMITS = """
oversized_record = {bytes = 1}
hot_partition = {least_records = 1, share = 0.1}
no_progress = {least_commits = 2}
stale_group = {idle_ms = 1}
cleaner_stalled = {age_ms = 1, least_records = 2, superseded_share = 0.01}
"""


@pytest.mark.parametrize("name", ["4.3.1-storm", "4.3.1-modern"])
def test_a_watch_finds_the_same_wherever_it_is_done(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    parts = parts_of(RECORDINGS / f"{name}.parquet", tmp_path / "parts", 3)
    told = tmp_path / "told"
    limits = tmp_path / "limits.toml"
    limits.write_text(LIMITS)
    gone: dict[str, set[str]] = {way: set() for way in WAYS}
    shares: list[Share] = []

    def by_group(weights: Mapping[tuple[str, int], float], _: float) -> list[Share]:
        # A partition is cut behind each group.
        found = shared_out(weights, min(weights.values()))
        shares.extend(found)
        return found

    # The second comes last, so that groups are told of anew.
    for part in (parts[0], parts[2], parts[1]):
        succeed("ingest", "--records", part, "--lakehouse", told)
        for job in ("decode", "history"):
            succeed(job, "--lakehouse", told)
        for way, (records, reads_files) in WAYS.items():
            shutil.copytree(told, tmp_path / way, dirs_exist_ok=True)
            with monkeypatch.context() as patch:
                patch.setattr(anomalies, "_RECORDS_HERE", records)
                if not reads_files:
                    patch.setattr(anomalies, "_source", lambda *_: None)
                    patch.setattr(queries, "queries_of", by_spark)
                patch.setattr(watch_files, "shared_out", by_group)
                for step in ("here", "in_tasks"):
                    patch.setattr(Watch, step, _noting(gone[way], step))
                succeed("anomalies", "--lakehouse", tmp_path / way, "--thresholds", limits)
    # Of the storm, each group has a partition of its own.
    assert any(share.to is not None for share in shares) == (name != "4.3.1-storm")
    assert gone == {"here": {"here"}, "in_tasks": {"in_tasks"}, "by_spark": set()}
    held = {way: everything(spark, str(tmp_path / way)) for way in WAYS}
    found = {
        way: {s.name: rows[s.name] for s in (ANOMALIES, ANOMALY_HEADS, GROUP_HEALTH)}
        for way, rows in held.items()
    }
    assert differences(found["here"], found["in_tasks"]) == {}
    assert differences(found["here"], found["by_spark"]) == {}
    assert all(found["here"].values())
    kinds = ("oversized_record", "hot_partition", "cleaner_stalled")
    assert all(any(kind in row for row in found["here"][ANOMALIES.name]) for kind in kinds)


def _noting(gone: set[str], step: str) -> object:
    do = getattr(Watch, step)

    def noted(*given: object) -> object:
        gone.add(step)
        return do(*given)

    return noted


def test_groups_with_records_in_two_partitions_are_put_together_by_spark(
    spark: SparkSession, storm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(spark, storm, "anomalies", "--cluster", "one")
    plan = anomalies.Plan(0, -1, 0, 0, is_anew=False)
    news = anomalies._news(run.lakehouse, plan)
    source = anomalies._source(run.lakehouse, plan, news)
    assert source is not None
    places = anomalies._places(run.lakehouse, news)
    assert anomalies.watch_files.is_shareable(source, places)
    elsewhere = Place(places[0].group_id, places[0].partition + 1, 1, None)
    assert not anomalies.watch_files.is_shareable(source, [*places, elsewhere])
    monkeypatch.setitem(run.lakehouse.__dict__, "local_root", None)
    assert sorted(places) == sorted(anomalies._places(run.lakehouse, news))

"""Groups whose records are in two partitions, since the topic has grown."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.placement import partition_for
from tests.support.jobs import asked, query, succeed
from tests.support.topic import MINUTE, Topic

if TYPE_CHECKING:
    from pathlib import Path

START = 1_700_000_000_000
DAY = 24 * 60 * MINUTE
GROUPS = [f"group-{n}" for n in range(12)]
MOVED = {g for g in GROUPS if partition_for(g, 25) != partition_for(g, 50)}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("runs", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_group_goes_on_where_it_belongs_now(tmp_path: Path, runs: int) -> None:
    root, topic, files = tmp_path / "lakehouse", Topic(), 0

    def ingest(*, is_last: bool = False) -> None:
        nonlocal files
        if runs > 1 or is_last:
            path = topic.write(tmp_path / f"{files}.parquet")
            line = ("--records", path, "--lakehouse", root, "--strict", "--skip", "report")
            summary = succeed("pipeline", *line)
            assert summary["expectations_failed"] == 0
            files += 1

    for n, group in enumerate(GROUPS):
        topic.lives(group, partition_for(group, 25), START + n, 10, minutes=20)
    ingest()
    for n, group in enumerate(GROUPS):
        topic.lives(group, partition_for(group, 50), START + DAY + n, 20)
    ingest()
    for n, group in enumerate(sorted(MOVED)):
        topic.expire(group, partition_for(group, 25), START + 8 * DAY + n)
    ingest(is_last=True)

    now = asked(root, "SELECT * FROM gold.group_states WHERE ended_at IS NULL")
    assert {r["group_id"]: r["record_partition"] for r in now} == {
        group: partition_for(group, 50) for group in GROUPS
    }
    assert {r["state"] for r in now} == {"Stable"}
    dead = asked(root, "SELECT DISTINCT group_id FROM gold.group_states WHERE state = 'Dead'")
    assert {r["group_id"] for r in dead} == MOVED
    (states,) = asked(root, "SELECT count(*) AS n FROM gold.group_states")
    assert query(root, "SELECT count(*) AS n FROM gold.timeline") == [states]
    commits = asked(root, "SELECT * FROM gold.committed_offsets")
    assert {r["committed_offset"] for r in commits} == {20}
    assert not asked(root, "SELECT * FROM gold.anomalies WHERE kind = 'misplaced_record'")
    assert not asked(root, "SELECT * FROM gold.anomalies WHERE kind = 'offsets_expired'")
    # Those that had to start over have not stopped to commit.
    stalled = asked(root, "SELECT group_id FROM gold.anomalies WHERE kind = 'commit_stall'")
    assert {r["group_id"] for r in stalled} == {*GROUPS} - MOVED


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("runs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_group_with_two_coordinators_has_both_histories(tmp_path: Path, runs: int) -> None:
    root, topic = tmp_path / "lakehouse", Topic()
    split, moved, *_ = sorted(MOVED)
    old, other = partition_for(split, 25), f"{split} (partition {partition_for(split, 25)})"
    for n, group in enumerate(GROUPS):
        topic.lives(group, partition_for(group, 25), START + n, 10, minutes=5)
    for n, group in enumerate(GROUPS):
        topic.lives(group, partition_for(group, 50), START + 10 * MINUTE + n, 20, minutes=50)
    for run in range(runs):
        # One broker counts by the old number of partitions.
        topic.lives(split, old, START + (12 + 20 * run) * MINUTE, 30 + run, minutes=20)
        path = topic.write(tmp_path / f"{run}.parquet")
        summary = succeed(
            "pipeline", "--records", path, "--lakehouse", root, "--strict", "--skip", "report"
        )
        assert summary["expectations_failed"] == 0
    committed = asked(root, "SELECT group_id, committed_offset FROM gold.committed_offsets")
    offsets = {r["group_id"]: r["committed_offset"] for r in committed}
    assert offsets == {**dict.fromkeys(GROUPS, 20), other: 29 + runs}
    (found,) = asked(root, "SELECT * FROM gold.anomalies WHERE kind = 'misplaced_record'")
    assert (found["group_id"], found["label"]) == (split, "two_coordinators")
    assert other in found["summary"]
    where = "record_partition, count(*) AS number FROM gold.group_generations"
    of_both = asked(root, f"SELECT group_id, {where} GROUP BY ALL ORDER BY ALL")
    told = {(r["group_id"], r["record_partition"]): r["number"] for r in of_both}
    assert told[other, old] == runs
    assert told[moved, partition_for(moved, 50)] == 1
    # Neither skips nor goes back because of the other.
    kinds = "kind IN ('offset_rewind', 'offset_jump')"
    assert not asked(
        root, f"SELECT * FROM gold.anomalies WHERE {kinds} AND group_id LIKE '{split}%'"
    )


@pytest.mark.usefixtures("spark")
def test_records_that_are_astray_or_refused_count_once(tmp_path: Path) -> None:
    root, topic = tmp_path / "lakehouse", Topic()

    def ingest(path: Path) -> None:
        succeed("silver", "--records", path, "--lakehouse", root)

    def counted(*jobs: str) -> dict[str, int]:
        for job in jobs or ("history", "anomalies"):
            succeed(job, "--lakehouse", root)
        kinds = "kind IN ('misplaced_record', 'undecodable_records')"
        found = asked(root, f"SELECT kind, evidence FROM gold.anomalies WHERE {kinds}")
        assert len(found) == len({r["kind"] for r in found})
        return {r["kind"]: json.loads(r["evidence"])["records"] for r in found}

    for n, group in enumerate(GROUPS):
        topic.lives(group, partition_for(group, 50), START + n, 10)
    astray = (partition_for(GROUPS[0], 50) + 1) % 50
    topic.lives(GROUPS[0], astray, START + MINUTE, 10)
    topic.add(astray, START + MINUTE, (b"\x7f", b"?"))
    first = topic.write(tmp_path / "1.parquet")
    ingest(first)
    once = {"misplaced_record": 2, "undecodable_records": 1}
    assert counted() == once
    # A file that has them again, and more that is astray.
    topic.lives(GROUPS[0], astray, START + 2 * MINUTE, 10)
    both = pa.concat_tables(
        [pq.read_table(first), pq.read_table(topic.write(tmp_path / "2.parquet"))]
    )
    pq.write_table(both, tmp_path / "both.parquet")
    ingest(tmp_path / "both.parquet")
    once["misplaced_record"] = 4
    assert counted() == once
    shutil.rmtree(root / "gold" / "anomaly_checkpoints")
    assert counted("anomalies") == once
    shutil.rmtree(root / "gold" / "group_checkpoints")
    assert counted() == once

"""What is found is written once, whatever comes late, or again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from schemas.placement import partition_for
from tests.support.jobs import asked, succeed
from tests.support.topic import MINUTE, Topic

START = 1_700_002_800_000  # an hour begins
HOUR = 60 * MINUTE
STUCK, GOES_ON = "stuck", "goes-on"
HALFWAY, SLOW, FURTHEST = "stuck-halfway", "slow", "furthest"
# Groups of the hour before, one of which has records astray.
GROUPS = [f"group-{n}" for n in range(12)]
ASTRAY = (partition_for(GROUPS[0], 50) + 1) % 50
THRESHOLDS = """
[no_progress]
least_ms = 600_000
least_commits = 20
[hot_partition]
least_records = 50
share = 0.2
"""
Settled = dict[tuple[str, str | None], int]


class Told(NamedTuple):
    """Two runs over groups of all these tests."""

    behind: list[Path]  # a lakehouse as it was behind each, not to be written to
    thresholds: Path  # those of its anomalies
    late: Path  # a file with commits of an hour that was over by then


def tell(records: Path, root: Path, thresholds: Path) -> None:
    """Do a run of all that these tests look at."""
    succeed("silver", "--records", records, "--lakehouse", root)
    succeed("history", "--lakehouse", root)
    succeed("anomalies", "--lakehouse", root, "--thresholds", thresholds)


@pytest.fixture(scope="module")
def told(
    spark: SparkSession,  # noqa: ARG001
    tmp_path_factory: pytest.TempPathFactory,
) -> Told:
    folder, topic = tmp_path_factory.mktemp("settled"), Topic()
    limits = folder / "thresholds.toml"
    limits.write_text(THRESHOLDS)
    for n, group in enumerate(GROUPS):
        topic.lives(group, partition_for(group, 50), START - 40 * MINUTE + n, 10)
    topic.lives(GROUPS[0], ASTRAY, START - 39 * MINUTE, 10)
    topic.add(ASTRAY, START - 39 * MINUTE, (b"\x7f", b"?"))
    for n in range(40):
        topic.commits(GOES_ON, partition_for(GOES_ON, 50), START + n * MINUTE, 100 + n)
    of_stuck = len(topic.rows)
    for n in range(60):
        topic.commits(STUCK, partition_for(STUCK, 50), START + n * MINUTE, 5)
    late = topic.rows[of_stuck + 20 : of_stuck + 30]
    del topic.rows[of_stuck + 20 : of_stuck + 30]
    for n in range(45):
        at = START + n * MINUTE
        topic.commits(HALFWAY, partition_for(HALFWAY, 50), at, 100 + min(n, 20))
        # For some minutes, and where nobody is further.
        topic.commits(SLOW, partition_for(SLOW, 50), at, 100 + (25 if 25 < n < 34 else n))
        topic.commits(FURTHEST, partition_for(FURTHEST, 50), at, 145)
    first = topic.write(folder / "1.parquet")
    for n in range(5):
        for group in (STUCK, GOES_ON):
            at = START + 5 * HOUR + n * MINUTE
            topic.commits(group, partition_for(group, 50), at, 200 + n)
    topic.lives(GROUPS[0], ASTRAY, START + 5 * HOUR, 10)
    # A file that has the first ones again, and more that is astray.
    second, new = folder / "both.parquet", topic.write(folder / "2.parquet")
    pq.write_table(pa.concat_tables([pq.read_table(first), pq.read_table(new)]), second)
    root, behind = folder / "lakehouse", []
    for number, records in enumerate((first, second)):
        tell(records, root, limits)
        behind.append(shutil.copytree(root, folder / f"behind-{number}"))
    topic.rows = late
    return Told(behind, limits, topic.write(folder / "late.parquet"))


def settled(root: Path) -> tuple[Settled, dict[str | None, str]]:
    """Give the commits that each settled anomaly is found in, and since when by group."""
    kinds = "kind IN ('no_progress', 'hot_partition') AND is_settled"
    names = "kind, group_id, evidence, started_at"
    rows = asked(root, f"SELECT {names} FROM gold.anomalies WHERE {kinds}")
    evidence = {(r["kind"], r["group_id"]): json.loads(r["evidence"]) for r in rows}
    assert len(evidence) == len(rows)
    found = {k: e.get("commits", e.get("commits_an_hour")) for k, e in evidence.items()}
    return found, {r["group_id"]: str(r["started_at"]) for r in rows}


@pytest.mark.timeout(900)
def test_late_commits_of_an_hour_that_is_over(told: Told, tmp_path: Path) -> None:
    first, second = told.behind
    assert not settled(first)[0]  # it may go on
    expected: Settled = {
        ("no_progress", HALFWAY): 25,
        ("no_progress", STUCK): 50,
        ("hot_partition", None): 50,
    }
    found, since = settled(second)
    assert found == expected
    # Stuck since its offset was overtaken.
    assert ":20:00" in since[HALFWAY]
    root = shutil.copytree(second, tmp_path / "lakehouse")
    tell(told.late, root, told.thresholds)
    expected |= {("no_progress", STUCK): 60, ("hot_partition", None): 60}
    assert settled(root)[0] == expected


@pytest.mark.timeout(900)
def test_records_that_are_astray_or_refused_count_once(told: Told, tmp_path: Path) -> None:
    def counted(root: Path) -> dict[str, int]:
        kinds = "kind IN ('misplaced_record', 'undecodable_records')"
        found = asked(root, f"SELECT kind, evidence FROM gold.anomalies WHERE {kinds}")
        assert len(found) == len({r["kind"] for r in found})
        return {r["kind"]: json.loads(r["evidence"])["records"] for r in found}

    first, second = told.behind
    once = {"misplaced_record": 2, "undecodable_records": 1}
    assert counted(first) == once
    once["misplaced_record"] = 4
    assert counted(second) == once
    root = shutil.copytree(second, tmp_path / "lakehouse")
    anomalies = ("anomalies", "--lakehouse", root, "--thresholds", told.thresholds)
    shutil.rmtree(root / "gold" / "anomaly_checkpoints")
    succeed(*anomalies)
    assert counted(root) == once
    shutil.rmtree(root / "gold" / "group_checkpoints")
    succeed("history", "--lakehouse", root)
    succeed(*anomalies)
    assert counted(root) == once

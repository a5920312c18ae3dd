"""What is settled is written once, whatever comes late."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from schemas.placement import partition_for
from tests.support.jobs import query, succeed
from tests.support.topic import MINUTE, Topic

if TYPE_CHECKING:
    from pathlib import Path

START = 1_700_002_800_000  # an hour begins
HOUR = 60 * MINUTE
STUCK, GOES_ON = "stuck", "goes-on"
THRESHOLDS = """
[no_progress]
least_commits = 20
[hot_partition]
least_records = 50
"""


@pytest.mark.usefixtures("spark")
def test_late_commits_of_an_hour_that_is_over(tmp_path: Path) -> None:
    root, topic, files = tmp_path / "lakehouse", Topic(), []
    limits = tmp_path / "thresholds.toml"
    limits.write_text(THRESHOLDS)

    def found() -> dict[str, int]:
        """Ingest what is new; give the number of commits that each settled anomaly is found in."""
        files.append(topic.write(tmp_path / f"{len(files)}.parquet"))
        succeed("silver", "--records", files[-1], "--lakehouse", root)
        succeed("history", "--lakehouse", root)
        succeed("anomalies", "--lakehouse", root, "--thresholds", limits)
        kinds = "kind IN ('no_progress', 'hot_partition') AND is_settled"
        rows = query(root, f"SELECT kind, subject, evidence FROM gold.anomalies WHERE {kinds}")
        assert len({(r["kind"], r["subject"]) for r in rows}) == len(rows)
        evidence = {r["kind"]: json.loads(r["evidence"]) for r in rows}
        return {k: e.get("commits", e.get("commits_an_hour")) for k, e in evidence.items()}

    for n in range(40):
        topic.commits(GOES_ON, partition_for(GOES_ON, 50), START + n * MINUTE, 100 + n)
    for n in range(60):
        topic.commits(STUCK, partition_for(STUCK, 50), START + n * MINUTE, 5)
    late, topic.rows[60:70] = topic.rows[60:70], []
    assert not found()  # it may go on
    for n in range(5):
        for group in (STUCK, GOES_ON):
            at = START + 5 * HOUR + n * MINUTE
            topic.commits(group, partition_for(group, 50), at, 200 + n)
    assert found() == {"no_progress": 50, "hot_partition": 50}
    topic.rows = late
    assert found() == {"no_progress": 60, "hot_partition": 60}

"""What is settled is written once, whatever comes late."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from schemas.placement import partition_for
from tests.support.jobs import asked, succeed
from tests.support.topic import MINUTE, Topic

if TYPE_CHECKING:
    from pathlib import Path

START = 1_700_002_800_000  # an hour begins
HOUR = 60 * MINUTE
STUCK, GOES_ON = "stuck", "goes-on"
HALFWAY, SLOW, FURTHEST = "stuck-halfway", "slow", "furthest"
THRESHOLDS = """
[no_progress]
least_ms = 600_000
least_commits = 20
[hot_partition]
least_records = 50
share = 0.2
"""


@pytest.mark.usefixtures("spark")
def test_late_commits_of_an_hour_that_is_over(tmp_path: Path) -> None:
    root, topic, files = tmp_path / "lakehouse", Topic(), []
    limits = tmp_path / "thresholds.toml"
    limits.write_text(THRESHOLDS)

    def found() -> dict[tuple[str, str | None], int]:
        """Ingest what is new; give the number of commits that each settled anomaly is found in."""
        files.append(topic.write(tmp_path / f"{len(files)}.parquet"))
        succeed("silver", "--records", files[-1], "--lakehouse", root)
        succeed("history", "--lakehouse", root)
        succeed("anomalies", "--lakehouse", root, "--thresholds", limits)
        kinds = "kind IN ('no_progress', 'hot_partition') AND is_settled"
        names = "kind, group_id, evidence, started_at"
        rows = asked(root, f"SELECT {names} FROM gold.anomalies WHERE {kinds}")
        evidence = {(r["kind"], r["group_id"]): json.loads(r["evidence"]) for r in rows}
        assert len(evidence) == len(rows)
        since.update({r["group_id"]: str(r["started_at"]) for r in rows})
        return {k: e.get("commits", e.get("commits_an_hour")) for k, e in evidence.items()}

    since: dict[str | None, str] = {}

    for n in range(40):
        topic.commits(GOES_ON, partition_for(GOES_ON, 50), START + n * MINUTE, 100 + n)
    for n in range(60):
        topic.commits(STUCK, partition_for(STUCK, 50), START + n * MINUTE, 5)
    late, topic.rows[60:70] = topic.rows[60:70], []
    for n in range(45):
        at = START + n * MINUTE
        topic.commits(HALFWAY, partition_for(HALFWAY, 50), at, 100 + min(n, 20))
        # For some minutes, and where nobody is further.
        topic.commits(SLOW, partition_for(SLOW, 50), at, 100 + (25 if 25 < n < 34 else n))
        topic.commits(FURTHEST, partition_for(FURTHEST, 50), at, 145)
    assert not found()  # it may go on
    for n in range(5):
        for group in (STUCK, GOES_ON):
            at = START + 5 * HOUR + n * MINUTE
            topic.commits(group, partition_for(group, 50), at, 200 + n)
    expected = {
        ("no_progress", HALFWAY): 25,
        ("no_progress", STUCK): 50,
        ("hot_partition", None): 50,
    }
    assert found() == expected
    # Stuck since its offset was overtaken.
    assert ":20:00" in since[HALFWAY]
    topic.rows = late
    assert found() == expected | {("no_progress", STUCK): 60, ("hot_partition", None): 60}

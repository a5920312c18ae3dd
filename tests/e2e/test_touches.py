"""How often a run asks its tables and commits to them: what a run has made, it does not read."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import touches
from tests.conftest import RECORDINGS
from tests.support.jobs import succeed
from tests.support.kills import Job
from tests.support.parts import parts_of

if TYPE_CHECKING:
    from pathlib import Path

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


def pipeline(records: Path, lakehouse: Path, events: Path) -> Path:
    """Run a pipeline as a process of its own; return its event log."""
    events.mkdir()
    conf = {"enabled": "true", "dir": events.as_uri(), "compress": "false"}
    conf |= {"rolling.enabled": "false"}
    words = [w for key, value in conf.items() for w in ("--conf", f"spark.eventLog.{key}={value}")]
    with Job("pipeline", "--records", records, "--lakehouse", lakehouse, *words) as job:
        assert job.wait() == 0, job.err
    return next(events.iterdir())


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("spark")
def test_a_run_asks_for_what_others_made_and_commits_once_a_table(tmp_path: Path) -> None:
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
    succeed("pipeline", "--records", first, "--lakehouse", lakehouse)
    before = touches.commits(lakehouse)
    log = pipeline(second, lakehouse, tmp_path / "events")
    scans, commits = touches.scans(log), touches.commits(lakehouse) - before
    assert scans - Counter(SCANS) == Counter()
    assert commits.pop("bronze.runs") <= LEDGER
    assert set(commits.values()) == {1}

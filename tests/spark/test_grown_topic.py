"""Groups whose records are in two partitions, since the topic has grown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.generate import SCHEMA
from schemas.placement import partition_for
from tests import factories
from tests.support.jobs import query, succeed

if TYPE_CHECKING:
    from pathlib import Path

START = 1_700_000_000_000
DAY = 24 * 3_600_000
GROUPS = [f"group-{n}" for n in range(12)]
MOVED = {g for g in GROUPS if partition_for(g, 25) != partition_for(g, 50)}


class _Topic:
    def __init__(self) -> None:
        self._rows: list[tuple[object, ...]] = []
        self._next = [0] * 50

    def add(self, partition: int, at: int, encoded: tuple[bytes, bytes | None]) -> None:
        offset, self._next[partition] = self._next[partition], self._next[partition] + 1
        row = ("__consumer_offsets", partition, offset, at, "CreateTime", *encoded)
        self._rows.append(row)

    def lives(self, group: str, partition: int, at: int, offset: int) -> None:
        """Let a member join, and commit."""
        member = factories.member(
            subscription=factories.subscription(), assignment=factories.assignment()
        )
        told = {"generation": 1, "currentStateTimestamp": at - 10}
        self.add(partition, at, factories.group_metadata(member, group=group, **told))
        key = {"group": group, "topic": "orders", "partition": 0}
        commit = factories.offset_commit(key=key, offset=offset, commitTimestamp=at + 1_000)
        self.add(partition, at + 1_000, commit)

    def expire(self, group: str, partition: int, at: int) -> None:
        key = {"group": group, "topic": "orders", "partition": 0}
        self.add(partition, at, (factories.offset_commit(key=key)[0], None))

    def write(self, path: Path) -> Path:
        """Write the records since the last time."""
        rows = [dict(zip(SCHEMA.names, row, strict=True)) for row in self._rows]
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path)
        self._rows = []
        return path


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("runs", [1, 3])
def test_a_group_goes_on_where_it_belongs_now(tmp_path: Path, runs: int) -> None:
    root, topic, files = tmp_path / "lakehouse", _Topic(), 0

    def ingest(*, is_last: bool = False) -> None:
        nonlocal files
        if runs > 1 or is_last:
            path = topic.write(tmp_path / f"{files}.parquet")
            summary = succeed("pipeline", "--records", path, "--lakehouse", root, "--strict")
            assert summary["expectations_failed"] == 0
            files += 1

    for n, group in enumerate(GROUPS):
        topic.lives(group, partition_for(group, 25), START + n, 10)
    ingest()
    for n, group in enumerate(GROUPS):
        topic.lives(group, partition_for(group, 50), START + DAY + n, 20)
    ingest()
    for n, group in enumerate(sorted(MOVED)):
        topic.expire(group, partition_for(group, 25), START + 8 * DAY + n)
    ingest(is_last=True)

    now = query(root, "SELECT * FROM gold.group_states WHERE ended_at IS NULL")
    assert {r["group_id"]: r["record_partition"] for r in now} == {
        group: partition_for(group, 50) for group in GROUPS
    }
    assert {r["state"] for r in now} == {"Stable"}
    dead = query(root, "SELECT DISTINCT group_id FROM gold.group_states WHERE state = 'Dead'")
    assert {r["group_id"] for r in dead} == MOVED
    (counted,) = query(root, "SELECT count(*) AS rows FROM gold.timeline")
    (states,) = query(root, "SELECT count(*) AS rows FROM gold.group_states")
    assert counted == states
    commits = query(root, "SELECT * FROM gold.committed_offsets")
    assert {r["committed_offset"] for r in commits} == {20}
    assert not query(root, "SELECT * FROM gold.anomalies WHERE kind = 'misplaced_record'")
    assert not query(root, "SELECT * FROM gold.anomalies WHERE kind = 'offsets_expired'")

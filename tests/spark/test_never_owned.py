"""Partitions of a topic that has grown, which one group commits and another never gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.placement import partition_for
from tests import factories
from tests.support.jobs import asked, succeed
from tests.support.topic import MINUTE, PARTITIONS, Topic

START, GROWS = 1_700_000_000_000, 12


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("runs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_partition_that_another_group_commits_and_no_member_gets(
    tmp_path: Path, runs: int
) -> None:
    root, topic = tmp_path / "lakehouse", Topic()
    topic.generation("blind", START, 1, a=0, b=1)
    # All is owned, though a member has nothing to do; and the partition was read here before.
    topic.generation("whole", START, 1, a=0, b=1, c=2)
    topic.generation("before", START, 1, a=0, b=1)
    topic.generation("part", START, 1, topic="parts", a=0, b=1)

    def commits(group: str, partition: int, at: int, offset: int, name: str = "orders") -> None:
        key = {"group": group, "topic": name, "partition": partition}
        commit = factories.offset_commit(key=key, offset=offset, commitTimestamp=at)
        topic.add(partition_for(group, PARTITIONS), at, commit)

    for run in range(runs):
        for n in range(30 * run // runs, 30 * (run + 1) // runs):
            for partition in range(3 if n > GROWS else 2):
                commits("audit", partition, START + n * MINUTE, 100 + n)
            if n == GROWS + 2:
                commits("before", 2, START + n * MINUTE, 5)
            # Another topic, of which a partition was never anybody's here.
            for partition in range(3):
                commits("billing", partition, START + n * MINUTE, 100 + n, "parts")
            commits("part", 0, START + n * MINUTE, 100 + n, "parts")
            for group in ("blind", "whole"):
                commits(group, 0, START + n * MINUTE, 100 + n)
        path = topic.write(tmp_path / f"{run}.parquet")
        succeed("silver", "--records", path, "--lakehouse", root)
        for job in ("history", "anomalies"):
            succeed(job, "--lakehouse", root)
    found = asked(root, "SELECT * FROM gold.anomalies WHERE label = 'never_owned'")
    assert [(r["group_id"], r["severity"], r["subject"]) for r in found] == [
        ("blind", "warning", "orders/2")
    ]
    assert found[0]["is_open"]
    for said in ("orders/2", "2 members", "audit", "Restart"):
        assert said in found[0]["summary"]

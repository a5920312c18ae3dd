"""Groups whose records are in two partitions, since the topic has grown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from schemas.placement import partition_for
from tests.support.jobs import asked, query, succeed
from tests.support.topic import MINUTE, Topic

START = 1_700_000_000_000
DAY = 24 * 60 * MINUTE
GROUPS = [f"group-{n}" for n in range(12)]
OTHERS = [f"other-{n}" for n in range(12)]
"""Those of which one has two coordinators."""


def moved(groups: list[str]) -> list[str]:
    """Return those that belong elsewhere since the topic has 50 partitions, in order."""
    return sorted(g for g in groups if partition_for(g, 25) != partition_for(g, 50))


SPLIT, ANOTHER, *_ = moved(OTHERS)
OLD = partition_for(SPLIT, 25)


def go_on(topic: Topic) -> Iterator[None]:
    """Let groups go on where they belong now; a run may come at each stop."""
    for n, group in enumerate(GROUPS):
        topic.lives(group, partition_for(group, 25), START + n, 10, minutes=20)
    yield
    for n, group in enumerate(GROUPS):
        topic.lives(group, partition_for(group, 50), START + DAY + n, 20)
    yield
    for n, group in enumerate(moved(GROUPS)):
        topic.expire(group, partition_for(group, 25), START + 8 * DAY + n)
    yield


def go_on_in_both(topic: Topic, runs: int) -> Iterator[None]:
    """Let a group go on in both partitions, some hours behind the first stop of the others."""
    start = START + DAY // 4
    for n, group in enumerate(OTHERS):
        topic.lives(group, partition_for(group, 25), start + n, 10, minutes=5)
    for n, group in enumerate(OTHERS):
        topic.lives(group, partition_for(group, 50), start + 10 * MINUTE + n, 20, minutes=50)
    for run in range(runs):
        # One broker counts by the old number of partitions.
        topic.lives(SPLIT, OLD, start + (12 + 20 * run) * MINUTE, 30 + run, minutes=20)
        yield


def told(topic: Topic, stops: Iterator[None], folder: Path) -> Path:
    """Have a run at each stop; give the lakehouse."""
    root = folder / "lakehouse"
    for number, _ in enumerate(stops):
        path = topic.write(folder / f"{number}.parquet")
        line = ("--records", path, "--lakehouse", root, "--strict", "--skip", "report")
        summary = succeed("pipeline", *line)
        assert summary["expectations_failed"] == 0
    return root


@pytest.fixture(scope="module")
def at_once(
    spark: SparkSession,  # noqa: ARG001
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A lakehouse that one run has told all of it."""
    topic = Topic()
    stops = go_on(topic)
    next(stops)
    for _ in (*go_on_in_both(topic, 1), *stops):
        pass
    return told(topic, iter([None]), tmp_path_factory.mktemp("grown"))


@pytest.mark.parametrize("runs", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_group_goes_on_where_it_belongs_now(at_once: Path, tmp_path: Path, runs: int) -> None:
    topic = Topic()
    root = at_once if runs == 1 else told(topic, go_on(topic), tmp_path)
    own = "group_id LIKE 'group-%'"
    now = asked(root, f"SELECT * FROM gold.group_states WHERE ended_at IS NULL AND {own}")
    assert {r["group_id"]: r["record_partition"] for r in now} == {
        group: partition_for(group, 50) for group in GROUPS
    }
    assert {r["state"] for r in now} == {"Stable"}
    dead = asked(root, f"SELECT * FROM gold.group_states WHERE state = 'Dead' AND {own}")
    assert {r["group_id"] for r in dead} == {*moved(GROUPS)}
    (states,) = asked(root, "SELECT count(*) AS n FROM gold.group_states")
    assert query(root, "SELECT count(*) AS n FROM gold.timeline") == [states]
    commits = asked(root, f"SELECT * FROM gold.committed_offsets WHERE {own}")
    assert {r["committed_offset"] for r in commits} == {20}
    found = f"SELECT * FROM gold.anomalies WHERE {own} AND kind ="
    assert not asked(root, f"{found} 'misplaced_record'")
    assert not asked(root, "SELECT * FROM gold.anomalies WHERE kind = 'offsets_expired'")
    # Those that had to start over have not stopped to commit.
    stalled = asked(root, f"{found} 'commit_stall'")
    assert {r["group_id"] for r in stalled} == {*GROUPS} - {*moved(GROUPS)}


@pytest.mark.parametrize("runs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_group_with_two_coordinators_has_both_histories(
    at_once: Path, tmp_path: Path, runs: int
) -> None:
    topic, other = Topic(), f"{SPLIT} (partition {OLD})"
    root = at_once if runs == 1 else told(topic, go_on_in_both(topic, runs), tmp_path)
    own = "group_id LIKE 'other-%'"
    committed = asked(root, f"SELECT * FROM gold.committed_offsets WHERE {own}")
    offsets = {r["group_id"]: r["committed_offset"] for r in committed}
    assert offsets == {**dict.fromkeys(OTHERS, 20), other: 29 + runs}
    (found,) = asked(root, "SELECT * FROM gold.anomalies WHERE kind = 'misplaced_record'")
    assert (found["group_id"], found["label"]) == (SPLIT, "two_coordinators")
    assert other in found["summary"]
    where = "record_partition, count(*) AS number FROM gold.group_generations"
    of_both = asked(root, f"SELECT group_id, {where} GROUP BY ALL ORDER BY ALL")
    told_of = {(r["group_id"], r["record_partition"]): r["number"] for r in of_both}
    assert told_of[other, OLD] == runs
    assert told_of[ANOTHER, partition_for(ANOTHER, 50)] == 1
    # Neither skips nor goes back because of the other.
    kinds = "kind IN ('offset_rewind', 'offset_jump')"
    assert not asked(
        root, f"SELECT * FROM gold.anomalies WHERE {kinds} AND group_id LIKE '{SPLIT}%'"
    )

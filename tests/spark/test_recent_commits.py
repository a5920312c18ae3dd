"""The last commits kept of each partition, however the records are cut into runs."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from history import offsets
from schemas.tables import COMMITTED_OFFSETS
from storage.conditions import EVERY_ROW
from storage.tables import Lakehouse, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
COLUMNS = (
    "group_id STRING, topic STRING, topic_partition INT, record_partition INT, "
    "record_offset BIGINT, record_timestamp TIMESTAMP, committed_offset BIGINT, leader_epoch INT, "
    "metadata STRING, topic_id STRING, is_tombstone BOOLEAN, commit_timestamp TIMESTAMP, "
    "value_version SMALLINT"
)
KEYS = ("group_id", "topic", "topic_partition")


def commits(chance: random.Random, count: int) -> list[tuple[object, ...]]:
    """Make commits of four partitions, one in twelve a tombstone; some have but a record's time."""
    rows = []
    for offset in range(count):
        is_tombstone = chance.random() < 1 / 12
        at = START + timedelta(seconds=offset)
        given = None if is_tombstone or chance.random() < 0.3 else at
        committed = None if is_tombstone else chance.randrange(100)
        partition = chance.randrange(4)
        rows.append(
            (
                "g",
                "t",
                partition,
                0,
                offset,
                at,
                committed,
                None,
                None,
                None,
                is_tombstone,
                given,
                3,
            )
        )
    return rows


def expected(rows: list[tuple[object, ...]]) -> dict[object, list[tuple[object, object]]]:
    kept: dict[object, list[tuple[object, object]]] = {}
    for row in rows:
        of_partition = kept.setdefault(row[2], [])
        if row[10]:
            of_partition.clear()
        else:
            of_partition.append((row[6], row[5]))
    return {partition: found[-10:] for partition, found in kept.items()}


@pytest.mark.parametrize("runs", [1, 3])
def test_the_last_ten_since_the_last_deletion(spark: SparkSession, runs: int) -> None:
    chance = random.Random(runs)  # noqa: S311 - not for secrets
    rows = commits(chance, 150)
    cuts = [0, *sorted(chance.sample(range(len(rows)), runs - 1)), len(rows)]
    none = spark.createDataFrame([], spark_schema(COMMITTED_OFFSETS.columns))
    last: DataFrame = none
    for start, end in pairwise(cuts):
        stepped = offsets.steps(spark.createDataFrame(rows[start:end], COLUMNS), last)
        latest = offsets.last_commits(stepped, last)
        rest = last.select(*latest.columns).join(latest, list(KEYS), how="left_anti")
        last = spark.createDataFrame(latest.unionByName(rest).collect(), latest.schema)
    assert {
        row.topic_partition: [
            (c.committed_offset, c.committed_at.replace(tzinfo=timezone.utc))
            for c in row.recent_commits
        ]
        for row in last.collect()
    } == expected(rows)


def test_a_table_of_an_older_release_gets_the_column(
    spark: SparkSession, lakehouse_path: str
) -> None:
    lakehouse = Lakehouse(spark, lakehouse_path, "default")
    former = replace(COMMITTED_OFFSETS, columns=COMMITTED_OFFSETS.columns[:-1])
    names = [c.name for c in former.columns]
    row = [{"group_id": "g", "topic": "t", "topic_partition": 0, "committed_offset": 5}]
    rows = spark.createDataFrame(row, spark_schema(former.columns))
    lakehouse.replace(former, rows.select(names), EVERY_ROW, "history", 0)
    held = lakehouse.read(COMMITTED_OFFSETS)
    assert [r.recent_commits for r in held.collect()] == [None]
    stepped = offsets.steps(spark.createDataFrame(commits(random.Random(1), 9), COLUMNS), held)  # noqa: S311
    latest = offsets.last_commits(stepped, held)
    lakehouse.replace(COMMITTED_OFFSETS, latest, EVERY_ROW, "history", 1)
    assert lakehouse.read(COMMITTED_OFFSETS).where("size(recent_commits) > 0").count() > 0

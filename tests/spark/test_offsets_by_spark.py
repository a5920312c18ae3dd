"""How offsets go on where Spark shares the work: tables of older releases, hours cut in two."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from lakehouse.tables import Lakehouse, spark_schema
from offsets import progress as offsets
from offsets.transform import follow_offsets, joined_hours, rows_of
from schemas.silver import decoded_columns
from schemas.tables import COMMITTED_OFFSETS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AT = datetime(2026, 1, 1, tzinfo=timezone.utc)
MOST = 2**63 - 1


def commits(spark: SparkSession, *committed: int) -> DataFrame:
    given = {
        "group_id": "g",
        "topic": "t",
        "topic_partition": 0,
        "record_partition": 0,
        "record_timestamp": AT,
        "is_tombstone": False,
        "value_version": 3,
        "metadata": "",
    }
    rows = [
        given | {"record_offset": number, "committed_offset": offset}
        for number, offset in enumerate(committed)
    ]
    columns = decoded_columns("offset_commits")
    of_rows = [tuple(row.get(c.name) for c in columns) for row in rows]
    return spark.createDataFrame(of_rows, spark_schema(columns))


def follow(rows: DataFrame, former: DataFrame | None, table: str) -> DataFrame:
    return rows_of(follow_offsets(rows, former), table)


def test_a_table_of_an_older_release_gets_the_column(
    spark: SparkSession, lakehouse_path: str
) -> None:
    lakehouse = Lakehouse(spark, lakehouse_path, "default")
    former = replace(COMMITTED_OFFSETS, columns=COMMITTED_OFFSETS.columns[:-1])
    names = [c.name for c in former.columns]
    given = [
        {"group_id": "g", "topic": topic, "topic_partition": 0, "committed_offset": 5}
        for topic in ("t", "u", "v")
    ]
    rows = spark.createDataFrame(given, spark_schema(former.columns))
    lakehouse.replace(former, rows.select(names))
    held = lakehouse.read(COMMITTED_OFFSETS)
    assert [r.recent_commits for r in held.collect()] == [None] * 3
    latest = follow(commits(spark, 6, 7), held, offsets.LATEST)
    lakehouse.replace(COMMITTED_OFFSETS, latest.localCheckpoint())
    # Of those that are not committed again, nothing is known, and nothing is lost.
    assert {
        row.topic: [c.committed_offset for c in row.recent_commits or ()]
        for row in lakehouse.read(COMMITTED_OFFSETS).collect()
    } == {"t": [6, 7], "u": [], "v": []}


def test_an_hour_cut_in_two_holds_what_64_bits_do(spark: SparkSession) -> None:
    hours = follow(commits(spark, 0, MOST, 0, 100), None, offsets.HOURS)
    (row,) = joined_hours(hours.unionByName(hours)).collect()
    assert (row.commits, row.rewinds) == (8, 2)
    assert (row.progressed_offsets, row.rewound_offsets) == (MOST, MOST)
    assert (row.first_committed_offset, row.last_committed_offset) == (0, 100)

"""The history as Spark shares it: batches of any size, by groups, by partitions of topics."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from detectors.transform import Sources, waits_of
from detectors.unread import WAIT_COLUMNS
from offsets import progress as offsets
from offsets.transform import follow_offsets, joined_hours
from schemas.columns import arrow_schema
from schemas.silver import decoded_columns, silver_tables
from schemas.tables import COMMITTED_OFFSETS
from storage.lakehouse import Lakehouse
from storage.tables import rows_of, spark_schema
from tests.conftest import RECORDINGS
from tests.support import detection as support
from tests.support.history import Row, decoded, in_millis, logs_of, rebuild
from timeline import arrow
from timeline.commits import COMMITS
from timeline.holes import holes_of
from timeline.model import CHECKPOINTS, TABLES
from timeline.payloads import COLUMNS
from timeline.transform import timeline

AT = datetime(2026, 1, 1, tzinfo=timezone.utc)
MOST = 2**63 - 1
BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
OF_THE_RUN = ("is_settled", "rebuilt_run")


@pytest.fixture(params=["small batches", "usual batches"])
def batches(
    spark: SparkSession, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Return Python few rows at once, with few members each."""
    usual = spark.conf.get(BATCH)
    if request.param == "small batches":
        spark.conf.set(BATCH, 3)
        monkeypatch.setattr(arrow, "MEMBERS", 1)
    yield
    spark.conf.set(BATCH, usual)


def silver(spark: SparkSession, name: str) -> dict[str, DataFrame]:
    found = {}
    for table, parts in decoded(RECORDINGS / f"{name}.parquet").items():
        if table in silver_tables():
            rows = pa.Table.from_batches(parts)
            found[table] = spark.createDataFrame(rows, spark_schema(decoded_columns(table)))
    return found


def by_table(rows: DataFrame) -> dict[str, list[Row]]:
    rows = rows.localCheckpoint()  # each table would follow the whole history again
    return {table: in_millis(rows_of(rows, table).toArrow().to_pylist()) for table in TABLES}


def nameless(rows: list[Row]) -> list[Row]:
    """Leave out what follows from the names of topics, which a log of one group does not have."""
    return [
        {k: v for k, v in row.items() if k != "unassigned_topics" and (k != "topic" or named(row))}
        for row in rows
    ]


def named(row: Row) -> bool:
    return row["topic_id"] is None


def texts(rows: list[Row]) -> list[str]:
    plain = ({k: v for k, v in row.items() if k not in OF_THE_RUN} for row in rows)
    return sorted(json.dumps(row, sort_keys=True) for row in plain)


@pytest.mark.usefixtures("batches")
@pytest.mark.parametrize("name", ["4.3.1-modern", "4.3.1-connect", "4.3.1-txn.read_committed"])
def test_groups_together_give_what_each_gives_alone(spark: SparkSession, name: str) -> None:
    expected: dict[str, list[Row]] = defaultdict(list)
    logs = logs_of(RECORDINGS / f"{name}.parquet")
    for log in logs:
        for table, rows in rebuild(log).items():
            expected[table] += rows
    missing = {(log.partition, offset) for log in logs for offset in log.missing}
    partitions, lost = np.array(sorted(missing), np.int64).reshape(-1, 2).T
    holes = holes_of(partitions, lost, lost, {})
    found = by_table(timeline(silver(spark, name), None, holes))
    for table in TABLES:
        assert texts(nameless(found[table])) == texts(nameless(expected[table])), table
    assert all(row["is_settled"] is False for row in found["group_states"] if not row["ended_at"])


def test_a_head_goes_on_where_the_run_before_ended(spark: SparkSession) -> None:
    rows = silver(spark, "4.3.1-modern")
    early, late = (
        {table: of_table.where(f"record_offset {side} 400") for table, of_table in rows.items()}
        for side in ("<", ">=")
    )
    first = timeline(early, None, {}).localCheckpoint()
    checkpoints = rows_of(first, CHECKPOINTS)
    assert not checkpoints.isEmpty()
    second = timeline(late, checkpoints, {}).localCheckpoint()
    changed = {row.group_id for row in rows_of(second, CHECKPOINTS).collect()}
    whole, before, after = by_table(timeline(rows, None, {})), by_table(first), by_table(second)
    for table in TABLES:
        kept = [r for r in before[table] if r["is_settled"] or r["group_id"] not in changed]
        assert texts(kept + after[table]) == texts(whole[table]), table


def commits(spark: SparkSession, *committed: int, topic: str = "t") -> DataFrame:
    given = {
        "group_id": "g",
        "topic": topic,
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
    columns = decoded_columns(COMMITS)
    table = pa.Table.from_pylist(rows, arrow_schema(columns))
    return spark.createDataFrame(table, spark_schema(columns))


def test_a_table_of_an_older_release_gets_the_column(
    spark: SparkSession, lakehouse_path: str
) -> None:
    lakehouse = Lakehouse(spark, lakehouse_path, "default")
    former = replace(COMMITTED_OFFSETS, columns=COMMITTED_OFFSETS.columns[:-1])
    lakehouse.replace(
        former,
        [
            {"group_id": "g", "topic": topic, "topic_partition": 0, "committed_offset": 5}
            for topic in ("t", "u", "v")
        ],
    )
    held = lakehouse.read(COMMITTED_OFFSETS)
    assert [r.recent_commits for r in held.collect()] == [None] * 3
    followed = follow_offsets(commits(spark, 6, 7), held)
    latest = rows_of(followed, offsets.LATEST).localCheckpoint()
    lakehouse.replace(COMMITTED_OFFSETS, latest)
    # Nothing is known of those that are not committed again, and nothing is lost.
    assert {
        row.topic: [c.committed_offset for c in row.recent_commits or ()]
        for row in lakehouse.read(COMMITTED_OFFSETS).collect()
    } == {"t": [6, 7], "u": [], "v": []}


@pytest.mark.usefixtures("batches")
def test_a_partition_has_more_commits_than_a_batch(spark: SparkSession) -> None:
    many = commits(spark, *range(0, 5_000, 5)).unionByName(commits(spark, 1, 2, topic="u"))
    followed = follow_offsets(many, None).localCheckpoint()
    hours = {row.topic: row for row in rows_of(followed, offsets.HOURS).collect()}
    assert (hours["t"].commits, hours["t"].progressed_offsets) == (1_000, 4_995)
    assert (hours["t"].first_committed_offset, hours["t"].last_committed_offset) == (0, 4_995)
    assert hours["u"].commits == 2
    latest = {row.topic: row for row in rows_of(followed, offsets.LATEST).collect()}
    assert [c.committed_offset for c in latest["t"].recent_commits] == list(range(4_950, 5_000, 5))
    assert latest["t"].largest_step == 5
    assert rows_of(followed, offsets.MOVES).isEmpty()


def test_a_pause_is_usual_by_what_the_commits_before_it_went_on_by(spark: SparkSession) -> None:
    """One is over, and one goes on; without Spark they are the same."""
    given = [("g", at, 100 + at) for at in range(0, 300, 50)]
    given += [("g", at, 100 + 2 * at) for at in range(1_800, 2_200, 70)]
    given += [("other", at, 100 + 3 * at) for at in range(0, 4_000, 100)]
    rows: list[Row] = [
        {
            "group_id": group,
            "topic": "t",
            "topic_partition": 0,
            "record_partition": 0,
            "record_offset": number,
            "record_timestamp": AT + timedelta(seconds=at),
            "committed_offset": offset,
            "is_tombstone": False,
            "metadata": "",
        }
        for number, (group, at, offset) in enumerate(given)
    ]
    columns = decoded_columns(COMMITS)
    table = pa.Table.from_pylist(rows, arrow_schema(columns))
    read = spark.createDataFrame(table, spark_schema(columns))
    followed = follow_offsets(read, None).localCheckpoint()
    moves, last = (rows_of(followed, name) for name in (offsets.MOVES, offsets.LATEST))
    none = Sources(*[None] * len(Sources._fields))  # type: ignore[arg-type]
    sources = none._replace(moves=moves, committed=last, commits=read)
    waits = waits_of(sources, support.default_thresholds()).where("group_id = 'g'")
    columns_of_both = [name for name in WAIT_COLUMNS if "own" not in name]
    found = in_millis(waits.select(columns_of_both).toArrow().to_pylist())
    plain: list[Row] = [{**row, "commit_timestamp": None} for row in in_millis(rows)]
    by_group: dict[str, list[Row]] = defaultdict(list)
    for row in plain:
        by_group[row["group_id"]].append({**row, "at": row["record_timestamp"]})
    now, own = plain[-1]["record_timestamp"], by_group.pop("g")
    of_all = support.Commits(by_group)
    expected = support._waits("g", own, support._moves(own), of_all, (-1, now))
    known = [{name: wait.get(name) for name in columns_of_both} for wait in expected]
    assert sorted(found, key=lambda w: w["since"]) == known
    assert [(w["usual_ms"], w["usual_step"]) for w in known] == [(50_000, 50), (70_000, 140)]


@pytest.mark.usefixtures("batches")
def test_an_hour_cut_in_two_holds_what_64_bits_do(spark: SparkSession) -> None:
    hours = rows_of(follow_offsets(commits(spark, 0, MOST, 0, 100), None), offsets.HOURS)
    (row,) = rows_of(joined_hours(hours.unionByName(hours)), offsets.HOURS).collect()
    assert (row.commits, row.rewinds) == (8, 2)
    assert (row.progressed_offsets, row.rewound_offsets) == (MOST, MOST)
    assert (row.first_committed_offset, row.last_committed_offset) == (0, 100)


def test_what_is_read_of_payloads_is_in_silver() -> None:
    held = {c.name for table in silver_tables() for c in decoded_columns(table)}
    assert held >= COLUMNS

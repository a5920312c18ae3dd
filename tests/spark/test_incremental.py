"""Of a long history, a run opens the files that have something new, by Delta's statistics."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from dq.declared import filled, suites
from jobs.runtime.anomalies import open_or
from jobs.runtime.session import configured
from lakehouse.queries import on_views, show, view_of
from lakehouse.runs import RunId
from lakehouse.tables import Lakehouse
from schemas.tables import all_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUNS = 4
NEW = f"history_run > {RUNS - 2} AND history_run <= {RUNS - 1}"
# The columns of the time that a row begins and ends.
TIMES = {
    "gold.group_states": ("started_at", "ended_at"),
    "gold.group_generations": ("join_started_at", "ended_at"),
    "gold.member_sessions": ("joined_at", "left_at"),
    "gold.partition_owners": ("valid_from", "valid_to"),
    "gold.offset_progress": ("hour", "last_commit_at"),
}


def hour(number: int) -> dt.datetime:
    return dt.datetime(2026, 1, 1, number, tzinfo=dt.timezone.utc)


def written(spark: SparkSession, root: str, table: str) -> Lakehouse:
    """Write a table by runs, an hour each: what is settled, and what is open after the last."""
    lakehouse, spec = Lakehouse(spark, root, "default"), all_tables()[table]
    begin, end = TIMES[table]
    known = {c.name for c in spec.of_cluster}
    for number in range(RUNS):
        row: dict[str, object] = dict.fromkeys(known)
        row |= {"group_id": "g", begin: hour(number), end: hour(number + 1)}
        values = {"group_type": "classic", "topic": "t", "topic_partition": 0, "member_id": "m"}
        values |= {"state": "Stable", "evidence": "exact", "sequence": number, "generation": number}
        values |= {"record_partition": 0, "record_offset": number, "history_run": number}
        row |= {name: value for name, value in values.items() if name in known}
        rows = [row | {"is_settled": True}] if "is_settled" in known else [row]
        if "is_settled" in known and number == RUNS - 1:
            rows.append(row | {begin: hour(RUNS), end: None, "is_settled": False})
        lakehouse.append(spec, rows, RunId("history", number))
    return lakehouse


def opened(rows: DataFrame) -> int:
    return len(set(rows.inputFiles()))


@pytest.mark.parametrize("table", TIMES)
def test_validation_opens_no_file_of_earlier_hours(
    spark: SparkSession, lakehouse_path: str, table: str
) -> None:
    lakehouse = written(spark, lakehouse_path, table)
    (suite,) = (s for s in suites() if s.title == table)
    since = f"timestamp_millis({int(hour(RUNS - 1).timestamp() * 1000)})"
    values = {"history_runs": NEW, "begun_since": since, "first_hour": since}
    show(lakehouse, [table])
    rows = spark.sql(on_views(filled(suite.rows, values), view_of))
    every = opened(lakehouse.read(all_tables()[table]))
    # The last hour's, those of what is open, and of the hour before what ended in the last moment.
    assert opened(rows) <= 3 < every


@pytest.mark.parametrize("table", ["gold.group_generations", "gold.member_sessions"])
def test_detectors_open_no_file_of_earlier_hours(
    spark: SparkSession, lakehouse_path: str, table: str
) -> None:
    lakehouse = written(spark, lakehouse_path, table)
    rows = lakehouse.read(all_tables()[table])
    assert opened(open_or(NEW, rows)) == 2 < opened(rows)


def test_settings_that_were_changed_hold_again(spark: SparkSession) -> None:
    known, unknown = "spark.sql.shuffle.partitions", "spark.groupledger.test"
    before = spark.conf.get(known)
    with configured(spark, {known: "77", unknown: "x"}):
        assert (spark.conf.get(known), spark.conf.get(unknown)) == ("77", "x")
    assert (spark.conf.get(known), spark.conf.get(unknown, None)) == (before, None)

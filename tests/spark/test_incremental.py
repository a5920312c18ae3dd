"""A run opens the files of a long history that have something new, by Delta's statistics."""

from __future__ import annotations

import datetime as dt
import json
import shutil

import pytest
from pyspark.sql import DataFrame, SparkSession

from dq.declared import filled, suites
from jobs.runtime.session import configured
from schemas.ledger import RunId
from schemas.tables import all_tables
from storage.history import with_open
from storage.lakehouse import Lakehouse
from storage.queries import on_views, show, view_of
from tests.spark.conftest import Thrice
from tests.support.jobs import noted, run, table

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


def written(spark: SparkSession, root: str, name: str) -> Lakehouse:
    """Write a table by runs, an hour each: what is settled, and what is open after the last."""
    lakehouse, spec = Lakehouse(spark, root, "default"), all_tables()[name]
    begin, end = TIMES[name]
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


@pytest.mark.parametrize("name", TIMES)
def test_validation_opens_no_file_of_earlier_hours(
    spark: SparkSession, lakehouse_path: str, name: str
) -> None:
    lakehouse = written(spark, lakehouse_path, name)
    (suite,) = (s for s in suites() if s.title == name)
    since = f"timestamp_millis({int(hour(RUNS - 1).timestamp() * 1000)})"
    values = {"history_runs": NEW, "begun_since": since, "first_hour": since}
    show(lakehouse, [name])
    rows = spark.sql(on_views(filled(suite.rows, values), view_of))
    every = opened(lakehouse.read(all_tables()[name]))
    # The last hour's, those of what is open, and of the hour before what ended in the last moment.
    assert opened(rows) <= 3 < every


@pytest.mark.parametrize("name", ["gold.group_generations", "gold.member_sessions"])
def test_detectors_open_no_file_of_earlier_hours(
    spark: SparkSession, lakehouse_path: str, name: str
) -> None:
    lakehouse = written(spark, lakehouse_path, name)
    spec = all_tables()[name]
    found = with_open(lakehouse, spec, RUNS - 2, RUNS - 1)
    assert opened(found) == 2 < opened(lakehouse.read(spec))


@pytest.mark.parametrize(("records", "is_compiled"), [(2_000, "false"), (2_000_000, "true")])
def test_settings_of_a_step_hold_for_that_step(
    spark: SparkSession, records: int, is_compiled: str
) -> None:
    names = ("spark.sql.codegen.wholeStage", "spark.sql.broadcastTimeout")
    before = [spark.conf.get(name) for name in names]
    with configured(spark, "report", records):
        assert [spark.conf.get(name) for name in names] == [is_compiled, "-1"]
    assert [spark.conf.get(name) for name in names] == before != ["true", "-1"]


def test_an_interval_that_is_lost_where_two_runs_meet_is_missed(
    spark: SparkSession, thrice: Thrice, lakehouse_path: str
) -> None:
    shutil.copytree(thrice.behind[1], lakehouse_path)
    # As if validated behind the first.
    reach = dict.fromkeys(("decode", "history", "anomalies"), 0) | {"lag": -1}
    held = Lakehouse(spark, lakehouse_path, "default")
    noted(held, RunId("validate", 0), details={"reach": reach})
    states = table(spark, lakehouse_path, "gold.group_states")
    ledger = table(spark, lakehouse_path, "bronze.runs").where("stage = 'history' AND run = 1")
    details = json.loads(ledger.where("state = 'done'").first().details)
    since = f"timestamp_millis({details['begun_since']})"
    gone_on = states.where(f"history_run = 1 AND started_at < {since} AND ended_at >= {since}")
    lost = gone_on.orderBy("group_id").first()
    assert lost is not None
    spark.sql(
        f"DELETE FROM delta.`{lakehouse_path}/gold/group_states`"
        f" WHERE group_id = '{lost.group_id}' AND sequence = {lost.sequence}"
    )
    outcome = run("validate", "--lakehouse", lakehouse_path)
    assert outcome.status == 3
    assert "no_interval_is_missing: 1 of" in outcome.out

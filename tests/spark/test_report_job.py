"""The job report on lakehouses that have little to show."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from detectors.sentences import KINDS
from jobs.report import report
from jobs.runtime.page import facts_of
from reporting.model import EVERYTHING, PANELS, Facts, For, Panel, Selection
from reporting.read import newest_anomalies, read_facts, values_of, worst_groups
from schemas.errors import GroupledgerError
from schemas.ledger import LedgerRow, RunId
from schemas.tables import (
    ANOMALIES,
    COVERAGE,
    GROUP_GENERATIONS,
    GROUP_HEALTH,
    GROUP_STATES,
    INCIDENTS,
    LAG,
    MEMBER_SESSIONS,
    OFFSET_PROGRESS,
    PARTITION_OWNERS,
    RECORDS,
    RESULTS,
)
from storage.lakehouse import Lakehouse
from storage.local import asked_here, quickest
from storage.queries import Ask, by_spark, tables_of
from tests.support.jobs import asked, run, run_of, succeed
from tests.support.report import column_of, data_of

# Within the recording of the storm, which is of three minutes.
FROM_MS = 1_795_244_460_000

_ASKED = {"sql": ("--query", "SELECT 1")}


@pytest.mark.parametrize("job", ["report", "validate", "sql"])
def test_a_folder_without_tables_is_refused_and_left_alone(
    spark: SparkSession, lakehouse_path: str, job: str
) -> None:
    del spark
    outcome = run(job, "--lakehouse", lakehouse_path, *_ASKED.get(job, ()))
    assert outcome.status == 1
    assert f"there are no tables in {lakehouse_path}" in outcome.complaint
    assert not Path(lakehouse_path).exists()


def test_an_empty_lakehouse_has_a_report(spark: SparkSession, lakehouse_path: str) -> None:
    Lakehouse(spark, lakehouse_path, "default").create(RECORDS)
    outcome = run("report", "--lakehouse", lakehouse_path)
    assert outcome.status == 0, outcome.err
    assert outcome.summary["report"] == f"{lakehouse_path}/report.html"
    data = data_of(Path(lakehouse_path) / "report.html")
    assert data["as_of"] is None
    assert data["quality"]["records"] == 0


def test_of_many_rows_the_newest_are_shown_and_all_are_counted(
    spark: SparkSession, storm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakehouse = Lakehouse(spark, storm, "one")
    monkeypatch.setitem(PANELS, "states", Panel(PANELS["states"].columns, 5))
    monkeypatch.setattr("reporting.read.LISTED_ANOMALIES", 3)
    facts = facts_of(lakehouse, 0)
    held = lakehouse.read(GROUP_STATES).selectExpr("group_id", "unix_millis(started_at)")
    begun: dict[str, list[int]] = defaultdict(list)
    for group_id, started_at in held.collect():
        begun[group_id].append(started_at)
    assert {group.group_id: group.counts["states"] for group in facts.shown} == {
        group_id: len(times) for group_id, times in begun.items()
    }
    found = Counter(row.group_id for row in lakehouse.read(ANOMALIES).collect())
    # Groups in detail have theirs; beside them, the table has the worst of a group and a kind.
    kinds = {(row.group_id, row.kind) for row in lakehouse.read(ANOMALIES).collect()}
    shown = {group.group_id for group in facts.shown}
    listed = facts.anomalies.to_pylist()
    of_groups = [row for row in listed if row["group_id"] in shown]
    assert len(of_groups) == sum(found[group_id] for group_id in shown)
    assert len(listed) - len(of_groups) <= 3
    assert facts.anomaly_count == found.total()
    assert facts.fold_count == len(kinds) == len({(r["group_id"], r["kind"]) for r in listed})
    for row in listed:
        same = [r for r in listed if (r["group_id"], r["kind"]) == (row["group_id"], row["kind"])]
        assert row["kind_count"] == len(same)
        assert row["kind_open"] == sum(r["is_open"] for r in same)
    assert {group.group_id: group.counts.get("anomalies", 0) for group in facts.shown} == {
        group_id: found[group_id] for group_id in begun
    }
    for group in facts.shown:
        newest = sorted(begun[group.group_id])[-5:]
        assert group.rows["states"]["started_at"].to_pylist() == newest
        older = group.older.get("states", [])
        assert sum(count for _, count in older) == max(0, len(begun[group.group_id]) - 5)
        assert all(at <= newest[0] for at, _ in older)


def _of_groups(metrics: Path) -> list[str]:
    """Return the lines of metrics that do not depend on when a run was."""
    lines = metrics.read_text("utf-8").splitlines()
    return [line for line in lines if not line.startswith(("groupledger_run", "groupledger_last"))]


def test_a_run_asks_each_table_once(
    storm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Counter[str] = Counter()

    def counting(lakehouse: Lakehouse) -> Ask:
        def answers(queries: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, pa.Table]:
            asked.update(name for query in queries.values() for name in tables_of(query))
            return ask(queries, values)

        ask = quickest(lakehouse)
        return answers

    monkeypatch.setattr("jobs.runtime.page.quickest", counting)
    page, metrics = tmp_path / "report.html", tmp_path / "groupledger.prom"
    line = ["pipeline", "--lakehouse", storm, "--cluster", "one", "--only", "report"]
    first = run(*line, "--output", page, "--metrics", metrics)
    # A panel counts the rows of the groups that are shown, and reads the newest if there are any;
    # the front page has rebalances and states of all groups, metrics their causes, and the age of
    # the lag. That nothing is in quarantine stands in the ledger. What is missing of the log is
    # another question than the rest.
    assert (asked.pop(GROUP_GENERATIONS.name), asked.pop(LAG.name)) == (4, 2)
    assert (asked.pop(GROUP_STATES.name), asked.pop(COVERAGE.name)) == (3, 2)
    of_panels = (MEMBER_SESSIONS, PARTITION_OWNERS, OFFSET_PROGRESS)
    assert [asked.pop(spec.name) for spec in of_panels] == [2, 2, 2]
    assert len(asked) == 4
    assert set(asked.values()) == {1}
    # The page is left as it is: what it alone tells is not asked for, and the rest is the same. So
    # is how much was read, which stands in the ledger.
    asked.clear()
    told = [_of_groups(metrics)]
    again = run(*line, "--output", page, "--metrics", metrics)
    told.append(_of_groups(metrics))
    assert "left as it is" in again.err
    metered = (ANOMALIES, GROUP_GENERATIONS, GROUP_HEALTH, INCIDENTS, LAG)
    assert sorted(asked) == sorted(spec.name for spec in metered)
    assert set(asked.values()) == {1}
    assert told[0] == told[1]
    assert first.out.splitlines()[:-1] == again.out.splitlines()[:-1]


def test_spark_reads_the_same(spark: SparkSession, storm: str) -> None:
    lakehouse = Lakehouse(spark, storm, "one")
    every = For.PAGE | For.SUMMARY | For.METRICS | For.PARTITIONS
    some = Selection("crash.*|orders-storm|steady-.*", FROM_MS, FROM_MS + 90_000)

    def read(ask: Ask, chosen: Selection, readers: For) -> object:
        facts = Facts("one", storm, FROM_MS, chosen, kinds=KINDS)
        return plain(dataclasses.asdict(read_facts(facts, ask, lakehouse.runs, readers)))

    for chosen, readers in ((EVERYTHING, every), (some, For.PAGE), (EVERYTHING, For.HEALTH)):
        asks = by_spark(lakehouse), asked_here(Path(storm), "one")
        by_one, by_other = (read(ask, chosen, readers) for ask in asks)
        assert by_one == by_other
        assert by_one["groups"]
    questions = {"anomalies": newest_anomalies(some), "groups": worst_groups(1, some)}
    told = [plain(ask(questions, values_of(some))) for ask in asks]
    assert told[0] == told[1]
    assert told[0]["anomalies"]


def test_a_page_needs_no_java(storm: str, tmp_path: Path) -> None:
    at, page = ("--lakehouse", storm, "--cluster", "one"), tmp_path / "report.html"
    bare = os.environ | {"PATH": "", "JAVA_HOME": "/nowhere"}
    command = [sys.executable, "-m", "jobs.report", *at, "--output", str(page)]
    done = subprocess.run(command, env=bare, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"The report is {page}\n")
    # A run takes it for what it would make itself.
    again = run("pipeline", *at, "--only", "report", "--output", page)
    assert "left as it is" in again.err
    by_spark = tmp_path / "by-spark.html"
    assert run("report by Spark", *at, "--output", by_spark).status == 0
    told = [data_of(path) | {"made_at": None} for path in (page, by_spark)]
    assert told[0] == told[1]


def plain(value: object) -> Any:  # noqa: ANN401 - JSON
    """Return facts without the types of tables."""
    if isinstance(value, pa.Table):
        return sorted(value.to_pylist(), key=repr)
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return [*map(plain, value)] if isinstance(value, list) else value


def test_a_page_of_some_groups(storm: str, tmp_path: Path) -> None:
    path = tmp_path / "some.html"
    line = ("report", "--lakehouse", storm, "--cluster", "one", "--group", "crash.*|orders-storm")
    assert run(*line).status == 2  # report.html is the page of all
    assert run(*line, "--output", path).status == 0
    data = data_of(path)
    names = {group["group_id"] for group in data["shown"]}
    assert names == {"crash-loop", "orders-storm"}
    assert set(column_of(data["anomalies"], "group_id")) <= names
    assert data["chosen"]["groups"] == "crash.*|orders-storm"
    assert data["cluster"] == "one"


def test_a_page_of_a_time_behind_all_records_is_refused(storm: str, tmp_path: Path) -> None:
    path = tmp_path / "late.html"
    line = ("report", "--lakehouse", storm, "--cluster", "one", "--output", path)
    late = run(*line, "--since", "2026-12-24 00:00")
    assert late.status == 2
    assert "--since 2026-12-24 00:00:00 is not before the newest record, 2026-11-2" in late.err
    assert not path.exists()


def test_the_list_of_anomalies_of_a_group(storm: str) -> None:
    line = ("anomalies", "--lakehouse", storm, "--cluster", "one", "--group", "orders-storm")
    listed = run(*line, "--since", "2026-11-21 07:00").out
    (all_of_it,) = asked(
        storm, "SELECT count(*) AS n FROM gold.anomalies WHERE group_id = 'orders-storm'"
    )
    assert f"{all_of_it['n']} anomalies, times are UTC; gold.anomalies has them all" in listed
    assert "rebalance_storm" in listed
    for job in (("anomalies",), ("report", "--output", "x.html")):
        unknown = run(*job, "--lakehouse", storm, "--cluster", "one", "--group", "order-storm")
        assert (unknown.status, "no group has such an id" in unknown.err) == (2, True)
    before = run(*line, "--until", "2026-11-21 06:00").out
    assert "0 anomalies, times are UTC; gold.anomalies" in before


def test_the_pipeline_writes_the_report_where_it_is_configured(
    spark: SparkSession, gap: str, lakehouse_path: str, tmp_path: Path
) -> None:
    shutil.copytree(gap, lakehouse_path)  # validated
    path = tmp_path / "pages" / "groups.html"
    records = str(tmp_path / "read-before.parquet")
    options = ("--lakehouse", lakehouse_path, "--output", path)
    outcome = run("pipeline", "--records", records, *options, "--only", "validate,report")
    assert outcome.status == 0, outcome.err
    assert [p.name for p in path.parent.iterdir()] == ["groups.html"]
    data = data_of(path)
    assert data["cluster"] == "default"
    assert data["group_count"] == len(data["shown"]) > 0
    of_first = data["shown"][0]["panels"]
    assert of_first["states"]["count"] > of_first["generations"]["count"] > 0
    quality = data["quality"]
    assert quality["records"] + sum(quality["holes"].values()) == quality["offsets"] > 0
    assert quality["last_validation_at"] is not None
    assert quality["findings"] == []
    # Where no run has brought anything since, the page is not written.
    again = run_of(spark, lakehouse_path, "pipeline", "--records", records, *map(str, options[2:]))
    report(again)
    assert again.summary["report"] == str(path)
    assert data_of(path) == data
    # What validate found since is on the page, each expectation as it failed last.
    held = again.lakehouse
    at = dt.datetime.now(dt.timezone.utc)
    for number, broken in enumerate((3, 2), held.runs.last_number("validate") + 1):
        found = {"table_name": "bronze.records", "expectation": "e", "severity": "warning"}
        found |= {"validation_run": number, "success": False, "at": at, "rows_unexpected": broken}
        held.append(RESULTS, [found], RunId("validate", number))
        held.runs.note(LedgerRow("validate", number))
    report(again)
    (finding,) = data_of(path)["quality"]["findings"]
    assert (finding["expectation"], finding["rows_unexpected"]) == ("e", 2)
    # Whoever asks for a page gets one.
    made_at = data_of(path)["made_at"]
    succeed("report", "--lakehouse", lakehouse_path, "--output", path)
    assert data_of(path)["made_at"] > made_at


@pytest.mark.parametrize("job", ["report", "validate", "anomalies", "decode", "history", "lag"])
def test_a_cluster_that_nobody_knows_is_refused_with_the_known_names(storm: str, job: str) -> None:
    """Without --cluster it is "default", which this lakehouse does not have, either."""
    outcome = run(job, "--lakehouse", storm)
    assert outcome.status == 2
    line = f"--cluster default: there is no such cluster in {storm}, only one"
    assert outcome.complaint == f"groupledger: {line}"


@pytest.mark.parametrize(
    ("job", "options"), [("sql", ("--query", "SELECT 1")), ("maintain", ("--dry-run",))]
)
def test_what_is_done_for_all_clusters_needs_no_name(
    storm: str, job: str, options: tuple[str, ...]
) -> None:
    assert run(job, "--lakehouse", storm, *options).status == 0
    assert run(job, "--lakehouse", storm, *options, "--cluster", "on").status == 2


def test_a_file_that_cannot_be_written_is_one_line(
    spark: SparkSession, lakehouse_path: str, tmp_path: Path
) -> None:
    Lakehouse(spark, lakehouse_path, "default").create(RECORDS)
    (tmp_path / "file").write_text("")
    outcome = run("report", "--lakehouse", lakehouse_path, "--output", tmp_path / "file" / "x.html")
    assert outcome.status == 1
    assert "cannot be written" in outcome.complaint


def test_a_page_in_another_store(
    spark: SparkSession,
    tmp_path: Path,
    lakehouse_path: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A folder of this machine stands for it; `tests/e2e/test_object_store.py` has a real one."""
    monkeypatch.setattr("jobs.runtime.page.local_path", lambda _: None)
    Lakehouse(spark, lakehouse_path, "default").create(RECORDS)
    page, below = tmp_path / "page.html", tmp_path / "page.html" / "below.html"

    def written(output: Path) -> None:
        options = ("--records", "x.parquet", "--output", str(output))
        report(run_of(spark, lakehouse_path, "pipeline", *options))

    written(page)
    assert data_of(page)["as_of"] is None
    assert "left as it is" not in capsys.readouterr().err
    written(page)
    assert "left as it is" in capsys.readouterr().err
    with pytest.raises(GroupledgerError, match=r"cannot be written: .* is not a directory"):
        written(below)

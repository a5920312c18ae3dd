"""How the rows of a statement are printed: all of them, or a line says so."""

from __future__ import annotations

import csv
import json
import shutil
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from jobs.sql import sql
from storage.catalog import view_texts
from tests.support.jobs import query, run, run_of, succeed

MANY = "SELECT id FROM range(2500)"
ODD = """SELECT 'a|b\\\\c, "d"' AS text, CAST(NULL AS INT) AS nothing,
  array(named_struct('x', 1, 'y', 'z')) AS nested, TIMESTAMP '2026-11-21 07:00:00' AS at"""


def out(root: str, *options: str) -> list[str]:
    outcome = run("sql", "--lakehouse", root, "--cluster", "one", *options)
    assert outcome.status == 0, outcome.err
    return outcome.out.splitlines()[:-1]  # the last one is the summary


def printed(spark: SparkSession, root: str, *options: str, terminal: bool = False) -> Console:
    given = run_of(spark, root, "sql", "--cluster", "one", *options)
    given.out = Console(record=True, force_terminal=terminal, width=100, quiet=False)
    given.err = Console(record=True, width=200)
    sql(given)
    return given.err


def test_no_row_is_cut_in_silence(storm: str) -> None:
    assert len(out(storm, "--query", MANY)) == 2_500
    assert out(storm, "--query", MANY, "--limit", "3") == ['{"id": 0}', '{"id": 1}', '{"id": 2}']
    cut = run("sql", "--lakehouse", storm, "--cluster", "one", "--query", MANY, "--limit", "3")
    assert "only the first 3 rows are shown" in cut.err
    whole = run("sql", "--lakehouse", storm, "--cluster", "one", "--query", MANY, "--limit", "2500")
    assert "only the first" not in whole.err
    assert whole.summary["rows"] == 2_500


def test_a_terminal_shows_a_thousand(
    spark: SparkSession, storm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = printed(spark, storm, "--query", MANY, terminal=True)
    assert "only the first 1,000 rows are shown; --limit N shows more" in said.export_text()
    elsewhere = printed(spark, storm, "--query", MANY)
    assert "only the first" not in elsewhere.export_text()
    capsys.readouterr()


def test_rows_as_csv(spark: SparkSession, storm: str, capsys: pytest.CaptureFixture[str]) -> None:
    printed(spark, storm, "--query", ODD, "--format", "csv")
    (row,) = csv.DictReader(capsys.readouterr().out.splitlines())
    assert (row["text"], row["nothing"]) == ('a|b\\c, "d"', "")
    assert json.loads(row["nested"]) == [{"x": 1, "y": "z"}]
    assert row["at"] == "2026-11-21 07:00:00"


def test_rows_as_markdown(
    spark: SparkSession, storm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    printed(spark, storm, "--query", "SELECT 'a|b' AS text, 1 AS n", "--format", "markdown")
    assert capsys.readouterr().out == "| text | n |\n|---|---|\n| a\\|b | 1 |\n"


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("gold.lag", "no run has written gold.lag yet"),
        ("lag", "no run has written gold.lag yet"),
        ("owner_at(now())", "Did you mean owners_at?"),
    ],
)
def test_what_is_not_found_is_told_apart(storm: str, asked: str, told: str) -> None:
    outcome = run("sql", "--lakehouse", storm, "--query", f"SELECT * FROM {asked}")
    assert outcome.status == 1
    assert outcome.complaint.endswith(told)


def test_a_view_of_tables_that_no_run_has_written_has_no_rows(storm: str, tmp_path: Path) -> None:
    """Groups without members have no generations, and their states are in the timeline."""
    for name in ("bronze", "gold/group_states"):
        shutil.copytree(Path(storm, name), tmp_path / name)
    root = str(tmp_path)
    (counted,) = query(root, "SELECT count(*) AS n, count(cause) AS causes FROM gold.timeline")
    assert counted["n"] > counted["causes"] == 0
    assert query(root, "SELECT * FROM owners_at(now())") == []
    file = tmp_path / "groups.duckdb"
    succeed("export", "--lakehouse", root, "--duckdb", file)
    with closing(duckdb.connect(str(file), read_only=True)) as database:
        for name in view_texts():
            assert database.sql(f"SELECT * FROM {name}").columns


def test_statements_that_change_tables_want_to_be_asked_for(storm: str) -> None:
    text = "EXPLAIN INSERT INTO gold.anomalies SELECT * FROM gold.anomalies WHERE false"
    outcome = run("sql", "--lakehouse", storm, "--query", text)
    assert outcome.status == 2
    assert "with --write it is run" in outcome.err
    assert run("sql", "--lakehouse", storm, "--query", text, "--write").status == 0


def test_a_cluster_narrows_what_is_seen(storm: str) -> None:
    text = "SELECT DISTINCT cluster FROM gold.group_states UNION SELECT cluster FROM gold.timeline"
    seen = ['{"cluster": "one"}']
    assert out(storm, "--query", text) == seen
    other = run("sql", "--lakehouse", storm, "--cluster", "two", "--query", text)
    assert (other.status, "no such cluster" in other.err) == (2, True)
    assert run("sql", "--lakehouse", storm, "--query", text).out.splitlines()[:-1] == seen


def test_tables_of_an_older_release_can_be_asked(
    spark: SparkSession, gap: str, tmp_path: Path
) -> None:
    root = tmp_path / "lakehouse"
    shutil.copytree(gap, root)
    path = str(root / "gold" / "partition_owners")
    older = spark.read.format("delta").load(path).drop("known_until")
    written = older.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    written.partitionBy("cluster", "is_settled").save(path)
    asked = "SELECT count(*) AS n FROM gold.partition_owners JOIN gold.timeline USING (group_id)"
    assert run("sql", "--lakehouse", root, "--query", asked).status == 0
    assert run("sql", "--lakehouse", root, "--query", "SHOW TABLES IN gold").status == 0
    none = run("sql", "--lakehouse", root, "--query", "SELECT * FROM owners_at(now())")
    assert none.status == 1
    assert "owners_at" in none.complaint


def test_a_limit_that_is_none_is_refused(storm: str) -> None:
    outcome = run("sql", "--lakehouse", storm, "--query", "SELECT 1", "--limit", "0")
    assert outcome.status == 2

"""Exports: what DuckDB and other readers find in the files, and what is never replaced."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from schemas.tables import ANOMALIES
from storage.catalog import view_texts
from tests.support.jobs import held, query, run, succeed


def asked(file: Path, text: str) -> list[tuple[Any, ...]]:
    with closing(duckdb.connect(str(file), read_only=True)) as database:
        database.execute("SET TimeZone = 'UTC'")
        return database.sql(text).fetchall()


@pytest.fixture(scope="module")
def exported(storm: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("with a ' and é [x]") / "groups.duckdb"
    with closing(duckdb.connect(str(file))) as former:
        former.execute("CREATE SCHEMA gold; CREATE TABLE gold.anomalies (of_a_former_export INT)")
    summary = succeed("export", "--lakehouse", storm, "--duckdb", file)
    assert summary["export"] == str(file)
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]
    return file


def test_duckdb_has_the_rows_that_sql_shows(storm: str, exported: Path) -> None:
    found = asked(exported, "SELECT schema_name || '.' || table_name FROM duckdb_tables()")
    names = {name for (name,) in found}
    assert names >= {"gold.anomalies", "gold.group_states", "bronze.coverage", *view_texts()}
    assert not any("checkpoints" in name for name in names)
    made = {row["tableName"] for row in query(storm, "SHOW TABLES IN gold")}
    # A table that was never made is there without rows.
    shown = {n for n in names if not n.startswith("gold.") or n.removeprefix("gold.") in made}
    counts = [f"SELECT '{name}' AS name, count(*) AS n FROM {name}" for name in sorted(shown)]
    held = {row["name"]: row["n"] for row in query(storm, " UNION ALL ".join(counts))}
    counts = [f"SELECT '{name}' AS name, count(*) AS n FROM {name}" for name in sorted(names)]
    assert dict(asked(exported, " UNION ALL ".join(counts))) == dict.fromkeys(names, 0) | held
    assert "gold.lag" in names
    assert "lag" not in made


def test_times_and_texts_are_the_same(storm: str, exported: Path) -> None:
    text = (
        "SELECT group_id, state, CAST(started_at AS VARCHAR(40)) AS at FROM gold.timeline "
        "WHERE started_at IS NOT NULL ORDER BY group_id, started_at, state LIMIT 50"
    )
    expected = [(r["group_id"], r["state"], r["at"]) for r in query(storm, text)]
    assert [(g, s, at.removesuffix("+00")) for g, s, at in asked(exported, text)] == expected
    assert expected


def test_columns_say_what_they_mean(exported: Path) -> None:
    text = "SELECT count(*) FROM duckdb_columns() WHERE schema_name = 'gold' AND comment IS NULL"
    text += " AND table_name = 'group_states'"
    assert asked(exported, text) == [(0,)]


def test_a_folder_of_parquet_is_replaced_as_a_whole(storm: str, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    former = folder / "gold.group_states" / "part-of-a-former-export.parquet"
    former.parent.mkdir(parents=True)
    former.touch()
    succeed("export", "--lakehouse", storm, "--cluster", "one", "--parquet", folder)
    assert not former.exists()
    with closing(duckdb.connect()) as database:
        rows = f"read_parquet('{folder}/gold.anomalies/*.parquet')"
        (count,) = database.sql(f"SELECT count(*) FROM {rows}").fetchall()
    assert count == (held(storm, ANOMALIES).num_rows,)
    assert [entry.name for entry in tmp_path.iterdir()] == ["export"]


@pytest.mark.parametrize("kind", ["text", "database", "folder"])
def test_what_is_no_export_is_left_alone(storm: str, tmp_path: Path, kind: str) -> None:
    target = held = tmp_path / "mine"
    if kind == "text":
        target.write_text("a letter to nobody")
    elif kind == "database":
        with closing(duckdb.connect(str(target))) as database:
            database.execute("CREATE TABLE sales (amount INT)")
    else:
        target.mkdir()
        held = target / "letter"
        held.write_text("to nobody")
    before = held.read_bytes()
    option = "--parquet" if kind == "folder" else "--duckdb"
    outcome = run("export", "--lakehouse", storm, option, target)
    assert outcome.status == 1
    assert "is there and is no export" in outcome.err
    assert held.read_bytes() == before


GRAFANA = Path(__file__).parents[2] / "examples" / "grafana"
DASHBOARD = json.loads((GRAFANA / "kafka-consumer-groups.json").read_text("utf-8"))
# The plugin's macros and Grafana's variables, for the recording of the demo.
FROM, TO = "'2026-11-21 06:00:00+00'", "'2026-11-21 09:00:00+00'"
FILLED = [
    (r"\$__timeFilter\((\w+)\)", rf"\1 BETWEEN {FROM}::TIMESTAMPTZ AND {TO}::TIMESTAMPTZ"),
    (r"\$__timeFrom\(\)", FROM),
    (r"\$__timeTo\(\)", TO),
    (r"\$__interval", "1 minute"),
    (r"\$\{cluster\}", "one"),
    (r"\$\{group:sqlstring\}", "SELECT group_id FROM gold.group_health"),
]


def filled(text: str) -> str:
    for pattern, value in FILLED:
        text = re.sub(pattern, value, text)
    assert "$" not in text
    return text


@pytest.mark.parametrize("panel", DASHBOARD["panels"], ids=lambda panel: str(panel["title"]))
def test_each_panel_of_the_grafana_dashboard_asks_what_there_is(
    panel: dict[str, Any], exported: Path
) -> None:
    (target,) = panel["targets"]
    with closing(duckdb.connect(str(exported), read_only=True)) as database:
        rows = database.sql(filled(target["rawSql"]))
        names, found = rows.columns, rows.fetchall()
    if target["format"] == "time_series":
        assert names[0] == "time"
        assert len(names) == 3
    # The recording has no samples of the lag and no incident, and none of its anomalies has to be
    # open.
    assert found or panel["title"] in {"Lag", "Open anomalies", "Incidents"}


def test_the_variables_of_the_grafana_dashboard(exported: Path) -> None:
    cluster, group = DASHBOARD["templating"]["list"]
    assert asked(exported, filled(cluster["query"])) == [("one",)]
    assert len(asked(exported, filled(group["query"]))) == 5
    sources = yaml.safe_load((GRAFANA / "datasource.yaml").read_text("utf-8"))["datasources"]
    used = {panel["datasource"]["uid"] for panel in DASHBOARD["panels"]}
    assert {source["uid"] for source in sources} == used

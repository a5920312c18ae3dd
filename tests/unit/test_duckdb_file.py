"""The file of an export to DuckDB, made of rows without Spark: comments, the macro, the views."""

from __future__ import annotations

import datetime as dt
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.tables import all_tables
from storage.catalog import description, duckdb_texts, view_texts
from storage.copies import DATABASE, load
from storage.tables import spark_schema

NOON = dt.datetime(2026, 11, 21, 12, tzinfo=dt.timezone.utc)
TABLES = ("gold.anomalies", "gold.group_health", "gold.partition_owners")
REBALANCES = pa.schema(
    [
        ("cluster", pa.string()),
        ("group_id", pa.string()),
        ("hour", pa.timestamp("us", "UTC")),
        ("cause", pa.string()),
        ("rebalances", pa.int64()),
        ("rebalance_ms", pa.int64()),
    ]
)


def hours(number: float) -> dt.datetime:
    return NOON + dt.timedelta(hours=number)


def anomaly(group: str, severity: str, **values: object) -> dict[str, object]:
    common = {"cluster": "one", "kind": "rebalance_storm", "summary": f"{group} rebalanced"}
    return {**common, "group_id": group, "severity": severity, **values}


def owner(client: str, since: float, until: float | None, **values: object) -> dict[str, object]:
    of = {"cluster": "one", "group_id": "g", "topic": "t", "topic_partition": 0}
    times = {"valid_from": hours(since), "valid_to": None if until is None else hours(until)}
    return {**of, **times, "client_id": client, "member_id": f"{client}-1", **values}


ROWS: dict[str, list[dict[str, object]]] = {
    "gold.anomalies": [
        anomaly("old", "critical", is_open=False, started_at=hours(-30), ended_at=hours(-25)),
        anomaly("over", "warning", is_open=False, started_at=hours(-3), ended_at=hours(-2)),
        anomaly("info", "info", is_open=True, started_at=hours(-1), ended_at=hours(0)),
        anomaly("bad", "critical", is_open=True, started_at=hours(-40), ended_at=hours(-26)),
    ],
    "gold.group_health": [
        {
            "cluster": "one",
            "group_id": group,
            "health": health,
            "rebalances_24h": rebalances,
            "as_of": NOON,
        }
        for group, health, rebalances in [
            ("fine", "ok", 9),
            ("odd", "warning", 9),
            ("bad", "critical", 1),
            ("worse", "critical", 2),
        ]
    ],
    "gold.partition_owners": [
        owner("a", -5, -2),
        owner("b", -2, None),
        owner("c", -2, None, topic_partition=1, known_until=hours(-1)),
    ],
    "gold.rebalances_per_hour": [
        {"cluster": "one", "group_id": "g", "hour": hours(at), "cause": cause, "rebalances": n}
        for at, cause, n in [(-30, "new_member", 9), (-2, "new_member", 3), (-1, "new_member", 4)]
    ],
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    schemas = {name: spark_schema(all_tables()[name].columns) for name in TABLES}
    arrow = {
        name: pa.schema([(c.name, c.type.arrow()) for c in all_tables()[name].columns])
        for name in TABLES
    }
    schemas["gold.rebalances_per_hour"] = spark_schema([])
    arrow["gold.rebalances_per_hour"] = REBALANCES
    for name, schema in arrow.items():
        (folder / name).mkdir()
        rows = pa.Table.from_pylist(ROWS[name], schema=schema)
        pq.write_table(rows, folder / name / "part-0.parquet")
    load(folder, schemas)
    return folder / DATABASE


def asked(file: Path, text: str) -> list[tuple[Any, ...]]:
    with closing(duckdb.connect(str(file), read_only=True)) as database:
        database.execute("SET TimeZone = 'UTC'")
        return database.execute(text).fetchall()


def test_tables_views_and_the_macro_say_what_they_are(file: Path) -> None:
    tables = dict(asked(file, "SELECT table_name, comment FROM duckdb_tables()"))
    assert tables["anomalies"] == all_tables()["gold.anomalies"].grain
    assert tables["rebalances_per_hour"] == description(view_texts()["gold.rebalances_per_hour"])
    views = dict(asked(file, "SELECT view_name, comment FROM duckdb_views() WHERE NOT internal"))
    macros = dict(
        asked(file, "SELECT function_name, comment FROM duckdb_functions() WHERE NOT internal")
    )
    made = {name.removeprefix("gold."): description(text) for name, text in duckdb_texts().items()}
    assert views | macros == made
    assert len(views) == 5


@pytest.mark.parametrize(("at", "client"), [(-3, "a"), (-2, "b"), (0, "b"), (-6, None)])
def test_owners_at_a_time(file: Path, at: float, client: str | None) -> None:
    text = f"SELECT client_id FROM gold.owners_at('{hours(at)}') WHERE topic_partition = 0"
    assert asked(file, text) == ([] if client is None else [(client,)])


@pytest.mark.parametrize(("at", "known"), [(-1.5, True), (-0.5, False)])
def test_owners_that_are_not_known_any_more(file: Path, at: float, *, known: bool) -> None:
    text = f"SELECT client_id, not_known_since FROM gold.owners_at('{hours(at)}')"
    expected = ("c", None) if known else (None, hours(-1))
    assert asked(file, f"{text} WHERE topic_partition = 1") == [expected]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT group_id FROM gold.on_call_open", [("bad",), ("info",)]),
        ("SELECT group_id FROM gold.on_call_groups", [("worse",), ("bad",), ("odd",)]),
        ("SELECT group_id FROM gold.on_call_day", [("info",), ("over",), ("bad",)]),
        (
            "SELECT cause, rebalances, last_hour FROM gold.on_call_rebalances",
            [("new_member", 7, hours(-1))],
        ),
        (
            "SELECT topic_partition, client_id, since, not_known_since FROM gold.on_call_owners",
            [(0, "b", hours(-2), None), (1, None, None, hours(-1))],
        ),
    ],
    ids=["open", "groups", "day", "rebalances", "owners"],
)
def test_questions_of_who_is_on_call(file: Path, text: str, rows: list[tuple[object, ...]]) -> None:
    assert asked(file, text) == rows

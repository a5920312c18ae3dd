"""The dashboard of examples/superset names only tables, views and columns that exist."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from launch.command_line import parse
from schemas.columns import ArrayOf, Column, Primitive, StructOf
from schemas.tables import all_tables
from storage.catalog import view_texts

FOLDER = Path(__file__).parents[2] / "examples" / "superset"
ASSETS = FOLDER / "assets"
NAMED = re.compile(r"\b(?:bronze|silver|gold|dq)\.\w+")


def load(kind: str) -> dict[str, Any]:
    """Return the assets of a kind by their uuid."""
    paths = sorted((ASSETS / kind).rglob("*.yaml"))
    assets = [yaml.safe_load(path.read_text("utf-8")) for path in paths]
    found = {asset["uuid"]: asset for asset in assets}
    assert len(found) == len(paths) > 0
    return found


DATABASES, DATASETS, CHARTS = load("databases"), load("datasets"), load("charts")
(DASHBOARD,) = load("dashboards").values()
VIRTUAL = [dataset for dataset in DATASETS.values() if dataset["sql"]]
PHYSICAL = [dataset for dataset in DATASETS.values() if not dataset["sql"]]
every_chart = pytest.mark.parametrize("chart", CHARTS.values(), ids=lambda c: str(c["slice_name"]))


def title(dataset: dict[str, Any]) -> str:
    return str(dataset["table_name"])


def words(sql: str) -> set[str]:
    """Return the names in SQL: what is written small, and no function, text or comment."""
    bare = re.sub(r"'[^']*'|--[^\n]*", " ", sql)
    return set(re.findall(r"\b[a-z]\w*\b(?!\s*\()", bare))


def selected(sql: str) -> list[str]:
    """Return the names of the columns that a SELECT gives."""
    bare = re.sub(r"--[^\n]*", " ", sql)
    text = bare.partition("SELECT")[2]
    while (flat := re.sub(r"\([^()]*\)", " ", text)) != text:
        text = flat
    return [item.split()[-1].rpartition(".")[2] for item in text.partition("FROM")[0].split(",")]


def names_of(column: Column) -> set[str]:
    """Return the name of a column, and those of the fields of its structs."""
    kind = column.type.element if isinstance(column.type, ArrayOf) else column.type
    fields = kind.columns if isinstance(kind, StructOf) else ()
    return {column.name}.union(*(names_of(field) for field in fields))


def names_in(table: str) -> set[str]:
    """Return the names that SQL may use of a table or a view."""
    if table in view_texts():
        return set(selected(view_texts()[table]))
    return set().union(*(names_of(column) for column in all_tables()[table].columns))


def columns_in(dataset: dict[str, Any]) -> set[str]:
    return {column["column_name"] for column in dataset["columns"]}


def metrics_in(dataset: dict[str, Any]) -> set[str]:
    return {metric["metric_name"] for metric in dataset["metrics"]}


@pytest.mark.parametrize("dataset", PHYSICAL, ids=title)
def test_a_table_has_the_columns_that_are_listed(dataset: dict[str, Any]) -> None:
    table = all_tables()[f"{dataset['schema']}.{dataset['table_name']}"]
    declared = {
        column.name: column.type.name.upper()
        for column in table.columns
        if isinstance(column.type, Primitive)
    }
    listed = {c["column_name"]: c["type"] for c in dataset["columns"] if not c["expression"]}
    assert listed.items() <= declared.items()


@pytest.mark.parametrize("dataset", VIRTUAL, ids=title)
def test_a_query_names_what_exists(dataset: dict[str, Any]) -> None:
    sql = dataset["sql"]
    tables = set(NAMED.findall(sql))
    assert tables <= all_tables().keys() | view_texts().keys()
    made = set(re.findall(r"\bAS (\w+)", sql)) | {"exploded"}
    parts = {part for table in tables for part in table.split(".")}
    assert words(sql) <= made | parts | set().union(*map(names_in, tables))
    assert selected(sql) == [column["column_name"] for column in dataset["columns"]]


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=title)
def test_what_is_computed_names_columns_of_its_dataset(dataset: dict[str, Any]) -> None:
    assert dataset["database_uuid"] in DATABASES
    assert dataset["main_dttm_col"] in {None, *columns_in(dataset)}
    columns = [column["expression"] or "" for column in dataset["columns"]]
    for expression in [*columns, *(metric["expression"] for metric in dataset["metrics"])]:
        assert words(expression) <= columns_in(dataset)


@every_chart
def test_a_chart_names_what_its_dataset_has(chart: dict[str, Any]) -> None:
    params, dataset = chart["params"], DATASETS[chart["dataset_uuid"]]
    named = {params[key] for key in ("x_axis", "y_axis", "series", "start_time") if key in params}
    named |= {params["end_time"]} if "end_time" in params else set()
    for key in ("all_columns", "groupby", "tooltip_columns", "column_config"):
        named |= set(params.get(key, ()))
    named |= {json.loads(order)[0] for order in params.get("order_by_cols", ())}
    named |= {rule["column"] for rule in params.get("conditional_formatting", ())}
    for condition in params["adhoc_filters"]:
        named |= words(condition.get("sqlExpression", "")) | {condition.get("subject")}
    measured = {*params.get("metrics", ()), params.get("metric")}
    measured.add(params.get("timeseries_limit_metric"))
    assert measured - {None} <= metrics_in(dataset)
    assert named - {None} - metrics_in(dataset) <= columns_in(dataset)
    assert params["viz_type"] == chart["viz_type"]


def test_the_dashboard_has_every_chart_once_and_in_a_row() -> None:
    position = DASHBOARD["position"]
    placed = {
        part["meta"]["uuid"]: part["meta"]
        for part in position.values()
        if isinstance(part, dict) and part["type"] == "CHART"
    }
    assert placed.keys() == CHARTS.keys()
    assert all(meta["sliceName"] == CHARTS[uuid]["slice_name"] for uuid, meta in placed.items())
    for row in position["GRID_ID"]["children"]:
        widths = [position[chart]["meta"]["width"] for chart in position[row]["children"]]
        assert sum(widths) == 12


def test_the_filters_name_columns_and_charts_that_exist() -> None:
    ids = {
        p["meta"]["chartId"]
        for p in DASHBOARD["position"].values()
        if "meta" in p and "chartId" in p["meta"]
    }
    for condition in DASHBOARD["metadata"]["native_filter_configuration"]:
        assert set(condition["scope"]["excluded"]) <= ids
        for target in condition["targets"]:
            dataset = DATASETS.get(target.get("datasetUuid"))
            if "column" in target:
                assert dataset is not None
                assert target["column"]["name"] in columns_in(dataset)


def imported(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """Run the import with a command superset that keeps what it is given; give the assets."""
    superset, kept = tmp_path / "superset", tmp_path / "kept"
    superset.write_text(
        f'#!/bin/sh\n[ "$1 $2" = "import-directory --overwrite" ] && cp -R "$3" {kept}\n'
    )
    superset.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run([FOLDER / "import.sh", *arguments], env=env, check=True)
    return {
        path.relative_to(kept).as_posix(): yaml.safe_load(path.read_text("utf-8"))
        for path in sorted(kept.rglob("*.yaml"))
    }


def test_the_import_gives_superset_the_assets_as_they_are(tmp_path: Path) -> None:
    assets = imported(tmp_path)
    assert assets == {
        path.relative_to(ASSETS).as_posix(): yaml.safe_load(path.read_text("utf-8"))
        for path in ASSETS.rglob("*.yaml")
    }
    served = parse(["sql", "--serve"])
    uri = assets["databases/groupledger.yaml"]["sqlalchemy_uri"]
    assert uri == f"hive://{served.host}:{served.port}/gold"


def test_the_import_takes_the_address_and_the_time_range(tmp_path: Path) -> None:
    uri = "hive://a&b:p#w\\d|@spark.example:10001/gold"
    assets = imported(tmp_path, uri, "Last day")
    assert assets["databases/groupledger.yaml"]["sqlalchemy_uri"] == uri
    (mask,) = (
        condition["defaultDataMask"]
        for condition in assets["dashboards/kafka_consumer_groups.yaml"]["metadata"][
            "native_filter_configuration"
        ]
        if condition["filterType"] == "filter_time"
    )
    assert mask["extraFormData"] == {"time_range": "Last day"}
    assert mask["filterState"] == {"value": "Last day"}

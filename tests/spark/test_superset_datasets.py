"""Spark answers what the dashboard of examples/superset asks, over a lakehouse with a storm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.jobs import query

ASSETS = Path(__file__).parents[2] / "examples" / "superset" / "assets"
DATASETS = [yaml.safe_load(p.read_text("utf-8")) for p in sorted(ASSETS.glob("datasets/*/*.yaml"))]


@pytest.mark.parametrize("dataset", DATASETS, ids=lambda dataset: str(dataset["table_name"]))
def test_a_dataset_has_its_columns_and_metrics(storm: str, dataset: dict[str, Any]) -> None:
    source = f"({dataset['sql']})" if dataset["sql"] else f"gold.{dataset['table_name']}"
    columns = {c["column_name"]: c["expression"] or c["column_name"] for c in dataset["columns"]}
    chosen = ", ".join(f"{expression} AS {name}" for name, expression in columns.items())
    rows = query(storm, f"SELECT {chosen} FROM {source}")
    is_empty = dataset["table_name"] == "incidents"  # the recording has none
    assert all(row.keys() == columns.keys() for row in rows)
    assert (not rows) == is_empty
    metrics = {metric["metric_name"]: metric["expression"] for metric in dataset["metrics"]}
    chosen = ", ".join(f"{expression} AS {name}" for name, expression in metrics.items())
    (row,) = query(storm, f"SELECT {chosen} FROM {source}")
    assert row["count"] > 0 or is_empty

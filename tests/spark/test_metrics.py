"""The file of metrics: what node_exporter reads of it, also of a run that fails."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from reporting.read import measured
from schemas.tables import LAG
from sources import kafka
from storage.lakehouse import Lakehouse
from storage.queries import by_spark
from storage.tables import spark_schema
from tests.support.jobs import asked, query, run

_COSTS = "groupledger_group_rebalance_cost_seconds"


def metrics(path: Path) -> dict[str, dict[tuple[str, ...], float]]:
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(path.read_text("utf-8")):
        is_counter = family.name in {_COSTS, "groupledger_group_rebalances"}
        assert family.type == ("counter" if is_counter else "gauge")
        assert family.documentation
        of_name = found.setdefault(family.name.removeprefix("groupledger_"), {})
        for sample in family.samples:
            of_name[tuple(v for k, v in sample.labels.items() if k != "cluster")] = sample.value
    return found


def test_a_run_and_the_groups_are_measured(
    storm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "groupledger.prom"
    line = ["pipeline", "--lakehouse", storm, "--cluster", "one", "--metrics", path]
    assert run(*line, "--only", "report", "--output", tmp_path / "report.html").status == 0
    first = metrics(path)
    assert first["run_status"] == {("pipeline",): 0}
    assert first["run_step_seconds"]["pipeline", "writing the report"] > 0
    (expected,) = asked(storm, "SELECT count(*) AS n FROM gold.group_health")
    assert first["groups"] == {(): expected["n"]}
    open_ones = asked(
        storm,
        "SELECT kind, severity, count(*) AS n FROM gold.anomalies WHERE is_open GROUP BY ALL",
    )
    assert first["open_anomalies"] == {(r["kind"], r["severity"]): r["n"] for r in open_ones}

    costs = query(
        storm,
        "SELECT group_id, cause, sum(rebalances) AS n, sum(cost_member_ms) / 1000 AS seconds"
        " FROM gold.rebalance_costs GROUP BY ALL",
    )
    assert first["group_rebalances"] == {(r["cause"], r["group_id"]): r["n"] for r in costs}
    assert first["group_rebalance_cost_seconds"] == {
        (r["cause"], r["group_id"]): r["seconds"] for r in costs
    }
    assert sum(first["group_rebalance_cost_seconds"].values()) > 300

    for name in kafka._TIMEOUTS:
        monkeypatch.setitem(kafka._TIMEOUTS, name, "1000")
    # The cluster is away: what is known of the groups stays, and the status says that it is old.
    line += ["--bootstrap-servers", "127.0.0.1:1", "--only", "ingest"]
    assert run(*line).status == 1
    second = metrics(path)
    assert second["run_status"] == {("pipeline",): 1}
    assert second["run_end_seconds"]["pipeline",] > first["run_end_seconds"]["pipeline",]
    assert {k: v for k, v in second.items() if "run_" not in k} == {
        k: v for k, v in first.items() if "run_" not in k
    }


def test_lag_of_partitions_only_on_request(spark: SparkSession, lakehouse_path: str) -> None:
    at = dt.datetime(2026, 11, 21, 7, tzinfo=dt.timezone.utc)
    lakehouse = Lakehouse(spark, lakehouse_path, "default")
    lakehouse.create(LAG)
    rows = [
        ("a", 0, at, 5, False),
        ("a", 0, at + dt.timedelta(minutes=1), 7, False),
        ("a", 1, at, 9, True),  # at most 9: no figure
    ]
    columns = ("group_id", "topic_partition", "sampled_at", "lag", "lag_is_bound")
    given = [
        dict(zip(columns, row, strict=True)) | {"cluster": "default", "topic": "t", "lag_run": 0}
        for row in rows
    ]
    schema = spark_schema(LAG.columns)
    complete = [tuple(row.get(field.name) for field in schema) for row in given]
    made = spark.createDataFrame(complete, schema)
    made.write.format("delta").mode("append").save(lakehouse.path(LAG))
    for by_partition in (True, False):
        found = by_spark(lakehouse)(measured(0, by_partition=by_partition), {})
        assert ("partition_lag" in found) == by_partition
        if by_partition:
            assert found["partition_lag"].to_pylist() == [
                {"group_id": "a", "topic": "t", "topic_partition": 0, "lag": 7}
            ]


def test_a_file_of_something_else_is_left_alone(storm: str, tmp_path: Path) -> None:
    path = tmp_path / "x.prom"
    path.write_text("{not metrics")
    line = ["pipeline", "--lakehouse", storm, "--cluster", "one", "--records", "/no/such"]
    outcome = run(*line, "--only", "ingest", "--metrics", path)
    assert outcome.status == 1
    assert "is no file of metrics" in outcome.err
    assert path.read_text() == "{not metrics"
    theirs = "# HELP node_x_total x\n# TYPE node_x_total counter\nnode_x_total 1.0\n"
    path.write_text(theirs)
    line = ["pipeline", "--lakehouse", storm, "--cluster", "one", "--only", "validate"]
    outcome = run(*line, "--metrics", path)
    assert (outcome.status, path.read_text()) == (1, theirs)
    assert "metrics of another program: node_x" in outcome.err

"""Alerts in tables; what is due and becomes of a post is in `tests/unit/test_what_is_due.py`."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs.runtime.notify import notify
from reporting import posting
from reporting.alerts import Alert, Rule
from schemas.ledger import RunId
from schemas.tables import ALERTS, ANOMALIES
from storage.lakehouse import Lakehouse
from tests.support.jobs import noted, run_of, table
from tests.support.webhook import NOW, SECRET, Webhook, anomaly


@pytest.fixture
def lakehouse(spark: SparkSession, lakehouse_path: str) -> Lakehouse:
    return Lakehouse(spark, lakehouse_path, "default")


def found(lakehouse: Lakehouse, number: int, *rows: dict[str, Any]) -> None:
    """Let an anomalies run have found these."""
    lakehouse.replace(ANOMALIES, [{"anomalies_run": number, **row} for row in rows])
    as_of = round(NOW.timestamp() * 1000)
    noted(lakehouse, RunId("anomalies", number), details={"as_of": as_of})


def test_what_was_posted_is_noted_and_what_is_gone_has_ended(
    webhook: Webhook, lakehouse: Lakehouse
) -> None:
    """A former release has posted some; its table lacks a column."""
    columns = [column for column in ALERTS.columns if column.name != "awaits_end"]
    former = dataclasses.replace(ALERTS, columns=tuple(columns))
    posted = {"severity": "warning", "step": "posted", "at": NOW}
    lakehouse.append(former, [{"anomaly_id": name, **posted} for name in ("over", "worse")])
    old = {"ended_at": NOW - dt.timedelta(days=3), "started_at": NOW - dt.timedelta(days=3)}
    worse, gone = anomaly("worse", "critical", is_open=True), anomaly("gone", is_open=True)
    found(lakehouse, 0, anomaly("over"), anomaly("long ago", **old), worse, gone)
    run = run_of(lakehouse.spark, lakehouse.root, "anomalies", "--notify", webhook.url)
    notify(run)
    notify(run)
    assert webhook.posted == ["worse", "gone"]
    found(lakehouse, 1, anomaly("over"), worse)
    notify(run)
    (first, last) = webhook.received
    assert (first["resolved"], last["anomalies"]) == ([], [])
    assert [(row["anomaly_id"], row["kind"]) for row in last["resolved"]] == [
        ("gone", "rebalance_storm")
    ]
    notes = table(lakehouse.spark, lakehouse.root, ALERTS.name)
    steps = [row.step for row in notes.where("anomaly_id = 'gone'").orderBy("at").collect()]
    assert steps == ["posting", "posted"] * 2
    for name in (ALERTS.name, ANOMALIES.name):
        assert SECRET not in repr(table(lakehouse.spark, lakehouse.root, name).collect())


def test_of_two_runs_at_once_one_posts(
    webhook: Webhook,
    lakehouse: Lakehouse,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found(lakehouse, 0, *(anomaly(f"a{number:03}") for number in range(60)))
    run = run_of(lakehouse.spark, lakehouse.root, "anomalies", "--notify", webhook.url)
    due = posting.due_now

    def while_another_posts(lakehouse: Lakehouse, rule: Rule) -> list[Alert]:
        seen = due(lakehouse, rule)
        with monkeypatch.context() as patch:
            patch.setattr(posting, "due_now", due)
            notify(run_of(lakehouse.spark, lakehouse.root, "anomalies", "--notify", webhook.url))
        return seen

    monkeypatch.setattr(posting, "due_now", while_another_posts)
    notify(run)
    assert [len(message["anomalies"]) for message in webhook.received] == [50, 10]
    assert "60 anomalies could not be posted (another run is posting)" in capsys.readouterr().err


@pytest.fixture
def _in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_in_new_york")
def test_a_dry_run_notes_nothing_and_times_are_utc_in_every_zone(
    lakehouse: Lakehouse, capsys: pytest.CaptureFixture[str]
) -> None:
    found(lakehouse, 0, anomaly("a"))
    notify(run_of(lakehouse.spark, lakehouse.root, "anomalies", "--notify-dry-run"))
    (posted,) = json.loads(capsys.readouterr().out)["anomalies"]
    assert posted["started_at"] == "2026-11-21T11:00:00Z"
    assert posted["ended_at"] == "2026-11-21T11:55:00Z"
    assert not lakehouse.exists(ALERTS)
    assert Lakehouse(lakehouse.spark, lakehouse.root, "default").runs.last("notify") is None

"""Alerts: each anomaly is posted once for each severity it reaches, and never in the way."""

from __future__ import annotations

import datetime as dt
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from jobs.runtime import notify as notify_module
from jobs.runtime.notify import notify
from lakehouse.runs import RunId
from lakehouse.tables import Lakehouse
from schemas.tables import ALERTS, ANOMALIES
from tests.support.jobs import run_of, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

NOW = dt.datetime(2026, 11, 21, 12, 0, 0, tzinfo=dt.timezone.utc)
SECRET = "canary-b7d1"  # noqa: S105 - made up


class Webhook:
    """A server that keeps what it is sent, and answers as it is told to."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.answers: list[int] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = outer.answers.pop(0) if outer.answers else 200
                if status == 200:
                    outer.received.append(json.loads(body))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/${{env:HOOK_SECRET}}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    monkeypatch.setattr(notify_module, "_WAIT_S", 0.01)
    hook = Webhook()
    yield hook
    hook.close()


def found(lakehouse: Lakehouse, number: int, *rows: dict[str, Any]) -> None:
    """Let an anomalies run have found these."""
    lakehouse.replace(ANOMALIES, [{"anomalies_run": number, **row} for row in rows])
    as_of = round(NOW.timestamp() * 1000)
    lakehouse.runs.note(RunId("anomalies", number), details={"as_of": as_of})


def anomaly(name: str, severity: str = "warning", **given: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "anomaly_id": name,
        "kind": "rebalance_storm",
        "severity": severity,
        "group_id": "<!channel> & co\n",
        "summary": "5 rebalances",
        "started_at": NOW - dt.timedelta(hours=1),
        "ended_at": NOW - dt.timedelta(minutes=5),
        "is_open": False,
        "is_settled": False,
        **given,
    }


def test_each_is_posted_once_for_each_severity(
    spark: SparkSession, webhook: Webhook, lakehouse_path: str
) -> None:
    lakehouse = Lakehouse(spark, lakehouse_path, "default")
    run = run_of(spark, lakehouse_path, "anomalies", "--notify", webhook.url)
    old = {"ended_at": NOW - dt.timedelta(days=3), "started_at": NOW - dt.timedelta(days=3)}
    mild = anomaly("mild", "info")
    found(lakehouse, 0, anomaly("a"), mild, anomaly("long ago", **old))
    notify(run)
    notify(run)
    (message,) = webhook.received
    assert [a["anomaly_id"] for a in message["anomalies"]] == ["a"]
    # A group's name is no markup, and does not break the line.
    lines = message["text"].splitlines()
    assert lines[1] == "[warning] rebalance_storm &lt;!channel&gt; &amp; co : 5 rebalances"
    found(lakehouse, 1, anomaly("a", "critical"), mild, anomaly("b"))
    notify(run)
    worse = webhook.received[1]["anomalies"]
    assert [(a["anomaly_id"], a["severity"]) for a in worse] == [
        ("a", "critical"),
        ("b", "warning"),
    ]
    found(lakehouse, 2, anomaly("a", "warning"), anomaly("b"))
    notify(run)
    assert len(webhook.received) == 2
    assert SECRET not in repr(run.options.notify)
    for name in (ALERTS.name, ANOMALIES.name):
        assert SECRET not in repr(table(spark, lakehouse_path, name).collect())


def test_a_post_that_fails_is_tried_again_and_holds_nothing_up(
    spark: SparkSession, webhook: Webhook, lakehouse_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lakehouse = Lakehouse(spark, lakehouse_path, "default")
    found(lakehouse, 0, anomaly("a"))
    run = run_of(spark, lakehouse_path, "anomalies", "--notify", webhook.url)
    webhook.answers = [500, 503, 500]
    notify(run)
    assert "could not be posted (the webhook answered 500)" in capsys.readouterr().err
    webhook.answers = [500]
    notify(run)
    assert len(webhook.received) == 1
    assert run.summary["anomalies_posted"] == 1
    steps = [row.step for row in table(spark, lakehouse_path, ALERTS.name).orderBy("at").collect()]
    assert steps == ["posting", "failed", "posting", "posted"]
    found(lakehouse, 1, anomaly("a"), anomaly("b"))
    webhook.answers = [404]
    notify(run)  # it will not change its mind
    said = capsys.readouterr().err
    assert "the webhook answered 404" in said
    assert SECRET not in said

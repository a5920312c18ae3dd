"""Alerts: each anomaly is posted once for each severity it reaches, and never in the way."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from jobs.runtime import notify as notify_module
from jobs.runtime.notify import notify
from lakehouse.runs import RunId
from lakehouse.tables import Lakehouse
from schemas.tables import ALERTS, ANOMALIES
from tests.support.jobs import run_of, table
from tests.support.receivers import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from reporting.alerts import Alert

NOW = dt.datetime(2026, 11, 21, 12, 0, 0, tzinfo=dt.timezone.utc)
SECRET = "canary-b7d1"  # noqa: S105 - made up
REPORT = "https://reports.example.org/groups.html"


class Webhook:
    """A server that keeps what it is sent, and answers as configured."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.asked: list[str] = []
        self.answers: list[int | bytes] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.asked.append(self.command)
                answer = outer.answers.pop(0) if outer.answers else 200
                if isinstance(answer, bytes):
                    self.wfile.write(answer)
                    return
                if answer == 200:
                    outer.received.append(json.loads(body))
                self.send_response(answer)
                if 300 <= answer < 400:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()

            def do_GET(self) -> None:
                outer.asked.append(self.command)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/${{env:HOOK_SECRET}}"

    @property
    def posted(self) -> list[str]:
        """The ids of all anomalies that arrived, in their order."""
        return [a["anomaly_id"] for message in self.received for a in message["anomalies"]]

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


@pytest.fixture
def lakehouse(spark: SparkSession, lakehouse_path: str) -> Lakehouse:
    return Lakehouse(spark, lakehouse_path, "default")


def found(lakehouse: Lakehouse, number: int, *rows: dict[str, Any], days: int = 0) -> None:
    """Let an anomalies run have found these, some days after the first one."""
    lakehouse.replace(ANOMALIES, [{"anomalies_run": number, **row} for row in rows])
    as_of = round((NOW + dt.timedelta(days=days)).timestamp() * 1000)
    lakehouse.runs.note(RunId("anomalies", number), details={"as_of": as_of})


def anomaly(name: str, severity: str = "warning", **given: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "anomaly_id": name,
        "kind": "rebalance_storm",
        "severity": severity,
        "group_id": "<!channel> & co\n",
        "summary": "<!channel> & co\n rebalanced 5 times",
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
    assert lines[1] == "[warning] rebalance_storm &lt;!channel&gt; &amp; co  rebalanced 5 times"
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


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (301, "the webhook redirects to another address"),
        (307, "the webhook redirects to another address"),
        (b"no HTTP\r\n\r\n", "BadStatusLine"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n", "HTTPException"),
    ],
    ids=["moved", "moved for now", "another protocol", "too many headers"],
)
def test_what_is_no_answer_of_a_webhook_is_no_post(
    webhook: Webhook,
    lakehouse: Lakehouse,
    capsys: pytest.CaptureFixture[str],
    answer: int | bytes,
    reason: str,
) -> None:
    found(lakehouse, 0, anomaly("a"))
    run = run_of(lakehouse.spark, lakehouse.root, "anomalies", "--notify", webhook.url)
    webhook.answers = [answer] * 3
    notify(run)
    assert set(webhook.asked) == {"POST"}
    assert f"1 anomalies could not be posted ({reason})" in capsys.readouterr().err
    webhook.answers = []
    notify(run)
    assert webhook.posted == ["a"]


def test_an_address_with_a_port_that_is_none_holds_nothing_up(
    lakehouse: Lakehouse,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOOK_PORT", SECRET)
    monkeypatch.setattr(notify_module, "_WAIT_S", 0.01)
    found(lakehouse, 0, anomaly("a"))
    url = "http://127.0.0.1:${env:HOOK_PORT}/"
    notify(run_of(lakehouse.spark, lakehouse.root, "anomalies", "--notify", url))
    said = capsys.readouterr().err
    assert "1 anomalies could not be posted (InvalidURL)" in said
    assert SECRET not in said


def test_many_are_posted_in_parts_and_each_part_is_noted(
    webhook: Webhook, lakehouse: Lakehouse, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"a{number:03}" for number in range(120)]
    found(lakehouse, 0, *(anomaly(name) for name in names))
    run = run_of(lakehouse.spark, lakehouse.root, "anomalies", "--notify", webhook.url)
    webhook.answers = [200, 404]
    notify(run)
    assert run.summary["anomalies_posted"] == 50
    assert "70 anomalies could not be posted" in capsys.readouterr().err
    notify(run)
    assert run.summary["anomalies_posted"] == 70
    assert [len(message["anomalies"]) for message in webhook.received] == [50, 50, 20]
    assert webhook.posted == names
    assert all(len(m["text"].splitlines()) == 1 + len(m["anomalies"]) for m in webhook.received)


def test_what_ended_while_nobody_posted_is_posted(webhook: Webhook, lakehouse: Lakehouse) -> None:
    def post() -> None:
        notify(run_of(lakehouse.spark, lakehouse.root, "anomalies", "--notify", webhook.url))

    found(lakehouse, 0)
    post()  # there is nothing to post, and it is known until when
    missed = anomaly("missed", ended_at=NOW + dt.timedelta(hours=1))
    found(lakehouse, 1, missed, days=3)
    post()
    found(lakehouse, 2, missed, anomaly("long ago"), days=3)
    post()
    assert webhook.posted == ["missed"]


def test_what_a_killed_run_was_about_to_post_is_posted_later(
    webhook: Webhook, lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def post() -> None:
        notify(run_of(lakehouse.spark, lakehouse.root, "anomalies", "--notify", webhook.url))

    def killed(*_: object) -> str | None:
        raise KeyboardInterrupt

    old = anomaly("old", ended_at=NOW - dt.timedelta(hours=20))
    found(lakehouse, 0, old)
    with monkeypatch.context() as patch:
        patch.setattr(notify_module, "_post", killed)
        with pytest.raises(KeyboardInterrupt):
            post()
    # For all that is known, a run is at it just now; what else there is does not wait for it.
    found(lakehouse, 1, old, anomaly("new", started_at=NOW, ended_at=NOW), days=1)
    post()
    assert webhook.posted == ["new"]
    monkeypatch.setattr(notify_module, "_LEFT_BEHIND", dt.timedelta(0))
    post()
    post()
    assert webhook.posted == ["new", "old"]


def test_of_two_runs_at_once_one_posts(
    webhook: Webhook,
    lakehouse: Lakehouse,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found(lakehouse, 0, *(anomaly(f"a{number:03}") for number in range(60)))
    run = run_of(lakehouse.spark, lakehouse.root, "anomalies", "--notify", webhook.url)
    due = notify_module._due

    def while_another_posts(*arguments: Any) -> list[Alert]:  # noqa: ANN401
        seen = due(*arguments)
        with monkeypatch.context() as patch:
            patch.setattr(notify_module, "_due", due)
            notify(run_of(lakehouse.spark, lakehouse.root, "anomalies", "--notify", webhook.url))
        return seen

    monkeypatch.setattr(notify_module, "_due", while_another_posts)
    notify(run)
    assert [len(message["anomalies"]) for message in webhook.received] == [50, 10]
    assert "60 anomalies could not be posted (another run is posting)" in capsys.readouterr().err


def test_a_long_name_makes_no_long_post(webhook: Webhook, lakehouse: Lakehouse) -> None:
    long = {"group_id": "g" * 32_767, "subject": "<" * 32_767, "summary": "<" * 40_000}
    found(lakehouse, 0, *(anomaly(f"a{number:03}", **long) for number in range(50)))
    notify(run_of(lakehouse.spark, lakehouse.root, "anomalies", "--notify", webhook.url))
    posted = [a for message in webhook.received for a in message["anomalies"]]
    assert len(posted) == 50
    assert {a["group_id"] for a in posted} == {"g" * 199 + "…"}
    assert {a["subject"] for a in posted} == {"<" * 199 + "…"}
    assert all(len(message["text"]) < 25_000 for message in webhook.received)
    assert all(
        message["text"].count("\n") == len(message["anomalies"]) for message in webhook.received
    )


@pytest.fixture
def _in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_in_new_york")
def test_times_are_utc_whatever_the_zone_of_the_process(
    webhook: Webhook, lakehouse: Lakehouse
) -> None:
    found(lakehouse, 0, anomaly("a"))
    notify(run_of(lakehouse.spark, lakehouse.root, "anomalies", "--notify", webhook.url))
    (posted,) = webhook.received[0]["anomalies"]
    assert posted["started_at"] == "2026-11-21T11:00:00Z"
    assert posted["ended_at"] == "2026-11-21T11:55:00Z"


def ends_posted(webhook: Webhook) -> list[list[str]]:
    """Return the ids of what each message said is over."""
    return [[a["anomaly_id"] for a in message["resolved"]] for message in webhook.received]


def test_the_end_of_what_was_open_is_posted_once(webhook: Webhook, lakehouse: Lakehouse) -> None:
    def post(severity: str = "warning") -> dict[str, Any]:
        options = ("--notify", webhook.url, "--notify-severity", severity)
        run = run_of(lakehouse.spark, lakehouse.root, "anomalies", *options)
        notify(run)
        return run.summary

    def open_(name: str, severity: str = "warning") -> dict[str, Any]:
        return anomaly(name, severity, is_open=True)

    found(lakehouse, 0, open_("a"), open_("worse"), open_("gone"), anomaly("over"), open_("on"))
    post()
    found(lakehouse, 1, anomaly("a"), anomaly("worse", "critical"), anomaly("over"), open_("on"))
    webhook.answers = [404]
    assert post() == {"anomalies_posted": 0, "anomalies_resolved": 0}
    assert post("critical") == {"anomalies_posted": 1, "anomalies_resolved": 2}
    assert post() == {"anomalies_posted": 0, "anomalies_resolved": 1}
    post()
    assert webhook.posted == ["a", "gone", "on", "over", "worse", "worse"]
    assert ends_posted(webhook) == [[], ["a", "gone"], ["worse"]]
    (_, second, third) = webhook.received
    assert (
        second["text"]
        .splitlines()[0]
        .endswith("1 new or worse anomaly, 2 resolved in cluster default")
    )
    assert [row["kind"] for row in second["resolved"]] == ["rebalance_storm", None]
    assert second["anomalies"][0]["former_severity"] == "warning"
    assert third["resolved"][0]["severity"] == "critical"


def test_what_a_former_release_has_posted_is_not_posted_again(
    webhook: Webhook, lakehouse: Lakehouse
) -> None:
    columns = [column for column in ALERTS.columns if column.name != "awaits_end"]
    former = dataclasses.replace(ALERTS, columns=tuple(columns))
    rows = [
        {"anomaly_id": name, "severity": "warning", "step": "posted", "at": NOW}
        for name in ("over", "open", "worse")
    ]
    lakehouse.append(former, rows)
    worse = anomaly("worse", "critical", is_open=True)
    found(lakehouse, 0, anomaly("over"), anomaly("open", is_open=True), worse)
    run = run_of(lakehouse.spark, lakehouse.root, "anomalies", "--notify", webhook.url)
    notify(run)
    assert webhook.posted == ["worse"]
    found(lakehouse, 1, anomaly("over"), anomaly("open"), anomaly("worse", "critical"))
    notify(run_of(lakehouse.spark, lakehouse.root, "anomalies", "--notify", webhook.url))
    assert ends_posted(webhook) == [[], ["worse"]]


@pytest.mark.parametrize("format_", ["slack", "teams", "pagerduty", "alertmanager"])
def test_each_receiver_gets_its_own_shape_and_the_end(
    webhook: Webhook,
    lakehouse: Lakehouse,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    format_: str,
) -> None:
    monkeypatch.setenv("ROUTING_KEY", "canary-of-the-key")
    options = ["--notify", webhook.url, "--notify-format", format_, "--report-url", REPORT]
    if format_ == "pagerduty":
        options += ["--notify-key", "${env:ROUTING_KEY}"]

    def post() -> list[Any]:
        webhook.received.clear()
        notify(run_of(lakehouse.spark, lakehouse.root, "anomalies", *options))
        for body in webhook.received:
            jsonschema.validate(body, SCHEMAS[format_])
        return list(webhook.received)

    found(lakehouse, 0, anomaly("a", is_open=True), anomaly("b"))
    first = post()
    again = post()
    found(lakehouse, 1, anomaly("a"), anomaly("b"))
    last = post()
    assert post() == []
    text = json.dumps([first, last])
    assert f"{REPORT}#group=%3C%21channel%3E%20%26%20co%0A" in text
    assert ("<!channel>" in text) == (format_ == "teams")
    if format_ == "pagerduty":
        acts = [(e["event_action"], e["dedup_key"]) for e in [*first, *last]]
        assert acts == [("trigger", "a"), ("trigger", "b"), ("resolve", "a")]
        assert {e["routing_key"] for e in [*first, *last]} == {"canary-of-the-key"}
    elif format_ == "alertmanager":
        assert [len(body) for body in [*first, *again, *last]] == [2, 1, 1]  # what goes on again
        assert {a["labels"]["anomaly_id"] for a in [*again[0], *last[0]]} == {"a"}
        now = dt.datetime.now(dt.timezone.utc).isoformat()
        assert again[0][0]["endsAt"] > now > last[0][0]["endsAt"]
    else:
        assert len(first) == len(last) == 1
        assert "2 new or worse anomalies in cluster default" in text
        assert "1 resolved anomaly in cluster default" in text
    if format_ != "alertmanager":
        assert again == []
    kept = repr(table(lakehouse.spark, lakehouse.root, ALERTS.name).collect())
    assert "canary" not in capsys.readouterr().err + kept


def test_of_events_that_are_posted_one_by_one_each_is_noted(
    webhook: Webhook,
    lakehouse: Lakehouse,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ROUTING_KEY", "canary-of-the-key")
    options = ("--notify-format", "pagerduty", "--notify-key", "${env:ROUTING_KEY}")
    found(lakehouse, 0, *(anomaly(name) for name in ("a", "b", "c")))
    webhook.answers = [200, 400]
    for _ in range(2):
        notify(
            run_of(lakehouse.spark, lakehouse.root, "anomalies", "--notify", webhook.url, *options)
        )
    assert [event["dedup_key"] for event in webhook.received] == ["a", "b", "c"]
    said = capsys.readouterr().err
    assert "2 anomalies could not be posted (the webhook answered 400); the next run" in said
    assert "canary" not in said


def test_a_dry_run_prints_what_would_be_posted_and_notes_nothing(
    webhook: Webhook,
    lakehouse: Lakehouse,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ROUTING_KEY", "canary-of-the-key")
    found(lakehouse, 0, anomaly("a", summary=":bomb: [red]long[/] " * 20), anomaly("b"))
    for given in (("--notify", webhook.url, "--notify-key", "${env:ROUTING_KEY}"), ()):
        dry = ("--notify-format", "pagerduty", "--notify-dry-run")
        notify(run_of(lakehouse.spark, lakehouse.root, "anomalies", *given, *dry))
        said = capsys.readouterr()
        events = [json.loads(line) for line in said.out.splitlines()]
        for event in events:
            jsonschema.validate(event, SCHEMAS["pagerduty"])
        assert [event["dedup_key"] for event in events] == ["a", "b"]
        assert ":bomb: [red]long[/]" in events[0]["payload"]["summary"]
        assert "2 anomalies would be posted, in 2 messages; nothing was posted" in said.err
        assert "canary" not in said.out + said.err
    assert webhook.asked == []
    assert not lakehouse.exists(ALERTS)
    assert lakehouse.of("default").runs.last("notify") is None
    notify(run_of(lakehouse.spark, lakehouse.root, "anomalies", "--notify", webhook.url))
    assert webhook.posted == ["a", "b"]

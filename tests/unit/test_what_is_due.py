"""Alerts: each anomaly is posted once for each severity it reaches, and never in the way."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from rich.console import Console

from jobs.runtime.notify import notify
from jobs.runtime.run import Run
from launch.command_line import parse
from reporting import alerts, posting
from reporting.alerts import POSTED, Alert, Rule, due
from schemas.ledger import LedgerRow, RunId
from schemas.tables import TableSpec
from tests.support.receivers import SCHEMAS
from tests.support.webhook import NOW, SECRET, Webhook, anomaly

REPORT = "https://reports.example.org/groups.html"


class Ledger:
    """Stands for bronze.runs."""

    def __init__(self) -> None:
        self.noted: dict[str, list[SimpleNamespace]] = {}

    def last(self, stage: str) -> SimpleNamespace | None:
        return self.noted.get(stage, [None])[-1]

    def last_number(self, stage: str) -> int:
        return len(self.noted.get(stage, [])) - 1

    def write(self) -> None:
        """What is noted is written at once."""

    def note(self, row: LedgerRow) -> None:
        self.noted.setdefault(row.stage, []).append(SimpleNamespace(details=row.details))


class Kept:
    """Stands for a lakehouse, and for what runs note in it."""

    cluster = "default"

    def __init__(self) -> None:
        self.runs = Ledger()
        self.anomalies: list[dict[str, Any]] = []
        self.rows: list[dict[str, Any]] = []
        self._claimed = -1

    def claims(self, at: dt.datetime | None = None) -> int:
        times = {row["at"] for row in self.rows if row["step"] == "posting"}
        return len(times if at is None else times & {at})

    def append(self, _: TableSpec, rows: list[dict[str, Any]], claim: RunId | None) -> None:
        if claim is None or claim.number > self._claimed:
            self.rows += rows
            self._claimed = claim.number if claim else self._claimed

    def due(self, rule: Rule) -> list[Alert]:
        by_id = {row["anomaly_id"]: {**dict.fromkeys(POSTED), **row} for row in self.anomalies}
        for name in {row["anomaly_id"] for row in self.rows}:
            by_id.setdefault(name, dict.fromkeys(POSTED))["anomaly_id"] = name
        for name, row in by_id.items():
            row["notes"] = [note for note in self.rows if note["anomaly_id"] == name] or None
        return due(by_id.values(), rule)


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    monkeypatch.setattr("reporting.webhook._WAIT_S", 0.01)
    hook = Webhook()
    yield hook
    hook.close()


@pytest.fixture
def lakehouse(monkeypatch: pytest.MonkeyPatch) -> Kept:
    monkeypatch.setattr(posting, "claims", Kept.claims)
    monkeypatch.setattr(posting, "due_now", Kept.due)
    return Kept()


def run_of(lakehouse: Kept, *options: str) -> Run:
    out, err = Console(), Console(stderr=True, width=200)
    chosen = parse(["anomalies", *options])
    return Run(spark=None, options=chosen, lakehouse=lakehouse, out=out, err=err)


def found(lakehouse: Kept, *rows: dict[str, Any], days: int = 0) -> None:
    """Let an anomalies run have found these, some days after the first one."""
    lakehouse.anomalies = list(rows)
    as_of = round((NOW + dt.timedelta(days=days)).timestamp() * 1000)
    lakehouse.runs.note(LedgerRow("anomalies", 0, details={"as_of": as_of}))


def test_each_is_posted_once_for_each_severity(webhook: Webhook, lakehouse: Kept) -> None:
    run = run_of(lakehouse, "--notify", webhook.url)
    old = {"ended_at": NOW - dt.timedelta(days=3), "started_at": NOW - dt.timedelta(days=3)}
    mild = anomaly("mild", "info")
    found(lakehouse, anomaly("a"), mild, anomaly("long ago", **old))
    notify(run)
    notify(run)
    (message,) = webhook.received
    assert [a["anomaly_id"] for a in message["anomalies"]] == ["a"]
    # A group's name is no markup, and does not break the line.
    lines = message["text"].splitlines()
    assert lines[1] == "[warning] rebalance_storm &lt;!channel&gt; &amp; co  rebalanced 5 times"
    found(lakehouse, anomaly("a", "critical"), mild, anomaly("b"))
    notify(run)
    worse = webhook.received[1]["anomalies"]
    assert [(a["anomaly_id"], a["severity"]) for a in worse] == [
        ("a", "critical"),
        ("b", "warning"),
    ]
    found(lakehouse, anomaly("a", "warning"), anomaly("b"))
    notify(run)
    assert len(webhook.received) == 2
    assert SECRET not in repr(run.options.notify)
    assert SECRET not in repr(lakehouse.rows)


def test_what_an_incident_tells_is_not_posted_one_by_one(webhook: Webhook, lakehouse: Kept) -> None:
    run = run_of(lakehouse, "--notify", webhook.url)
    lasting = {"is_open": True, "in_incident": True}
    about = {"kind": "incident", "group_id": None, "groups": ["a", "b", "c"]}
    early = anomaly("early", is_open=True)
    found(lakehouse, early)
    notify(run)
    # One of the anomalies was posted before the others showed that they are one.
    parts = [early | lasting, *(anomaly(name, **lasting) for name in "bc")]
    found(lakehouse, *parts, anomaly("i", is_open=True, **about))
    notify(run)
    notify(run)
    assert webhook.posted == ["early", "i"]
    assert webhook.received[1]["anomalies"][0]["groups"] == ["a", "b", "c"]
    # That one of them is worse is told of all, once.
    parts = [early | lasting, anomaly("b", "critical", **lasting), anomaly("c", **lasting)]
    found(lakehouse, *parts, anomaly("i", "critical", is_open=True, **about))
    notify(run)
    assert webhook.posted == ["early", "i", "i"]
    # What was posted alone is resolved alone.
    over = [anomaly(name, in_incident=True) for name in ("early", "b", "c")]
    found(lakehouse, *over, anomaly("i", "critical", **about))
    notify(run)
    notify(run)
    assert webhook.received[3]["text"].startswith("groupledger: 1 resolved incident, 1 resolved")
    assert [row["anomaly_id"] for row in webhook.received[3]["resolved"]] == ["i", "early"]
    assert len(webhook.received) == 4
    # Anomalies that are of no incident any more are told by themselves.
    found(lakehouse, *parts[:1], anomaly("d"), anomaly("e", in_incident=None))
    notify(run)
    assert webhook.posted[3:] == ["d", "e"]


def test_a_post_that_fails_is_tried_again_and_holds_nothing_up(
    webhook: Webhook, lakehouse: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    found(lakehouse, anomaly("a"))
    run = run_of(lakehouse, "--notify", webhook.url)
    webhook.answers = [500, 503, 500]
    notify(run)
    assert "could not be posted (the webhook answered 500)" in capsys.readouterr().err
    webhook.answers = [500]
    notify(run)
    assert len(webhook.received) == 1
    assert run.summary["anomalies_posted"] == 1
    assert [row["step"] for row in lakehouse.rows] == ["posting", "failed", "posting", "posted"]
    found(lakehouse, anomaly("a"), anomaly("b"))
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
    lakehouse: Kept,
    capsys: pytest.CaptureFixture[str],
    answer: int | bytes,
    reason: str,
) -> None:
    found(lakehouse, anomaly("a"))
    run = run_of(lakehouse, "--notify", webhook.url)
    webhook.answers = [answer] * 3
    notify(run)
    assert set(webhook.asked) == {"POST"}
    assert f"1 anomalies could not be posted ({reason})" in capsys.readouterr().err
    webhook.answers = []
    notify(run)
    assert webhook.posted == ["a"]


def test_an_address_with_a_port_that_is_none_holds_nothing_up(
    lakehouse: Kept,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOOK_PORT", SECRET)
    monkeypatch.setattr("reporting.webhook._WAIT_S", 0.01)
    found(lakehouse, anomaly("a"))
    url = "http://127.0.0.1:${env:HOOK_PORT}/"
    notify(run_of(lakehouse, "--notify", url))
    said = capsys.readouterr().err
    assert "1 anomalies could not be posted (InvalidURL)" in said
    assert SECRET not in said


def test_many_are_posted_in_parts_and_each_part_is_noted(
    webhook: Webhook, lakehouse: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"a{number:03}" for number in range(120)]
    found(lakehouse, *(anomaly(name) for name in names))
    run = run_of(lakehouse, "--notify", webhook.url)
    webhook.answers = [200, 404]
    notify(run)
    assert run.summary["anomalies_posted"] == 50
    assert "70 anomalies could not be posted" in capsys.readouterr().err
    notify(run)
    assert run.summary["anomalies_posted"] == 70
    assert [len(message["anomalies"]) for message in webhook.received] == [50, 50, 20]
    assert webhook.posted == names
    assert all(len(m["text"].splitlines()) == 1 + len(m["anomalies"]) for m in webhook.received)


def test_what_ended_while_nobody_posted_is_posted(webhook: Webhook, lakehouse: Kept) -> None:
    def post() -> None:
        notify(run_of(lakehouse, "--notify", webhook.url))

    found(lakehouse)
    post()  # there is nothing to post, and it is known until when
    missed = anomaly("missed", ended_at=NOW + dt.timedelta(hours=1))
    found(lakehouse, missed, days=3)
    post()
    found(lakehouse, missed, anomaly("long ago"), days=3)
    post()
    assert webhook.posted == ["missed"]


def test_what_a_killed_run_was_about_to_post_is_posted_later(
    webhook: Webhook, lakehouse: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    def post() -> None:
        notify(run_of(lakehouse, "--notify", webhook.url))

    def killed(*_: object) -> str | None:
        raise KeyboardInterrupt

    old = anomaly("old", ended_at=NOW - dt.timedelta(hours=20))
    found(lakehouse, old)
    with monkeypatch.context() as patch:
        patch.setattr(posting, "post", killed)
        with pytest.raises(KeyboardInterrupt):
            post()
    # For all that is known, a run is at it just now; what else there is does not wait for it.
    found(lakehouse, old, anomaly("new", started_at=NOW, ended_at=NOW), days=1)
    post()
    assert webhook.posted == ["new"]
    monkeypatch.setattr(alerts, "_LEFT_BEHIND", dt.timedelta(0))
    post()
    post()
    assert webhook.posted == ["new", "old"]


def test_a_long_name_makes_no_long_post(webhook: Webhook, lakehouse: Kept) -> None:
    long = {"group_id": "g" * 32_767, "subject": "<" * 32_767, "summary": "<" * 40_000}
    found(lakehouse, *(anomaly(f"a{number:03}", **long) for number in range(50)))
    notify(run_of(lakehouse, "--notify", webhook.url))
    posted = [a for message in webhook.received for a in message["anomalies"]]
    assert len(posted) == 50
    assert {a["group_id"] for a in posted} == {"g" * 199 + "…"}
    assert {a["subject"] for a in posted} == {"<" * 199 + "…"}
    assert all(len(message["text"]) < 25_000 for message in webhook.received)
    assert all(
        message["text"].count("\n") == len(message["anomalies"]) for message in webhook.received
    )


def ends_posted(webhook: Webhook) -> list[list[str]]:
    """Return the ids of what each message said is over."""
    return [[a["anomaly_id"] for a in message["resolved"]] for message in webhook.received]


def test_the_end_of_what_was_open_is_posted_once(webhook: Webhook, lakehouse: Kept) -> None:
    def post(severity: str = "warning") -> dict[str, Any]:
        options = ("--notify", webhook.url, "--notify-severity", severity)
        run = run_of(lakehouse, *options)
        notify(run)
        return run.summary

    def open_(name: str, severity: str = "warning") -> dict[str, Any]:
        return anomaly(name, severity, is_open=True)

    found(lakehouse, open_("a"), open_("worse"), open_("gone"), anomaly("over"), open_("on"))
    post()
    found(lakehouse, anomaly("a"), anomaly("worse", "critical"), anomaly("over"), open_("on"))
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
    assert [row["kind"] for row in second["resolved"]] == ["rebalance_storm", "rebalance_storm"]
    assert second["anomalies"][0]["former_severity"] == "warning"
    assert third["resolved"][0]["severity"] == "critical"


def test_what_a_former_release_has_posted_is_not_posted_again(
    webhook: Webhook, lakehouse: Kept
) -> None:
    about = {"severity": "warning", "step": "posted", "at": NOW, "awaits_end": None}
    lakehouse.rows += [{"anomaly_id": name, **about} for name in ("over", "open", "worse")]
    worse = anomaly("worse", "critical", is_open=True)
    found(lakehouse, anomaly("over"), anomaly("open", is_open=True), worse)
    run = run_of(lakehouse, "--notify", webhook.url)
    notify(run)
    assert webhook.posted == ["worse"]
    found(lakehouse, anomaly("over"), anomaly("open"), anomaly("worse", "critical"))
    notify(run_of(lakehouse, "--notify", webhook.url))
    assert ends_posted(webhook) == [[], ["worse"]]


@pytest.mark.parametrize("format_", ["slack", "teams", "pagerduty", "alertmanager"])
def test_each_receiver_gets_its_own_shape_and_the_end(
    webhook: Webhook,
    lakehouse: Kept,
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
        notify(run_of(lakehouse, *options))
        for body in webhook.received:
            jsonschema.validate(body, SCHEMAS[format_])
        return list(webhook.received)

    found(lakehouse, anomaly("a", is_open=True), anomaly("b"))
    first = post()
    again = post()
    found(lakehouse, anomaly("a"), anomaly("b"))
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
    assert "canary" not in capsys.readouterr().err + repr(lakehouse.rows)


def test_of_events_that_are_posted_one_by_one_each_is_noted(
    webhook: Webhook,
    lakehouse: Kept,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ROUTING_KEY", "canary-of-the-key")
    options = ("--notify-format", "pagerduty", "--notify-key", "${env:ROUTING_KEY}")
    found(lakehouse, *(anomaly(name) for name in ("a", "b", "c")))
    webhook.answers = [200, 400]
    for _ in range(2):
        notify(run_of(lakehouse, "--notify", webhook.url, *options))
    assert [event["dedup_key"] for event in webhook.received] == ["a", "b", "c"]
    said = capsys.readouterr().err
    assert "2 anomalies could not be posted (the webhook answered 400); the next run" in said
    assert "canary" not in said


def test_a_dry_run_prints_what_would_be_posted_and_notes_nothing(
    webhook: Webhook,
    lakehouse: Kept,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ROUTING_KEY", "canary-of-the-key")
    found(lakehouse, anomaly("a", summary=":bomb: [red]long[/] " * 20), anomaly("b"))
    for given in (("--notify", webhook.url, "--notify-key", "${env:ROUTING_KEY}"), ()):
        dry = ("--notify-format", "pagerduty", "--notify-dry-run")
        notify(run_of(lakehouse, *given, *dry))
        said = capsys.readouterr()
        events = [json.loads(line) for line in said.out.splitlines()]
        for event in events:
            jsonschema.validate(event, SCHEMAS["pagerduty"])
        assert [event["dedup_key"] for event in events] == ["a", "b"]
        assert ":bomb: [red]long[/]" in events[0]["payload"]["summary"]
        assert "2 anomalies would be posted, in 2 messages; nothing was posted" in said.err
        assert "canary" not in said.out + said.err
    assert webhook.asked == []
    assert lakehouse.rows == []
    assert lakehouse.runs.last("notify") is None
    notify(run_of(lakehouse, "--notify", webhook.url))
    assert webhook.posted == ["a", "b"]

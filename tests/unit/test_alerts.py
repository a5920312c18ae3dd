"""What is posted: each receiver's shape and limits, and what becomes of names that are hostile."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from jsonschema.validators import validator_for

from launch.command_line import parse
from reporting import alerts
from reporting.alerts import JSON, POSTED, Alert, Letterhead, Rule, due, guessed, messages, parts
from tests.support.receivers import SCHEMAS

NOW = dt.datetime(2026, 11, 21, 12, 0, 0, tzinfo=dt.timezone.utc)
REPORT = "https://reports.example.org/groups.html?a=1&b=2"
HEAD = Letterhead(cluster="default", report=REPORT, key="canary-key", now=NOW)
# To make one takes longer than what it is asked.
VALIDATORS = {name: validator_for(schema)(schema) for name, schema in SCHEMAS.items()}
HOSTILE = (
    "<!channel> <@U012AB3CD> @here @channel #general",
    "<https://evil.example|click> [click](https://evil.example) https://evil.example",
    "*bold* _it_ ~gone~ `code` **b** <at>Everyone</at> :bomb:",
    "line\nbreak\r\u202e\x1b[31m\x00",
    "&lt;!channel&gt; &amp;",
    "",
)


def alert(why: str = alerts.NEW, number: int = 0, **given: Any) -> Alert:  # noqa: ANN401
    about = {key: given.pop(key) for key in ("former", "awaits_end") if key in given}
    group = given.get("group_id", "orders-storm")
    anomaly = {
        "anomaly_id": f"a{number:031}",
        "kind": "rebalance_storm",
        "severity": "critical",
        "group_id": group,
        "subject": None,
        "label": "slow_members",
        "summary": f"{group} rebalanced 134 times in 2 min 29 s.",
        "started_at": NOW - dt.timedelta(hours=1),
        "ended_at": NOW - dt.timedelta(minutes=5),
        "is_open": why != alerts.ENDED,
        **given,
    }
    return Alert(why, anomaly, **about)


def of_each_kind() -> list[Alert]:
    """Return alerts of all kinds, and of names that are hostile."""
    gone = dict.fromkeys(("kind", "group_id", "subject", "label", "summary"))
    times = dict.fromkeys(("started_at", "ended_at", "is_open"))
    return [
        alert(number=0),
        alert(number=1, severity="warning", is_open=False, subject="client-7"),
        alert(number=2, severity="info", group_id=None, label=None),
        alert(number=3, former="warning"),
        alert(alerts.ENDED, number=4),
        alert(alerts.ENDED, number=5, **gone, **times),
        *(alert(number=6 + n, group_id=name, subject=name) for n, name in enumerate(HOSTILE)),
        *(alert(alerts.ENDED, number=16 + n, group_id=name) for n, name in enumerate(HOSTILE)),
    ]


def bodies(format_: str, of: list[Alert], head: Letterhead = HEAD) -> list[Any]:
    return [m.body for part in parts(format_, of, head) for m in messages(format_, part, head)]


def test_the_formats_are_those_of_the_option() -> None:
    assert tuple(SCHEMAS) == alerts.FORMATS
    for shape, schema in SCHEMAS.items():
        VALIDATORS[shape].check_schema(schema)
        assert parse(["anomalies", "--notify-format", shape]).notify_shape == shape


@pytest.mark.parametrize("format_", alerts.FORMATS)
@pytest.mark.parametrize("report", [REPORT, None], ids=["with a link", "without"])
def test_each_shape_is_as_its_receiver_describes_it(format_: str, report: str | None) -> None:
    head = Letterhead("default", report, "canary-key", NOW)
    made = bodies(format_, of_each_kind(), head)
    assert made
    for body in made:
        VALIDATORS[format_].validate(body)
        text = json.dumps(body)
        assert ("reports.example.org" in text) == (report is not None and is_of(body) != "resolve")
        assert ("canary-key" in text) == (format_ == "pagerduty")


def is_of(body: Any) -> str | None:  # noqa: ANN401
    return body.get("event_action") if isinstance(body, dict) else None


@pytest.mark.parametrize("format_", alerts.FORMATS)
def test_a_usual_run_is_one_message(format_: str) -> None:
    usual = [alert(number=number) for number in range(10)] + [alert(alerts.ENDED, number=10)]
    assert len(list(parts(format_, usual, HEAD))) == 1
    assert len(bodies(format_, usual)) == (11 if format_ == "pagerduty" else 1)


@pytest.mark.parametrize("format_", alerts.FORMATS)
def test_no_message_is_longer_than_its_receiver_takes(format_: str) -> None:
    longest = [
        {"group_id": "\U0001f600" * 200, "subject": "<" * 200, "summary": "\U0001f600" * 500},
        {"group_id": "g" * 200, "subject": "&" * 200, "summary": "&" * 500},
    ]
    head = Letterhead("c" * 100, f"https://{'&' * 400}", "canary-key", NOW)
    for texts in longest:
        for why in (alerts.NEW, alerts.ENDED):
            many = [alert(why, number=number, **texts) for number in range(60)]
            made = bodies(format_, many, head)
            for body in made:
                VALIDATORS[format_].validate(body)
                length = len(json.dumps(body))
                if format_ == "slack":
                    blocks = body["blocks"]
                    assert len(json.dumps(blocks)) + 110 * len(blocks) < 13_200
                assert length < {"teams": 28_000, "pagerduty": 512_000}.get(format_, 1_000_000)
            told = [a.anomaly["anomaly_id"] for part in parts(format_, many, head) for a in part]
            assert told == [a.anomaly["anomaly_id"] for a in many]


def test_the_text_of_json_is_no_markup_and_a_line_for_each_anomaly() -> None:
    (body,) = bodies("json", of_each_kind())
    first, *lines, last = body["text"].split("\n")
    assert first == "groupledger: 10 new or worse anomalies, 8 resolved in cluster default"
    assert lines[0].startswith("[critical] rebalance_storm orders-storm rebalanced 134 times")
    assert lines[3].startswith("[critical, was warning] rebalance_storm")
    assert lines[4].startswith("[resolved] rebalance_storm orders-storm")
    assert len(lines) == 18
    assert last == REPORT.replace("&", "&amp;")
    assert not set(body["text"]) & set("<>\x1b\r\u202e")
    assert [row["report"] for row in body["anomalies"][:3]] == [
        f"{REPORT}#group=orders-storm",
        f"{REPORT}#group=orders-storm",
        REPORT,
    ]
    assert body["anomalies"][0]["started_at"] == "2026-11-21T11:00:00Z"
    assert [row["former_severity"] for row in body["anomalies"][2:4]] == [None, "warning"]


def incident(why: str = alerts.NEW, **given: Any) -> Alert:  # noqa: ANN401
    about = {"kind": alerts.INCIDENT, "group_id": None, "label": "offsets_set"}
    groups = [f"g{number}" for number in range(20)]
    said = {"summary": "Somebody set 120 offsets of 30 groups.", "groups": groups}
    return alert(why, 99, **about, **said, **given)


@pytest.mark.parametrize("format_", alerts.FORMATS)
def test_an_incident_is_one_message_with_its_groups(format_: str) -> None:
    for why in (alerts.NEW, alerts.ENDED):
        (body,) = bodies(format_, [incident(why)])
        VALIDATORS[format_].validate(body)
        text = json.dumps(body)
        # PagerDuty knows by the id what is resolved.
        assert ("120 offsets of 30 groups" in text) == (is_of(body) != "resolve")
        names_them = format_ in {"json", "alertmanager"} or is_of(body) == "trigger"
        assert ("g0" in text and "g19" in text) == names_them


def test_incidents_are_counted_beside_anomalies() -> None:
    def title(*of: Alert) -> str:
        (body,) = bodies("json", [*of])
        return str(body["text"]).splitlines()[0].partition(" in cluster")[0]

    ended = incident(alerts.ENDED)
    assert title(incident()) == "groupledger: 1 new or worse incident"
    assert title(incident(), alert(), alert()) == (
        "groupledger: 1 new or worse incident, 2 new or worse anomalies"
    )
    assert title(alert(), ended, alert(alerts.ENDED)) == (
        "groupledger: 1 new or worse anomaly, 2 resolved"
    )
    assert title(ended, alert(alerts.ENDED)) == (
        "groupledger: 1 resolved incident, 1 resolved anomaly"
    )


def test_one_anomaly_is_no_plural() -> None:
    assert bodies("json", [alert()])[0]["text"].startswith("groupledger: 1 new or worse anomaly in")
    (body,) = bodies("json", [alert(alerts.ENDED)])
    assert body["text"].startswith("groupledger: 1 resolved anomaly in cluster default\n")


def test_slack_gets_names_as_plain_text_alone() -> None:
    blocks = [b["text"] for body in bodies("slack", of_each_kind()) for b in body["blocks"]]
    markup = [text["text"] for text in blocks if text["type"] == "mrkdwn"]
    for text in blocks:
        if text["type"] == "plain_text":
            assert not set(text["text"]) & set("<>\n\r\x1b\u202e")
    assert not [text for text in markup if "evil" in text.split("<https://reports")[0]]
    links = [text[text.index("<") :] for text in markup if "<" in text]
    assert set(links[0].split("|")) == {
        f"<{REPORT.replace('&', '&amp;')}#group=orders-storm",
        "in the report>",
    }
    for link in links:
        assert link.count("<") == link.count(">") == link.count("|") == 1
        assert link.startswith("<https://reports.example.org/")
    (shown,) = {body["text"] for body in bodies("slack", [alert()])}
    assert shown == "groupledger: 1 new or worse anomaly in cluster default"


def test_teams_gets_no_text_that_is_read_as_markdown() -> None:
    (body,) = bodies("teams", of_each_kind())
    card = body["attachments"][0]["content"]
    assert "TextBlock" not in json.dumps(card).replace("RichTextBlock", "")
    assert "entities" not in card["msteams"]
    texts = [
        run["text"]
        for item in card["body"]
        for line in item.get("items", [item])
        for run in line["inlines"]
    ]
    assert not [text for text in texts if set(text) & set("\n\r\x1b\u202e")]
    assert any("<!channel>" in text for text in texts)  # a TextRun is shown as it is


def test_what_is_passed_on_has_no_mention_or_link_of_slack() -> None:
    for format_ in ("pagerduty", "alertmanager"):
        text = json.dumps(bodies(format_, of_each_kind()), ensure_ascii=False)
        assert not set(text) & set("<>")
        assert "\\n" not in text
        assert "\u2039!channel\u203a" in text


def test_pagerduty_triggers_and_resolves_by_the_id_of_the_anomaly() -> None:
    new, over = bodies("pagerduty", [alert(), alert(alerts.ENDED)])
    assert new["dedup_key"] == over["dedup_key"] == alert().anomaly["anomaly_id"]
    assert (new["event_action"], over["event_action"]) == ("trigger", "resolve")
    assert new["payload"]["source"] == "default/orders-storm"
    assert new["payload"]["timestamp"] == "2026-11-21T11:00:00Z"
    for severity in ("info", "warning", "critical"):
        (event,) = bodies("pagerduty", [alert(severity=severity)])
        assert event["payload"]["severity"] == severity


def test_alertmanager_is_told_until_when_an_alert_holds() -> None:
    def ends(of: Alert) -> list[tuple[str, str, str]]:
        (body,) = bodies("alertmanager", [of])
        return [(a["labels"]["severity"], a["startsAt"], a["endsAt"]) for a in body]

    began = "2026-11-21T11:00:00Z"
    assert ends(alert()) == [("critical", began, "2026-11-23T12:00:00Z")]
    assert ends(alert(alerts.AGAIN)) == ends(alert())
    # Alertmanager tells nobody of one that is resolved when it comes.
    assert ends(alert(is_open=False)) == [("critical", began, "2026-11-21T12:15:00Z")]
    assert ends(alert(alerts.ENDED)) == [("critical", began, "2026-11-21T11:55:00Z")]
    # Another severity is another alert.
    assert ends(alert(former="warning")) == [
        ("critical", began, "2026-11-23T12:00:00Z"),
        ("warning", began, "2026-11-21T12:00:00Z"),
    ]
    # A log may be ahead of this clock; an end before the start is refused, one to come is no end.
    later = NOW + dt.timedelta(hours=3)
    ahead = alert(alerts.ENDED, started_at=later, ended_at=later + dt.timedelta(hours=1))
    assert ends(ahead) == [("critical", "2026-11-21T12:00:00Z", "2026-11-21T12:00:00Z")]


def test_an_alert_of_alertmanager_keeps_its_labels_to_the_end() -> None:
    (first,), (again,), (last,) = (
        bodies("alertmanager", [alert(why)])[0] for why in (alerts.NEW, alerts.AGAIN, alerts.ENDED)
    )
    assert first["labels"] == again["labels"] == last["labels"]
    assert first["labels"] == {
        "alertname": "rebalance_storm",
        "severity": "critical",
        "cluster": "default",
        "group": "orders-storm",
        "anomaly_id": alert().anomaly["anomaly_id"],
    }


@pytest.mark.parametrize(
    ("url", "format_"),
    [
        ("https://hooks.slack.com/services/T0/B0/x", "slack"),
        ("https://events.pagerduty.com/v2/enqueue", "pagerduty"),
        ("https://events.eu.pagerduty.com/v2/enqueue", "pagerduty"),
        ("http://am:9093/api/v2/alerts", "alertmanager"),
        ("https://mimir/alertmanager/api/v2/alerts/", "alertmanager"),
        ("https://chat.example.org/hooks/x", "json"),
        ("https://hooks.slack.com.example.org/services/x", "json"),
        ("https://x.environment.api.powerplatform.com/powerautomate/x", "json"),
        ("http://[", "json"),
        ("", "json"),
    ],
)
def test_an_address_tells_its_format_where_it_can_be_no_other(url: str, format_: str) -> None:
    assert guessed(url) == format_


def test_a_name_too_long_for_an_address_is_left_out_of_it() -> None:
    (body,) = bodies("json", [alert(group_id="ü" * 200)])
    assert body["anomalies"][0]["report"] == REPORT
    (body,) = bodies("json", [alert(group_id="a/b c#\ud800")])
    assert body["anomalies"][0]["report"] == f"{REPORT}#group=a%2Fb%20c%23%3F"
    head = Letterhead("default", "https://r.example/#page", "", NOW)
    (body,) = bodies("json", [alert()], head)
    assert body["anomalies"][0]["report"] == "https://r.example/#page"


def test_one_that_is_not_found_any_more_names_its_kind_and_group() -> None:
    noted = {"severity": "critical", "step": "posted", "at": NOW, "awaits_end": True}
    of_whom = {"kind": "rebalance_storm", "group_id": "orders"}
    gone = {**dict.fromkeys(POSTED), "anomaly_id": "224435"}
    rule = Rule("warning", NOW, NOW, tells_again=False)
    lines = []
    for note in (noted | of_whom, noted):
        told = due([{**gone, "notes": [note]}], rule)
        (message,) = messages(JSON, told, HEAD)
        assert isinstance(message.body, dict)
        lines.append(message.body["text"].splitlines()[1])
    assert lines == [
        "[resolved] rebalance_storm orders: not found any more.",
        "[resolved] 224435 It is not found any more.",  # an older release has noted it
    ]

"""What is posted about anomalies: plain data, in the shape that each receiver has published.

A shape is a function of its own; docs/architecture.md says why no library makes them.

Names of groups and clients are chosen by whoever may join a group. No shape gives them to a
receiver as markup: Slack gets them as `plain_text`, Teams as a `TextRun`, which knows no Markdown,
and what is passed on by others has no angle brackets.

Slack: https://docs.slack.dev/reference/block-kit/blocks/section-block
Teams: https://adaptivecards.io/explorer, https://learn.microsoft.com/connectors/teams
PagerDuty: https://developer.pagerduty.com/docs/send-alert-event
Alertmanager: https://prometheus.io/docs/alerting/latest/alerts_api
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, urlsplit

from reporting.text import cut, escaped, one_line, passed_on
from schemas.gold import SEVERITIES
from schemas.words import count

Json: TypeAlias = "dict[str, Any]"

FORMATS = JSON, SLACK, TEAMS, PAGERDUTY, ALERTMANAGER = (
    *("json", "slack", "teams"),
    *("pagerduty", "alertmanager"),
)
"""What --notify-format takes."""

NEW, ENDED, AGAIN = "new", "ended", "again"
"""Why an anomaly is posted: it is new or worse, it was posted and is over, it still goes on."""

INCIDENT = "incident"
"""The kind of what is posted of an incident, as if it were an anomaly, instead of its anomalies."""

IN_INCIDENT, GROUPS = "in_incident", "groups"
"""What rows of `due` have beside `POSTED`: whether an incident tells of an anomaly, and the first
groups of an incident; None of an anomaly."""

NAMED_GROUPS = 20
"""So many groups of an incident are named."""

_SLACK_HOSTS = frozenset({"hooks.slack.com", "hooks.slack-gov.com"})
_PAGERDUTY_HOSTS = frozenset({"events.pagerduty.com", "events.eu.pagerduty.com"})
_ALERTS_PATH = "/api/v2/alerts"

# Slack takes 50 blocks, of 3,000 characters each. It also refuses blocks of 13,200 characters
# together, counted with about 110 of its own for each (slackapi/bolt-js, issue 2509).
_SLACK_BLOCK = 120
_SLACK_ROOM = 9_500
# A workflow refuses a message of more than 28 KB.
_TEAMS_ROOM = 24_000
_SUMMARY = 1_024  # characters of a summary in PagerDuty
_COLOURS = {"critical": "Attention", "warning": "Warning", "info": "Accent"}

# Alertmanager takes an alert for resolved at its endsAt. One that goes on is posted by each run.
_GOES_ON = dt.timedelta(days=2)
# Nobody is told of one that is resolved before its group's turn (group_interval, five minutes).
_LONG_ENOUGH_TO_BE_TOLD = dt.timedelta(minutes=15)

# A name that is longer makes no part of an address.
_LONGEST_ANCHOR = 500

POSTED = (
    *("anomaly_id", "kind", "severity", "group_id", "subject", "label", "summary"),
    *("started_at", "ended_at", "is_open"),
)
"""What is posted of an anomaly: columns of gold.anomalies."""
# Names of groups and clients, which their users choose, have up to 32,767 characters.
_LONGEST = {"group_id": 200, "subject": 200, "summary": 500}
# A message is posted, or given up, in less than 40 seconds, and a part has 15 of them at most: what
# takes longer was left by a killed run.
_LEFT_BEHIND = dt.timedelta(minutes=10)


@dataclass(frozen=True)
class Alert:
    """An anomaly, and why it is posted."""

    why: str  # NEW, ENDED or AGAIN
    # What gold.anomalies has of it, times in UTC; its severity is the one that it is, or was,
    # posted with. One that is not found any more has only its id and severity, kind and group as
    # they were noted, and all else is None.
    anomaly: Json
    former: str | None = None  # the severity that it was posted with before, if it is worse now
    awaits_end: bool = False  # its end is to be posted, too


@dataclass(frozen=True)
class Letterhead:
    """What all messages of a run have in common."""

    cluster: str
    report: str | None  # where people open it
    key: str  # PagerDuty's routing key; no other shape has it
    now: dt.datetime


class Message(NamedTuple):
    """The body of one post, and the alerts that it tells of."""

    body: Json | list[Json]
    alerts: list[Alert]


def guessed(url: str) -> str:
    """Return the format that an address asks for; JSON if it may be anything.

    Workflows of Teams have addresses that other workflows have, too.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:  # an address that no post will reach
        return JSON
    if host in _SLACK_HOSTS:
        return SLACK
    if host in _PAGERDUTY_HOSTS:
        return PAGERDUTY
    return ALERTMANAGER if parts.path.rstrip("/").endswith(_ALERTS_PATH) else JSON


class Rule(NamedTuple):
    """Which alerts are due."""

    least: str  # the mildest severity of what is new
    since: dt.datetime  # what ended before is not new, unless a run was about to post it
    now: dt.datetime
    tells_again: bool  # what goes on is posted by each run


def due(rows: Iterable[Json], rule: Rule) -> list[Alert]:
    """Return what is to be posted of anomalies: first what is new or worse, then what is over.

    The `notes` of a row are its steps in gold.alerts. One that was posted may be found no more, by
    other thresholds or with records that came late: it has notes, its id, and else None. An anomaly
    that an incident tells of is not new; if it was posted before, its end is.
    """
    alerts = [alert for row in rows if (alert := _due(row, rule)) is not None]
    return sorted(alerts, key=_turn)


def _due(row: Json, rule: Rule) -> Alert | None:
    # The last step of a severity says whether it was posted, or may be just now. Its end is a post
    # of its own, and so is that it is worse.
    notes = sorted(row["notes"] or (), key=lambda note: note["at"])
    last = {(SEVERITIES.index(n["severity"]), n["awaits_end"]): n for n in notes}
    posted = {post for post, note in last.items() if note["step"] == "posted"}
    left_at = rule.now - _LEFT_BEHIND
    sent = posted | {p for p, n in last.items() if n["step"] == "posting" and n["at"] > left_at}
    told = max((rank for rank, _ in sent), default=-1)
    awaits_end = (told, True) in posted and (told, False) not in sent
    rank = -1 if row["severity"] is None else SEVERITIES.index(row["severity"])
    is_open, ended_at = bool(row["is_open"]), row["ended_at"]
    is_late = ended_at is not None and ended_at >= rule.since
    is_new = rank > told and rank >= SEVERITIES.index(rule.least) and not row.get(IN_INCIDENT)
    if is_new and (is_open or is_late or notes):
        why = NEW
    elif awaits_end and (not is_open or rule.tells_again):
        is_new, why = False, AGAIN if is_open else ENDED
    else:
        return None
    known = row
    if row["kind"] is None and notes:  # it is not found any more
        known = {**row, "kind": notes[-1].get("kind"), "group_id": notes[-1].get("group_id")}
    anomaly = {name: _posted(name, known[name]) for name in POSTED}
    if groups := row.get(GROUPS):
        anomaly[GROUPS] = [cut(name, _LONGEST["group_id"]) for name in groups[:NAMED_GROUPS]]
    return Alert(
        why=why,
        anomaly={**anomaly, "severity": SEVERITIES[rank if is_new else told]},
        former=SEVERITIES[told] if is_new and told >= 0 else None,
        awaits_end=is_new and (is_open or awaits_end),
    )


def _turn(alert: Alert) -> tuple[Any, ...]:
    """Return what puts alerts in order: new before over, the worst and then the oldest first."""
    at, rank = alert.anomaly["started_at"], SEVERITIES.index(alert.anomaly["severity"])
    when = at or dt.datetime.max.replace(tzinfo=dt.timezone.utc)
    return alert.why != NEW, -rank, when, alert.anomaly["anomaly_id"]


def _posted(name: str, value: object) -> object:
    """Return a value as it is posted: times in UTC, and no name too long."""
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.timezone.utc)
    return cut(value, _LONGEST.get(name, len(value))) if isinstance(value, str) else value


def parts(format_: str, alerts: list[Alert], head: Letterhead) -> Iterator[list[Alert]]:
    """Cut alerts into parts, as few as the receiver's limits allow; each is noted as a whole."""
    shape = _SHAPES[format_]
    part: list[Alert] = []
    taken = 0
    for alert in alerts:
        size = shape.size(alert, head)
        if part and (len(part) == shape.most or taken + size > shape.room):
            yield part
            part, taken = [], 0
        part.append(alert)
        taken += size
    if part:
        yield part


def messages(format_: str, part: list[Alert], head: Letterhead) -> list[Message]:
    """Return the messages of a part, in their order; one without a body has nothing to tell."""
    return _SHAPES[format_].messages(part, head)


def _title(part: list[Alert], head: Letterhead) -> str:
    is_one = {"incident": True, "anomaly": False}
    numbers = Counter((alert.why, alert.anomaly["kind"] == INCIDENT) for alert in part)
    said, over = (
        [count(n, f"{how} {noun}") for noun in is_one if (n := numbers[why, is_one[noun]])]
        for why, how in ((NEW, "new or worse"), (ENDED, "resolved"))
    )
    if said and over:
        over = [f"{numbers[ENDED, True] + numbers[ENDED, False]} resolved"]
    return f"groupledger: {', '.join([*said, *over])} in cluster {head.cluster}"


def _summary(alert: Alert) -> str:
    summary, group = alert.anomaly["summary"], alert.anomaly["group_id"]
    if summary is not None:
        return one_line(summary)
    return (
        "It is not found any more." if group is None else f"{one_line(group)}: not found any more."
    )


def _what(alert: Alert) -> str:
    """Name the kind of an anomaly, or its id, if an older release has not noted the kind."""
    return str(alert.anomaly["kind"] or alert.anomaly["anomaly_id"])


def _status(alert: Alert) -> str:
    if alert.why == ENDED:
        return "resolved"
    was = "" if alert.former is None else f", was {alert.former}"
    return f"{alert.anomaly['severity']}{was}"


def _link(alert: Alert, head: Letterhead) -> str | None:
    """Return where the report tells of an anomaly's group; None if nobody said where it is."""
    group, report = alert.anomaly["group_id"], head.report
    if report is None or group is None or "#" in report:
        return report
    anchor = quote(group, safe="", errors="replace")
    return f"{report}#group={anchor}" if len(anchor) <= _LONGEST_ANCHOR else report


def _written(value: object) -> object:
    """Write a time as ISO 8601; JSON has the other values itself."""
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, dt.datetime) else value


def _size(item: object) -> int:
    return len(json.dumps(item)) + 2  # with a comma and a blank


# -- JSON ------------------------------------------------------------------------------------------


def _json(part: list[Alert], head: Letterhead) -> list[Message]:
    """Make one body: ``text`` is what chat services show, the rest is for programs."""
    lines = [_title(part, head), *(_line(alert) for alert in part)]
    if head.report is not None:
        lines.append(escaped(head.report))
    body = {
        "text": "\n".join(lines),
        "cluster": head.cluster,
        "report": head.report,
        "anomalies": [_row(alert, head) for alert in part if alert.why == NEW],
        "resolved": [_row(alert, head) for alert in part if alert.why == ENDED],
    }
    return [Message(body, part)]


def _line(alert: Alert) -> str:
    return f"[{_status(alert)}] {_what(alert)} {escaped(_summary(alert))}"


def _row(alert: Alert, head: Letterhead) -> Json:
    row = {name: _written(value) for name, value in alert.anomaly.items()}
    return {**row, "former_severity": alert.former, "report": _link(alert, head)}


# -- Slack -----------------------------------------------------------------------------------------


def _slack(part: list[Alert], head: Letterhead) -> list[Message]:
    """Make one message of blocks; ``text`` is what a notification shows."""
    title = _title(part, head)
    blocks = [_mrkdwn(f"*{title}*")]
    for alert in part:
        blocks += _slack_blocks(alert, head)
    if head.report is not None:
        blocks.append(_mrkdwn(_slack_link(head.report, "Open the report")))
    return [Message({"text": title, "blocks": blocks}, part)]


def _slack_blocks(alert: Alert, head: Letterhead) -> list[Json]:
    if alert.why == ENDED:
        return [_plain_text(f"[{_status(alert)}] {_what(alert)} {_summary(alert)}")]
    line = f"*{_status(alert)}* {escaped(_what(alert))}"
    if (link := _link(alert, head)) is not None:
        line += f"  {_slack_link(link, 'in the report')}"
    return [_mrkdwn(line), _plain_text(_summary(alert))]


def _mrkdwn(text: str) -> Json:
    """Return a block of our own words; names of channels and the like are not looked for in it."""
    return {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


def _plain_text(text: str) -> Json:
    """Return a block of any text: shown as it is."""
    return {
        "type": "section",
        "text": {"type": "plain_text", "text": escaped(text), "emoji": False},
    }


def _slack_link(url: str, text: str) -> str:
    address = url.replace("<", "%3C").replace(">", "%3E").replace("|", "%7C")
    return f"<{escaped(address)}|{text}>"


# -- Teams -----------------------------------------------------------------------------------------


def _teams(part: list[Alert], head: Letterhead) -> list[Message]:
    """Make one message with an Adaptive Card, as a workflow of Teams takes it."""
    title = _run(_title(part, head), weight="Bolder", size="Medium")
    card: Json = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": [_rich_text(title), *(_teams_item(alert, head) for alert in part)],
    }
    if head.report is not None:
        card["actions"] = [_open(head.report, "Open the report")]
    attachment = {
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": None,
        "content": card,
    }
    return [Message({"type": "message", "attachments": [attachment]}, part)]


def _teams_item(alert: Alert, head: Letterhead) -> Json:
    colour = "Good" if alert.why == ENDED else _COLOURS[alert.anomaly["severity"]]
    status = _run(_status(alert), weight="Bolder", color=colour)
    summary, what = _run(_summary(alert)), _run(f"  {_what(alert)}  ")
    lines = [[status, what, summary]] if alert.why == ENDED else [[status, what], [summary]]
    item: Json = {
        "type": "Container",
        "separator": True,
        "items": [{**_rich_text(*line), "spacing": "Small"} for line in lines],
    }
    if (link := _link(alert, head)) is not None:
        item["selectAction"] = _open(link, "In the report")
    return item


def _rich_text(*runs: Json) -> Json:
    return {"type": "RichTextBlock", "inlines": list(runs)}


def _run(text: str, **style: str) -> Json:
    return {"type": "TextRun", "text": text, **style}


def _open(url: str, title: str) -> Json:
    return {"type": "Action.OpenUrl", "title": title, "url": url}


# -- PagerDuty -------------------------------------------------------------------------------------


def _pagerduty(part: list[Alert], head: Letterhead) -> list[Message]:
    """Make an event for each anomaly: the API takes one at a time."""
    return [Message(_event(alert, head), [alert]) for alert in part]


def _event(alert: Alert, head: Letterhead) -> Json:
    anomaly = alert.anomaly
    event: Json = {
        "routing_key": head.key,
        "event_action": "resolve" if alert.why == ENDED else "trigger",
        "dedup_key": anomaly["anomaly_id"],
    }
    if alert.why == ENDED:
        return event
    group = anomaly["group_id"]
    details = ("label", "started_at", "ended_at", "is_open")
    event["payload"] = {
        "summary": passed_on(f"{anomaly['kind']}: {_summary(alert)}")[:_SUMMARY],
        "source": head.cluster if group is None else f"{head.cluster}/{passed_on(group)}",
        "severity": anomaly["severity"],
        "timestamp": _written(anomaly["started_at"]),
        "group": head.cluster,
        "class": anomaly["kind"],
        "custom_details": {n: _written(anomaly[n]) for n in (*details, GROUPS) if n in anomaly},
    }
    if anomaly["subject"] is not None:
        event["payload"]["component"] = passed_on(anomaly["subject"])
    event["client"] = "groupledger"
    if (link := _link(alert, head)) is not None:
        event["client_url"] = link
        event["links"] = [{"href": link, "text": "The group in the report"}]
    return event


# -- Alertmanager ----------------------------------------------------------------------------------


def _alertmanager(part: list[Alert], head: Letterhead) -> list[Message]:
    """Make one list of alerts; of one that is not found any more, none: its time runs out."""
    found = [alert for alert in part if alert.anomaly["summary"] is not None]
    return [Message([item for alert in found for item in _firings(alert, head)], part)]


def _firings(alert: Alert, head: Letterhead) -> list[Json]:
    """Return an anomaly as an alert; if it is worse now, the milder one, too, as resolved."""
    # The labels identify an alert, and its severity is one of them.
    anomaly, now = alert.anomaly, head.now
    if alert.why == ENDED:
        ends = min(anomaly["ended_at"], now)
    else:
        ends = now + (_GOES_ON if anomaly["is_open"] else _LONG_ENOUGH_TO_BE_TOLD)
    firings = [_firing(alert, head, anomaly["severity"], ends)]
    if alert.former is not None:
        firings.append(_firing(alert, head, alert.former, now))
    return firings


def _firing(alert: Alert, head: Letterhead, severity: str, ends: dt.datetime) -> Json:
    anomaly = alert.anomaly
    labels = {
        "alertname": anomaly["kind"],
        "severity": severity,
        "cluster": head.cluster,
        "group": anomaly["group_id"],
        "subject": anomaly["subject"],
        "anomaly_id": anomaly["anomaly_id"],
    }
    more = {name: _written(anomaly[name]) for name in ("label", "started_at", "ended_at")}
    annotations = {"summary": _summary(alert), **more, GROUPS: ", ".join(anomaly.get(GROUPS, ()))}
    firing: Json = {
        "labels": {name: passed_on(text) for name, text in labels.items() if text},
        "annotations": {name: passed_on(str(text)) for name, text in annotations.items() if text},
        "startsAt": _written(min(anomaly["started_at"], ends)),  # else it is refused
        "endsAt": _written(ends),
    }
    if (link := _link(alert, head)) is not None:
        firing["generatorURL"] = link
    return firing


class _Shape(NamedTuple):
    """How a format is made, and what a part holds at most."""

    messages: Callable[[list[Alert], Letterhead], list[Message]]
    most: int  # alerts
    room: int  # what they may take up together, in the unit of `size`
    size: Callable[[Alert, Letterhead], int]


_SHAPES = {
    # Slack, which many take it for, shows up to 40,000 characters of text.
    JSON: _Shape(_json, 50, 20_000, lambda alert, _: len(_line(alert))),
    SLACK: _Shape(
        _slack,
        24,
        _SLACK_ROOM,
        lambda alert, head: sum(_size(b) + _SLACK_BLOCK for b in _slack_blocks(alert, head)),
    ),
    TEAMS: _Shape(_teams, 50, _TEAMS_ROOM, lambda alert, head: _size(_teams_item(alert, head))),
    # A part is posted within minutes, also where each event is posted at the last try.
    PAGERDUTY: _Shape(_pagerduty, 15, 15, lambda *_: 1),
    ALERTMANAGER: _Shape(_alertmanager, 500, 500, lambda *_: 1),
}

"""Posts new and worsened anomalies to a webhook, and their ends; is never in the way.

An anomaly is posted, or it is still to be posted; so is its end, if it was posted as something that
may go on. What is about to be posted is written down first, so that no other run posts it
meanwhile, and then whether it was posted. What failed is tried again by the next run; what a killed
run left so by the first one that comes some minutes later, which may then post it for the second
time.
"""

from __future__ import annotations

import datetime as dt
import http.client
import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from detectors.health import index_among
from lakehouse.runs import RunId
from reporting.alerts import (
    AGAIN,
    ALERTMANAGER,
    ENDED,
    NEW,
    Alert,
    Letterhead,
    Message,
    messages,
    parts,
)
from reporting.read import time_at
from schemas.gold import SEVERITIES
from schemas.tables import ALERTS, ANOMALIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Row

    from jobs.runtime.run import Run
    from lakehouse.tables import Lakehouse

STAGE = "notify"

# Details of runs in the ledger: the time of the log that anomalies were found, and posted, up to.
_AS_OF = "as_of"

_TRIES = 3
_TIMEOUT_S = 10
_WAIT_S = 1.0
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# A message is posted, or given up, in less than 40 seconds, and a part has 15 of them at most: what
# takes longer was left by a killed run.
_LEFT_BEHIND = dt.timedelta(minutes=10)
# Names of groups and clients, which their users choose, have up to 32,767 characters.
_LONGEST = {"group_id": 200, "subject": 200, "summary": 500}
# Some anomalies are found a while behind their end.
_RECENT_MS = 24 * 60 * 60 * 1000
_SHOWN = (
    *("anomaly_id", "kind", "severity", "group_id", "subject", "label", "summary"),
    *("started_at", "ended_at", "is_open"),
)
# Stands for PagerDuty's key in what a dry run prints.
_NO_KEY = "(the key)"


@dataclass
class _Outlet:
    """Where to post, and what got there.

    Attributes:
        url: the address, with its secrets; None in a dry run that was given none.
        format: the shape of messages, one of FORMATS.
        head: what all messages have in common.
        sent: the alerts that were posted.
    """

    lakehouse: Lakehouse
    url: str | None
    format: str
    head: Letterhead
    sent: list[Alert] = field(default_factory=list)

    def parts(self, alerts: list[Alert]) -> Iterator[list[Alert]]:
        """Cut alerts into parts, each of which is noted as a whole."""
        return parts(self.format, alerts, self.head)

    def messages(self, part: list[Alert]) -> list[Message]:
        """Return the messages of a part; one without a body has nothing to tell."""
        return messages(self.format, part, self.head)


def notify(run: Run) -> None:
    """Post the anomalies of a severity that are new or worse, and the end of those posted."""
    options, lakehouse, runs = run.options, run.lakehouse, run.lakehouse.runs
    if options.notify_url is None and not options.notify_dry_run:
        return
    run.summary |= {"anomalies_posted": 0, "anomalies_resolved": 0}
    found, last = runs.last("anomalies"), runs.last(STAGE)
    if found is None:
        return
    as_of = found.details[_AS_OF]
    posted_to = None if last is None else last.details.get(_AS_OF)
    outlet, error = _outlet(run), None
    with run.step("posting anomalies"):
        claims = _claims(lakehouse)  # before what is due: who posts meanwhile makes one more
        since = (as_of if posted_to is None else posted_to) - _RECENT_MS
        alerts = _due(outlet, SEVERITIES.index(options.notify_severity), since)
        due = [alert for alert in alerts if alert.why != AGAIN]
        again = [alert for alert in alerts if alert.why == AGAIN]
        if options.notify_dry_run:
            _show(run, outlet, [*outlet.parts(due), *outlet.parts(again)])
            return
        for number, part in enumerate(outlet.parts(due), claims):
            error = _post_once(outlet, part, RunId(STAGE, number))
            if error is not None:
                break
        if error is None and posted_to != as_of:
            done = RunId(STAGE, runs.last_number(STAGE) + 1)
            runs.note(done, rows={ALERTS.name: len(due)}, details={_AS_OF: as_of})
            runs.write()
        if error is None:
            error = _post_again(outlet, again)
    for name, why in (("anomalies_posted", NEW), ("anomalies_resolved", ENDED)):
        run.summary[name] = sum(alert.why == why for alert in outlet.sent)
    if error is not None:
        left = len(alerts) - len(outlet.sent)
        run.say(f"{left} anomalies could not be posted ({error}); the next run tries again")


def _outlet(run: Run) -> _Outlet:
    options = run.options
    head = Letterhead(
        cluster=run.lakehouse.cluster,
        report=options.report_url,
        key=_NO_KEY if options.notify_dry_run else options.notify_routing_key or "",
        now=dt.datetime.now(dt.timezone.utc),
    )
    return _Outlet(run.lakehouse, options.notify_url, options.notify_shape, head)


def _show(run: Run, outlet: _Outlet, told: list[list[Alert]]) -> None:
    """Print what would be posted of some parts, a line of JSON for each message."""
    bodies = [message.body for part in told for message in outlet.messages(part)]
    shown = [json.dumps(body) for body in bodies if body]
    for text in shown:
        run.out.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)
    count = sum(map(len, told))
    run.say(
        f"{count} anomalies would be posted, in {len(shown)} messages; nothing was posted or noted"
        " (--notify-dry-run)"
    )


def _claims(lakehouse: Lakehouse) -> int:
    """Return the number of posts that runs were about to make so far."""
    return lakehouse.read(ALERTS).where("step = 'posting'").select("at").distinct().count()


def _due(outlet: _Outlet, least: int, since: int) -> list[Alert]:
    """Return what is to be posted: first what is new or worse, then what is over.

    Of what is new, all milder than `least` is left out, and what ended before `since` (epoch
    milliseconds), unless an earlier run was about to post it. Alertmanager also gets what goes on.
    """
    rank = F.expr(index_among("severity", SEVERITIES))
    # The last step of an anomaly and severity says whether it was posted, or may be just now. Its
    # end is a post of its own, and so is that it is worse.
    last = (
        outlet.lakehouse.read(ALERTS)
        .groupBy("anomaly_id", "severity", "awaits_end")
        .agg(F.max_by("step", "at").alias("step"), F.max("at").alias("at"))
    )
    left_at, is_posted = F.lit(outlet.head.now - _LEFT_BEHIND), F.col("step") == "posted"
    is_sent = is_posted | (F.col("step") == "posting") & (F.col("at") > left_at)
    tried = last.groupBy("anomaly_id").agg(
        F.lit(True).alias("was_tried"),  # noqa: FBT003 - a column's value
        F.max(F.when(is_sent, rank)).alias("sent"),
        F.max(F.when(is_posted & F.col("awaits_end"), rank)).alias("awaiting"),
        F.max(F.when(is_sent & ~F.col("awaits_end"), rank)).alias("told"),
    )
    # What was posted may be found no more, by other thresholds or with records that came late.
    known = outlet.lakehouse.read(ANOMALIES).withColumn("rank", rank)
    joined = known.join(tried, "anomaly_id", how="full")
    is_open = F.coalesce("is_open", F.lit(False))  # noqa: FBT003 - a column's value
    is_due = is_open | (F.col("ended_at") >= time_at(since))
    is_new = (
        (F.col("rank") >= least)
        & (is_due | F.col("was_tried"))
        & (F.col("sent").isNull() | (F.col("rank") > F.col("sent")))
    )
    awaits_end = F.expr("awaiting = sent AND (told IS NULL OR told < awaiting)")
    awaits_end = F.coalesce(awaits_end, F.lit(False))  # noqa: FBT003 - a column's value
    why = F.when(is_new, NEW).when(awaits_end & ~is_open, ENDED)
    if outlet.format == ALERTMANAGER:
        why = why.when(awaits_end, AGAIN)
    is_worse = F.when(why == NEW, F.col("rank")).otherwise(F.col("sent"))
    rows = (
        joined.withColumns({"why": why, "awaits_end": awaits_end, "worst": is_worse})
        .where("why IS NOT NULL")
        .orderBy(
            *((F.col("why") == NEW).desc(), F.desc("worst")),
            *(F.asc_nulls_last("started_at"), "anomaly_id"),
        )
        .select(*_SHOWN, "why", "awaits_end", "sent", "worst")
        .collect()
    )
    return [_alert(row) for row in rows]


def _alert(row: Row) -> Alert:
    anomaly = {name: _plain(name, row[name]) for name in _SHOWN}
    anomaly["severity"] = SEVERITIES[row["worst"]]
    is_new = row["why"] == NEW
    return Alert(
        why=row["why"],
        anomaly=anomaly,
        former=SEVERITIES[row["sent"]] if is_new and row["sent"] is not None else None,
        awaits_end=is_new and (row["is_open"] or row["awaits_end"]),
    )


def _plain(name: str, value: object) -> object:
    """Return a value as it is posted: times in UTC, and no name too long."""
    if isinstance(value, dt.datetime):  # in the zone of this process, and it does not say so
        return value.astimezone(dt.timezone.utc)
    if isinstance(value, str) and len(value) > (longest := _LONGEST.get(name, len(value))):
        return f"{value[: longest - 1]}…"
    return value


def _post_once(outlet: _Outlet, part: list[Alert], claim: RunId) -> str | None:
    """Post some alerts, unless another run does; give the reason if that did not work.

    Of runs that have seen the same claims, and so make the same one, a single one writes its own.
    """
    at = _note(outlet, part, claim)
    claims = outlet.lakehouse.read(ALERTS).where("step = 'posting'")
    if claims.where(F.col("at") == at).isEmpty():
        return "another run is posting"
    error = _post_all(outlet, part)
    _note(outlet, part)
    return error


def _post_again(outlet: _Outlet, alerts: list[Alert]) -> str | None:
    """Post what goes on, of which nothing is noted; give the reason if that did not work."""
    for part in outlet.parts(alerts):
        error = _post_all(outlet, part)
        if error is not None:
            return error
    return None


def _post_all(outlet: _Outlet, part: list[Alert]) -> str | None:
    """Post the messages of a part, up to the first that does not get there."""
    for message in outlet.messages(part):
        error = _post(outlet.url or "", json.dumps(message.body).encode()) if message.body else None
        if error is not None:
            return error
        outlet.sent += message.alerts
    return None


def _note(outlet: _Outlet, part: list[Alert], claim: RunId | None = None) -> dt.datetime:
    """Note that alerts are about to be posted, or without a claim, which of them were."""
    now = dt.datetime.now(dt.timezone.utc)
    sent = {alert.anomaly["anomaly_id"] for alert in outlet.sent}
    alerts: list[dict[str, object]] = [
        {
            "anomaly_id": alert.anomaly["anomaly_id"],
            "severity": alert.anomaly["severity"],
            "step": "posting" if claim else _outcome(alert, sent),
            "at": now,
            "awaits_end": alert.awaits_end,
        }
        for alert in part
    ]
    outlet.lakehouse.append(ALERTS, alerts, claim)
    return now


def _outcome(alert: Alert, sent: set[str]) -> str:
    return "posted" if alert.anomaly["anomaly_id"] in sent else "failed"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: what answers behind one has got a GET, without the anomalies."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Make no request, which leaves the redirect an error."""


def _post(url: str, body: bytes) -> str | None:
    """Post, some times if need be; give the reason if it did not work, without the address."""
    reason = "no answer"
    opener = urllib.request.build_opener(_NoRedirects)
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_WAIT_S * 2 ** (attempt - 1))
        request = urllib.request.Request(  # noqa: S310 - options allow http and https alone
            url, body, {"Content-Type": "application/json"}
        )
        try:
            with opener.open(request, timeout=_TIMEOUT_S):
                return None
        except urllib.error.HTTPError as error:
            if error.code in _REDIRECTS:
                return "the webhook redirects to another address"
            reason = f"the webhook answered {error.code}"
            if error.code < 500 and error.code != 429:  # noqa: PLR2004 - it will not change its mind
                return reason
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = str(getattr(error, "reason", None) or type(error).__name__)
    return reason

"""Posts new and worsened anomalies to a webhook, and is never in the way of the pipeline.

An anomaly is posted, or it is still to be posted. What is about to be posted is written down first,
so that no other run posts it meanwhile, and then whether it was posted. What failed is tried
again by the next run; what a killed run left so by the first one that comes some minutes later,
which may then post it for the second time.
"""

from __future__ import annotations

import datetime as dt
import http.client
import json
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import functions as F

from detectors.health import index_among
from jobs.runtime.logs import of_every_log
from lakehouse.runs import RunId
from schemas.gold import SEVERITIES
from schemas.tables import ALERTS, ANOMALIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobs.runtime.run import Run
    from lakehouse.tables import Lakehouse

STAGE = "notify"

_Anomaly: TypeAlias = "dict[str, Any]"

# Details of runs in the ledger: the time of the log that anomalies were found, and posted, up to.
_AS_OF = "as_of"

_TRIES = 3
_TIMEOUT_S = 10
_WAIT_S = 1.0
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# A part is posted, or given up, in less than a minute: what takes longer was left by a killed run.
_LEFT_BEHIND = dt.timedelta(minutes=10)
# Of a post. Slack shows up to 40,000 characters.
_MOST_ANOMALIES = 50
_MOST_CHARACTERS = 20_000
# Names of groups and clients, which their users choose, have up to 32,767 characters.
_LONGEST = {"group_id": 200, "subject": 200, "summary": 500}
# Some anomalies are found a while behind their end.
_RECENT_MS = 24 * 60 * 60 * 1000
_SHOWN = (
    *("anomaly_id", "kind", "severity", "group_id", "subject", "label", "summary"),
    *("started_at", "ended_at", "is_open"),
)


@of_every_log
def notify(run: Run) -> None:
    """Post the anomalies of a severity that were not posted yet, or were milder then."""
    url, lakehouse, runs = run.options.notify_url, run.lakehouse, run.lakehouse.runs
    if url is None:
        return
    run.summary["anomalies_posted"] = 0
    found, last = runs.last("anomalies"), runs.last(STAGE)
    if found is None:
        return
    as_of = found.details[_AS_OF]
    posted_to = None if last is None else last.details.get(_AS_OF)
    posted, error = 0, None
    with run.step("posting anomalies"):
        claims = _claims(lakehouse)
        since = (as_of if posted_to is None else posted_to) - _RECENT_MS
        new = _new(lakehouse, SEVERITIES.index(run.options.notify_severity), since)
        for number, part in enumerate(_parts(new), claims):
            error = _post_once(lakehouse, url, part, RunId(STAGE, number))
            if error is not None:
                break
            posted += len(part)
        if error is None and posted_to != as_of:
            done = RunId(STAGE, runs.last_number(STAGE) + 1)
            runs.note(done, rows={ALERTS.name: posted}, details={_AS_OF: as_of})
    run.summary["anomalies_posted"] = posted
    if error is not None:
        left = len(new) - posted
        run.say(f"{left} anomalies could not be posted ({error}); the next run tries again")


def _claims(lakehouse: Lakehouse) -> int:
    """Return the number of posts that runs were about to make so far."""
    return lakehouse.read(ALERTS).where("step = 'posting'").select("at").distinct().count()


def _new(lakehouse: Lakehouse, least: int, since: int) -> list[_Anomaly]:
    """Return the anomalies to post: of a severity, new or worse.

    Those that ended before `since` are left out, unless an earlier run was about to post them.
    """
    rank = F.expr(index_among("severity", SEVERITIES))
    known = lakehouse.read(ANOMALIES).where(rank >= least)
    # The last step of an anomaly and severity says whether it was posted, or may be just now.
    last = (
        lakehouse.read(ALERTS)
        .groupBy("anomaly_id", "severity")
        .agg(F.max_by("step", "at").alias("step"), F.max("at").alias("at"))
    )
    left_at = F.lit(dt.datetime.now(dt.timezone.utc) - _LEFT_BEHIND)
    is_sent = (F.col("step") == "posted") | (F.col("step") == "posting") & (F.col("at") > left_at)
    tried = last.groupBy("anomaly_id").agg(
        F.lit(True).alias("was_tried"),  # noqa: FBT003 - a column's value
        F.max(F.when(is_sent, rank)).alias("sent"),
    )
    joined = known.join(tried, "anomaly_id", how="left")
    is_due = F.col("is_open") | (F.col("ended_at") >= F.timestamp_millis(F.lit(since)))
    unposted = joined.where(
        (is_due | F.col("was_tried")) & (F.col("sent").isNull() | (rank > F.col("sent")))
    )
    rows = unposted.orderBy(rank.desc(), "started_at", "anomaly_id").select(*_SHOWN).collect()
    return [
        {name: _json_value(name, value) for name, value in row.asDict().items()} for row in rows
    ]


def _json_value(name: str, value: object) -> object:
    """Return a value as it is posted: times in UTC, and no name too long."""
    if isinstance(value, dt.datetime):  # in the zone of this process, and it does not say so
        return value.astimezone(dt.timezone.utc).isoformat().replace("+00:00", "Z")
    if isinstance(value, str) and len(value) > (longest := _LONGEST.get(name, len(value))):
        return f"{value[: longest - 1]}…"
    return value


def _parts(anomalies: list[_Anomaly]) -> Iterator[list[_Anomaly]]:
    """Cut what there is to post into posts that are not too long for a webhook."""
    part: list[_Anomaly] = []
    length = 0  # of the text
    for anomaly in anomalies:
        line = len(_line(anomaly))
        if part and (len(part) == _MOST_ANOMALIES or length + line > _MOST_CHARACTERS):
            yield part
            part, length = [], 0
        part.append(anomaly)
        length += line
    if part:
        yield part


def _post_once(lakehouse: Lakehouse, url: str, part: list[_Anomaly], claim: RunId) -> str | None:
    """Post some anomalies, unless another run does; give the reason if that did not work.

    Of runs that have seen the same claims, and so make the same one, a single one writes its own.
    """
    at = _note(lakehouse, part, "posting", claim)
    if lakehouse.read(ALERTS).where((F.col("step") == "posting") & (F.col("at") == at)).isEmpty():
        return "another run is posting"
    error = _post(url, _message(lakehouse.cluster, part))
    _note(lakehouse, part, "posted" if error is None else "failed")
    return error


def _note(
    lakehouse: Lakehouse, part: list[_Anomaly], step: str, run: RunId | None = None
) -> dt.datetime:
    now = dt.datetime.now(dt.timezone.utc)
    alerts: list[dict[str, object]] = [
        {"anomaly_id": a["anomaly_id"], "severity": a["severity"], "step": step, "at": now}
        for a in part
    ]
    lakehouse.append(ALERTS, alerts, run)
    return now


def _message(cluster: str, part: list[_Anomaly]) -> bytes:
    """Make the body: ``text`` is what Slack and its like show, ``anomalies`` is for programs."""
    title = f"groupledger: {len(part)} new or worse anomalies in cluster {_plain(cluster)}"
    text = "\n".join([title, *map(_line, part)])
    return json.dumps({"text": text, "cluster": cluster, "anomalies": part}).encode()


def _line(anomaly: _Anomaly) -> str:
    return f"[{anomaly['severity']}] {anomaly['kind']} {_plain(anomaly['summary'])}"


def _plain(text: str) -> str:
    """Take a name that anyone may have chosen for what it is: no markup, no control characters."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


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

"""Posts new and worsened anomalies to a webhook: once each, and never in the way of the pipeline.

What is about to be posted is written down first. A run that is killed in between leaves it so, and
it is not posted again: rather once too few than twice. A post that failed is tried again by the
next run.
"""

from __future__ import annotations

import datetime as dt
import json
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from detectors.health import place_among
from jobs.runtime.logs import of_every_log
from lakehouse.errors import ConflictError
from lakehouse.runs import RunId
from schemas.gold import SEVERITIES
from schemas.tables import ALERTS, ANOMALIES

if TYPE_CHECKING:
    from pyspark.sql import Row

    from jobs.runtime.run import Run
    from lakehouse.tables import Lakehouse

STAGE = "notify"
_TRIES = 3
_TIMEOUT_S = 10
_WAIT_S = 1.0
_MOST_TOLD = 50
_RECENT = "INTERVAL 24 HOURS"
_SHOWN = (
    *("anomaly_id", "kind", "severity", "group_id", "subject", "label", "summary"),
    *("started_at", "ended_at", "is_open"),
)


@of_every_log
def notify(run: Run) -> None:
    """Post the anomalies of a severity that were not posted yet, or were milder then."""
    url, least = run.options.notify_url, run.options.notify_severity
    if url is None:
        return
    with run.step("posting anomalies"):
        new = _new(run.lakehouse, SEVERITIES.index(least))
        if not new:
            run.summary |= {"anomalies_posted": 0}
            return
        number = _claim(run.lakehouse, new)
        if number is None:
            raise ConflictError(
                f"another run of cluster {run.lakehouse.cluster} posts the same anomalies; this one"
                " posted none. Let one run end before the next starts"
            )
        error = _post(url, _message(run.lakehouse.cluster, new))
        _note(run.lakehouse, new, "posted" if error is None else "failed")
        run.lakehouse.runs.note(number, rows={ALERTS.name: len(new)})
    run.summary |= {"anomalies_posted": 0 if error is not None else len(new)}
    if error is not None:
        run.say(f"{len(new)} anomalies could not be posted ({error}); the next run tries again")


def _new(lakehouse: Lakehouse, least: int) -> list[Row]:
    rank = F.expr(place_among("severity", SEVERITIES))
    found = lakehouse.runs.last("anomalies")
    if found is None:
        return []
    since = F.timestamp_millis(F.lit(found.details["as_of"])) - F.expr(_RECENT)
    known = lakehouse.read(ANOMALIES).where(rank >= least)
    recent = known.where(F.col("is_open") | (F.col("ended_at") >= since))
    steps = lakehouse.read(ALERTS)
    # The last step of an anomaly and severity says whether it was posted, or may have been.
    last = steps.groupBy("anomaly_id", "severity").agg(F.max_by("step", "at").alias("step"))
    sent = last.where("step <> 'failed'").groupBy("anomaly_id").agg(F.max(rank).alias("sent"))
    joined = recent.join(sent, "anomaly_id", how="left")
    news = joined.where(F.col("sent").isNull() | (rank > F.col("sent")))
    return news.orderBy(rank.desc(), "started_at", "anomaly_id").select(*_SHOWN).collect()


def _claim(lakehouse: Lakehouse, rows: list[Row]) -> RunId | None:
    """Note what is about to be posted; give the run, None if another one at the same time does."""
    number = RunId(STAGE, lakehouse.runs.last_number(STAGE) + 1)
    at = _note(lakehouse, rows, "posting", number)
    if lakehouse.read(ALERTS).where((F.col("at") == at) & (F.col("step") == "posting")).isEmpty():
        return None
    return number


def _note(
    lakehouse: Lakehouse, rows: list[Row], step: str, run: RunId | None = None
) -> dt.datetime:
    now = dt.datetime.now(dt.timezone.utc)
    told: list[dict[str, object]] = [
        {"anomaly_id": row.anomaly_id, "severity": row.severity, "step": step, "at": now}
        for row in rows
    ]
    lakehouse.append(ALERTS, told, run)
    return now


def _message(cluster: str, rows: list[Row]) -> bytes:
    """Make the body: ``text`` is what Slack and its like show, ``anomalies`` is for programs."""
    lines = [f"groupledger: {len(rows)} new or worse anomalies in cluster {_plain(cluster)}"]
    for row in rows[:_MOST_TOLD]:
        group = "" if row.group_id is None else f"{_plain(row.group_id)}: "
        lines.append(f"[{row.severity}] {row.kind} {group}{_plain(row.summary)}")
    if len(rows) > _MOST_TOLD:
        lines.append(f"… and {len(rows) - _MOST_TOLD} more")
    told = [
        {
            k: v.isoformat() + "Z" if isinstance(v, dt.datetime) else v
            for k, v in row.asDict().items()
        }
        for row in rows[:_MOST_TOLD]
    ]
    return json.dumps({"text": "\n".join(lines), "cluster": cluster, "anomalies": told}).encode()


def _plain(text: str) -> str:
    """Take a name that anyone may have chosen for what it is: no markup, no control characters."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _post(url: str, body: bytes) -> str | None:
    """Post, some times if need be; give the reason if it did not work, without the address."""
    reason = "no answer"
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_WAIT_S * 2 ** (attempt - 1))
        request = urllib.request.Request(  # noqa: S310 - options allow http and https alone
            url, body, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S):  # noqa: S310
                return None
        except urllib.error.HTTPError as error:
            reason = f"the webhook answered {error.code}"
            if error.code < 500 and error.code != 429:  # noqa: PLR2004 - it will not change its mind
                return reason
        except (OSError, ValueError) as error:
            reason = str(getattr(error, "reason", None) or type(error).__name__)
    return reason

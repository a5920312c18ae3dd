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

from anomalies.health import place_among
from anomalies.model import SEVERITIES
from jobs.runtime.logs import of_every_log
from schemas.tables import ALERTS, ANOMALIES, ANOMALY_RUNS
from storage.tables import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Row

    from jobs.runtime.runner import Run
    from storage.tables import Lakehouse

_APPLICATION = "alerts"
_TRIES = 3
_TIMEOUT_S = 10
_WAIT_S = 1.0
_MOST_TOLD = 50
_RECENT = dt.timedelta(hours=24)
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
        _note(run.lakehouse, new, "posting")
        error = _post(url, _message(run.lakehouse.cluster, new))
        _note(run.lakehouse, new, "posted" if error is None else "failed")
    run.summary |= {"anomalies_posted": 0 if error is not None else len(new)}
    if error is not None:
        run.say(f"{len(new)} anomalies could not be posted ({error}); the next run tries again")


def _new(lakehouse: Lakehouse, least: int) -> list[Row]:
    rank = F.expr(place_among("severity", SEVERITIES))
    newest = lakehouse.read(ANOMALY_RUNS).agg(F.max("as_of").alias("at")).first()
    if newest is None or newest["at"] is None:
        return []
    known = lakehouse.read(ANOMALIES).where(rank >= least)
    recent = known.where(F.col("is_open") | (F.col("ended_at") >= F.lit(newest["at"] - _RECENT)))
    steps = lakehouse.read(ALERTS)
    # The last step of an anomaly and severity says whether it was posted, or may have been.
    last = steps.groupBy("anomaly_id", "severity").agg(F.max_by("step", "at").alias("step"))
    sent = last.where("step <> 'failed'").groupBy("anomaly_id").agg(F.max(rank).alias("sent"))
    joined = recent.join(sent, "anomaly_id", how="left")
    news = joined.where(F.col("sent").isNull() | (rank > F.col("sent")))
    return news.orderBy(rank.desc(), "started_at", "anomaly_id").select(*_SHOWN).collect()


def _note(lakehouse: Lakehouse, rows: list[Row], step: str) -> None:
    lakehouse.ensure(ALERTS)
    now = dt.datetime.now(dt.timezone.utc)
    told = [(lakehouse.cluster, row.anomaly_id, row.severity, step, now) for row in rows]
    frame = lakehouse.spark.createDataFrame(told, spark_schema(ALERTS.columns))
    version = lakehouse.last_write(ALERTS, _APPLICATION) + 1
    lakehouse.append_first(ALERTS, frame, _APPLICATION, version)


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

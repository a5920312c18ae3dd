"""What is due of the tables, posted to a webhook and noted in gold.alerts.

An anomaly is posted, or it is still to be posted; so is its end, if it was posted as something that
may go on. What is about to be posted is written down first, so that no other run posts it
meanwhile, and then whether it was posted. What failed is tried again by the next run; what a killed
run left so by the first one that comes some minutes later, which may then post it for the second
time.
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from reporting.alerts import (
    GROUPS,
    IN_INCIDENT,
    INCIDENT,
    NAMED_GROUPS,
    POSTED,
    Alert,
    Json,
    Letterhead,
    Rule,
    due,
    messages,
    parts,
)
from reporting.webhook import post
from schemas.ledger import RunId, Stage
from schemas.tables import ALERTS, ANOMALIES, INCIDENTS
from storage.lakehouse import Lakehouse


@dataclass
class Outlet:
    """Where to post, and what got there."""

    lakehouse: Lakehouse  # keeps what is posted
    url: str | None  # the address, with its secrets; None in a dry run that was given none
    format: str  # the shape of messages, one of FORMATS
    head: Letterhead  # what all messages have in common
    sent: list[Alert] = field(default_factory=list)  # the alerts that were posted


def claims(lakehouse: Lakehouse, at: dt.datetime | None = None) -> int:
    """Return the number of posts that runs were about to make so far, or at a time."""
    times = lakehouse.read(ALERTS).where("step = 'posting'").select("at").distinct()
    return (times if at is None else times.where(F.col("at") == at)).count()


def due_now(lakehouse: Lakehouse, rule: Rule) -> list[Alert]:
    """Return what is to be posted of gold.anomalies and gold.incidents."""
    note = F.struct("severity", "step", "at", "awaits_end", "kind", "group_id")
    notes = lakehouse.read(ALERTS).groupBy("anomaly_id")
    noted = notes.agg(F.collect_list(note).alias("notes"))
    may_be_due = F.expr("is_open OR notes IS NOT NULL") | (F.col("ended_at") >= rule.since)
    rows = _known(lakehouse).join(noted, "anomaly_id", how="full").where(may_be_due)
    return due(rows.toArrow().to_pylist(), rule)


def _known(lakehouse: Lakehouse) -> DataFrame:
    """Return anomalies, marked if an incident tells of them, and incidents as if they were."""
    anomalies = lakehouse.read(ANOMALIES).select(*POSTED)
    if not lakehouse.exists(INCIDENTS):
        return anomalies
    incidents = lakehouse.read(INCIDENTS)
    names = incidents.select(F.explode("anomaly_ids").alias("anomaly_id")).distinct()
    told = F.broadcast(names.withColumn(IN_INCIDENT, F.expr("true")))
    own = {"anomaly_id": F.col("incident_id"), "kind": F.lit(INCIDENT), "label": F.col("cause")}
    own["group_id"] = F.lit(None).cast("string")
    columns = [own.get(name, F.col(name)).alias(name) for name in POSTED]
    first = F.slice("groups", 1, NAMED_GROUPS).alias(GROUPS)
    return anomalies.join(told, "anomaly_id", how="left").unionByName(
        incidents.select(*columns, first), allowMissingColumns=True
    )


def post_once(outlet: Outlet, alerts: list[Alert], claimed: int) -> str | None:
    """Post alerts in parts, unless another run does; give the reason if that did not work.

    Several runs that have seen as many claims make the same one: only the first is kept.
    """
    for number, part in enumerate(parts(outlet.format, alerts, outlet.head), claimed):
        at = _note(outlet, part, RunId(Stage.NOTIFY, number))
        if not claims(outlet.lakehouse, at):
            return "another run is posting"
        error = _post_all(outlet, part)
        _note(outlet, part)
        if error is not None:
            return error
    return None


def post_again(outlet: Outlet, alerts: list[Alert]) -> str | None:
    """Post what goes on, and note nothing of it; give the reason if that did not work."""
    errors = (_post_all(outlet, part) for part in parts(outlet.format, alerts, outlet.head))
    return next((error for error in errors if error is not None), None)


def _post_all(outlet: Outlet, part: list[Alert]) -> str | None:
    """Post the messages of a part, up to the first that does not get there."""
    for message in messages(outlet.format, part, outlet.head):
        error = post(outlet.url or "", json.dumps(message.body).encode()) if message.body else None
        if error is not None:
            return error
        outlet.sent += message.alerts
    return None


def _note(outlet: Outlet, part: list[Alert], claim: RunId | None = None) -> dt.datetime:
    """Note that alerts are about to be posted, or without a claim, which of them were."""
    now = dt.datetime.now(dt.timezone.utc)
    sent = {alert.anomaly["anomaly_id"] for alert in outlet.sent}

    def row(alert: Alert) -> Json:
        name, outcome = alert.anomaly["anomaly_id"], "posting"
        if claim is None:
            outcome = "posted" if name in sent else "failed"
        about = {key: alert.anomaly[key] for key in ("severity", "kind", "group_id")}
        about["awaits_end"] = alert.awaits_end
        return {"anomaly_id": name, "step": outcome, "at": now, **about}

    outlet.lakehouse.append(ALERTS, [row(alert) for alert in part], claim)
    return now

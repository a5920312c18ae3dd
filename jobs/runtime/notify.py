"""Posts new and worsened anomalies to a webhook, and their ends; is never in the way."""

from __future__ import annotations

import datetime as dt
import json

from jobs.runtime.run import Run
from reporting import posting
from reporting.alerts import (
    AGAIN,
    ALERTMANAGER,
    ENDED,
    NEW,
    Alert,
    Letterhead,
    Rule,
    messages,
    parts,
)
from reporting.posting import Outlet
from reporting.text import moment
from schemas.ledger import Detail, LedgerRow, Stage
from schemas.tables import ALERTS

# Some anomalies are found a while behind their end.
_RECENT = dt.timedelta(days=1)
# Stands for PagerDuty's key in what a dry run prints.
_NO_KEY = "(the key)"


def notify(run: Run) -> None:
    """Post the anomalies of a severity that are new or worse, and the end of those posted."""
    options, runs = run.options, run.lakehouse.runs
    if options.notify_url is None and not options.notify_dry_run:
        return
    run.summary |= {"anomalies_posted": 0, "anomalies_resolved": 0}
    found, last = runs.last(Stage.ANOMALIES), runs.last(Stage.NOTIFY)
    if found is None:
        return
    as_of = found.details[Detail.AS_OF]
    posted_to = None if last is None else last.details.get(Detail.AS_OF)
    key = _NO_KEY if options.notify_dry_run else options.notify_routing_key or ""
    now = dt.datetime.now(dt.timezone.utc)
    head = Letterhead(run.lakehouse.cluster, options.report_url, key, now)
    outlet, error = Outlet(run.lakehouse, options.notify_url, options.notify_shape, head), None
    with run.step("posting anomalies"):
        # Before what is due: who posts meanwhile makes one more.
        claimed = posting.claims(run.lakehouse)
        since = moment(as_of if posted_to is None else posted_to) - _RECENT
        tells_again = outlet.format == ALERTMANAGER
        rule = Rule(options.notify_severity, since, now, tells_again)
        alerts = posting.due_now(run.lakehouse, rule)
        once = [alert for alert in alerts if alert.why != AGAIN]
        again = [alert for alert in alerts if alert.why == AGAIN]
        if options.notify_dry_run:
            _show(run, outlet, [once, again])
            return
        error = posting.post_once(outlet, once, claimed)
        if error is None and posted_to != as_of:
            number, rows = runs.last_number(Stage.NOTIFY) + 1, {ALERTS.name: len(once)}
            runs.note(LedgerRow(Stage.NOTIFY, number, rows=rows, details={Detail.AS_OF: as_of}))
            runs.write()
        if error is None:
            error = posting.post_again(outlet, again)
    for name, why in (("anomalies_posted", NEW), ("anomalies_resolved", ENDED)):
        run.summary[name] = sum(alert.why == why for alert in outlet.sent)
    if error is not None:
        left = len(alerts) - len(outlet.sent)
        run.say(f"{left} anomalies could not be posted ({error}); the next run tries again")


def _show(run: Run, outlet: Outlet, told: list[list[Alert]]) -> None:
    """Print what would be posted, a line of JSON for each message."""
    cut = [part for alerts in told for part in parts(outlet.format, alerts, outlet.head)]
    made = [m.body for part in cut for m in messages(outlet.format, part, outlet.head) if m.body]
    for body in made:
        text = json.dumps(body)
        run.out.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)
    run.say(
        f"{sum(map(len, told))} anomalies would be posted, in {len(made)} messages; nothing was"
        " posted or noted (--notify-dry-run)"
    )

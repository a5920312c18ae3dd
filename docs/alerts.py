"""Makes the messages that docs/anomalies.md shows: of one anomaly that the demo finds.

Prints them as Markdown: PYTHONPATH=. .venv-dev/bin/python docs/alerts.py
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from pathlib import Path

from docs.markdown import item, paragraph
from reporting.alerts import (
    ALERTMANAGER,
    ENDED,
    JSON,
    NEW,
    PAGERDUTY,
    SLACK,
    TEAMS,
    Alert,
    Letterhead,
    messages,
)

PAGE = Path(__file__).with_name("anomalies.md")
# As gold.anomalies of the demo has it.
ANOMALY = {
    "anomaly_id": "f1b197e4e1d6a7c082b6",
    "kind": "aborted_rebalances",
    "severity": "critical",
    "group_id": "orders-storm",
    "subject": None,
    "label": None,
    "summary": "orders-storm started 14 rebalances again before all members had finished (07:00:43"
    " to 07:02:54 UTC).",
    "started_at": dt.datetime(2026, 11, 21, 7, 0, 43, 493_000, dt.timezone.utc),
    "ended_at": dt.datetime(2026, 11, 21, 7, 2, 54, 368_000, dt.timezone.utc),
    "is_open": True,
}
_HEAD = Letterhead(
    cluster="default",
    report="https://reports.example.org/groups.html",
    key="(the key)",
    now=dt.datetime(2026, 11, 21, 7, 15, tzinfo=dt.timezone.utc),
)
_ABOUT = {
    JSON: "`text` has a line for each anomaly and is escaped for chat services; `anomalies` and"
    " `resolved` are for programs, with the columns of `gold.anomalies`, the severity of an earlier"
    " post, and a link.",
    SLACK: "two blocks for what is new, one for an end.",
    TEAMS: "one card. A click on an anomaly opens the report at its group.",
    PAGERDUTY: "an event for each anomaly. `dedup_key` is its id, so that what is worse goes to the"
    " alert that is there, and the end resolves it.",
    ALERTMANAGER: "one list. What is worse has another label `severity`, and so is another alert:"
    " the milder one is resolved in the same list.",
}


def examples() -> str:
    """Return the messages of each format, as Markdown: of an anomaly, and of its end."""
    new, over = Alert(NEW, ANOMALY), Alert(ENDED, {**ANOMALY, "is_open": False})
    lines = []
    for format_, about in _ABOUT.items():
        parts = [[new], [over]] if format_ in {PAGERDUTY, ALERTMANAGER} else [[new, over]]
        bodies = [m.body for part in parts for m in messages(format_, part, _HEAD)]
        shown = "\n".join(paragraph(json.dumps(body)) for body in bodies)
        lines.append(f"{item(f'**{format_}**: {about}')}\n\n```text\n{shown}\n```")
    return "\n\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(f"{examples()}\n")

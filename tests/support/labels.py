"""What truly happened in the recordings, and how it compares with what was found."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from schemas import toml
from tests.support.detection import detected

Row = dict[str, Any]
ROOT = Path(__file__).parents[2]
TRUTH = ROOT / "tests" / "truth"
RECORDINGS = (
    *("4.3.1-storm", "4.3.1-classic", "4.3.1-modern", "4.3.1-connect", "4.3.1-txn.read_committed"),
    *("4.3.1-admin2", "4.3.1-compacted", "3.9.2-zk-default", "3.9.2-kraft-modern"),
    *("2.2.2-default", "0.11.0.3-default"),
)
TOLERANCE_MS = 30_000


class Outcome(NamedTuple):
    """What became of the labels of one kind."""

    must: list[Row]  # labels of what has to be found
    found: list[Row]  # those that were, and in time
    false: list[Row]  # warnings and worse that no label explains
    never: list[Row]  # labels of what must not be found
    quiet: list[Row]  # those that were not


def path_of(recording: str) -> Path:
    """Return the file of a recording."""
    own = TRUTH / f"{recording}.parquet"
    return own if own.exists() else ROOT / "examples" / "recordings" / f"{recording}.parquet"


@cache
def found_in(recording: str) -> tuple[Row, ...]:
    """Return what is found in a recording, by our thresholds."""
    return tuple(detected(path_of(recording)))


def outcomes() -> dict[str, Outcome]:
    """Compare all recordings with their labels, by kind."""
    labels = toml.loads((TRUTH / "anomalies.toml").read_text("utf-8"))
    musts = [*labels["must"], *_aborted()]
    kinds = defaultdict(lambda: Outcome([], [], [], [], []))
    for must in musts:
        outcome = kinds[must["kind"]]
        outcome.must.append(must)
        if any(_is_of(row, must) and _in_time(row, must) for row in found_in(must["recording"])):
            outcome.found.append(must)
    for recording in RECORDINGS:
        for row in found_in(recording):
            known = (*musts, *labels["may"])
            if row["severity"] != "info" and not any(
                label["recording"] == recording and _is_of(row, label) for label in known
            ):
                kinds[row["kind"]].false.append({**row, "recording": recording})
    for never in labels["never"]:
        outcome = kinds[never.get("kind", "any")]
        outcome.never.append(never)
        if not any(_is_of(row, never) for row in found_in(never["recording"])):
            outcome.quiet.append(never)
    return dict(kinds)


def _is_of(row: Row, label: Row) -> bool:
    names = {"kind": "kind", "group": "group_id", "subject": "subject", "label": "label"}
    return all(row[column] == label[name] for name, column in names.items() if name in label)


def _in_time(row: Row, label: Row) -> bool:
    return all(
        name not in label or abs(row[name] - label[name]) <= TOLERANCE_MS
        for name in ("started_at", "ended_at")
    )


def _aborted() -> list[Row]:
    """Take the groups that gave up rebalances from the brokers' own logs."""
    found = []
    for recording in RECORDINGS:
        path = TRUTH / f"{recording}.coordinator.jsonl"
        if path.exists() and recording != "4.3.1-compacted":
            label = {"recording": recording, "kind": "aborted_rebalances"}
            found += [{**label, "group": group} for group in _gave_up(path)]
    return found


# A group that waits longer has got its assignment, and the line that says so was not understood.
_SOON_MS = 15_000


def _gave_up(log: Path) -> list[str]:
    """Name the groups with a generation that all had joined, and that got no assignment."""
    joined: dict[str, int] = {}
    gave_up = set()
    for line in log.read_text("utf-8").splitlines():
        event = json.loads(line)
        group, at = event.get("group"), event["ts"]
        if event["event"] == "stabilized" and event.get("members") != 0:
            joined[group] = at
        elif event["event"] == "assigned":
            joined.pop(group, None)
        elif event["event"] == "prepare" and at - joined.pop(group, 0) <= _SOON_MS:
            gave_up.add(group)
    return sorted(gave_up)

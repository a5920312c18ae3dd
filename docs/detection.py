"""Measures what the detectors find, and shows the thresholds they go by.

Prints the two tables of docs/anomalies.md: PYTHONPATH=. .venv-dev/bin/python docs/detection.py
"""

from __future__ import annotations

import re
import sys
from importlib import resources
from pathlib import Path

from detectors.sentences import KINDS
from docs.markdown import item
from schemas import toml
from tests.support.labels import outcomes

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "anomalies.md"
LIVE = ROOT / "tests" / "e2e" / "test_live_anomalies.py"


def detection() -> str:
    """Return what was found of what happened, as Markdown."""
    found = outcomes()
    live = set(re.findall(r'Found\("(\w+)"', LIVE.read_text("utf-8")))
    lines = [
        (
            "| kind | recordings: found of what happened | precision | look-alikes left alone |"
            " elsewhere |"
        ),
        "|---|---|---|---|---|",
    ]
    never = found.get("any")
    for kind in KINDS:
        outcome = found.get(kind)
        cells = ["", "", ""]
        if outcome is not None:
            hits, false = len(outcome.found), len(outcome.false)
            if outcome.must:
                cells[0] = f"{hits} of {len(outcome.must)}"
            if hits + false:
                cells[1] = f"{100 * hits / (hits + false):.0f} %"
            if outcome.never:
                cells[2] = f"{len(outcome.quiet)} of {len(outcome.never)}"
        held = "live broker" if kind in live else ""
        lines.append(f"| {kind} | {' | '.join(cells)} | {held} |")
    if never is not None:
        lines.append(
            f"| any, in groups where nothing happens | | | {len(never.quiet)} of"
            f" {len(never.never)} | |"
        )
    return "\n".join(lines)


def thresholds() -> str:
    """Return the thresholds with their reasons, as Markdown."""
    every = toml.loads((resources.files("conf") / "anomalies.toml").read_text("utf-8"))
    lines = []
    for kind, names in every.items():
        if isinstance(names, dict):
            for name, given in names.items():
                about = f"{given['value']:,}. {given['reason']} *From:* {given['source']}."
                lines.append(item(f"`{kind}.{name}`: {about}"))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(f"{detection()}\n\n{thresholds()}\n")

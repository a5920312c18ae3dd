"""Measures what the detectors find, and shows the thresholds they go by.

Prints the table of docs/anomalies.md, and writes docs/thresholds.md:
PYTHONPATH=. .venv-dev/bin/python docs/detection.py
"""

from __future__ import annotations

import re
import sys
from importlib import resources
from pathlib import Path

from detectors.sentences import KINDS
from schemas import toml
from schemas.words import duration
from tests.support.labels import outcomes

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "anomalies.md"
THRESHOLDS = ROOT / "docs" / "thresholds.md"
_THRESHOLDS = """# Thresholds

What decides whether something is an anomaly: `conf/anomalies.toml`, as a table. Names that end
in `_ms` are times in milliseconds. [anomalies.md](anomalies.md#thresholds) says how to set your
own. Written by `docs/detection.py`.
"""
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
    """Return the page of thresholds: a table, since they are looked up one by one."""
    every = toml.loads((resources.files("conf") / "anomalies.toml").read_text("utf-8"))
    lines = ["", "| threshold | default | why | from |", "|---|---|---|---|"]
    for kind, names in every.items():
        for name, given in names.items() if isinstance(names, dict) else ():
            cells = (
                f"`{kind}.{name}`",
                _shown(name, given["value"]),
                given["reason"],
                given["source"],
            )
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return _THRESHOLDS + "\n".join(lines) + "\n"


def _shown(name: str, value: float) -> str:
    """Return a default as people read it; a file has a time in milliseconds."""
    return f"{value:,} ({duration(int(value))})" if name.endswith("_ms") else f"{value:,}"


if __name__ == "__main__":
    THRESHOLDS.write_text(thresholds(), encoding="utf-8")
    sys.stdout.write(f"{detection()}\n")

"""Makes the table of docs/performance.md from what benchmarks/engine.py has measured.

Writes it into the page: PYTHONPATH=. .venv-dev/bin/python docs/performance.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance.md"
RESULTS = ROOT / "benchmarks" / "results" / "engine.json"
_BETWEEN = re.compile(r"(?<=<!-- engine.json -->\n).*?(?=<!-- end -->)", re.DOTALL)
_RUNS = {
    "first": "{records:,} records, first run",
    "hour": "{hour:,} new records after {records:,}",
    "nothing": "nothing new after {records:,}",
}


def table() -> str:
    """Return the table as Markdown: what was measured, and a row for each run."""
    measured = json.loads(RESULTS.read_text("utf-8"))
    former, now = measured["commits"]
    machine = f"{measured['cores']} cores, master `{measured['master']}`, Java {measured['java']}"
    lines = [
        f"{machine}, each run from a cold start:",
        "",
        f"| | {former}, s | {now}, s | ratio | Spark jobs of {now} |",
        "|---|---:|---:|---:|---:|",
    ]
    for result in measured["results"]:
        theirs, ours = result["figures"]
        name = _RUNS[result["kind"]].format(records=result["records"], hour=measured["hour"])
        ratio = ours["seconds"] / theirs["seconds"]
        cells = [f"{theirs['seconds']:.1f}", f"{ours['seconds']:.1f}", f"{ratio:.2f}"]
        lines.append(f"| {name} | {' | '.join(cells)} | {ours['Spark jobs']} |")
    return "\n".join(lines)


def main() -> None:
    """Write the table between its marks in the page."""
    text = _BETWEEN.sub(lambda _: f"{table()}\n", PAGE.read_text("utf-8"))
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

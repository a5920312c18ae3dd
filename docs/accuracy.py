"""Measures how far the history may be trusted, on recordings that came with their broker's log.

Prints the table of docs/states.md: PYTHONPATH=. .venv-dev/bin/python docs/accuracy.py
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from tests.support.history import logs_of, rebuild
from tests.support.truth import Truth, agreement
from timeline.model import GENERATIONS, STATES

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "states.md"
TRUTH = ROOT / "tests" / "truth"
_HEADER = (
    "| recording | generations | Stable | end of join | start of join in bounds | start of join"
    " | state right |"
)


def table() -> str:
    """Return the table as Markdown, a row for each recording."""
    lines = [_HEADER, "|---|---|---|---|---|---|---|"]
    for path in sorted(TRUTH.glob("*.coordinator.jsonl")):
        name = path.name.removesuffix(".coordinator.jsonl")
        if name != "4.3.1-compacted":
            lines.append(_row(name, Truth(path)))
    return "\n".join(lines)


def _row(name: str, truth: Truth) -> str:
    folder = TRUTH if (TRUTH / f"{name}.parquet").exists() else ROOT / "examples" / "recordings"
    ours = {log.group_id: rebuild(log) for log in logs_of(folder / f"{name}.parquet")}
    stable, ended, started, inside, found, logged = [], [], [], 0, 0, 0
    for group, generations in truth.stabilized.items():
        rows = [r for r in ours[group][GENERATIONS] if r["group_type"] == "classic"]
        for known in generations:
            logged += 1
            row = min(
                (r for r in rows if r["generation"] == known.generation and r["stable_at"]),
                key=lambda r, at=known.stable_at: abs(r["stable_at"] - at),  # type: ignore[misc]
                default=None,
            )
            if row is None:
                continue
            found += 1
            stable.append(abs(row["stable_at"] - known.stable_at))
            if known.join_completed is not None:
                ended.append(abs(row["join_completed_at"] - known.join_completed))
            if known.join_started is not None:
                started.append(abs(row["join_started_at"] - known.join_started))
                earliest = row["join_started_at_min"] or 0
                inside += earliest - 50 <= known.join_started <= row["join_started_at_max"] + 50
    agreed = total = 0
    for group, states in truth.states.items():
        # By time alone, as people and dashboards order them.
        rows = sorted((r["started_at"], r["state"]) for r in ours[group][STATES])
        same, of = agreement(states, rows)
        agreed, total = agreed + same, total + of
    right = f"{100 * agreed / total:.1f} %" if total else "all converted"
    return (
        f"| {name} | {found} of {logged} | {_p95(stable)} ms | {_p95(ended)} ms |"
        f" {inside} of {len(started)} | {statistics.median(started):.0f} ms | {right} |"
    )


def _p95(values: list[int]) -> int:
    return sorted(values)[int(0.95 * (len(values) - 1))]


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")

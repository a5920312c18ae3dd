"""Holds history and anomalies of all recordings against what their brokers and workloads did.

``benchmarks/run.sh truth`` prints, for each recording of the tests: the row of docs/states.md, what
the time in a wrong state was told as, and which of the labelled anomalies were found. A row that
the docs have otherwise is followed by that one, so that a change of a rule shows what it does.
``--groups`` also prints the groups with the most time in a wrong state. It takes about a minute.
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.history import logs_of, rebuild
from tests.support.labels import RECORDINGS, TRUTH, Outcome, outcomes, path_of
from tests.support.truth import Truth, confusion
from timeline.model import GENERATIONS, STATES

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "states.md"
HEADER = (
    "| recording | generations | Stable | end of join | start of join in bounds | start of join"
    " | state right |"
)
_GROUPS = 5
# What broker and records tell of one moment may differ by so much.
_CLOCK_MS = 50


class Score(NamedTuple):
    """How a history compares with the log of its broker."""

    logged: int  # generations that reached Stable
    found: int  # how many of them are in the history
    stable: list[int]  # errors of the times at which they did, in milliseconds
    ended: list[int]  # the same of the ends of join phases
    started: list[int]  # the same of their starts
    inside: int  # how many of the starts lie inside their bounds
    # By group, milliseconds in a state and what the history tells of them.
    told: dict[str, Counter[tuple[str | None, str | None]]]

    @property
    def wrong(self) -> Counter[tuple[str | None, str | None]]:
        """Milliseconds in a state that are told as another."""
        total = sum(self.told.values(), Counter())
        return Counter({pair: ms for pair, ms in total.items() if pair[0] != pair[1]})

    @property
    def right(self) -> float | None:
        """The share of time in the right state; None without any."""
        total = sum(ms for told in self.told.values() for ms in told.values())
        return 1 - self.wrong.total() / total if total else None


def main() -> None:
    """Print the score card."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--groups", action="store_true", help="also the groups that are worst")
    options = parser.parse_args()
    known = PAGE.read_text("utf-8").splitlines()
    found = outcomes()
    print(HEADER)
    print("|---|---|---|---|---|---|---|")
    for recording in RECORDINGS:
        if recording in logged():
            now = row(recording)
            before = next(line for line in known if line.startswith(f"| {recording} |"))
            print(now if now == before else f"{now}\n{before} (docs/states.md)")
            _print_wrong(score(recording), groups=options.groups)
        for kind, outcome in sorted(found.items()):
            _print_anomalies(recording, kind, outcome)


def logged() -> list[str]:
    """Name the recordings that came with a log that tells of all their generations."""
    names = (path.name.removesuffix(".coordinator.jsonl") for path in TRUTH.glob("*.jsonl"))
    return sorted(name for name in names if name != "4.3.1-compacted")


def row(recording: str) -> str:
    """Return the row of a recording, for `HEADER`."""
    s = score(recording)
    right = "all converted" if s.right is None else f"{100 * s.right:.1f} %"
    return (
        f"| {recording} | {s.found} of {s.logged} | {_p95(s.stable)} ms | {_p95(s.ended)} ms |"
        f" {s.inside} of {len(s.started)} | {statistics.median(s.started):.0f} ms | {right} |"
    )


@cache
def score(recording: str) -> Score:
    """Hold the history of a recording against the log of its broker."""
    truth = Truth(TRUTH / f"{recording}.coordinator.jsonl")
    ours = {log.group_id: rebuild(log) for log in logs_of(path_of(recording))}
    stable, ended, started, inside, found, every = [], [], [], 0, 0, 0
    for group, generations in truth.stabilized.items():
        rows = [r for r in ours[group][GENERATIONS] if r["group_type"] == "classic"]
        for known in generations:
            every += 1
            own = min(
                (r for r in rows if r["generation"] == known.generation and r["stable_at"]),
                key=lambda r, at=known.stable_at: abs(r["stable_at"] - at),  # type: ignore[misc]
                default=None,
            )
            if own is None:
                continue
            found += 1
            stable.append(abs(own["stable_at"] - known.stable_at))
            if known.join_completed is not None:
                ended.append(abs(own["join_completed_at"] - known.join_completed))
            if known.join_started is not None:
                started.append(abs(own["join_started_at"] - known.join_started))
                earliest, latest = own["join_started_at_min"] or 0, own["join_started_at_max"]
                inside += earliest - _CLOCK_MS <= known.join_started <= latest + _CLOCK_MS
    told = {
        # By time alone, as people and dashboards order them.
        group: confusion(states, sorted((r["started_at"], r["state"]) for r in ours[group][STATES]))
        for group, states in truth.states.items()
        if not _is_unread(ours[group][GENERATIONS], truth.given_up[group])
    }
    return Score(every, found, stable, ended, started, inside, told)


def _is_unread(generations: list[dict[str, Any]], given_up: set[int]) -> bool:
    """Return whether the log of the broker lacks a generation that a record was written of.

    A client id with spaces hides the line that says so.
    """
    return any(r["generation"] in given_up for r in generations if r["member_count"])


def _p95(values: list[int]) -> int:
    return sorted(values)[int(0.95 * (len(values) - 1))]


def _print_wrong(found: Score, *, groups: bool) -> None:
    for (true, told), ms in found.wrong.most_common():
        print(f"    {ms / 1000:8.1f} s of {true} told as {told}")
    if groups:
        wrong = {
            group: sum(ms for (true, told), ms in of_group.items() if true != told)
            for group, of_group in found.told.items()
        }
        for group, ms in Counter(wrong).most_common(_GROUPS):
            share = ms / found.told[group].total()
            print(f"    {ms / 1000:8.1f} s, {share:.1%}, of {group[:60]!r}")


def _print_anomalies(recording: str, kind: str, outcome: Outcome) -> None:
    """Print what became of the labels of a kind, if the recording has one."""
    must = [label for label in outcome.must if label["recording"] == recording]
    if must:
        missed = [label for label in must if label not in outcome.found]
        names = "".join(f", missed: {m.get('group')} {m.get('subject', '')}" for m in missed)
        print(f"    {kind}: {len(must) - len(missed)} of {len(must)}{names}")
    for anomaly in outcome.false:
        if anomaly["recording"] == recording:
            print(f"    {kind}: false, {anomaly['summary']}")
    for label in outcome.never:
        if label["recording"] == recording and label not in outcome.quiet:
            print(f"    {kind}: not quiet, {label.get('group', 'all groups')}")


if __name__ == "__main__":
    main()

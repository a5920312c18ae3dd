"""What a broker's own log said of its classic groups, to hold the history against."""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

PREPARING = "PreparingRebalance"
COMPLETING = "CompletingRebalance"


class Stabilized(NamedTuple):
    """One generation that reached Stable."""

    generation: int
    join_started: int | None  # when its rebalance began; None if the log does not say
    join_completed: int | None  # when its join phase ended; None if the log does not say
    stable_at: int
    aborted: int  # generations that its rebalance began and gave up


class Truth:
    """The log of one broker, by group.

    Attributes:
        stabilized: by group, its generations that reached Stable.
        states: by group, when it entered which state; groups that were converted are left out.
        given_up: by group, the generations that all had joined, and that got no assignment.
    """

    def __init__(self, path: Path) -> None:
        events: dict[str, list[dict[str, object]]] = defaultdict(list)
        converted = set()
        for line in path.read_text("utf-8").splitlines():
            event = json.loads(line)
            if event["event"] == "epoch":
                converted.add(event["group"])
            if event["event"] in ("prepare", "stabilized", "assigned", "empty"):
                events[event["group"]].append(event)
        self.stabilized: dict[str, list[Stabilized]] = {}
        self.states: dict[str, list[tuple[int, str]]] = {}
        self.given_up: dict[str, set[int]] = {}
        for group, of_group in events.items():
            of_group.sort(key=lambda e: e["ts"])  # type: ignore[arg-type, return-value]
            self._read(group, of_group)
            if group in converted:
                del self.states[group]

    def _read(self, group: str, events: list[dict[str, object]]) -> None:
        states: list[tuple[int, str]] = []
        found: list[Stabilized] = []
        started: int | None = None
        completed: tuple[int, int] | None = None
        aborted = 0
        for event in events:
            at, kind = int(str(event["ts"])), event["event"]
            if kind == "prepare":
                started = at if started is None else started
                states.append((at, PREPARING))
            elif kind == "empty" or event.get("members") == 0:
                states.append((at, "Empty"))
                started, completed, aborted = None, None, 0
            elif kind == "stabilized":
                aborted += completed is not None
                completed = (int(str(event["generation"])), at)
                states.append((at, COMPLETING))
            else:
                number = int(str(event["generation"]))
                ended = completed[1] if completed and completed[0] == number else None
                found.append(Stabilized(number, started, ended, at, aborted))
                states.append((at, "Stable"))
                started, completed, aborted = None, None, 0
        self.stabilized[group] = found
        joined = {int(str(e["generation"])) for e in events if e["event"] == "stabilized"}
        self.given_up[group] = joined - {known.generation for known in found}
        self.states[group] = states


def confusion(
    truth: list[tuple[int, str]], ours: list[tuple[int, str]]
) -> Counter[tuple[str | None, str | None]]:
    """Return for how many milliseconds one timeline has a state, and the other which."""
    first, last = truth[0][0], truth[-1][0]
    marks = sorted({t for t, _ in truth} | {t for t, _ in ours if first <= t <= last})
    told: Counter[tuple[str | None, str | None]] = Counter()
    for start, end in itertools.pairwise(marks):
        told[_state_at(truth, start), _state_at(ours, start)] += end - start
    return told


def _state_at(timeline: list[tuple[int, str]], at: int) -> str | None:
    return next((state for since, state in reversed(timeline) if since <= at), None)

"""Burrow's evaluation: is a group that lags in trouble? A window of commits tells, no threshold.

The rules are those of Burrow 1.x (https://github.com/linkedin/Burrow, "Consumer Lag Evaluation
Rules"); docs/lag.md says where the evaluation differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from schemas.gold import OK, REWIND, STALL, STOP, WARN

SEVERITY = {OK: 0, WARN: 1, STOP: 2, STALL: 2, REWIND: 2}
"""How bad a partition's status is for its group: 0 leaves it OK, 1 makes it WARN, 2 ERR."""

LEAST_IDLE_S = 30
"""Nobody has stopped who committed so lately: brokers and this machine have clocks of their own."""

_SECOND = 1_000_000


class Window(NamedTuple):
    """The last commits of a partition, oldest first."""

    offsets: Sequence[int]  # the offsets committed
    at: Sequence[int]  # when, in microseconds
    lags: Sequence[int | None]  # the lag at each commit; None where it is not known


def evaluate(window: Window, *, lag: int, now: int, was_at_end_lately: bool) -> tuple[str, str]:
    """Return the status of a partition, and why; `now` is until when its commits are known."""
    if lag <= 0:
        return OK, "no lag"
    if not window.offsets:
        return OK, "no commit with a time to judge by"
    idle, span = now - window.at[-1], window.at[-1] - window.at[0]
    if idle > max(span, LEAST_IDLE_S * _SECOND) and not was_at_end_lately:
        lately = f"the last {len(window.at)} came within {span / _SECOND:,.0f} s"
        return STOP, f"no commit for {idle / _SECOND:,.0f} s; {lately}"
    if _is_rewound(window.offsets):
        return REWIND, "went back, and has not come as far again"
    return _judge_progress(window)


def _judge_progress(window: Window) -> tuple[str, str]:
    if 0 in window.lags:
        return OK, "was at the end of the log at a commit of the window"
    if min(window.offsets) == max(window.offsets):
        return STALL, f"commits {window.offsets[-1]} again and again"
    lags = [known for known in window.lags if known is not None]
    if len(lags) < 2:  # noqa: PLR2004 - it takes two to compare
        return OK, "goes on; how far behind it was is not known"
    if any(b < a for a, b in pairwise(lags)):
        return OK, "goes on, and the lag got smaller"
    return WARN, "goes on, but the lag never got smaller"


def _is_rewound(offsets: Sequence[int]) -> bool:
    """Return whether the first step back has not been made up for by a later commit."""
    for i, (before, after) in enumerate(pairwise(offsets), 1):
        if after < before:
            return max(offsets[i:]) < before
    return False

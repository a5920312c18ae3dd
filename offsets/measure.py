"""The lag of one partition of a group, from its commits and the samples of its log's end."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from offsets.burrow import Window, evaluate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offsets.ends import EndHistory

LATELY_S = 100
"""A partition at the end of its log so lately has not stopped; Burrow keeps 10 ends, 10 s apart."""

_SECOND = 1_000_000


class Lag(NamedTuple):
    """The columns of gold.lag that are worked out; see there."""

    lag: int | None = None
    phantom_lag: int | None = None
    lag_seconds: float | None = None
    lag_seconds_min: float | None = None
    lag_seconds_max: float | None = None
    status: str | None = None
    status_reason: str | None = None
    window_commits: int | None = None


def measure(
    committed: int,
    log_start: int,
    ends: EndHistory,
    *,
    commits: Sequence[int],
    commits_at: Sequence[int],
    known_until: int,
) -> Lag:
    """Measure one partition.

    Args:
        committed: the offset committed last.
        log_start: first offset of the log.
        ends: samples of the log's end; the last one is now.
        commits: the offsets of the last commits, oldest first.
        commits_at: their times in microseconds.
        known_until: until when commits are known.
    """
    now, end = ends.at[-1], ends.ends[-1]
    lag = max(end - committed, 0)
    age, least, most = _age(ends, committed, now) if lag else (0.0, 0.0, 0.0)
    window = Window(
        commits, commits_at, [_lag(ends, *c) for c in zip(commits, commits_at, strict=True)]
    )
    status, reason = evaluate(
        window,
        lag=lag,
        now=known_until,
        was_at_end_lately=most is not None and age is not None and age <= LATELY_S,
    )
    if committed > end:
        reason = "the committed offset lies beyond the end of the log"
    return Lag(
        lag=lag,
        phantom_lag=max(min(log_start, end) - committed, 0),
        lag_seconds=age,
        lag_seconds_min=least,
        lag_seconds_max=most,
        status=status,
        status_reason=reason,
        window_commits=len(commits),
    )


def _age(ends: EndHistory, committed: int, now: int) -> tuple[float | None, float, float | None]:
    """Give the seconds since the log's end passed an offset, and what bounds them."""
    passed = ends.passed(committed)
    least = (now - passed.latest) / _SECOND
    if passed.earliest is None or passed.estimate is None:
        return least or None, least, None
    return (now - passed.estimate) / _SECOND, least, (now - passed.earliest) / _SECOND


def _lag(ends: EndHistory, offset: int, at: int) -> int | None:
    end = ends.end_at(at)
    return None if end is None else max(end - offset, 0)

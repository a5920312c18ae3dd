"""The lag of one partition of a group, from its commits and the samples of its log's end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from offsets.burrow import Window, evaluate
from offsets.ends import EndHistory

LATELY_S = 100
"""A partition at the end of its log so lately has not stopped; Burrow keeps 10 ends, 10 s apart."""

NO_OFFSET = "the number committed last is no offset: a client begins where auto.offset.reset says"
"""Why a partition with a commit has no lag."""

_SECOND = 1_000_000


class Lag(NamedTuple):
    """The columns of gold.lag that are worked out; see there."""

    lag: int | None = None
    lag_min: int | None = None
    lag_max: int | None = None
    lag_is_bound: bool | None = None
    phantom_lag: int | None = None
    lag_seconds: float | None = None
    lag_seconds_min: float | None = None
    lag_seconds_max: float | None = None
    status: str | None = None
    status_reason: str | None = None
    window_commits: int | None = None
    commits_known_until: int | None = None


def known_until(
    last_commits: Mapping[int, int | None],
    positions: Mapping[int, int],
    ends: Mapping[int, int],
    *,
    sampled_at: int,
) -> dict[int, int]:
    """Tell until when no commit is missing, by partition of the offsets topic.

    Where nothing lies between the position behind what was read and the log's end (high watermark),
    that is now. What does may be as old as the commit that was read last: with read committed, an
    open transaction holds back all that comes after it. Times are microseconds.
    """
    return {
        partition: sampled_at
        if partition in ends and ends[partition] <= positions.get(partition, 0)
        else min(at for at in (last, sampled_at) if at is not None)
        for partition, last in last_commits.items()
    }


def measure(
    committed: int | None,
    log_start: int,
    ends: EndHistory,
    *,
    commits: Sequence[int | None],
    commits_at: Sequence[int],
    known_until: int,
) -> Lag:
    """Measure one partition, as of when its commits are known.

    An offset that is None, or below zero, is none to clients. The last commits are given oldest
    first; times are microseconds.
    """
    if committed is None or committed < 0:
        return Lag(status_reason=NO_OFFSET, commits_known_until=known_until)
    least_end, most_end = ends.around(known_until)
    estimate = ends.end_at(known_until)
    end = most_end if estimate is None else estimate
    lag = max(end - committed, 0)
    age, least, most = _age(ends, committed, known_until) if lag else (0.0, 0.0, 0.0)
    known = [
        (offset, at)
        for offset, at in zip(commits, commits_at, strict=True)
        if offset is not None and offset >= 0
    ]
    window = Window([c for c, _ in known], [at for _, at in known], [_lag(ends, *c) for c in known])
    status, reason = evaluate(
        window,
        lag=lag,
        now=known_until,
        was_at_end_lately=most is not None and age is not None and age <= LATELY_S,
    )
    if committed > ends.ends[-1]:
        reason = "the committed offset lies beyond the end of the log"
    return Lag(
        lag=lag,
        lag_min=0 if least_end is None else max(least_end - committed, 0),
        lag_max=max(most_end - committed, 0),
        lag_is_bound=lag > 0 and least_end is None,
        phantom_lag=max(min(log_start, end) - committed, 0),
        lag_seconds=age,
        lag_seconds_min=least,
        lag_seconds_max=most,
        status=status,
        status_reason=reason,
        window_commits=len(known),
        commits_known_until=known_until,
    )


def _age(ends: EndHistory, committed: int, now: int) -> tuple[float | None, float, float | None]:
    """Return the seconds since the log's end passed an offset, and what bounds them."""
    passed = ends.passed(committed)
    least = max(now - passed.latest, 0) / _SECOND
    if passed.earliest is None or passed.estimate is None:
        return least or None, least, None
    age, most = max(now - passed.estimate, 0), now - passed.earliest
    return age / _SECOND, least, most / _SECOND


def _lag(ends: EndHistory, offset: int, at: int) -> int | None:
    end = ends.end_at(at)
    return None if end is None else max(end - offset, 0)

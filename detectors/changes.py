"""What a run of the detection looks at: what the history has brought since the last one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from detectors.log import hours_since
from detectors.model import HOUR_MS, Row
from schemas.ledger import Detail, LedgerRow, taken


class Changes(NamedTuple):
    """What a run looks at."""

    ingest_runs: tuple[int, int]  # exclusive lower and inclusive upper bound of the new ingest runs
    decode_runs: tuple[int, int]  # the same of the decode runs
    rows: Counter[str]  # number of new rows by silver table
    replayed: list[str]  # groups whose history was rebuilt
    misplaced: list[Row]  # records that are not where their group belongs
    second: list[tuple[str, int, int]]  # the second coordinators of groups that have two
    has_moved: bool  # some groups have records in two partitions of the log
    have_gone_back: bool  # some groups may have gone back to where they had been before
    # The earliest time of a new commit, or the start of its hour, in epoch milliseconds; None if no
    # commit is new, or they have no times.
    since: int | None
    is_backfill: bool  # some of the hours with new commits lie before those that were looked at

    @property
    def hours(self) -> str:
        """Return the condition of rows of gold.offset_progress of the hours to look at."""
        return "true" if self.is_backfill or self.since is None else hours_since(self.since)


def changes(
    history: Sequence[LedgerRow],
    decode: Sequence[LedgerRow],
    *,
    replayed: list[str],
    second: list[tuple[str, int, int]],
    since: int | None,
    before: int | None,
) -> Changes:
    """Return what there is to look at of runs of the history, and of the decode runs they took.

    `before` is the time of the log at the last run.
    """
    # A full refresh of the history wrote all groups again.
    current = history[max((n for n, run in enumerate(history) if run.is_refresh), default=0) :]
    return Changes(
        ingest_runs=taken(decode),
        decode_runs=taken(history),
        rows=sum((Counter(row.rows) for row in decode), Counter()),
        replayed=replayed,
        misplaced=[row for run in current for row in run.details.get(Detail.MISPLACED, ())],
        second=second,
        has_moved=any(run.details.get(Detail.HAS_MOVED) for run in current),
        have_gone_back=any(run.details.get(Detail.WENT_BACK, True) for run in history),
        since=since,
        is_backfill=since is not None and before is not None and since < before - HOUR_MS,
    )


def earliest(history: Sequence[LedgerRow], ask: Callable[[], int | None]) -> int | None:
    """Return the time of the earliest commit that runs of the history have processed.

    They note the first hour; where groups were rebuilt, that of all of their commits. So it is
    asked for where one says nothing, or rebuilt some.
    """
    if not all(Detail.FIRST_HOUR in r.details and not r.details[Detail.REPLAYED] for r in history):
        return ask()
    hours = (run.details[Detail.FIRST_HOUR] for run in history)
    return min((hour for hour in hours if hour is not None), default=None)

"""Under which names a cluster's logs are kept, one after the other.

A topic that was recreated, or lost its end, is another log under the same offsets. Its records are
kept under the cluster's next name (``default.2``, ``default.3``, …), and bronze.coverage says so in
rows of the name before. Every job that is given a name works at the last of them.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakehouse.runs import RunId
from schemas.tables import COVERAGE, RECORDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobs.runtime.run import Figure, Run
    from lakehouse.tables import Lakehouse

# There is one such write a name: of two runs that find another log, one names it for both.
CONTINUED = RunId("continued", 0)


def follow(run: Run) -> None:
    """Have a run work at the last log of its cluster, and know those before."""
    *former, run.lakehouse = logs_of(run.lakehouse)
    run.former += former


def logs_of(lakehouse: Lakehouse) -> list[Lakehouse]:
    """Return the tables as each log of a cluster has them, the first log first."""
    found = [lakehouse]
    while (name := _continued_as(found[-1])) is not None:
        found.append(found[-1].of(name))
    return found


def _continued_as(lakehouse: Lakehouse) -> str | None:
    if not lakehouse.exists(COVERAGE):
        return None
    rows = lakehouse.read(COVERAGE).where(F.col("continued_as").isNotNull())
    row = rows.select("continued_as").first()
    return None if row is None else str(row.continued_as)


def next_name(run: Run) -> str:
    """Return a name that nothing in the lakehouse has yet."""
    first = (*run.former, run.lakehouse)[0].cluster
    names = (f"{first}.{number}" for number in count(2))
    return next(n for n in names if run.lakehouse.of(n).read(RECORDS).isEmpty())


def of_every_log(job: Callable[[Run], None]) -> Callable[[Run], None]:
    """Have a job first end what it has left to do of the logs before, so that nothing is lost.

    Records may have come just before the log was replaced, and a later release may decode what the
    one of then could not.
    """

    @functools.wraps(job)
    def of_every(run: Run) -> None:
        parts = []
        for lakehouse in run.former:
            name = f"{lakehouse.cluster}: "
            part = replace(run, lakehouse=lakehouse, former=[], label=name, summary={}, status=0)
            job(part)
            parts.append(part)
        job(run)
        for part in parts:
            run.status = max(run.status, part.status)
            for name, figure in part.summary.items():
                run.summary[name] = _sum(run.summary.get(name), figure)

    return of_every


def _sum(last: Figure | None, former: Figure) -> Figure:
    """Add numbers up, also those by name; of all else the last log's counts."""
    if last is None:
        return former
    if isinstance(last, dict) and isinstance(former, dict):
        return {n: last.get(n, 0) + former.get(n, 0) for n in dict.fromkeys([*last, *former])}
    if type(last) is int and type(former) is int:
        return last + former
    return last

"""Under which names a cluster's logs are kept, one after the other.

A topic that was made anew, or lost its end, is another log under the same offsets. Its records are
kept under the cluster's next name (``default.2``, ``default.3``, …), and bronze.coverage says so in
rows of the name before. Every job that is given a name works at the last of them.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from schemas.tables import COVERAGE, RECORDS
from storage.errors import LakehouseError

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobs.runtime.runner import Figure, Run
    from storage.tables import Lakehouse

# There is one such write a name: of two runs that find another log, one names it for both.
CONTINUED = "continued"


def follow(run: Run) -> None:
    """Have a run work at the last log of its cluster, and know those before."""
    # What a table's log tells is asked first: rows are read only where there is something to find.
    while run.lakehouse.last_write(COVERAGE, CONTINUED) >= 0:
        run.former.append(run.lakehouse)
        run.lakehouse = run.lakehouse.of(_continued_as(run.lakehouse))


def _continued_as(lakehouse: Lakehouse) -> str:
    rows = lakehouse.read(COVERAGE).where(F.col("continued_as").isNotNull())
    row = rows.select("continued_as").first()
    if row is None:
        raise LakehouseError(
            f"{lakehouse.path(COVERAGE)} has lost the rows that say under which name cluster "
            f"{lakehouse.cluster} goes on: give that name with --cluster"
        )
    return str(row.continued_as)


def next_name(run: Run) -> str:
    """Give a name that nothing in the lakehouse has yet."""
    first = (*run.former, run.lakehouse)[0].cluster
    names = (f"{first}.{number}" for number in count(2))
    return next(n for n in names if run.lakehouse.of(n).last_write(RECORDS, "ingest") < 0)


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

"""Groups that nobody has used since a time."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from jobs.runtime.reset import known_log, known_until, named, of_one_cluster
from jobs.runtime.run import Run
from lakehouse.catalog import register
from reporting.read import time_at
from reporting.text import to_second
from schemas.columns import in_millis
from schemas.errors import UsageError


def unused_groups(run: Run, since: int) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of `gold.unused_groups` since a time, and until when the log is known.

    Raises:
        UsageError: the log is not known until then, or there is no such group.
    """
    lakehouse = of_one_cluster(run)
    log, time = known_log(lakehouse), f"{to_second(since)} UTC"
    until = known_until(lakehouse, log)
    if since > until:
        raise UsageError(
            f"--unused-since {time}: the lakehouse knows groups until {to_second(until)} UTC"
        )
    register(lakehouse, "unused_groups", clusters=[lakehouse.cluster])
    found = run.spark.table("gold.unused_groups").where(f"unused_since <= {time_at(since)}")
    if run.options.group is not None:
        found = found.where(F.col("group_id").rlike(named(run.options.group, log)))
    with run.step("looking for groups that nobody uses"):
        rows = in_millis(found.orderBy("group_id").toArrow()).to_pylist()
    if not rows:
        raise UsageError(f"--unused-since {time}: each group was in use since; nothing is written")
    return rows, until

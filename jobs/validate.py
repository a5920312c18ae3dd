"""Every table to dq.results: holds what is new to what is expected of it."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark.sql import functions as F
from rich.markup import escape

from dq.due import NOTHING, changes, due, warnings
from dq.validation import Found, evaluate, great_expectations, results, said
from jobs.runtime.run import Run
from jobs.runtime.runner import run_job
from jobs.runtime.session import configured
from schemas.gold import CRITICAL
from schemas.ledger import Detail, Stage
from schemas.tables import RESULTS
from storage.lakehouse import Lakehouse
from storage.local import quickest
from storage.runs import StageRun

FAILED = 3
"""The exit status when a table is wrong. That a log is odd does not change it."""


def validate(run: Run) -> None:
    """Check what is expected of the tables; write and print what was found."""
    run.summary |= {"expectations": 0, "expectations_failed": 0, "expectations_still_failing": 0}
    lakehouse = run.lakehouse
    former = lakehouse.runs.last_details(Stage.VALIDATE)
    before = former.get(Detail.REACH, NOTHING)
    # As long as nobody has looked at all rows again, what was wrong once still is.
    failing = set(former.get(Detail.FAILING, [])) - warnings()
    reach = {stage: lakehouse.runs.last_number(stage) for stage in NOTHING}
    # Where tables were rebuilt, the run numbers start again, and nothing was looked at.
    is_rebuilt = any(reach[stage] < before[stage] for stage in reach)
    with lakehouse.runs.incremental(
        Stage.VALIDATE,
        to=reach[Stage.DECODE],
        refresh=run.options.full or is_rebuilt,
        force=reach != (NOTHING if run.options.full else before),
        plan={Detail.REACH: reach},
        is_one_commit=True,
    ) as stage:
        if stage is None:
            run.say("validate: nothing new to look at since the last time")
            _finish(run, failing)
            return
        with run.step("validating the tables"), ThreadPoolExecutor(1) as pool:
            pool.submit(great_expectations)  # beside the counting of rows
            new = changes(lakehouse, stage)
            # What is stored of an expectation is a query that knows Spark's own functions alone.
            asked = new.values | {"java_hash": "java_hash(group_id)"}
            # One that has nothing at hand: the tables are looked at, not what the run kept of them.
            ask = quickest(Lakehouse(run.spark, lakehouse.root, lakehouse.cluster))
            with configured(run.spark, Stage.VALIDATE, new.records):
                found = evaluate(due(lakehouse, new), asked, ask, run.options.docs)
            rows = results(found, lakehouse.cluster, new.values)
            _write(lakehouse, stage, rows)
            failed = [f for f in found if not f.success]
            wrong = {f.title for f in failed if f.check.severity == CRITICAL}
            earlier = set() if stage.is_refresh else failing - wrong
            stage.details = {Detail.FAILING: sorted(earlier | wrong)}
    run.add(expectations=len(found), expectations_failed=len(failed))
    _print(run, found, rows)
    _finish(run, earlier, now=bool(wrong))


def _finish(run: Run, earlier: set[str], *, now: bool = False) -> None:
    """Name what was wrong in an earlier run and not looked at again, and set the exit status."""
    run.summary["expectations_still_failing"] = len(earlier)
    if earlier:
        run.say(
            f"validate: failed in an earlier run: {', '.join(sorted(earlier))}; when it is "
            "repaired, validate --full looks at it again"
        )
    if (earlier or now) and (run.options.strict or run.options.job == Stage.VALIDATE):
        run.status = FAILED


def _write(lakehouse: Lakehouse, stage: StageRun, rows: list[dict[str, Any]]) -> None:
    """Write what was found, under a number that no other finding has."""

    def written() -> int | None:
        of_run = [{"validation_run": stage.id.number, **row} for row in rows]
        return lakehouse.append(RESULTS, of_run, stage.id)

    while rows and written() is None:
        # They are of a run that was killed behind its results, or that the ledger has lost.
        table = lakehouse.read(RESULTS)
        newest = table.agg(F.max("validation_run")).collect()[0][0]
        there = table.where(F.col("validation_run") == newest).collect()
        stage.id = stage.id._replace(number=newest)
        if set(map(said, there)) == set(map(said, rows)):
            break  # this run says what is there already
        stage.id = stage.id._replace(number=newest + 1)
    stage.rows = {RESULTS.name: len(rows)}


def _print(run: Run, found: list[Found], rows: list[dict[str, Any]]) -> None:
    failed = [row for row in rows if not row["success"]]
    if not found:
        run.say("validate: nothing new to look at since the last time")
    elif not failed:
        checked = sum({f.suite.title: f.rows_checked for f in found}.values())
        run.say(f"validate: {len(found)} expectations hold, of {checked:,} rows")
    for row in failed:
        share = f"{row['rows_unexpected']:,} of {row['rows_checked']:,} rows"
        line = f"[bold]{row['severity']}[/] {row['table_name']} {row['expectation']}: {share}."
        run.out.print(f"{line} {escape(row['meaning'])}", soft_wrap=True, highlight=False)
        run.out.print(row["query"], style="dim", markup=False, highlight=False, soft_wrap=True)
    if failed:
        held = f"{len(failed)} failed, {len(found) - len(failed)} hold"
        run.out.print(f"Expectations: {held}; {RESULTS.name} has them all", highlight=False)


if __name__ == "__main__":
    sys.exit(run_job(validate, ["validate", *sys.argv[1:]]))

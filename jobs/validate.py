"""Every table to dq.results: holds what is new to what is expected of it."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyspark.sql import functions as F
from rich.markup import escape

from dq.declared import Suite, broken_rows, decoded_rows, filled, suites
from dq.validation import Found, evaluate, great_expectations
from jobs.runtime.run import Run
from jobs.runtime.runner import run_job
from jobs.runtime.session import configured
from lakehouse.lakehouse import Lakehouse
from lakehouse.local import quickest
from lakehouse.queries import tables_of
from lakehouse.runs import LedgerRow, StageRun
from lakehouse.tables import EVERY_ROW, between
from schemas.columns import LAST_MS
from schemas.gold import CRITICAL
from schemas.ledger import Detail, Stage
from schemas.placement import JAVA_HASH, KAFKA
from schemas.tables import (
    ANOMALIES,
    ANOMALY_CHECKPOINTS,
    GROUP_HEALTH,
    INCIDENTS,
    LAG,
    LOG_OFFSETS,
    QUARANTINE,
    RESULTS,
    RUNS,
    all_tables,
    silver_specs,
)

FAILED = 3
"""The exit status when a table is wrong. That a log is odd does not change it."""

# No time is earlier, in SQL.
_EVER = "timestamp'0001-01-01'"
# The stages whose tables it looks at, and how far each has got before its first run.
_NOTHING = dict.fromkeys((Stage.DECODE, Stage.HISTORY, Stage.ANOMALIES, Stage.LAG), -1)
# The other tables of gold are the history's, bronze and silver decode's, behind which ingest is.
_STAGES = {
    **dict.fromkeys((ANOMALIES.name, INCIDENTS.name, GROUP_HEALTH.name), Stage.ANOMALIES),
    ANOMALY_CHECKPOINTS.name: Stage.ANOMALIES,
    **dict.fromkeys((LAG.name, LOG_OFFSETS.name), Stage.LAG),
}


@dataclass(frozen=True)
class Changes:
    """What is new to look at."""

    tables: set[str]  # tables with new rows
    records: int  # how many records have been decoded
    values: dict[str, str]  # SQL for the placeholders in the suites


def validate(run: Run) -> None:
    """Check what is expected of the tables; write and print what was found."""
    run.summary |= {"expectations": 0, "expectations_failed": 0, "expectations_still_failing": 0}
    lakehouse = run.lakehouse
    former = lakehouse.runs.last_details(Stage.VALIDATE)
    before = former.get(Detail.REACH, _NOTHING)
    # As long as nobody has looked at all rows again, what was wrong once still is.
    failing = set(former.get(Detail.FAILING, [])) - _warnings()
    reach = {stage: lakehouse.runs.last_number(stage) for stage in _NOTHING}
    # Where tables were rebuilt, the run numbers start again, and nothing was looked at.
    is_rebuilt = any(reach[stage] < before[stage] for stage in reach)
    with lakehouse.runs.incremental(
        Stage.VALIDATE,
        to=reach[Stage.DECODE],
        refresh=run.options.full or is_rebuilt,
        force=reach != (_NOTHING if run.options.full else before),
        plan={Detail.REACH: reach},
        is_one_commit=True,
    ) as stage:
        if stage is None:
            run.say("validate: nothing new to look at since the last time")
            _finish(run, failing)
            return
        with run.step("validating the tables"), ThreadPoolExecutor(1) as pool:
            pool.submit(great_expectations)  # beside the counting of rows
            changes = _changes(lakehouse, stage)
            # What is stored of an expectation is a query that knows Spark's own functions alone.
            asked = changes.values | {"java_hash": "java_hash(group_id)"}
            # One that has nothing at hand: the tables are looked at, not what the run kept of them.
            ask = quickest(Lakehouse(run.spark, lakehouse.root, lakehouse.cluster))
            with configured(run.spark, Stage.VALIDATE, changes.records):
                found = evaluate(_due(lakehouse, changes), asked, ask, run.options.docs)
            _write(lakehouse, stage, changes, found)
            failed = [f for f in found if not f.success]
            wrong = {_title(f) for f in failed if f.check.severity == CRITICAL}
            earlier = set() if stage.is_refresh else failing - wrong
            stage.details = {Detail.FAILING: sorted(earlier | wrong)}
    run.add(expectations=len(found), expectations_failed=len(failed))
    _print(run, found, failed, changes)
    _finish(run, earlier, now=bool(wrong))


def _title(found: Found) -> str:
    return f"{found.suite.table} {found.check.name}"


def _warnings() -> set[str]:
    """Name the expectations that tell of an odd log, which nobody can repair."""
    every = ((suite, check) for suite in suites() for check in suite.checks)
    return {f"{suite.table} {check.name}" for suite, check in every if check.severity != CRITICAL}


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


# -- what is new -----------------------------------------------------------------------------------


def _changes(lakehouse: Lakehouse, stage: StageRun) -> Changes:
    before = _NOTHING if stage.is_refresh else stage.former.get(Detail.REACH, _NOTHING)
    reach = stage.plan[Detail.REACH]
    done = {name: lakehouse.runs.done(name, before[name], reach[name]) for name in _NOTHING}
    tables = {name for name in all_tables() if stage.is_refresh or _is_written(name, done)}
    tables.discard(RUNS.name)
    decoded = silver_specs()
    values = {
        "ingest_runs": _upstream("ingest_run", done[Stage.DECODE]),
        "balanced_ingest_runs": _upstream("ingest_run", done[Stage.DECODE]),
        "decode_runs": between("decode_run", before[Stage.DECODE], reach[Stage.DECODE]),
        "history_decode_runs": _upstream("decode_run", done[Stage.HISTORY]),
        "history_until": str(max((run.to_run for run in done[Stage.HISTORY]), default=-1)),
        "history_runs": between("history_run", before[Stage.HISTORY], reach[Stage.HISTORY]),
        "begun_since": _earliest(stage, done[Stage.HISTORY], Detail.BEGUN_SINCE),
        "first_hour": _earliest(stage, done[Stage.HISTORY], Detail.FIRST_HOUR),
        "anomalies_runs": between("anomalies_run", before[Stage.ANOMALIES], reach[Stage.ANOMALIES]),
        "lag_runs": between("lag_run", before[Stage.LAG], reach[Stage.LAG]),
        "java_hash": JAVA_HASH.format("group_id"),
    }
    if done[Stage.DECODE]:
        details = lakehouse.runs.last_details(Stage.HISTORY)
        is_kafka = details.get(Detail.PLACED_BY, KAFKA) == KAFKA  # SQL knows no other vendor's hash
        counts = details.get(Detail.PARTITIONS, []) if is_kafka else []
        # The topic may have grown; what was written before is where it belonged then.
        values["homes"] = ", ".join(f"hash % {count}" for count in counts)
    is_new, counted = values["decode_runs"], tables & decoded.keys()
    if any(run.details.get(Detail.RETRIED) for run in done[Stage.DECODE]):
        # What was in quarantine has come from any run.
        tables.add(QUARANTINE.name)
        values["balanced_ingest_runs"] = is_new = EVERY_ROW
        counted = set(decoded)
    made = [name for name, spec in decoded.items() if name in counted and lakehouse.exists(spec)]
    values["decoded"] = decoded_rows(made, is_new)
    records = sum(sum(run.rows.values()) for run in done[Stage.DECODE])
    return Changes(tables, records, {name: value for name, value in values.items() if value})


def _is_written(table: str, done: dict[str, list[LedgerRow]]) -> bool:
    """Return whether some runs wrote rows of a table, by what the ledger says of it."""
    # It names each table of silver that got rows, and may say nothing of others.
    unnamed = 0 if table.startswith("silver.") else 1
    stage = _STAGES.get(table, Stage.HISTORY if table.startswith("gold.") else Stage.DECODE)
    return any(run.rows.get(table, unnamed) for run in done[stage])


def _upstream(column: str, runs: list[LedgerRow]) -> str:
    """Return the condition of what some runs took of the stage before."""
    after = min((run.after_run for run in runs), default=-1)
    return between(column, after, max((run.to_run for run in runs), default=-1))


def _earliest(stage: StageRun, runs: list[LedgerRow], what: str) -> str:
    """Return the earliest of the times that some runs of the history noted, in SQL."""
    # A run that was resumed, or of an older release, may say nothing; None is that it has none.
    if stage.is_refresh or not all(what in run.details for run in runs):
        return _EVER
    known = [run.details[what] for run in runs if run.details[what] is not None]
    return f"timestamp_millis({min(known, default=LAST_MS)})"


def _due(lakehouse: Lakehouse, changes: Changes) -> list[Suite]:
    """Return the suites with something new to check, as far as their tables have been made."""
    chosen = [suite for suite in suites() if suite.placeholders <= changes.values.keys()]
    named = {suite: tables_of(filled(suite.rows, changes.values)) for suite in chosen}
    made = {n for names in named.values() for n in names if lakehouse.exists(all_tables()[n])}
    return [suite for suite in chosen if named[suite] <= made and named[suite] & changes.tables]


# -- printing --------------------------------------------------------------------------------------


def _write(lakehouse: Lakehouse, stage: StageRun, changes: Changes, found: list[Found]) -> None:
    at = dt.datetime.now(dt.timezone.utc)
    rows: list[dict[str, object]] = [
        {
            "table_name": f.suite.table,
            "expectation": f.check.name,
            "meaning": f.check.meaning,
            "severity": f.check.severity,
            "success": f.success,
            "rows_checked": f.rows_checked,
            "rows_unexpected": f.rows_unexpected,
            "threshold": round(1 - f.check.mostly, 9),
            "query": broken_rows(f.suite, f.check, lakehouse.cluster, changes.values),
            "sample": f.sample,
            "at": at,
        }
        for f in found
    ]

    def written() -> int | None:
        of_run = [{"validation_run": stage.id.number, **row} for row in rows]
        return lakehouse.append(RESULTS, of_run, stage.id)

    while rows and written() is None:
        # They are of a run that was killed behind its results, or that the ledger has lost.
        table = lakehouse.read(RESULTS)
        newest = table.agg(F.max("validation_run")).collect()[0][0]
        there = table.where(F.col("validation_run") == newest).collect()
        stage.id = stage.id._replace(number=newest)
        if {_finding(row.asDict()) for row in there} == set(map(_finding, rows)):
            break  # this run says what is there already
        stage.id = stage.id._replace(number=newest + 1)
    stage.rows = {RESULTS.name: len(rows)}


def _finding(row: Mapping[str, object]) -> tuple[object, ...]:
    """Return what a result says, whenever and by whichever run it was found."""
    said = ("table_name", "expectation", "query", "rows_checked", "rows_unexpected")
    return tuple(row[column] for column in said)


def _print(run: Run, found: list[Found], failed: list[Found], changes: Changes) -> None:
    if not found:
        run.say("validate: nothing new to look at since the last time")
    elif not failed:
        rows = sum({f.suite.title: f.rows_checked for f in found}.values())
        run.say(f"validate: {len(found)} expectations hold, of {rows:,} rows")
    if not failed:
        return
    for f in failed:
        share = f"{f.rows_unexpected:,} of {f.rows_checked:,} rows"
        line = f"[bold]{f.check.severity}[/] {f.suite.table} {f.check.name}: {share}."
        run.out.print(f"{line} {escape(f.check.meaning)}", soft_wrap=True, highlight=False)
        query = broken_rows(f.suite, f.check, run.lakehouse.cluster, changes.values)
        run.out.print(query, style="dim", markup=False, highlight=False, soft_wrap=True)
    held = len(found) - len(failed)
    run.out.print(
        f"Expectations: {len(failed)} failed, {held} hold; {RESULTS.name} has them all",
        highlight=False,
    )


if __name__ == "__main__":
    sys.exit(run_job(validate, ["validate", *sys.argv[1:]]))

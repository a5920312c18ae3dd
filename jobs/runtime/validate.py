"""Every table to dq.results: holds what came since the last validation to what is expected of it.

A run is noted when its results are written. One that was killed in between leaves results that
are true, and the next looks at the same rows again.
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from rich.markup import escape

from dq.declared import bad_rows, decoded_rows, filled, suites
from dq.validation import Given, evaluate
from jobs.runtime.logs import of_every_log
from schemas.columns import arrow_schema
from schemas.placement import partitions_of
from schemas.silver import silver_tables
from schemas.tables import (
    ANOMALY_RUNS,
    DECODE_RUNS,
    GROUP_HEADS,
    HISTORY_RUNS,
    LAG,
    QUARANTINE,
    RESULTS,
    VALIDATION_RUNS,
    all_tables,
    decoded_table,
)
from storage.conditions import in_range
from storage.queries import queries_of, tables_of

if TYPE_CHECKING:
    from dq.declared import Suite
    from dq.validation import Found
    from jobs.runtime.runner import Run
    from storage.conditions import Where
    from storage.queries import Queries
    from storage.tables import Lakehouse

FAILED = 3
"""The exit status when an expectation failed."""

_APPLICATION = "validate"
_AGAIN = "validate again"
_SAMPLES = 3
_OF_ANOMALIES = {"gold.anomalies", "gold.group_health", "gold.anomaly_heads"}
_OF_LAG = {"gold.lag", "gold.log_offsets"}


@dataclass(frozen=True)
class Reach:
    """How far each job has got, by the number of its last run; -1 for none."""

    decode: int = -1
    history: int = -1
    anomalies: int = -1
    lag: int = -1


@dataclass(frozen=True)
class Plan:
    """One validation run: what came behind `after`, up to and with `to`."""

    number: int
    after: Reach
    to: Reach
    at: dt.datetime
    is_full: bool


@dataclass(frozen=True)
class News:
    """What is new to look at.

    Attributes:
        tables: silver tables with new rows.
        values: SQL for the places in the suites.
    """

    tables: frozenset[str]
    values: dict[str, str]


@of_every_log
def validate(run: Run) -> None:
    """Hold the tables to what is expected of them; write and tell what was found."""
    lakehouse = run.lakehouse
    run.summary |= {"expectations": 0, "expectations_failed": 0}
    plan = _plan(lakehouse, is_full=run.options.full)
    if plan is None:
        run.say("validate: nothing new to look at since the last time")
        return
    with run.step("validating the tables"):
        news = _news(lakehouse, plan)
        given = _given(lakehouse, plan, news)
        named = sorted({name for each in given for name in tables_of(each.rows)})
        with queries_of(lakehouse, [all_tables()[name] for name in named]) as queries:
            found = evaluate(given, queries, run.options.docs)
            samples = _samples(lakehouse, queries, found, news)
        is_first = _write(lakehouse, plan, news, found, samples)
    if not is_first:
        run.say(f"another validate of cluster {lakehouse.cluster} wrote this run's results first")
    failed = [f for f in found if not f.success]
    run.summary |= {"expectations": len(found), "expectations_failed": len(failed)}
    _tell(run, found, failed, news)
    if failed and (run.options.strict or run.options.job == _APPLICATION):
        run.status = FAILED


# -- what is new -----------------------------------------------------------------------------------


def _plan(lakehouse: Lakehouse, *, is_full: bool) -> Plan | None:
    to = Reach(
        lakehouse.last_write(DECODE_RUNS, "decode done"),
        lakehouse.last_write(HISTORY_RUNS, "history done"),
        lakehouse.last_write(ANOMALY_RUNS, "anomalies done"),
        lakehouse.last_write(LAG, "lag"),
    )
    reached = ("to_decode_run", "to_history_run", "to_anomalies_run", "to_lag_run")
    runs = lakehouse.rows(VALIDATION_RUNS, ("validation_run", *reached)).sort_by("validation_run")
    after = Reach()
    if runs.num_rows and not is_full:
        after = Reach(*(runs[name][-1].as_py() for name in reached))
    if after == to:
        return None
    number = lakehouse.last_write(VALIDATION_RUNS, _APPLICATION) + 1
    written = lakehouse.last_write(RESULTS, _APPLICATION)
    if written > number:  # the table of runs was lost
        number = written + 1
    return Plan(number, after, to, dt.datetime.now(dt.timezone.utc), is_full)


def _news(lakehouse: Lakehouse, plan: Plan) -> News:
    after, to = plan.after, plan.to
    columns = (
        *("quarantined", "retried", "decoded_by_table"),
        *("after_ingest_run", "to_ingest_run"),
    )
    of_runs: Where = [[("step", "==", "done"), *in_range("decode_run", after.decode, to.decode)]]
    decoded = lakehouse.rows(DECODE_RUNS, columns, of_runs).to_pylist()
    of_runs = [[("step", "==", "done"), *in_range("history_run", after.history, to.history)]]
    told_of = lakehouse.rows(HISTORY_RUNS, ("after_decode_run", "to_decode_run"), of_runs)
    first = pc.min(told_of["after_decode_run"]).as_py()
    told = (-1, -1) if first is None else (first, pc.max(told_of["to_decode_run"]).as_py())
    tables = frozenset(
        decoded_table(part["table_name"]).name
        for row in decoded
        for part in row["decoded_by_table"] or ()
        if part["records"]
    )
    if any(row["quarantined"] or row["retried"] for row in decoded):
        tables |= {QUARANTINE.name}
    ingested = (
        min((row["after_ingest_run"] for row in decoded), default=-1),
        max((row["to_ingest_run"] for row in decoded), default=-1),
    )
    # What was in quarantine has come from any run.
    balanced = "true" if any(row["retried"] for row in decoded) else None
    decode_runs = _between("decode_run", (after.decode, to.decode))
    values = {
        "ingest_runs": _between("ingest_run", ingested),
        "decode_runs": decode_runs,
        "history_runs": _between("history_run", (after.history, to.history)),
        "lag_runs": _between("lag_run", (after.lag, to.lag)),
        "told_decode_runs": _between("decode_run", told),
        "balanced_ingest_runs": balanced or _between("ingest_run", ingested),
    }
    made = [
        spec.name
        for spec in (*map(decoded_table, silver_tables()), QUARANTINE)
        if lakehouse.exists(spec)
    ]
    own = [name for name in made if balanced or name in tables]
    values["decoded"] = decoded_rows(own, balanced or decode_runs)
    values["told_until"] = str(told[1])
    heads = lakehouse.rows(GROUP_HEADS, ("group_id", "record_partition"))
    places = zip(*(column.to_pylist() for column in heads.columns), strict=True)
    values["partitions"] = str(partitions_of(places) or "")
    return News(tables, {name: value for name, value in values.items() if value})


def _between(column: str, runs: tuple[int, int]) -> str:
    return f"{column} BETWEEN {runs[0] + 1} AND {runs[1]}"


# -- evaluating ------------------------------------------------------------------------------------


def _given(lakehouse: Lakehouse, plan: Plan, news: News) -> list[Given]:
    """Give the suites that have something new to look at, as far as their tables have been made."""
    given = [
        Given(
            suite,
            filled(suite.rows, news.values),
            [filled(c.bad, news.values) for c in suite.checks],
        )
        for suite in suites()
        if _has_news(suite, plan, news) and suite.places <= news.values.keys()
    ]
    made = {name for name, spec in all_tables().items() if lakehouse.exists(spec)}
    return [each for each in given if tables_of(each.rows) <= made]


def _has_news(suite: Suite, plan: Plan, news: News) -> bool:
    layer = suite.table.partition(".")[0]
    if suite.table in _OF_LAG:
        return plan.after.lag < plan.to.lag
    if suite.table in _OF_ANOMALIES:
        return plan.after.anomalies < plan.to.anomalies
    if layer == "gold":
        return plan.after.history < plan.to.history
    if plan.after.decode >= plan.to.decode:
        return False
    is_table = suite.table in all_tables() and layer == "silver" and suite.name is None
    return not is_table or suite.table in news.tables


# -- telling ---------------------------------------------------------------------------------------


def _write(
    lakehouse: Lakehouse, plan: Plan, news: News, found: list[Found], samples: list[list[str]]
) -> bool:
    rows = [
        {
            "validation_run": plan.number,
            "table_name": f.suite.table,
            "expectation": f.check.name,
            "meaning": f.check.meaning,
            "severity": f.check.severity,
            "success": f.success,
            "rows_checked": f.rows_checked,
            "rows_unexpected": f.rows_unexpected,
            "threshold": f.check.tolerance,
            "query": bad_rows(f.suite, f.check, lakehouse.cluster, news.values),
            "sample": sample,
            "at": plan.at,
        }
        for f, sample in zip(found, samples, strict=True)
    ]
    if lakehouse.last_write(RESULTS, _APPLICATION) < plan.number:
        lakehouse.append_rows(RESULTS, rows, _APPLICATION, plan.number)
    else:
        # They are those of a run that was killed before it was noted, which may have seen less.
        again = lakehouse.last_write(RESULTS, _AGAIN) + 1
        of_run: Where = [[("validation_run", "==", plan.number)]]
        results = pa.Table.from_pylist(rows, arrow_schema(RESULTS.of_cluster))
        lakehouse.replace_rows(RESULTS, results, of_run, _AGAIN, again)
    run = {
        "validation_run": plan.number,
        "at": plan.at,
        "is_full": plan.is_full,
        "to_decode_run": plan.to.decode,
        "to_history_run": plan.to.history,
        "to_anomalies_run": plan.to.anomalies,
        "to_lag_run": plan.to.lag,
        "expectations": len(found),
        "expectations_failed": sum(not f.success for f in found),
    }
    return lakehouse.append_rows(VALIDATION_RUNS, [run], _APPLICATION, plan.number)


def _samples(
    lakehouse: Lakehouse, queries: Queries, found: list[Found], news: News
) -> list[list[str]]:
    """Give the keys of some rows that break each expectation, as JSON."""
    broken = [n for n, f in enumerate(found) if f.rows_unexpected]
    asked = []
    for n in broken:
        suite, check = found[n].suite, found[n].check
        bad = bad_rows(suite, check, lakehouse.cluster, news.values)
        asked.append(f"SELECT {', '.join(suite.key)} FROM (\n{bad}\n) LIMIT {_SAMPLES}")  # noqa: S608
    shown = dict(zip(broken, queries.answers(asked), strict=True))
    return [
        [json.dumps(row, default=str, ensure_ascii=False) for row in shown.get(n, ())]
        for n in range(len(found))
    ]


def _tell(run: Run, found: list[Found], failed: list[Found], news: News) -> None:
    if not failed:
        rows = sum({f.suite.title: f.rows_checked for f in found}.values())
        run.say(f"validate: {len(found)} expectations hold, of {rows:,} rows")
        return
    for f in failed:
        share = f"{f.rows_unexpected:,} of {f.rows_checked:,} rows"
        head = f"[bold]{f.check.severity}[/] {f.suite.table} {f.check.name}: {share}."
        run.out.print(f"{head} {escape(f.check.meaning)}", soft_wrap=True, highlight=False)
        query = bad_rows(f.suite, f.check, run.lakehouse.cluster, news.values)
        run.out.print(query, style="dim", markup=False, highlight=False, soft_wrap=True)
    held = len(found) - len(failed)
    run.out.print(
        f"Expectations: {len(failed)} failed, {held} hold; {RESULTS.name} has them all",
        highlight=False,
    )

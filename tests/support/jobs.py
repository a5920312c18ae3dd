"""Runs jobs in the session of the tests, and looks at what they wrote."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from jobs.anomalies import find_and_tell
from jobs.decode import decode
from jobs.demo import demo
from jobs.explain import explain, explain_here
from jobs.export import export
from jobs.history import history
from jobs.ingest import ingest
from jobs.lag import lag
from jobs.maintain import maintain
from jobs.pipeline import pipeline
from jobs.report import report, report_here
from jobs.runtime.run import Run
from jobs.runtime.runner import run_job
from jobs.sql import sql
from jobs.validate import validate
from launch.command_line import parse
from schemas.columns import arrow_schema
from schemas.ledger import LedgerRow, RunId
from schemas.silver import silver_tables
from schemas.tables import (
    ANOMALIES,
    ANOMALY_CHECKPOINTS,
    LAG,
    QUARANTINE,
    RECORDS,
    RUNS,
    TableSpec,
    all_tables,
    decoded_table,
)
from storage.lakehouse import Lakehouse
from storage.queries import on_views, tables_of, view_of
from tests.support.balance import unbalanced


def to_silver(run: Run) -> None:
    """Do the part of the pipeline that most tests are about, and take half of its time."""
    ingest(run)
    decode(run)


_SHOWN = 3

# By what tests call them: the job's name on the command line, what it runs, and without Spark.
_JOBS = {
    "demo": ("demo", demo),
    "pipeline": ("pipeline", pipeline),
    "silver": ("pipeline", to_silver),
    "decode": ("decode", decode),
    "ingest": ("ingest", ingest),
    "history": ("history", history),
    "anomalies": ("anomalies", find_and_tell),
    "lag": ("lag", lag),
    "report": ("report", report, report_here),
    "report by Spark": ("report", report),
    "explain": ("explain", explain, explain_here),
    "explain by Spark": ("explain", explain),
    "sql": ("sql", sql),
    "export": ("export", export),
    "validate": ("validate", validate),
    "maintain": ("maintain", maintain),
}


@dataclass
class Outcome:
    """What a job said: its exit status, its lines on stderr, its summary."""

    status: int
    out: str
    err: str
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def complaint(self) -> str:
        """The one line that a failed job ends with."""
        lines = [line for line in self.err.splitlines() if line.startswith("groupledger:")]
        assert len(lines) == 1, self.err
        return lines[0]


def run(job: str, *options: object) -> Outcome:
    """Run a job with options, as ./spark-submit.sh would."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        name, action, *here = _JOBS[job]
        status = run_job(action, [name, *map(str, options), "--json"], *here)
    text = out.getvalue()
    summary = json.loads(text.splitlines()[-1]) if status in {0, 3} else {}
    return Outcome(status, text, err.getvalue(), summary)


def run_of(spark: SparkSession, root: str, job: str, *options: str) -> Run:
    """Return what a job works with, for tests of a part of it."""
    chosen = parse([job, "--lakehouse", root, *options])
    lakehouse = Lakehouse(spark, root, chosen.cluster)
    err = Console(stderr=True, width=200)
    return Run(spark=spark, options=chosen, lakehouse=lakehouse, out=Console(), err=err)


def succeed(job: str, *options: object) -> dict[str, Any]:
    """Run a job that has to end well; give its summary."""
    outcome = run(job, *options)
    assert outcome.status == 0, outcome.err
    return outcome.summary


def query(root: str, text: str) -> list[dict[str, Any]]:
    """Run SQL on a lakehouse as `./spark-submit.sh sql` does; give the rows."""
    outcome = run("sql", "--lakehouse", root, "--query", text)
    assert outcome.status == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()[:-1]]


def table(spark: SparkSession, root: str, name: str, cluster: str = "default") -> DataFrame:
    """Read a table of a lakehouse by its name: ``bronze.records``."""
    return Lakehouse(spark, root, cluster).read(all_tables()[name])


def held(root: str | Path, spec: TableSpec) -> pa.Table:
    """Return all rows of a table; by delta-rs: Spark plans longer than it reads."""
    path = Path(root, *spec.name.split("."))
    if not (path / "_delta_log").is_dir():
        return pa.Table.from_pylist([], arrow_schema(spec.columns))
    return DeltaTable(path).to_pyarrow_table()


def asked(root: str | Path, text: str) -> list[dict[str, Any]]:
    """Ask tables, and no views, of a lakehouse: by DuckDB, a hundredth of what `query` takes."""
    with duckdb.connect() as connection:
        for name in tables_of(text):
            connection.register(view_of(name), held(root, all_tables()[name]))
        rows = connection.execute(on_views(text, view_of)).to_arrow_table().to_pylist()
    return list(rows)


def is_balanced(root: str | Path, cluster: str = "default") -> bool:
    """Return whether every record of bronze is in exactly one table of silver."""
    assert Path(root, "bronze").is_dir()
    silver = [*(decoded_table(name) for name in silver_tables()), QUARANTINE]
    records, *decoded = (
        held(root, spec).filter(pc.field("cluster") == cluster) for spec in (RECORDS, *silver)
    )
    return not unbalanced(records, decoded)


def rows_of(lakehouse: Lakehouse, spec: TableSpec) -> list[dict[str, Any]]:
    """Return this cluster's rows of a table."""
    of_cluster = held(lakehouse.root, spec).filter(pc.field("cluster") == lakehouse.cluster)
    return [{c.name: row.get(c.name) for c in spec.columns} for row in of_cluster.to_pylist()]


_OF_THE_MOMENT = frozenset({"ingested_at", "observed_at", "at", "sampled_at", "seconds", "token"})
"""Columns with wall-clock times."""


def noted(lakehouse: Lakehouse, run: RunId, **noted: Any) -> None:  # noqa: ANN401 - as `LedgerRow`
    """Have the ledger say that a run is done."""
    runs = Lakehouse(lakehouse.spark, lakehouse.root, lakehouse.cluster).runs
    runs.note(LedgerRow(*run, **noted))
    runs.write()


def sampled(lakehouse: Lakehouse, number: int, at: dt.datetime, *rows: dict[str, Any]) -> None:
    """Have a run of `lag` take samples at a time."""
    run, own = RunId("lag", number), {"lag_run": number, "sampled_at": at}
    lakehouse.append(LAG, [row | own for row in rows], run)
    noted(lakehouse, run, rows={LAG.name: len(rows)})


def everything(spark: SparkSession, root: str, cluster: str = "default") -> dict[str, Counter[str]]:
    """Return every row of every table, with the numbers of its runs, to compare.

    Left out are wall-clock times, such as that when a coverage gap was found.
    """
    lakehouse = Lakehouse(spark, root, cluster)
    found = {}
    for spec in all_tables().values():
        if lakehouse.exists(spec):
            rows = (_of_any_moment(spec, row) for row in rows_of(lakehouse, spec))
            found[spec.name] = Counter(map(repr, _less(rows, _OF_THE_MOMENT)))
    return found


def _less(rows: Iterable[dict[str, Any]], without: Collection[str]) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield {name: value for name, value in row.items() if name not in without}


def _of_any_moment(spec: TableSpec, row: dict[str, Any]) -> dict[str, Any]:
    if spec is RUNS:
        details = json.loads(row["details"])
        for of_the_moment in ("observed_at", "files"):
            details.get("state", {}).pop(of_the_moment, None)
        return row | {"details": json.dumps(details)}
    if spec is ANOMALIES and row["kind"] == "coverage_gap":
        return row | dict.fromkeys(("anomaly_id", "started_at", "ended_at"))
    if spec is ANOMALY_CHECKPOINTS and row["group_id"] is None:
        return row | {"state": json.dumps(without_moments(json.loads(row["state"])))}
    return row


def without_moments(of_log: dict[str, Any]) -> dict[str, Any]:
    """Leave out when gaps of the log were found, which no record tells, of what is kept of it."""
    for finding in chain.from_iterable(found for key, found in of_log.items() if key != "lost"):
        if finding["kind"] == "coverage_gap":
            finding |= {"started_at": None, "ended_at": None}
    return of_log


def differences(
    ours: dict[str, Counter[str]], theirs: dict[str, Counter[str]]
) -> dict[str, list[str]]:
    """Say in which rows two lakehouses differ, a few of each table."""
    none: Counter[str] = Counter()
    found = {}
    for name in dict.fromkeys([*ours, *theirs]):
        one, other = ours.get(name, none), theirs.get(name, none)
        lines = [f"+ {row}" for row in list((one - other).elements())[:_SHOWN]]
        lines += [f"- {row}" for row in list((other - one).elements())[:_SHOWN]]
        if lines:
            found[name] = lines
    return found


def contents(spark: SparkSession, root: str, cluster: str = "default") -> dict[str, list[str]]:
    """Return every table's rows but for what tells one run from another, in order, to compare."""
    lakehouse = Lakehouse(spark, root, cluster)
    names = [RECORDS.name, QUARANTINE.name, *(decoded_table(t).name for t in silver_tables())]
    names += [name for name in all_tables() if name.startswith("gold.")]
    of_run = [f"{job}_run" for job in ("ingest", "decode", "history", "anomalies")]
    of_run += ["ingested_at", "rebuilt_run"]
    found = {}
    for name in names:
        spec = all_tables()[name]
        found[name] = sorted(map(repr, _less(rows_of(lakehouse, spec), of_run)))
    return found

"""Runs SQL over the lakehouse and prints the rows; or lets BI tools ask it by JDBC or ODBC."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, Row

from jobs.runtime.run import Run
from jobs.runtime.runner import run_job
from reporting.rows import WRITERS
from schemas.errors import GroupledgerError, UsageError
from schemas.tables import all_tables
from storage import thrift
from storage.catalog import register
from storage.statements import first_line, not_found, only_reads, split

_SHOWN = 1_000
_NEW_TABLES_S = 60


def sql(run: Run) -> None:
    """Run the statements that were given and print what each gives; or let others ask."""
    if run.options.serve:
        _serve(run)
        return
    text = run.options.query or Path(run.options.file or "").read_text("utf-8")
    statements = split(text) if run.options.file else [text]
    for number, statement in enumerate(statements, 1):
        if not run.options.write and not only_reads(statement):
            raise UsageError(
                f"{_where(run, number)}this statement may change tables; with --write it is run"
            )
    register(run.lakehouse, text, run.options.clusters)
    run.summary["rows"] = sum(_run(run, n, text) for n, text in enumerate(statements, 1))


def _serve(run: Run) -> None:
    """Listen until interrupted; tables that are made meanwhile are found within a minute."""
    options = run.options
    host, port = options.host, thrift.free_port(options.host, options.port)
    with run.step("finding the tables"):
        register(run.lakehouse, clusters=options.clusters, is_writable=options.write)
    # Anybody that connects is somebody that the operating system let do so: there is no login.
    if not thrift.is_loopback(host):
        run.say(f"anybody who reaches {host}:{port} can read and change all tables")
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    server = thrift.start(run.spark, host, port)
    run.out.print(f"jdbc:hive2://{host}:{port}/gold - listening, end with Ctrl-C", highlight=False)
    while not stopped.wait(_NEW_TABLES_S):
        register(run.lakehouse, clusters=options.clusters, is_writable=options.write)
    server.stop()


def _run(run: Run, number: int, statement: str) -> int:
    """Run a statement, and print its rows; give how many there were."""
    try:
        return _print(run, run.spark.sql(statement))
    except (AnalysisException, ParseException) as error:
        where, named = _where(run, number), not_found(error)
        ours = next((n for n in (named, f"gold.{named}") if n in all_tables()), None)
        if ours is not None and not run.lakehouse.exists(all_tables()[ours]):
            raise GroupledgerError(f"{where}no run has written {ours} yet") from error
        raise GroupledgerError(where + first_line(error)) from error


def _where(run: Run, number: int) -> str:
    return f"{run.options.file}, statement {number}: " if run.options.file else ""


def _print(run: Run, rows: DataFrame) -> int:
    """Print the rows of a statement; return how many were printed."""
    if not rows.columns:
        return 0
    chosen, limit = run.options, run.options.limit
    how = "json" if chosen.json else chosen.format
    if limit is None and how == "table" and run.out.is_terminal:
        limit = _SHOWN
    given = (rows if limit is None else rows.limit(limit + 1)).toLocalIterator()
    count = 0

    def counted() -> Iterator[Row]:
        nonlocal count
        for row in islice(given, limit):
            count += 1
            yield row

    WRITERS[how](run.out, rows.columns, counted())
    if limit is not None and next(given, None) is not None:
        run.say(f"only the first {limit:,} rows are shown; --limit N shows more")
    return count


if __name__ == "__main__":
    sys.exit(run_job(sql, ["sql", *sys.argv[1:]]))

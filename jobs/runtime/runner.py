"""Runs a job: options, session, progress, summary, one line for an error, the exit status."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial

from pyspark.sql import SparkSession
from rich.console import Console

from jobs.runtime import executors, writers
from jobs.runtime.run import Figure, Run, Told, complain
from jobs.runtime.session import forget, session
from launch import command_line
from launch.beforehand import look_ahead, no_tables
from launch.options import Options
from launch.signals import INTERRUPTED, say_ended, wait
from schemas.errors import GroupledgerError, UsageError
from schemas.ledger import Stage
from schemas.tables import RECORDS
from storage.failures import line_of
from storage.lakehouse import Lakehouse

_PIPE_CLOSED = 141  # as a shell gives it


def run_job(
    job: Callable[[Run], None], argv: list[str], here: Callable[[Told], bool] = lambda _: False
) -> int:
    """Run `job` with the options in `argv`, its own name first; with --every, again and again.

    `here` does it without a session, which takes long to start; false if it cannot. The exit status
    is 0 done, 1 failed with nothing half-written, 2 wrong usage, 3 a failed expectation, 130
    interrupted.
    """
    seconds: dict[str, float] = {}
    summary: dict[str, Figure] = {}

    def work(chosen: Options, err: Console) -> int:
        started = time.monotonic()
        look_ahead(chosen)
        told = Told(options=chosen, out=Console(), err=err, summary=summary, seconds=seconds)
        if here(told):
            return _ended(told)
        with session(chosen) as spark:
            if chosen.every_s is None:
                return once(spark, told, started)

            def one(begun: float) -> int:
                seconds.clear()
                summary.clear()
                status = _status(partial(once, spark, told, begun), chosen, err)
                status = _measured(measure, chosen, err, status)
                _tidy(spark, is_in_doubt=status != 0)
                return status

            return _again(one, _times(chosen.every_s))

    def once(spark: SparkSession, told: Told, started: float) -> int:
        chosen = told.options
        if chosen.like.has_tasks:
            executors.look_at_executors(spark)
        lakehouse = Lakehouse(spark, chosen.lakehouse, chosen.cluster)
        run = Run(**vars(told), spark=spark, lakehouse=lakehouse)
        _look_for_rows(run)
        with writers.announced(run):
            run.seconds["start"] = round(time.monotonic() - started, 3)
            _work(job, run)
        return _ended(run)

    def measure(chosen: Options, status: int) -> None:
        if chosen.metrics is None or chosen.dry_run:
            return
        from reporting.metrics import write_run  # noqa: PLC0415 - its library takes a while

        of = {"cluster": chosen.cluster, "job": chosen.job}
        write_run(chosen.metrics, of, status, seconds, summary)

    return run_alone(work, argv, measure)


def run_alone(
    work: Callable[[Options, Console], int],
    argv: list[str],
    measure: Callable[[Options, int], None] | None = None,
) -> int:
    """Run what makes a session by itself, if at all, and return its exit status.

    `measure` takes it, too, whatever came of the work.
    """
    try:
        chosen = command_line.parse(argv)
    except SystemExit as exit_:
        return int(exit_.code or 0)
    err = Console(stderr=True)
    try:
        status = _status(partial(work, chosen, err), chosen, err)
    except KeyboardInterrupt:
        say_ended()
        status = INTERRUPTED
    return status if measure is None else _measured(measure, chosen, err, status)


def _ended(told: Told) -> int:
    """Print the summary, if it was asked for, and return the exit status."""
    chosen = told.options
    if chosen.json:
        figures = {**told.summary, "seconds": told.seconds}
        print(json.dumps({"job": chosen.job, "cluster": chosen.cluster, **figures}))
    sys.stdout.flush()  # whoever follows a process that stays has not to wait for its end
    return told.status


def _work(job: Callable[[Run], None], run: Run) -> None:
    try:
        job(run)
    except Exception:  # what was done before it counts, as far as it can be said
        with suppress(Exception):
            run.lakehouse.runs.write()
        raise
    run.lakehouse.runs.write()


def _status(work: Callable[[], int], chosen: Options, err: Console) -> int:
    """Return the exit status of some work; whatever happens becomes one line and a status."""
    try:
        return work()
    except BrokenPipeError:  # the reader of what is printed has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0 if chosen.like.only_prints else _PIPE_CLOSED
    except Exception as error:  # noqa: BLE001 - said, and told by the status
        return _report(error, err, verbose=chosen.verbose)


def _measured(
    measure: Callable[[Options, int], None], chosen: Options, err: Console, status: int
) -> int:
    """Write the metrics of a run; return its exit status, or that of their failure."""
    try:
        measure(chosen, status)
    except GroupledgerError as error:
        failed = _report(error, err, verbose=chosen.verbose)
        return status or failed
    return status


def _again(one: Callable[[float], int], starts: Iterable[float]) -> int:
    """Do one run at each start, whatever came of the last; return why no other one can work."""
    for begun in starts:
        if one(begun) == UsageError.status:
            break
    return UsageError.status


def _times(
    every_s: int, now: Callable[[], float] = time.monotonic, pause: Callable[[float], None] = wait
) -> Iterator[float]:
    """Give the time at each start, until a signal ends the process.

    What takes longer than the time between two starts is followed at once by one more.
    """
    while True:
        started = now()
        yield started
        pause(max(0, started + every_s - now()))


def _tidy(spark: SparkSession, *, is_in_doubt: bool) -> None:
    """Free what a run has left; refuse to go on in a session that has ended."""
    try:
        if is_in_doubt:
            spark.range(1).count()
        forget(spark)
    except Exception as error:
        raise GroupledgerError("Spark has ended, and with it all further runs: start again") from (
            error
        )


def _look_for_rows(run: Run) -> None:
    """Refuse to read what was never written: no tables, or none of a cluster that is misspelt."""
    chosen, lakehouse = run.options, run.lakehouse
    job = chosen.like
    if job.needs_tables and not lakehouse.exists(RECORDS):
        raise no_tables(chosen)
    is_any = job.is_for_all and chosen.cluster == job.cluster
    if job.brings_clusters or is_any or not lakehouse.exists(RECORDS):
        return
    # The ledger is quicker, but does not know of a first run that was killed.
    if lakehouse.runs.last_number(Stage.INGEST) >= 0:
        return
    known = lakehouse.clusters(RECORDS)
    if known and chosen.cluster not in known:
        raise UsageError(
            f"--cluster {chosen.cluster}: there is no such cluster in {chosen.lakehouse}, only "
            f"{', '.join(known)}"
        )


def _report(error: Exception, err: Console, *, verbose: bool) -> int:
    if verbose:
        traceback.print_exception(error)
    sys.stdout.flush()
    complain(err, line_of(error))
    return error.status if isinstance(error, GroupledgerError) else 1

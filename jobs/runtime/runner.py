"""Runs a job: options, session, progress, summary, one line for an error, the exit status."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from rich.console import Console

from jobs.runtime import executors, writers
from jobs.runtime.beforehand import look_ahead, no_tables
from jobs.runtime.run import Figure, Run, Told
from jobs.runtime.session import forget, session
from lakehouse.lakehouse import Lakehouse
from launch import command_line
from launch.options import Options
from launch.signals import INTERRUPTED, say_ended, wait
from schemas.errors import GroupledgerError, LakehouseError, SourceError, UsageError
from schemas.ledger import Stage
from schemas.tables import RECORDS

_PIPE_CLOSED = 141  # as a shell gives it


def run_job(
    job: Callable[[Run], None],
    argv: list[str],
    here: Callable[[Told], bool] = lambda _: False,
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
    every_s: int,
    now: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = wait,
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
    text = f"groupledger: {line_of(error)}"
    err.print(text, style="red", markup=False, highlight=False, soft_wrap=True)
    return error.status if isinstance(error, GroupledgerError) else 1


def line_of(error: Exception) -> str:
    """Return the line that says what went wrong, and what to do about it."""
    return str(error) if isinstance(error, GroupledgerError) else _explanation(error)


def _explanation(error: Exception) -> str:
    """Return the first line that says something, of an error nobody foresaw."""
    text = str(error)
    if _READ_ONLY in text:  # Java says of a file that it cannot make that it is not found
        return "--lakehouse, --output or --docs cannot be written: the file system is read-only"
    lost = _LOST_FILE.search(text)
    if lost is not None and any(sign in text for sign in _NO_SUCH_FILE):
        return f"a data file of {lost['table']} is gone, bring it back from a copy ({lost['path']})"
    damaged = _DAMAGED_FILE.search(text)
    if damaged is not None:
        return f"{unquote(damaged['path'])} is damaged, bring it back from a copy"
    for sign, advice in _KNOWN:
        if sign in text:
            return advice
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        text = cause.toString()
    in_tasks = list(_IN_A_TASK.finditer(text))
    if in_tasks:
        name, message = in_tasks[-1]["error"], in_tasks[-1]["text"]
        return message if name in _PLAIN else f"{name}: {message} (--verbose shows where)"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reason = lines[0] if lines else "no reason given"
    return f"{type(error).__name__}: {reason} (--verbose shows where)"


_NO_FILE_SYSTEM = (
    "--lakehouse: Spark has no file system for this scheme; give its JARs with --conf spark.jars"
)

_NO_PATTERN = "--group: is no regular expression as Java has them"

_BROKER_GONE = (
    "a broker stopped answering while its records were read; nothing was written, run again when it"
    " is back"
)

_WORKER_GONE = (
    "a Python worker was killed, most likely since memory ran out: run again with more of it, or "
    "with one task at a time (--master 'local[1]')"
)

# The error that ended a task: the first line of Python's traceback that is not indented.
_IN_A_TASK = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(?:\w+\.)*(?P<error>\w+): (?P<text>.*)"
)
_PLAIN = (LakehouseError.__name__, SourceError.__name__)

_READ_ONLY = "Read-only file system"

# By Spark, Hadoop and Arrow.
_NO_SUCH_FILE = (
    *("FILE_NOT_EXIST", "PATH_NOT_FOUND"),
    *("FileNotFoundException", "No such file or directory"),
)
_LOST_FILE = re.compile(
    r"(?P<path>[^\s'\"]*(?P<table>(?:bronze|silver|gold|dq)/\w+)/cluster=[^\s'\"]*?\.parquet)"
)

_DAMAGED_FILE = re.compile(
    r"(?:FAILED_READ_FILE|CANNOT_READ_FILE_FOOTER)[^\n]*?file:(?://)?(?P<path>/[^\s\"']+\.parquet)"
)

# Signs of what the machine or the user can repair, by words of Hadoop's and Spark's messages.
_KNOWN = (
    ("Permission denied", "permission denied: check who owns --lakehouse, --records and --output"),
    ("Mkdirs failed", "--lakehouse cannot be written: no folder can be made there"),
    ("DELTA_CANNOT_CREATE_LOG_PATH", "--lakehouse cannot be written: no folder can be made there"),
    ("Parent path is not a directory", "--lakehouse lies below a file, it has to be a folder"),
    ("Not a directory", "--lakehouse cannot be written: no folder can be made there"),
    (
        "DELTA_MISSING_DELTA_TABLE",
        "--lakehouse holds files that are no Delta table where a table has to go: name another",
    ),
    *(
        (sign, "another run wrote to the same table at the same time; run again to go on")
        for sign in ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
    ),
    ("Python worker exited unexpectedly", _WORKER_GONE),
    (
        "No space left on device",
        "the disk is full; nothing half-written counts: make room and run again",
    ),
    ("INVALID_PARAMETER_VALUE.PATTERN", _NO_PATTERN),
    ("PatternSyntaxException", _NO_PATTERN),
    ("No FileSystem for scheme", _NO_FILE_SYSTEM),
    ("ClassNotFoundException: Class org.apache.hadoop.fs", _NO_FILE_SYSTEM),
    (
        "GroupAuthorizationException",
        "not authorized: Spark's reader needs the ACL DESCRIBE on groups spark-kafka-relation*",
    ),
    (
        "TopicAuthorizationException",
        "not authorized: the user needs the ACL READ on the topic",
    ),
    ("Cannot fetch record for offset", _BROKER_GONE),
    ("kafka.common.errors.TimeoutException", _BROKER_GONE),
    (
        "Some data may have been lost",
        "the log was cut while it was read (retention?); nothing was written, run again",
    ),
)

"""The Spark session of a job, and its JVM, without the lines that each start of one begins with."""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from launch.options import Options
from launch.signals import end_by_signals

# From here on, what a query takes is more than it takes to compile it.
_MANY_RECORDS = 100_000
# Up to here it is less than it takes to share it out.
_FEW_RECORDS = 10_000
# Two print a query error's stack trace as JSON, also of an error that is handled. By the root,
# Py4J prints that of the error that it raises when the JVM is gone.
_LOUD_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "root")

# Spark asks for a module that Java calls an incubator; SLF4J tells which logger it has found. No
# option of theirs keeps both silent. An error of SLF4J is `SLF4J(E)`.
_USUAL = re.compile(rb"WARNING: Using incubator modules: |SLF4J(\([DIW]\))?: ")

_CHUNK = 2**16


@contextmanager
def session(options: Options) -> Iterator[SparkSession]:
    """Return the session of a job: the one that is there, or a new one that ends with the job."""
    given = SparkSession.getActiveSession()
    if given is not None:
        yield given
        return
    logging.getLogger("py4j").setLevel(logging.ERROR)
    for name in _LOUD_LOGGERS:
        logging.getLogger(name).disabled = True
    name = f"groupledger {options.job} {options.cluster}"
    # In the background of a shell script Ctrl-C is for others.
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    end_by_signals()
    _context(SparkConf().setAppName(name), is_verbose=options.verbose)
    # The context has set a handler of Ctrl-C that asks the JVM.
    signal.signal(signal.SIGINT, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
    end_by_signals()
    spark = SparkSession.builder.getOrCreate()
    try:
        yield spark
    finally:
        with suppress(Py4JError, OSError):  # a JVM that is gone is told by who needed it
            spark.stop()


def _context(conf: SparkConf, *, is_verbose: bool) -> SparkContext:
    """Return a new context, or that of spark-submit's own JVM; what a JVM says goes to stderr."""
    if is_verbose or "PYSPARK_GATEWAY_PORT" in os.environ:
        return SparkContext.getOrCreate(conf)
    with without_usual_lines() as stderr:
        gateway = launch_gateway(conf, {"stderr": stderr})  # type: ignore[no-untyped-call]
    return SparkContext(conf=conf, gateway=gateway)


@contextmanager
def without_usual_lines() -> Iterator[int]:
    """Give a file descriptor to start a process with: what it writes there goes on to stderr.

    If the process does not start, all that it has said is out before the error is.
    """
    end, start = os.pipe()
    forwarder = threading.Thread(target=_forward, args=(end,), daemon=True)
    forwarder.start()
    try:
        yield start
    except BaseException:
        os.close(start)
        forwarder.join(timeout=1)
        raise
    os.close(start)


def _forward(end: int) -> None:
    # Without a buffer of Python's: one that a thread holds at the end of the process is an error.
    begun = b""
    while chunk := os.read(end, _CHUNK):
        *lines, begun = (begun + chunk).split(b"\n")
        os.write(2, b"".join(line + b"\n" for line in lines if not _USUAL.match(line)))
    os.write(2, begun)
    os.close(end)


def forget(spark: SparkSession) -> None:
    """Free the blocks that a run has checkpointed.

    They would stay until Java collects what they belong to, and that until Python does: in a large
    heap as long as Spark lets pass between two collections (`spark.cleaner.periodicGC.interval`).
    """
    for rows in spark.sparkContext._jsc.getPersistentRDDs().values():  # noqa: SLF001
        rows.unpersist()
    gc.collect()


@contextmanager
def configured(spark: SparkSession, step: str, records: int | None) -> Iterator[None]:
    """Let the settings of a step hold for a while: property `spark.groupledger.report.X` is its X.

    They are in conf/, or the user's. Afterwards those hold that the session started with: what held
    before, another run of the session may be about to put back. Of many records, those of the step
    `large` hold, too, and of few, those of the step `small`.
    """
    started = _started_with(spark.sparkContext)
    prefixes = [f"spark.groupledger.{step}."]
    if records is not None and records > _MANY_RECORDS:
        prefixes.append("spark.groupledger.large.")
    elif records is not None and records <= _FEW_RECORDS:
        prefixes.append("spark.groupledger.small.")
    own = {
        key.removeprefix(prefix): value
        for prefix in prefixes
        for key, value in started.items()
        if key.startswith(prefix)
    }
    try:
        for key, value in own.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key in own:
            former = started.get(key)
            if former is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, former)


@cache
def _started_with(context: SparkContext) -> dict[str, str]:
    """Return the properties that a session started with: some three hundred calls of the JVM."""
    return dict(context.getConf().getAll())

"""The Spark session of a job."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pyspark import SparkContext
from pyspark.sql import SparkSession

from decoders import batches
from jobs.runtime import classes, jvm

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from jobs.runtime.options import Options

# Spark's defaults, and what the decoder is fast with.
_ARROW_BATCH = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": ("10000", str(batches.MAX_ROWS)),
    "spark.sql.execution.arrow.maxBytesPerBatch": ("67108864", str(batches.MAX_BYTES)),
}

# The JVM says so at every start, because Spark asks for the module; nobody can do anything with it.
_NO_NEWS = b"Using incubator modules"

# Of the process: sys.stderr may be something else for a while, as in tests.
_STDERR = 2

# They print a query error's stack trace as JSON, also of an error that is handled.
_LOUD_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@contextmanager
def session(options: Options) -> Iterator[SparkSession]:
    """Give the session of a job: the one that is there, or a new one that ends with the job.

    What the launcher passes to spark-submit is not repeated here; it wins.
    """
    given = SparkSession.getActiveSession()
    if given is not None:
        yield given
        return
    logging.getLogger("py4j").setLevel(logging.ERROR)
    for name in _LOUD_LOGGERS:
        logging.getLogger(name).disabled = True
    process = None
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit has started the JVM otherwise
        process = _start_jvm()
    new = os.environ.get(classes.NEW)
    name = f"groupledger {options.job} {options.cluster}"
    spark = SparkSession.builder.appName(name).getOrCreate()
    for key, (default, ours) in _ARROW_BATCH.items():
        if _number(spark.conf.get(key)) == default:
            spark.conf.set(key, ours)
    is_done = False
    try:
        yield spark
        is_done = True
    finally:
        spark.stop()
        if process is not None and new is not None:
            if is_done:  # writing takes seconds: first all is said
                atexit.register(classes.keep, process, Path(new))
            else:  # it may have loaded few
                atexit.register(process.kill)  # but what went wrong is the JVM's to tell


def _number(value: str | None) -> str:
    """Leave out the unit that Spark may show a number of bytes with."""
    return (value or "").rstrip("bB")


def _start_jvm() -> subprocess.Popen[bytes]:
    gateway = jvm.gateway()
    stderr = gateway.proc.stderr
    threading.Thread(target=_pass_on, args=(stderr,), daemon=True).start()
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - pyspark has no public way
    process: subprocess.Popen[bytes] = gateway.proc
    return process


def _pass_on(lines: IO[bytes]) -> None:
    for line in lines:
        if _NO_NEWS not in line:
            os.write(_STDERR, line)

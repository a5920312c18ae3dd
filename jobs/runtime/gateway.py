"""The JVM of a job, without the lines that Java and a library of Spark's begin each start with."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

# Spark asks for a module that Java calls an incubator; SLF4J tells which logger it has found. No
# option of theirs keeps both silent. An error of SLF4J is `SLF4J(E)`.
_USUAL = re.compile(rb"WARNING: Using incubator modules: |SLF4J(\([DIW]\))?: ")

_CHUNK = 2**16


def context(conf: SparkConf, *, is_verbose: bool) -> SparkContext:
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

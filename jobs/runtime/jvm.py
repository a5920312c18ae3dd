"""Starts the JVM of a job that is its own process; Python loads the job's modules meanwhile."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pyspark.java_gateway import launch_gateway

if TYPE_CHECKING:
    from concurrent.futures import Future

_begun: list[Future[Any]] = []


def begin() -> None:
    """Let a JVM start."""
    with_stderr = {"stderr": subprocess.PIPE}
    pool = ThreadPoolExecutor(1)
    _begun.append(pool.submit(launch_gateway, popen_kwargs=with_stderr))
    pool.shutdown(wait=False)


def gateway() -> Any:  # noqa: ANN401 - it has no types
    """Give pyspark's gateway to the JVM that was begun, or to a new one, once it is there.

    Raises:
        PySparkRuntimeError: the JVM ended before.
    """
    if not _begun:
        begin()
    return _begun.pop().result()

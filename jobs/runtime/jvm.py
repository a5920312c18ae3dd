"""Starts the JVM of a job that is its own process; Python loads the job's modules meanwhile."""

from __future__ import annotations

import subprocess
import threading
from concurrent.futures import Future
from typing import Any

AHEAD = "GROUPLEDGER_JVM_AHEAD"
"""The environment variable that has a job's process begin with the JVM."""

_begun: list[Future[Any]] = []


def begin() -> None:
    """Let a JVM start."""
    started: Future[Any] = Future()
    _begun.append(started)
    # An executor's thread would be waited for by a process that is interrupted.
    threading.Thread(target=_start, args=(started,), daemon=True).start()


def _start(started: Future[Any]) -> None:
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - the launcher has no use for it

    try:
        with_stderr = {"stderr": subprocess.PIPE}
        started.set_result(launch_gateway(popen_kwargs=with_stderr))  # type: ignore[no-untyped-call]
    except BaseException as error:  # noqa: BLE001 - it is raised where the JVM is asked for
        started.set_exception(error)


def gateway() -> Any:  # noqa: ANN401 - it has no types
    """Give pyspark's gateway to the JVM that was begun, or to a new one, once it is there.

    Raises:
        PySparkRuntimeError: the JVM ended before.
    """
    if not _begun:
        begin()
    return _begun.pop().result()

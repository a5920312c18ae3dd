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
    # The launcher has no use for it; and two threads that import pyspark at once trip over each
    # other, so it is all there before the other one starts.
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    started: Future[Any] = Future()

    def start() -> None:
        try:
            launched = launch_gateway(popen_kwargs={"stderr": subprocess.PIPE})  # type: ignore[no-untyped-call]
        except BaseException as error:  # noqa: BLE001 - it is raised where the JVM is asked for
            started.set_exception(error)
        else:
            started.set_result(launched)

    _begun.append(started)
    # An executor's thread would be waited for by a process that is interrupted.
    threading.Thread(target=start, daemon=True).start()


def gateway() -> Any:  # noqa: ANN401 - it has no types
    """Give pyspark's gateway to the JVM that was begun, or to a new one, once it is there.

    Raises:
        PySparkRuntimeError: the JVM ended before.
    """
    if not _begun:
        begin()
    return _begun.pop().result()

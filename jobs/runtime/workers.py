"""Spark's daemon of Python workers, for tasks that run on the driver's machine.

The daemon forks a worker for each task at a time. What it has loaded, they have, too: so it loads
what tasks need, once. And it takes archives off the path. Spark puts its Python code there as a
zip, and a JAR of some ten thousand classes, and a worker reads the directories of both again, in
Python, before every task: a third of all that Python did in a short run. The venv has the same
code in folders.

Spark starts it as it would start ``pyspark.daemon``, by ``spark.python.daemon.module``.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys

_OF_TASKS = (
    "pandas",
    "jobs.runtime.bronze_files",
    "jobs.runtime.silver_files",
    "jobs.runtime.gold_files",
    "decoders.spark",
)


def main() -> None:
    """Load what tasks need, and fork workers until Spark ends."""
    for archive in filter(os.path.isfile, sys.path[:]):
        sys.path.remove(archive)
        sys.path_importer_cache.pop(archive, None)
    for name in _OF_TASKS:
        importlib.import_module(name)
    # A worker collects garbage after every task; none of this is.
    gc.freeze()
    # The rows that a task makes by the thousand are none either, until it has handed them on.
    gc.set_threshold(50_000, 20, 100)
    from pyspark.daemon import manager  # noqa: PLC0415 - from a folder, now

    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()

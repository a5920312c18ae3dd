"""Whether executors have the libraries that tasks need, asked before any table is touched.

Executors load this module, too: at its top it imports nothing that they may lack.
"""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Iterable, Iterator

from pyspark.sql import SparkSession

from schemas.errors import GroupledgerError

# What the stages import in tasks, and what Spark itself does to pass Arrow batches.
NEEDED = ("numpy", "orjson", "pandas", "pyarrow")


def look_at_executors(spark: SparkSession) -> None:
    """Refuse executors that lack a library, by a small Spark job with a task for each core.

    Where all is one process, there is nothing to ask.
    """
    from launch.options import is_one_process  # noqa: PLC0415 - the module says why

    context = spark.sparkContext
    if is_one_process(context.master or ""):
        return
    cores = context.defaultParallelism
    found = context.parallelize(range(cores), cores).mapPartitions(_missing).collect()
    if found:
        names = sorted({name for _, name in found})
        hosts = sorted({host for host, _ in found})
        raise GroupledgerError(
            f"executors on {', '.join(hosts)} lack {', '.join(names)}: give them the environment "
            "that ./spark-submit.sh package writes, or install requirements.lock there"
        )


def _missing(_: Iterable[int]) -> Iterator[tuple[str, str]]:
    host = socket.gethostname()
    return ((host, name) for name in NEEDED if importlib.util.find_spec(name) is None)

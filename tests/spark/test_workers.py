"""What Spark's Python workers find when a task starts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


def test_no_worker_reads_archives_or_loads_modules_again(spark: SparkSession) -> None:
    # Workers have no tests to import from: it is sent as code, which a function in a function is.
    def look(_: Iterator[int]) -> Iterator[list[str]]:
        yield [path for path in sys.path if Path(path).is_file()]
        yield [path for path in sys.path_importer_cache if Path(path).is_file()]
        yield [name for name in ("pandas", "jobs.runtime.gold_files") if name not in sys.modules]

    found = spark.sparkContext.parallelize([0], 1).mapPartitions(look).collect()
    assert found == [[], [], []]

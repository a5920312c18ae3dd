"""What Spark's Python workers find when a task starts, and what is told of one that is killed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError

from jobs.runtime import runner

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


def test_a_worker_that_is_killed_is_told_of_in_a_line(spark: SparkSession) -> None:
    def killed(_: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(Py4JJavaError) as caught:
        spark.sparkContext.parallelize([0], 1).map(killed).collect()
    text = runner._explanation(caught.value)
    assert text.startswith("a Python worker was killed, most likely since memory ran out")
    assert "\n" not in text

"""What a step says while it runs, and when it is done."""

from __future__ import annotations

import io
import re
import time

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from tests.support.jobs import run_of


@pytest.mark.parametrize("terminal", [True, False])
def test_a_step_counts_tasks_on_a_terminal_and_is_a_line_elsewhere(
    spark: SparkSession, lakehouse_path: str, *, terminal: bool
) -> None:
    given, shown = run_of(spark, lakehouse_path, "history"), io.StringIO()
    given.err = Console(file=shown, force_terminal=terminal, width=100)
    with given.step("sleeping", "rows_slept"):
        spark.sparkContext.parallelize(range(6), 6).foreach(lambda _: time.sleep(0.6))
        given.summary["rows_slept"] = 6_000
    assert re.search(r"sleeping: \d+\.\d s, 6,000 rows \([\d,]+/s\)", shown.getvalue())
    assert bool(re.search(r"sleeping … \d of 6 tasks", shown.getvalue())) is terminal

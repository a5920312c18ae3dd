"""The message about a Python worker that is killed."""

from __future__ import annotations

import os
import signal

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from storage.failures import _explanation


def test_a_worker_that_is_killed_is_one_line(spark: SparkSession) -> None:
    def killed(_: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(Py4JJavaError) as caught:
        spark.sparkContext.parallelize([0], 1).map(killed).collect()
    text = _explanation(caught.value)
    assert text.startswith("a Python worker was killed, most likely since memory ran out")
    assert "\n" not in text

"""The Spark session of a job."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from jobs.runtime.options import Options

# An Arrow batch of so many rows keeps numpy busy and, with the bytes bounded, memory small.
_ARROW_ROWS = "65536"


def make_session(options: Options) -> SparkSession:
    """Make the session, or take the one that is there.

    What the launcher passes to spark-submit is not repeated here; it wins.
    """
    logging.getLogger("py4j").setLevel(logging.ERROR)
    builder = SparkSession.builder.appName(f"groupledger {options.job} {options.cluster}")
    spark = builder.getOrCreate()
    if spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "10000":
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", _ARROW_ROWS)
    return spark

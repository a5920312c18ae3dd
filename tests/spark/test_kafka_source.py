"""Rows of Spark's Kafka source become rows of bronze."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from schemas.columns import LAST_MS
from sources import kafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("milliseconds", "kind", "expected"),
    [
        (0, 0, (0, "CreateTime")),
        (LAST_MS, 1, (LAST_MS, "LogAppendTime")),
        (LAST_MS + 1, 0, (None, "CreateTime")),
        (2**53, 0, (None, "CreateTime")),
        (-1, -1, (None, "NoTimestampType")),
        (-1, 0, (None, "CreateTime")),
    ],
)
def test_times(
    spark: SparkSession, milliseconds: int, kind: int, expected: tuple[int | None, str]
) -> None:
    rows = spark.range(1).select(
        F.lit("t").alias("topic"),
        F.lit(0).alias("partition"),
        F.lit(0).cast("bigint").alias("offset"),
        F.timestamp_millis(F.lit(milliseconds)).alias("timestamp"),
        F.lit(kind).alias("timestampType"),
        F.lit(b"k").alias("key"),
        F.lit(b"v").alias("value"),
    )
    shaped = kafka._in_shape(rows)
    found = shaped.select(F.unix_millis("record_timestamp"), "timestamp_type").first()
    assert found == expected

"""Rows of Spark's Kafka source become rows of bronze."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from schemas.columns import LAST_MS
from sources import kafka
from tests.support import clients
from tests.support.broker import Broker


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


def test_few_records_of_many_partitions_make_few_tasks(spark: SparkSession, broker: Broker) -> None:
    partitions = 12
    clients.create_topic(broker.bootstrap, "many", partitions=partitions)
    for partition in range(partitions):
        clients.produce(broker.bootstrap, "many", 5, partition=partition)
    cluster = kafka.Cluster(broker.bootstrap, {}, "read_committed")
    ranges = kafka.new_ranges(kafka.describe(spark, cluster, "many"), cluster, {})
    rows = kafka.read(spark, cluster, ranges)
    assert rows.rdd.getNumPartitions() == spark.sparkContext.defaultParallelism
    counts = dict(rows.groupBy("record_partition").count().collect())
    assert counts == dict.fromkeys(range(partitions), 5)

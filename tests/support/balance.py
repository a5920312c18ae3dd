"""Decoded + quarantined = bronze: each record is in exactly one table."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Iterable

_POSITION = ("record_partition", "record_offset")


def unbalanced(records: DataFrame, decoded: Iterable[DataFrame]) -> DataFrame:
    """Find records that are not in exactly one of the tables they decode into.

    Args:
        records: rows of bronze.records, of one cluster and topic.
        decoded: rows of every table that records can go to, quarantine among them.

    Returns:
        Columns record_partition, record_offset, in_bronze, in_silver: how often the position is
        there. No row if all is well.
    """
    bronze = records.select(*_POSITION, F.lit(1).alias("bronze"), F.lit(0).alias("silver"))
    silver = [
        t.select(*_POSITION, F.lit(0).alias("bronze"), F.lit(1).alias("silver")) for t in decoded
    ]
    return (
        reduce(DataFrame.unionByName, silver, bronze)
        .groupBy(*_POSITION)
        .agg(F.sum("bronze").alias("in_bronze"), F.sum("silver").alias("in_silver"))
        .where((F.col("in_bronze") != 1) | (F.col("in_silver") != 1))
    )

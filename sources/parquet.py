"""Records from Parquet files: recordings, mirrors, backups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from storage.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = {
    "topic": {"string"},
    "partition": {"int", "bigint", "smallint"},
    "offset": {"bigint", "int"},
    "timestamp": {"bigint"},
    "timestampType": {"string"},
    "key": {"binary"},
    "value": {"binary"},
}
_KEYS = ["topic", "record_partition", "record_offset"]


def read(spark: SparkSession, path: str) -> DataFrame:
    """Read the records of a Parquet file or folder.

    Returns:
        Columns topic, record_partition, record_offset, record_timestamp, timestamp_type, key,
        value. A timestamp of -1, which brokers before 0.10 leave, is null.

    Raises:
        SourceError: there is nothing there, it is not Parquet, or columns are missing.
    """
    try:
        files = spark.read.parquet(path)
    except AnalysisException as error:
        reason = {
            "PATH_NOT_FOUND": "no such file or folder",
            "UNABLE_TO_INFER_SCHEMA": "no Parquet file in it",
        }.get(error.getCondition() or "", "cannot be read as Parquet")
        raise SourceError(f"--records {path}: {reason}") from error
    except Exception as error:
        if "is not a Parquet file" in str(error) or "CANNOT_READ_FILE_FOOTER" in str(error):
            raise SourceError(f"--records {path}: is not a Parquet file") from error
        raise
    found = dict(files.dtypes)
    missing = [name for name in _COLUMNS if name not in found]
    if missing:
        raise SourceError(
            f"--records {path}: has no column {', '.join(missing)}; "
            f"needed are {', '.join(_COLUMNS)}"
        )
    for name, types in _COLUMNS.items():
        if found[name] not in types:
            raise SourceError(
                f"--records {path}: column {name} is {found[name]}, it has to be "
                f"{' or '.join(sorted(types))}"
            )
    milliseconds = F.when(F.col("timestamp") >= 0, F.col("timestamp"))
    given = F.col("timestampType")
    kind = F.lower(F.regexp_replace(given, "[^A-Za-z]", ""))
    return files.select(
        "topic",
        F.col("partition").cast("int").alias("record_partition"),
        F.col("offset").cast("bigint").alias("record_offset"),
        F.timestamp_millis(milliseconds).alias("record_timestamp"),
        # Most tools write Kafka's own words; to look for them in other spellings takes longer.
        F.when(given.isin("CreateTime", "LogAppendTime"), given)
        .when(kind.startswith("createtime"), "CreateTime")
        .when(kind.startswith("logappendtime"), "LogAppendTime")
        .otherwise("NoTimestampType")
        .alias("timestamp_type"),
        "key",
        "value",
    )


def conflicting(records: DataFrame, held: DataFrame) -> DataFrame:
    """Find records whose position `held` has with other bytes.

    Returns:
        Columns topic, record_partition, record_offset.
    """
    theirs = records.select(*_KEYS, F.col("key").alias("their_key"), F.col("value").alias("their"))
    differs = ~(
        F.col("key").eqNullSafe(F.col("their_key")) & F.col("value").eqNullSafe(F.col("their"))
    )
    return held.join(theirs, _KEYS, how="inner").where(differs).select(*_KEYS)


def not_held(records: DataFrame, held: DataFrame) -> DataFrame:
    """Leave out the records whose position `held` has."""
    return records.join(held.select(*_KEYS), _KEYS, how="left_anti")


def repeated_with_other_bytes(records: DataFrame) -> DataFrame:
    """Find positions that the files themselves hold with different bytes."""
    content = F.struct("key", "value")
    counts = records.groupBy(*_KEYS).agg(F.countDistinct(F.xxhash64(content)).alias("contents"))
    return counts.where(F.col("contents") > 1).select(*_KEYS)


def once(records: DataFrame) -> DataFrame:
    """Keep one record of each position."""
    return records.dropDuplicates(_KEYS)

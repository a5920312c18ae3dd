"""Records from Parquet files: recordings, mirrors, backups."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from schemas.columns import LAST_MS
from schemas.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

COLUMNS = {
    "topic": {"string"},
    "partition": {"int", "bigint", "smallint"},
    "offset": {"bigint", "int"},
    "timestamp": {"bigint"},
    "timestampType": {"string"},
    "key": {"binary"},
    "value": {"binary"},
}
_KINDS = ("CreateTime", "LogAppendTime")
_NO_TIME = "NoTimestampType"
_LAST_PARTITION = 2**31 - 1
_KEYS = ["topic", "record_partition", "record_offset"]


def read(spark: SparkSession, path: str) -> DataFrame:
    """Read the records of a Parquet file, or of a folder's files that are named *.parquet.

    Returns:
        Columns topic, record_partition, record_offset, record_timestamp, timestamp_type, key,
        value. A timestamp of -1, which brokers before 0.10 leave, is null, as is one that is
        behind the year 9999.

    Raises:
        SourceError: there is nothing there, it is not Parquet, columns are missing, or a record
            has no position in a log.
    """
    try:
        names = {} if _is_file(spark, path) else {"pathGlobFilter": "*.parquet"}
        files = spark.read.options(**names).parquet(path)
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
    _check_each(path, files)
    found = dict(files.dtypes)
    missing = [name for name in COLUMNS if name not in found]
    if missing:
        raise SourceError(
            f"--records {path}: has no column {', '.join(missing)}; needed are {', '.join(COLUMNS)}"
        )
    for name, types in COLUMNS.items():
        if found[name] not in types:
            raise SourceError(
                f"--records {path}: column {name} is {found[name]}, it has to be "
                f"{' or '.join(sorted(types))}"
            )
    _check_positions(path, files)
    milliseconds = F.when(F.col("timestamp").between(0, LAST_MS), F.col("timestamp"))
    given = F.col("timestampType")
    kind = F.lower(F.regexp_replace(given, "[^A-Za-z]", ""))
    return files.select(
        "topic",
        F.col("partition").cast("int").alias("record_partition"),
        F.col("offset").cast("bigint").alias("record_offset"),
        F.timestamp_millis(milliseconds).alias("record_timestamp"),
        # Most tools write Kafka's own words; to look for them in other spellings takes longer.
        F.when(given.isin(*_KINDS), given)
        .when(kind.startswith(_KINDS[0].lower()), _KINDS[0])
        .when(kind.startswith(_KINDS[1].lower()), _KINDS[1])
        .otherwise(_NO_TIME)
        .alias("timestamp_type"),
        "key",
        "value",
    )


def _is_file(spark: SparkSession, path: str) -> bool:
    """Return whether a path names one file; Hadoop takes `%` in a path as it is."""
    scheme, colon, rest = path.partition(":/")
    here = Path(f"/{rest}" if colon else path)
    if (not colon or scheme == "file") and here.exists():
        return here.is_file()
    # Spark lists a file as itself, and a folder as what is below it. A path without a scheme may be
    # one of the file system that Hadoop is configured for.
    listed = [_name(url) for url in spark.read.format("binaryFile").load(path).inputFiles()]
    return listed == [path] or (not colon and len(listed) == 1 and listed[0].endswith(path))


def _check_positions(path: str, files: DataFrame) -> None:
    """Refuse a record without a topic, a partition or an offset."""
    # Parquet's statistics show of most files that they have none, without reading their records.
    offset, partition = F.col("offset"), F.col("partition")
    is_wrong = F.col("topic").isNull() | partition.isNull() | offset.isNull()
    is_wrong |= (partition < 0) | (partition > _LAST_PARTITION) | (offset < 0)
    row = (
        files.where(is_wrong).select("topic", "partition", "offset", "_metadata.file_path").first()
    )
    if row is not None:
        *position, file = ("null" if value is None else value for value in row)
        raise SourceError(
            f"--records {path}: {_name(file)} has a record with topic, partition and offset "
            f"{', '.join(map(str, position))}; each needs a topic, and whole numbers from 0"
        )


def _check_each(path: str, files: DataFrame) -> None:
    """Refuse a file that lacks a column: Spark would take null for what is not there."""
    for file in local_files(files) or ():
        try:
            names = {name.lower() for name in pq.read_schema(file).names}
        except (pa.ArrowException, OSError):  # Spark says what is wrong, or can read it
            continue
        missing = [n for n in COLUMNS if n.lower() not in names and f"/{n}=" not in file]
        if missing:
            raise SourceError(
                f"--records {path}: {file} has no column {', '.join(missing)}; needed are "
                f"{', '.join(COLUMNS)}"
            )


def local_files(files: DataFrame) -> list[str] | None:
    """Name the files that `read` has found; None if one is not on this machine."""
    names = [_name(url) for url in files.inputFiles()]
    return sorted(names) if all(name.startswith("/") for name in names) else None


def _name(url: str) -> str:
    """Return the path of a file on this machine, the URL of another one."""
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme in {"", "file"} else unquote(url)


def compared(records: DataFrame, held: DataFrame) -> DataFrame:
    """Compare records with those that are held already.

    Returns:
        The records, with columns is_held, whether `held` has their position, and is_other, whether
        with other bytes there.
    """
    theirs = held.select(*_KEYS, _content().alias("their_content"))
    joined = records.join(theirs, _KEYS, how="left")
    is_held = F.col("their_content").isNotNull()
    return joined.withColumns(
        {"is_held": is_held, "is_other": is_held & (F.col("their_content") != _content())}
    ).drop("their_content")


def _content() -> Column:
    """Return a number that tells records with other bytes apart; it is never null."""
    return F.xxhash64("key", "value", F.col("key").isNull(), F.col("value").isNull())


def repeated_with_other_bytes(records: DataFrame) -> DataFrame:
    """Find positions that the files themselves hold with different bytes."""
    counts = records.groupBy(*_KEYS).agg(F.countDistinct(_content()).alias("contents"))
    return counts.where(F.col("contents") > 1).select(*_KEYS)


def once(records: DataFrame) -> DataFrame:
    """Keep one record of each position."""
    return records.dropDuplicates(_KEYS)

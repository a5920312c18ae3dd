"""Records from Parquet files: recordings, mirrors, backups."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from schemas.columns import LAST_MS
from sources.coverage import Extent
from storage.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from sources.coverage import Position

COLUMNS = {
    "topic": {"string"},
    "partition": {"int", "bigint", "smallint"},
    "offset": {"bigint", "int"},
    "timestamp": {"bigint"},
    "timestampType": {"string"},
    "key": {"binary"},
    "value": {"binary"},
}
_IN_ARROW = {
    "string": {"string", "large_string"},
    "smallint": {"int16"},
    "int": {"int32"},
    "bigint": {"int64"},
    "binary": {"binary", "large_binary"},
}
_KINDS = ("CreateTime", "LogAppendTime")
_NO_TIME = "NoTimestampType"
_KEYS = ["topic", "record_partition", "record_offset"]


def read(spark: SparkSession, path: str) -> DataFrame:
    """Read the records of a Parquet file or folder.

    Returns:
        Columns topic, record_partition, record_offset, record_timestamp, timestamp_type, key,
        value. A timestamp of -1, which brokers before 0.10 leave, is null, as is one that is
        behind the year 9999.

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


def _check_each(path: str, files: DataFrame) -> None:
    """Refuse a folder of which a file lacks a column: Spark would take null for what is not there.

    Raises:
        SourceError: a file on this machine lacks one, which no folder's name has.
    """
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


def plain_files(path: str) -> list[str] | None:
    """Name the files of a path on this machine as `read` would find them, without asking Spark.

    Returns:
        None if it takes Spark to find them, to read them, or to say what is wrong with them.
    """
    place = Path(path)
    try:
        found = sorted(place.iterdir()) if place.is_dir() else [place]
        found = [file for file in found if not _is_hidden(file.name)]
        are_plain = all(
            file.is_file() and not file.name.startswith("_") and _is_plain(pq.read_schema(file))
            for file in found
        )
    except (pa.ArrowException, OSError):
        return None
    return [str(file.absolute()) for file in found] if found and are_plain else None


def _is_hidden(name: str) -> bool:
    """Tell whether a file of a folder is no data by its name, as HadoopFSUtils of Spark has it."""
    is_listed = "=" in name or name.startswith(("_metadata", "_common_metadata"))
    return name.startswith(".") or name.endswith("._COPYING_") or (name[0] == "_" and not is_listed)


def _is_plain(schema: pa.Schema) -> bool:
    """Tell whether a file has all columns, of types that `of_topic` takes as `read` does."""
    return all(
        schema.get_field_index(name) >= 0
        and any(str(schema.field(name).type) in _IN_ARROW[t] for t in types)
        for name, types in COLUMNS.items()
    )


def local_files(files: DataFrame) -> list[str] | None:
    """Name the files that `read` has found; None if one is not on this machine."""
    urls = [urlsplit(url) for url in files.inputFiles()]
    if any(url.scheme not in {"", "file"} for url in urls):
        return None
    return sorted(unquote(url.path) for url in urls)


def plain_extents(paths: Iterable[str], topic: str) -> dict[Position, Extent] | None:
    """Measure the records of a topic in files on this machine that hold each once, in order.

    Recordings and backups do, and to read three columns by Arrow takes a fraction of what a query
    over all positions does.

    Returns:
        None if the files are not such, or if Arrow cannot read them: to be measured by a query.
    """
    spans: dict[int, list[_Span]] = defaultdict(list)
    for path in paths:
        try:
            found = _spans(path, topic)
        except (pa.ArrowException, OSError, KeyError):  # Spark says what is wrong, or can read it
            return None
        if found is None:
            return None
        for partition, span in found.items():
            spans[partition].append(span)
    for of_partition in spans.values():
        of_partition.sort()
        if any(before.last >= behind.first for before, behind in pairwise(of_partition)):
            return None
    return {
        (topic, p): Extent(s[0].first, s[-1].last, n, n)
        for p, s in spans.items()
        for n in [sum(span.records for span in s)]
    }


class _Span(NamedTuple):
    first: int
    last: int
    records: int


def _spans(path: str, topic: str) -> dict[int, _Span] | None:
    """Measure the records of one file, by partition; None if they are not in order."""
    spans: dict[int, _Span] = {}
    with pq.ParquetFile(path) as file:
        if not COLUMNS.keys() <= set(file.schema_arrow.names):
            return None  # Spark takes a column from the names of folders
        for batch in file.iter_batches(columns=["topic", "partition", "offset"]):
            chosen = batch.filter(pc.equal(batch.column("topic"), topic))
            if chosen.column("partition").null_count or chosen.column("offset").null_count:
                return None
            # Without a sign, the step back to a lesser offset would be a large one forwards.
            partitions = chosen.column("partition").to_numpy().astype(np.int64)
            offsets = chosen.column("offset").to_numpy().astype(np.int64)
            order = np.argsort(partitions, kind="stable")
            partitions, offsets = partitions[order], offsets[order]
            is_same = np.diff(partitions) == 0
            if np.any(is_same & (np.diff(offsets) <= 0)):
                return None
            starts = [0, *(np.flatnonzero(~is_same) + 1).tolist()] if len(partitions) else []
            for start, end in pairwise([*starts, len(partitions)]):
                partition, first = int(partitions[start]), int(offsets[start])
                before = spans.get(partition, _Span(first, first - 1, 0))
                if first <= before.last or first < 0 or partition < 0:
                    return None
                last, records = int(offsets[end - 1]), before.records + end - start
                spans[partition] = _Span(before.first, last, records)
    return spans


def of_topic(batch: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    """Give the records of a topic as `read` does, by Arrow.

    Args:
        batch: the columns of a file, see `COLUMNS`.
        topic: its name.
    """
    chosen = batch.filter(pc.equal(batch.column("topic"), topic))
    of_file = {name: chosen.column(name) for name in COLUMNS}
    millis = of_file["timestamp"].cast(pa.int64())
    is_time = pc.and_(pc.greater_equal(millis, 0), pc.less_equal(millis, LAST_MS))
    micros = pc.multiply(pc.if_else(is_time, millis, None), 1000)
    kinds = of_file["timestampType"].dictionary_encode()
    names = pa.array(map(_timestamp_type, kinds.dictionary.to_pylist()), pa.string())
    return pa.RecordBatch.from_pydict(
        {
            "topic": of_file["topic"].cast(pa.string()),
            "record_partition": of_file["partition"].cast(pa.int32()),
            "record_offset": of_file["offset"].cast(pa.int64()),
            "record_timestamp": micros.cast(pa.timestamp("us", "UTC")),
            "timestamp_type": pc.fill_null(names.take(kinds.indices), _NO_TIME),
            "key": of_file["key"].cast(pa.binary()),
            "value": of_file["value"].cast(pa.binary()),
        }
    )


def _timestamp_type(given: str) -> str:
    letters = re.sub("[^A-Za-z]", "", given).lower()
    return next((kind for kind in _KINDS if letters.startswith(kind.lower())), _NO_TIME)


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

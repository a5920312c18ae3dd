"""Records from Parquet files: recordings, mirrors, backups."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, reduce
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from schemas.columns import LAST_MS
from schemas.errors import SourceError

# Types of Spark's; what its own reader of Kafka gives is among them.
COLUMNS = {
    "topic": {"string"},
    "partition": {"int", "bigint", "smallint"},
    "offset": {"bigint", "int"},
    "timestamp": {"bigint", "timestamp", "timestamp_ntz"},
    "timestampType": {"string", "int", "bigint", "smallint", "tinyint"},
    "key": {"binary"},
    "value": {"binary"},
}
_TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
_NO_TIME, *_KINDS = _TIMESTAMP_TYPES.values()
_LAST_PARTITION = 2**31 - 1
_KEYS = ["topic", "record_partition", "record_offset"]
_SUFFIX = ".parquet"
_OF_FOLDER = {"pathGlobFilter": f"*{_SUFFIX}", "recursiveFileLookup": "true"}
# What Spark and Delta keep beside files: no records.
_OF_SPARK = {"_delta_log", "_spark_metadata", "_temporary"}
# Spark reads a time in nanoseconds, as pandas writes it, as a number only.
_NANOS = "spark.sql.legacy.parquet.nanosAsLong"
_NANOS_A_MS = 1_000_000
# A store may give two versions of a file the same time, to the second.
_SAME_TIME_MS = 2_000
_WHY_HIDDEN = (
    "; in other stores than this machine's, files whose names begin with _ are hidden: copy them"
    " under other names"
)
# What a record takes in a file: 54 bytes in one of a million, 12 to 19 in recordings of a thousand.
_RECORD_BYTES = 50
# Why a file without it is of no use.
_WHY = {"key": "; without keys nobody can know which group or offset a value is of"}


class _Part(NamedTuple):
    """Files that Spark can read together."""

    base: str  # the folder below which folders such as `partition=3` are columns
    # Of our columns, as Parquet has them; none of files that are not on this machine.
    types: tuple[str, ...] = ()
    has_nanos: bool = False  # their times are in nanoseconds


class File(NamedTuple):
    """A file of records, as its store lists it; its time is in epoch milliseconds."""

    name: str
    size: int
    modified_ms: int


def listed(spark: SparkSession, path: str) -> list[File]:
    """List a Parquet file, or the files named *.parquet below a folder."""
    here = _here(path)
    if here is not None:
        stats = [(str(file), file.stat()) for file in _below(here)]
        found = [File(name, of.st_size, of.st_mtime_ns // _NANOS_A_MS) for name, of in stats]
    else:
        below = _read(spark, path, [path], {"recursiveFileLookup": "true"}, "binaryFile")
        rows = below.select("path", "length", F.unix_millis("modificationTime")).collect()
        # A store lists a file as itself, and a folder as what is below it.
        found = [File(*row) for row in rows if row.path.endswith((_SUFFIX, path))]
    if not found:
        why = "" if here is not None else _WHY_HIDDEN
        raise SourceError(f"--records {path}: no Parquet file in it{why}")
    return sorted(found)


def noted(files: Iterable[File]) -> dict[str, Any]:
    """Return what tells files, once they are read, from others: a note for `unread`."""
    until = round(time.time() * 1000) - _SAME_TIME_MS
    return {"until": until, "digest": _digest(files, until)}


def unread(files: Sequence[File], note: Mapping[str, Any] | None) -> Sequence[File]:
    """Return the files that were written since others were noted; all if one of those changed."""
    if note is None or _digest(files, note["until"]) != note["digest"]:
        return files
    return [file for file in files if file.modified_ms > note["until"]]


def estimated(files: Iterable[File]) -> int:
    """Estimate how many records files have, by their sizes."""
    return sum(file.size for file in files) // _RECORD_BYTES


def _digest(files: Iterable[File], until: int) -> str:
    """Digest the names, sizes and times of the files that were written by some time."""
    digest = hashlib.sha256()
    for file in files:
        if file.modified_ms <= until:
            digest.update(repr(tuple(file)).encode())
    return digest.hexdigest()


def read(
    spark: SparkSession, path: str, files: Sequence[File] | None = None, *, is_part: bool = False
) -> DataFrame:
    """Read the records of a Parquet file, or of the files named *.parquet below a folder.

    Of the files that `listed` gives, some may be asked for (`is_part`). The columns are topic,
    record_partition, record_offset, record_timestamp, timestamp_type, key and value. A timestamp of
    -1, which brokers before 0.10 leave, is null, as is one that is behind the year 9999.
    """
    names = [file.name for file in (listed(spark, path) if files is None else files)]
    here = _here(path)
    if here is None:
        # Spark asks the store for each name by itself, and for a folder once.
        is_folder = not (is_part or names[0].endswith(path))
        names, options = ([path], _OF_FOLDER) if is_folder else (names, {})
        return _shaped(path, _read(spark, path, names, options), has_nanos=False)
    parts: defaultdict[_Part, list[Path]] = defaultdict(list)
    for file in map(Path, names):
        parts[_part(path, here, file)].append(file)
    return reduce(
        DataFrame.unionByName,
        (
            _shaped(path, _read_here(spark, path, part, files), has_nanos=part.has_nanos)
            for part, files in parts.items()
        ),
    )


def _here(path: str) -> Path | None:
    """Return a path of this machine; None if there is nothing here, or it names another store."""
    scheme, colon, rest = path.partition(":/")
    here = Path(f"/{rest}" if colon else path)
    return here if (not colon or scheme == "file") and here.exists() else None


def _below(here: Path) -> list[Path]:
    """List a file, or the Parquet files in a folder and in folders in it."""
    if here.is_file():
        return [here]
    found: list[Path] = []
    for folder, folders, names in os.walk(here, followlinks=True):
        folders[:] = [n for n in folders if n not in _OF_SPARK and not n.startswith(".")]
        is_record = (n.endswith(_SUFFIX) and not n.startswith(".") for n in names)
        found += (Path(folder, n) for n, is_one in zip(names, is_record, strict=True) if is_one)
    return found


def _part(path: str, here: Path, file: Path) -> _Part:
    """Tell with which others Spark can read a file, and refuse one that lacks a column."""
    folders = file.relative_to(here).parts[:-1]
    of_columns = [*takewhile(lambda name: "=" in name, reversed(folders))]
    base = Path(here, *folders[: len(folders) - len(of_columns)]) if folders else here
    try:
        with pq.ParquetFile(file) as parquet:
            schema, physical = parquet.schema_arrow, parquet.schema
    except (pa.ArrowException, OSError):  # Spark says what is wrong, or can read it
        return _Part(str(base))
    types = {field.name.lower(): str(field.type) for field in schema}
    in_path = {name.partition("=")[0].lower() for name in of_columns}
    missing = [n for n in COLUMNS if n.lower() not in types.keys() | in_path]
    if missing:
        raise SourceError(
            f"--records {path}: {file} has no column {', '.join(missing)}; needed are "
            f"{_needed(missing)}"
        )
    of_file = [physical.column(n) for n in range(len(physical.names))]
    has_nanos = any(
        c.name.lower() == "timestamp" and c.physical_type == "INT64" for c in of_file
    ) and types.get("timestamp", "").startswith("timestamp[ns")
    return _Part(str(base), tuple(types.get(n.lower(), "") for n in COLUMNS), has_nanos)


def _needed(missing: list[str]) -> str:
    """Say what files need, and why what is missing is needed."""
    return ", ".join(COLUMNS) + "".join(_WHY.get(name, "") for name in missing)


def _read_here(spark: SparkSession, path: str, part: _Part, files: list[Path]) -> DataFrame:
    """Read files of this machine, also those whose names Spark takes for hidden ones."""
    if part.has_nanos:
        spark.conf.set(_NANOS, "true")
    base = Path(part.base)
    hidden = next((file for file in files if file.name.startswith("_")), None)
    if hidden is not None:
        if not (spark.conf.get("spark.master") or "").startswith("local"):
            raise SourceError(
                f"--records {path}: on a cluster Spark takes files such as {hidden.name} for hidden"
                " ones: give them names that do not begin with _"
            )
        files, base = _linked(base, files)
    options = {"basePath": str(base)} if base.is_dir() else {}
    return _read(spark, path, [str(file) for file in files], options)


def _linked(base: Path, files: Iterable[Path]) -> tuple[list[Path], Path]:
    """Give files other names, in a folder that goes when this process ends."""
    home = Path(tempfile.mkdtemp(dir=_links().name))
    links = []
    for file in files:
        folder = Path(home, file.parent.relative_to(base)) if base.is_dir() else home
        folder.mkdir(parents=True, exist_ok=True)
        links.append(folder / f"={file.name}")
        links[-1].symlink_to(file.absolute())
    return links, home


@cache
def _links() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="groupledger-")


def _read(
    spark: SparkSession, path: str, files: list[str], options: dict[str, str], form: str = "parquet"
) -> DataFrame:
    try:
        return spark.read.format(form).options(**options).load(files)
    except AnalysisException as error:
        is_missing = error.getCondition() == "PATH_NOT_FOUND"
        reason = "no such file or folder" if is_missing else "cannot be read as Parquet"
        raise SourceError(f"--records {path}: {reason}") from error
    except Exception as error:
        if "is not a Parquet file" in str(error) or "CANNOT_READ_FILE_FOOTER" in str(error):
            raise SourceError(f"--records {path}: is not a Parquet file") from error
        raise


def _shaped(path: str, files: DataFrame, *, has_nanos: bool) -> DataFrame:
    """Return the records of files as `read` gives them."""
    found = dict(files.dtypes)
    missing = [name for name in COLUMNS if name not in found]
    if missing:
        raise SourceError(
            f"--records {path}: has no column {', '.join(missing)}; needed are {_needed(missing)}"
        )
    for name, types in COLUMNS.items():
        if found[name] not in types:
            raise SourceError(
                f"--records {path}: column {name} is {found[name]}, it has to be "
                f"{' or '.join(sorted(types))}"
            )
    _check_positions(path, files)
    return files.select(
        "topic",
        F.col("partition").cast("int").alias("record_partition"),
        F.col("offset").cast("bigint").alias("record_offset"),
        _time(found["timestamp"], has_nanos=has_nanos).alias("record_timestamp"),
        _kind(found["timestampType"]).alias("timestamp_type"),
        "key",
        "value",
    )


def _time(of_type: str, *, has_nanos: bool) -> Column:
    """Return the time of a record: of a number in milliseconds, or of a time, which is in UTC."""
    at = F.col("timestamp")
    if has_nanos:
        at = F.floor(at / _NANOS_A_MS)
    elif of_type != "bigint":
        at = F.unix_millis(at.cast("timestamp"))
    return F.timestamp_millis(F.when(at.between(0, LAST_MS), at))


def kind_of(number: Column) -> Column:
    """Return the type of a record's time in Kafka's words, of its number; else null."""
    return F.create_map([F.lit(x) for pair in _TIMESTAMP_TYPES.items() for x in pair])[number]


def _kind(of_type: str) -> Column:
    """Return the type of a record's time, in Kafka's words, of its words or its numbers."""
    given = F.col("timestampType")
    if of_type != "string":
        return F.coalesce(kind_of(given.cast("int")), F.lit(_NO_TIME))
    kind = F.lower(F.regexp_replace(given, "[^A-Za-z]", ""))
    # Most tools write Kafka's own words; to look for them in other spellings takes longer.
    return (
        F.when(given.isin(*_KINDS), given)
        .when(kind.startswith(_KINDS[0].lower()), _KINDS[0])
        .when(kind.startswith(_KINDS[1].lower()), _KINDS[1])
        .otherwise(_NO_TIME)
    )


def _check_positions(path: str, files: DataFrame) -> None:
    """Refuse a record without a topic, a partition or an offset."""
    # Parquet's statistics show of most files that they have none, without reading their records.
    offset, partition = F.col("offset"), F.col("partition")
    is_wrong = F.col("topic").isNull() | partition.isNull() | offset.isNull()
    is_wrong |= (partition < 0) | (partition > _LAST_PARTITION) | (offset < 0)
    shown = F.struct("topic", "partition", "offset", "_metadata.file_path")
    ((row,),) = files.where(is_wrong).agg(F.min(shown)).collect()
    if row is not None:
        *position, file = ("null" if value is None else value for value in row)
        raise SourceError(
            f"--records {path}: {_name(file)} has a record with topic, partition and offset "
            f"{', '.join(map(str, position))}; each needs a topic, and whole numbers from 0"
        )


def check_keys(path: str, records: DataFrame) -> None:
    """Refuse records of which none has a key."""
    if records.where("length(key) > 0").isEmpty():
        raise SourceError(f"--records {path}: no record has a key{_WHY['key']}")


def _name(url: str) -> str:
    """Return the path of a file on this machine, the URL of another one."""
    parts = urlsplit(url)
    if parts.scheme not in {"", "file"}:
        return unquote(url)
    file = Path(unquote(parts.path))
    return str(file.readlink() if file.is_relative_to(_links().name) else file)


def compared(records: DataFrame, held: DataFrame) -> DataFrame:
    """Compare records with those that are held already.

    `is_held` is whether `held` has their position, `is_other` whether with other bytes there.
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

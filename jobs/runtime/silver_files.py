"""All of silver in one pass over bronze: each task decodes its records, and writes their files.

It takes a disk that driver and tasks share; elsewhere Spark writes the tables one by one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from decoders.batches import sorted_out
from decoders.clients import hash_clients
from decoders.records import decode
from schemas.tables import decoded_table
from storage.files import FileWriter, in_tasks_of, in_tasks_of_files, read

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from decoders.clients import ClientKey
    from storage.files import DataFile, RowGroups

_INPUT = ("record_partition", "record_offset", "record_timestamp", "key", "value")
_RUN = "ingest_run"
_TIME = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class Written:
    """What a pass has found and written.

    Attributes:
        in_type: by the two bytes that a key starts with, the number of records; fewer bytes, or
            None, of a key without them.
        files: by silver table.
    """

    in_type: dict[bytes | None, int]
    files: dict[str, list[DataFile]]


@dataclass(frozen=True)
class Target:
    """Where rows go, and what they say of the run.

    Attributes:
        root: folder of the lakehouse.
        cluster: the cluster whose records they are.
        decode_run: number of the run.
        clients: key of the hashes that stand for clients; None keeps their names.
    """

    root: str
    cluster: str
    decode_run: int
    clients: ClientKey | None = None


@dataclass(frozen=True)
class BronzeFiles:
    """Rows in files of bronze.records.

    Attributes:
        paths: the files.
        after: of their rows, those of the ingest runs behind this,
        to: up to and with this.
    """

    paths: list[str]
    after: int
    to: int


def write(records: DataFrame, target: Target) -> Written:
    """Decode records, and write files of what they become, to be added to their tables.

    Args:
        records: columns record_partition, record_offset, record_timestamp, key and value.
        target: where to.
    """
    return _sum(in_tasks_of(records.select(*_INPUT), partial(_write, target)))


def write_from_files(spark: SparkSession, bronze: BronzeFiles, target: Target) -> Written:
    """Do what `write` does with records that are in files, which Spark need not read then."""
    return _sum(in_tasks_of_files(spark, bronze.paths, partial(_of_share, bronze, target)))


def _sum(parts: Iterable[Written]) -> Written:
    in_type: Counter[bytes | None] = Counter()
    files: dict[str, list[DataFile]] = defaultdict(list)
    for part in parts:
        in_type.update(part.in_type)
        for table, of_table in part.files.items():
            files[table] += of_table
    return Written(dict(in_type), dict(files))


def _of_share(bronze: BronzeFiles, target: Target, share: list[RowGroups]) -> Written:
    batches = read(share, [*_INPUT, _RUN])
    return _write(target, (_of_runs(batch, bronze) for batch in batches if batch.num_rows))


def _of_runs(batch: pa.RecordBatch, bronze: BronzeFiles) -> pa.RecordBatch:
    """Keep the records of the ingest runs that are wanted, as `write` takes them."""
    runs = batch.column(_RUN)
    bounds = pc.min_max(runs)
    if not bronze.after < bounds["min"].as_py() <= bounds["max"].as_py() <= bronze.to:
        is_in = pc.and_(pc.greater(runs, bronze.after), pc.less_equal(runs, bronze.to))
        batch = batch.filter(is_in)
    time = batch.column("record_timestamp").cast(_TIME)  # Spark may have written another unit
    columns = [time if n == "record_timestamp" else batch.column(n) for n in _INPUT]
    return pa.RecordBatch.from_arrays(columns, names=list(_INPUT))


def _write(target: Target, batches: Iterable[pa.RecordBatch]) -> Written:
    writer = FileWriter(target.root, target.cluster)
    in_type: Counter[bytes | None] = Counter()
    for batch in sorted_out(batches, in_type):
        for table, parts in decode(batch).tables.items():
            for part in parts:
                rows = part if target.clients is None else hash_clients(part, target.clients)
                run = pa.repeat(pa.scalar(target.decode_run, pa.int64()), rows.num_rows)
                writer.add(decoded_table(table), rows.append_column("decode_run", run))
    files = {name.removeprefix("silver."): [file] for name, file in writer.close()}
    return Written(dict(in_type), files)

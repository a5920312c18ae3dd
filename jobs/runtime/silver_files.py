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

from decoders.clients import hash_clients
from decoders.records import decode
from schemas.tables import decoded_table
from storage.files import FileWriter, in_tasks_of, in_tasks_of_files, read

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from decoders.clients import ClientKey
    from storage.files import DataFile, RowGroups

_INPUT = ("record_partition", "record_offset", "record_timestamp", "key", "value")
_RUN = "ingest_run"
_TIME = pa.timestamp("us", "UTC")
# Records are decoded so many together, of each of these kinds apart and of all others: a pass over
# few costs what one over many does, but large ones have to stay in the processor's caches.
_MAX_ROWS = 65_536
_MAX_BYTES = 8 * 2**20
_KINDS = (pa.array([b"\0\0", b"\0\1"]), pa.array([b"\0\2"]))


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
    for batch in _sorted_out(batches, in_type):
        for table, parts in decode(batch).tables.items():
            for part in parts:
                rows = part if target.clients is None else hash_clients(part, target.clients)
                run = pa.repeat(pa.scalar(target.decode_run, pa.int64()), rows.num_rows)
                writer.add(decoded_table(table), rows.append_column("decode_run", run))
    files = {name.removeprefix("silver."): [file] for name, file in writer.close()}
    return Written(dict(in_type), files)


def _sorted_out(
    batches: Iterable[pa.RecordBatch], in_type: Counter[bytes | None]
) -> Iterator[pa.RecordBatch]:
    """Put records of one kind together, and count those of each type."""
    waiting = [_Waiting() for _ in range(len(_KINDS) + 1)]
    for batch in batches:
        types = pc.binary_slice(batch.column("key"), 0, 2)
        for entry in pc.value_counts(types):
            in_type[entry["values"].as_py()] += entry["counts"].as_py()
        rest = None
        for kind, place in zip(_KINDS, waiting, strict=False):
            chosen = pc.is_in(types, kind)
            rest = chosen if rest is None else pc.or_(rest, chosen)
            yield from place.add(batch.filter(chosen))
        yield from waiting[-1].add(batch.filter(pc.invert(rest)))
    for place in waiting:
        yield from place.take()


class _Waiting:
    """Records of one kind until there are enough."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if batch.num_rows:
            self._batches.append(batch)
            self._rows += batch.num_rows
            self._bytes += batch.nbytes
        if self._rows >= _MAX_ROWS or self._bytes >= _MAX_BYTES:
            yield from self.take()

    def take(self) -> Iterator[pa.RecordBatch]:
        if self._batches:
            yield pa.concat_batches(self._batches)
        self._batches, self._rows, self._bytes = [], 0, 0

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

from decoders.records import decode
from schemas.tables import decoded_table
from storage.files import DataFile, FileWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame

_INPUT = ("record_partition", "record_offset", "record_timestamp", "key", "value")
_RESULT = (
    "type BINARY, records BIGINT, table STRING, path STRING, size BIGINT, rows BIGINT, stats STRING"
)
_RESULT_ARROW = pa.schema(
    [
        ("type", pa.binary()),
        ("records", pa.int64()),
        ("table", pa.string()),
        ("path", pa.string()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
        ("stats", pa.string()),
    ]
)
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


def write(records: DataFrame, root: str, cluster: str, decode_run: int) -> Written:
    """Decode records, and write files of what they become, to be added to their tables.

    Args:
        records: columns record_partition, record_offset, record_timestamp, key and value.
        root: folder of the lakehouse.
        cluster: the cluster whose records they are.
        decode_run: number of the run.
    """
    task = partial(_write, root, cluster, decode_run)
    in_type: Counter[bytes | None] = Counter()
    files = defaultdict(list)
    for row in records.select(*_INPUT).mapInArrow(task, _RESULT).collect():
        if row.table is None:
            in_type[row.type if row.type is None else bytes(row.type)] += row.records
        else:
            files[row.table].append(DataFile(row.path, row.size, row.rows, row.stats))
    return Written(dict(in_type), dict(files))


def _write(
    root: str, cluster: str, decode_run: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    writer = FileWriter(root, cluster)
    in_type: Counter[bytes | None] = Counter()
    for batch in _sorted_out(batches, in_type):
        for table, parts in decode(batch).tables.items():
            for part in parts:
                run = pa.repeat(pa.scalar(decode_run, pa.int64()), part.num_rows)
                writer.add(decoded_table(table), part.append_column("decode_run", run))
    rows: list[dict[str, object]] = [{"type": t, "records": n} for t, n in in_type.items()]
    for name, file in writer.close().items():
        rows.append(
            {
                "table": name.removeprefix("silver."),
                **vars(file),
                "rows": file.records,
                "records": None,
            }
        )
    yield pa.RecordBatch.from_pylist(rows, _RESULT_ARROW)


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

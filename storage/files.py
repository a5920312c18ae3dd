"""Parquet files on a disk that driver and tasks share, read and written by Arrow in the tasks.

Between Python and its own readers and writers, Spark takes columns apart into rows, and those into
columns again: Arrow reads and writes several times as much in the same time. What is written is no
part of a table before a commit says so.
"""

from __future__ import annotations

import json
import pickle
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from storage.conditions import EVERY_ROW, Met, in_file, narrowed, that_meet
from storage.errors import LakehouseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from schemas.tables import TableSpec
    from storage.conditions import Test

_G = TypeVar("_G")
_T = TypeVar("_T")

COMPRESSION = "zstd"
BATCH_ROWS = 65_536
# A task is worth starting for so much, before compression.
_SHARE_BYTES = 32 * 2**20
_TASKS_A_CORE = 2
_MAX_WAITING = 96 * 2**20
# Delta keeps no more of a text in its statistics.
_MAX_TEXT = 32
# These seldom repeat in a row group, so that a dictionary of them is tried in vain.
_NO_DICTIONARY = (pa.types.is_int64, pa.types.is_timestamp, pa.types.is_boolean)


@dataclass(frozen=True)
class DataFile:
    """A file with rows of a table that is not yet part of it.

    Attributes:
        stats: what Delta keeps to skip the file by, as its protocol writes it.
        values: of the partitions that it is in, by their columns, in their order.
    """

    path: str
    size: int
    records: int
    stats: str
    values: dict[str, str]


@dataclass(frozen=True)
class RowGroups:
    """Some row groups of a Parquet file."""

    path: str
    groups: tuple[int, ...]


def in_tasks(
    spark: SparkSession, given: Sequence[_G], task: Callable[[_G], _T], *, here: bool
) -> list[_T]:
    """Have a task work on each of the things given; give what they return.

    Args:
        spark: the session.
        given: what there is to work on.
        task: works on one of them.
        here: do it in this process if it `is_here` that Spark's tasks would run.
    """
    if not given or (here and is_here(spark)):
        return [task(each) for each in given]
    return spark.sparkContext.parallelize(given, len(given)).map(task).collect()


def in_tasks_of_files(
    spark: SparkSession, paths: Iterable[str], task: Callable[[list[RowGroups]], _T]
) -> list[_T]:
    """Have tasks work on the row groups of files, each on its share; give what they return.

    Args:
        spark: the session.
        paths: the files, on a disk that the tasks share with this process.
        task: is given a share, to be read by `read`.
    """
    shared = shares(paths, _TASKS_A_CORE * spark.sparkContext.defaultParallelism)
    return in_tasks(spark, shared, task, here=len(shared) == 1)


def is_here(spark: SparkSession) -> bool:
    """Tell whether tasks run on this machine, so that little work is done sooner than handed out.

    Elsewhere it is the workers that a user has given memory to.
    """
    master = str(spark.sparkContext.master)
    return master == "local" or master.startswith("local[")


def in_tasks_of(rows: DataFrame, task: Callable[[Iterable[pa.RecordBatch]], _T]) -> list[_T]:
    """Have the tasks of a query work on its rows; give what they return."""

    def pickled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"given": pa.array([pickle.dumps(task(batches))])})

    given = rows.mapInArrow(pickled, "given BINARY").collect()
    return [pickle.loads(row.given) for row in given]  # noqa: S301 - of our own tasks


def shares(paths: Iterable[str], most: int) -> list[list[RowGroups]]:
    """Share the row groups of files out, about as much to each task.

    Args:
        paths: the files.
        most: number of shares that may not be exceeded.
    """
    sizes: list[tuple[str, int, int]] = []
    for path in paths:
        with naming(path):
            footer = pq.read_metadata(path)
        groups = range(footer.num_row_groups)
        sizes += [(path, g, footer.row_group(g).total_byte_size) for g in groups]
    whole = sum(size for _, _, size in sizes)
    count = max(1, min(most, whole // _SHARE_BYTES))
    shared: list[dict[str, list[int]]] = [{} for _ in range(count)]
    taken = 0
    for path, group, size in sizes:
        # By the middle of a row group, so that one that lies across a border goes to one side.
        at = min(count - 1, (taken + size // 2) * count // max(1, whole))
        shared[at].setdefault(path, []).append(group)
        taken += size
    return [[RowGroups(p, tuple(g)) for p, g in share.items()] for share in shared if share]


def read(share: Iterable[RowGroups], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Read what is in some row groups."""
    for part in share:
        with naming(part.path), pq.ParquetFile(part.path) as file:
            yield from file.iter_batches(
                BATCH_ROWS, row_groups=list(part.groups), columns=list(columns), use_threads=False
            )


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Let what Arrow says of a file that is damaged name the file.

    Raises:
        LakehouseError: it cannot be read.
    """
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except (pa.ArrowException, OSError) as error:
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise LakehouseError(f"{path} is damaged, bring it back from a copy: {what}") from error


def refuse_damaged(path: str) -> None:
    """Read all of a file, to find what is wrong with it.

    Raises:
        LakehouseError: it cannot be read.
    """
    with naming(path), pq.ParquetFile(path) as file:
        for _ in file.iter_batches(BATCH_ROWS, use_threads=False):
            pass


def read_where(
    paths: Iterable[str],
    fields: Sequence[pa.Field],
    tests: Sequence[Test] = (),
    *,
    leaves: Mapping[str, Sequence[str]] | None = None,
) -> pa.Table:
    """Read the rows of some files that meet tests; what cannot have such a row is passed over.

    Args:
        paths: the files.
        fields: the columns to read, null where a file of an earlier release lacks them.
        tests: what they meet.
        leaves: of columns that are lists of structs, what is read of them: paths in it. Text and
            bytes there come by their dictionaries, as they are in the files.
    """
    leaves = leaves or {}
    names = {f.name for f in fields} | {name for name, *_ in tests}
    wanted = [n for n in names if n not in leaves]
    wanted += (below := [f"{n}.list.element.{leaf}" for n in leaves for leaf in leaves[n]])
    empty = pa.schema([f for f in fields if f.name not in leaves])
    parts = []
    for path in paths:
        with naming(path):
            footer = pq.read_metadata(path)
            coded = _texts(footer, below)
            with pq.ParquetFile(path, metadata=footer, read_dictionary=coded) as file:
                held = [g for g in range(footer.num_row_groups) if _may_have(footer, g, tests)]
                for group in held:  # of several, Arrow gives no nested texts by their dictionaries
                    rows = file.read_row_group(group, wanted, use_threads=False)
                    rows = that_meet(rows, tests)
                    if rows.num_rows:
                        parts.append(_with_fields(rows, fields, leaves))
    if not parts:
        return pa.Table.from_pylist([], pa.schema(empty))
    return pa.concat_tables(parts)


def _texts(footer: pq.FileMetaData, below: Sequence[str]) -> list[str]:
    """Name the columns of text or bytes that are one of some paths, or lie below one."""
    columns = [footer.schema.column(i) for i in range(footer.num_columns)]
    paths = [c.path for c in columns if c.physical_type == "BYTE_ARRAY"]
    return [p for p in paths if any(p == wanted or p.startswith(f"{wanted}.") for wanted in below)]


def _may_have(footer: pq.FileMetaData, group: int, tests: Sequence[Test]) -> bool:
    """Tell whether a row group may have rows that meet some tests."""
    tested = {name for name, *_ in tests}
    columns = footer.row_group(group)
    known = (columns.column(i) for i in range(columns.num_columns))
    stats = {c.path_in_schema: c.statistics for c in known if c.path_in_schema in tested}
    bounded = {name: s for name, s in stats.items() if s is not None and s.has_min_max}
    bounds = {
        "partition": {},
        "min": {name: s.min for name, s in bounded.items()},
        "max": {name: s.max for name, s in bounded.items()},
    }
    return in_file(bounds, narrowed(EVERY_ROW, tests)) is not Met.BY_NONE


def _with_fields(
    rows: pa.Table, fields: Sequence[pa.Field], leaves: Mapping[str, Sequence[str]]
) -> pa.Table:
    columns = {}
    for field in fields:
        if field.name not in rows.schema.names:
            columns[field.name] = pa.nulls(rows.num_rows, field.type)
        elif field.name in leaves:
            columns[field.name] = rows[field.name]
        else:
            columns[field.name] = rows[field.name].cast(field.type)
    return pa.table(columns)


class FileWriter:
    """Collects rows of several tables of a cluster, and writes a file of each into its folder.

    A file that no commit follows is none of the table, and VACUUM takes it away.
    """

    def __init__(self, root: str, cluster: str) -> None:
        self._root = Path(root)
        self._cluster = cluster
        self._tables: dict[tuple[str, ...], _TableWriter] = {}

    def add(self, spec: TableSpec, rows: pa.RecordBatch, part: str = "") -> None:
        """Take rows of a table: its columns but for the cluster; each part has its own file.

        Delta evaluates no constraint of files that it does not write. What is asked of positions
        holds in bronze, where they come from; that no key is null is looked at here.

        Raises:
            LakehouseError: a column of the key is null.
        """
        if not rows.num_rows:
            return
        missing = [n for n in spec.required if n in rows.schema.names and rows[n].null_count]
        if missing:
            raise LakehouseError(f"{spec.name}: a row lacks {missing[0]}; nothing was written")
        with self._giving_up():
            for values, of_place in _apart(rows, [n for n in spec.partitions if n != "cluster"]):
                self._add(spec, {"cluster": self._cluster, **values}, of_place, part)

    def _add(self, spec: TableSpec, place: dict[str, str], rows: pa.RecordBatch, part: str) -> None:
        key = (spec.name, part, *place.values())
        if key not in self._tables:
            folder = self._root / spec.name.replace(".", "/") / path_of(place)
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"part-{uuid.uuid4()}.{COMPRESSION}.parquet"
            self._tables[key] = _TableWriter(path, rows.schema, spec.skipping, place)
        self._tables[key].add(rows)
        # Few large row groups are written and read faster than many small ones.
        while sum(t.waiting_bytes for t in self._tables.values()) > _MAX_WAITING:
            max(self._tables.values(), key=lambda t: t.waiting_bytes).flush()

    def close(self) -> list[tuple[str, DataFile]]:
        """Write what is left, and give the files with the names of their tables."""
        with self._giving_up():
            return [(name, table.close()) for (name, *_), table in self._tables.items()]

    @contextmanager
    def _giving_up(self) -> Iterator[None]:
        """Let go of all files when one cannot be written, as when the disk is full."""
        try:
            yield
        except BaseException:
            for table in self._tables.values():
                table.give_up()
            raise


def _apart(
    rows: pa.RecordBatch, columns: Sequence[str]
) -> Iterator[tuple[dict[str, str], pa.RecordBatch]]:
    """Take rows apart by the values of columns, and the columns out of them."""
    if not columns:
        yield {}, rows
        return
    name, *others = columns
    for value in pc.unique(rows[name]):
        chosen = rows.filter(pc.equal(rows[name], value)).drop_columns([name])
        for values, part in _apart(chosen, others):
            yield {name: text_of(value.as_py()), **values}, part


def text_of(value: object) -> str:
    """Write the value of a partition as Delta's log does."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def texts_of(values: Mapping[str, object]) -> dict[str, str]:
    """Write the values of a partition, by column, as Delta's log does."""
    return {name: text_of(value) for name, value in values.items()}


def path_of(values: Mapping[str, str]) -> str:
    """Give the folder of a partition, as Delta names it; values need no escaping here."""
    return "/".join(f"{name}={value}" for name, value in values.items())


def write_files(rows: DataFrame, spec: TableSpec, root: str, cluster: str) -> list[DataFile]:
    """Write rows of one table, a file for each task that has any.

    Args:
        rows: the table's columns but for the cluster.
        spec: the table.
        root: folder of the lakehouse, on a disk that the tasks share with this process.
        cluster: whose rows they are.

    Raises:
        LakehouseError: in a task, and so within Spark's error: a column of the key is null.
    """
    task = partial(write_batches, spec, root, cluster)
    return [file for files in in_tasks_of(rows, task) for file in files]


def write_batches(
    spec: TableSpec, root: str, cluster: str, batches: Iterable[pa.RecordBatch]
) -> list[DataFile]:
    """Write rows of one table that are here, see `write_files`."""
    writer = FileWriter(root, cluster)
    for batch in batches:
        writer.add(spec, batch)
    return [file for _, file in writer.close()]


class _TableWriter:
    def __init__(
        self, path: Path, schema: pa.Schema, skipping: Sequence[str], values: dict[str, str]
    ) -> None:
        self.waiting_bytes = 0
        self._values = values
        self._skipping = skipping
        self._waiting: list[pa.RecordBatch] = []
        self._path = path
        self._writer = pq.ParquetWriter(
            path,
            schema,
            compression=COMPRESSION,
            use_dictionary=_dictionary_columns(schema),
            store_schema=False,
        )

    def add(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self.waiting_bytes += rows.nbytes

    def flush(self) -> None:
        rows = pa.Table.from_batches(self._waiting)
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._waiting, self.waiting_bytes = [], 0

    def close(self) -> DataFile:
        if self._waiting:
            self.flush()
        self._writer.close()
        footer = pq.read_metadata(self._path)
        size = self._path.stat().st_size
        stats = _stats(footer, self._skipping)
        return DataFile(str(self._path), size, footer.num_rows, stats, self._values)

    def give_up(self) -> None:
        """Let go of the file, which is no part of a table."""
        # Why it cannot be written is known; left alone, it would say so once more as it goes.
        with suppress(OSError, pa.ArrowException):
            self._writer.close()


def _dictionary_columns(schema: pa.Schema) -> list[str]:
    """Name the columns, by their paths in the file, that are worth a dictionary."""
    return [path for field in schema for path in _paths(field.name, field.type)]


def _paths(path: str, kind: pa.DataType) -> Iterable[str]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _paths(f"{path}.{field.name}", field.type)
    elif pa.types.is_list(kind):
        yield from _paths(f"{path}.list.element", kind.value_type)
    elif not any(is_such(kind) for is_such in _NO_DICTIONARY):
        yield path


def _stats(footer: pq.FileMetaData, skipping: Sequence[str]) -> str:
    """Sum a file's statistics up in the form of Delta's protocol."""
    found: dict[str, Any] = {"numRecords": footer.num_rows}
    found |= {"minValues": {}, "maxValues": {}, "nullCount": {}}
    first = footer.row_group(0)
    paths = [first.column(i).path_in_schema for i in range(first.num_columns)]
    for name in skipping:
        at = paths.index(name)
        groups = [footer.row_group(g) for g in range(footer.num_row_groups)]
        stats = [group.column(at).statistics for group in groups]
        if any(s is None or not s.has_null_count for s in stats):
            continue
        found["nullCount"][name] = sum(s.null_count for s in stats)
        if not all(
            s.has_min_max or s.null_count == group.num_rows
            for s, group in zip(stats, groups, strict=True)
        ):
            continue
        bounded = [s for s in stats if s.has_min_max]
        if bounded:
            try:
                least, greatest = min(s.min for s in bounded), max(s.max for s in bounded)
            except (OverflowError, ValueError):  # a time that Python cannot tell: no bound of it
                continue
            found["minValues"][name] = _stat(least)
            # What is cut off a text makes it less, so that a long one bounds nothing above.
            if not isinstance(greatest, str) or len(greatest) <= _MAX_TEXT:
                found["maxValues"][name] = _stat(greatest)
    return json.dumps(found)


def _stat(value: Any) -> Any:  # noqa: ANN401 - of any column
    if isinstance(value, str):
        return value[:_MAX_TEXT]
    if hasattr(value, "isoformat"):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value

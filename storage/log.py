"""The log of a table on this disk, read and written by delta-rs.

Spark takes half a second for what takes milliseconds here, since it asks a table's log by queries.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from storage.conditions import for_arrow, narrowed
from storage.errors import LakehouseError
from storage.files import naming, path_of, text_of, texts_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pyarrow.dataset import Dataset

    from storage.conditions import Test, Where
    from storage.files import DataFile

_COMMIT = re.compile(r"[0-9]{20}\.json")
_DELETION_VECTORS = "deletionVectors"
# The first version of Delta's protocol for writers that has CHECK constraints.
_OF_CONSTRAINTS = "3"
# As Spark does, which takes longer to read a log with more commits behind the last checkpoint.
_CHECKPOINT_EVERY = 10
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


@dataclass(frozen=True)
class Selection:
    """Rows of one version of a table on this disk, for whichever process reads them.

    Attributes:
        folder: of the table.
        dataset: its files; None of a table that was not made, which has no rows.
        schema: what to read, and as what; null stands for columns that the table lacks.
        where: what the rows meet.
    """

    folder: str
    dataset: Dataset | None
    schema: pa.Schema
    where: Where

    def read(self, tests: Sequence[Test] = (), *, threads: bool = True) -> pa.Table:
        """Read the rows, or those that meet some tests, too.

        Args:
            tests: the tests.
            threads: whether to use all cores, which a task does not have.

        Raises:
            LakehouseError: a file cannot be read.
        """
        if self.dataset is None:
            return self.schema.empty_table()
        met = for_arrow(narrowed(self.where, tests))
        with naming(self.folder):
            rows = self.dataset.to_table(self._held(self.dataset), met, use_threads=threads)
        return with_schema(rows, self.schema)

    def parts(self) -> Iterator[pa.Table]:
        """Read the rows, some at a time.

        Raises:
            LakehouseError: a file cannot be read.
        """
        if self.dataset is None:
            return
        scanner = self.dataset.scanner(self._held(self.dataset), for_arrow(self.where))
        with naming(self.folder):
            for batch in scanner.to_batches():
                yield with_schema(pa.Table.from_batches([batch]), self.schema)

    def _held(self, dataset: Dataset) -> list[str]:
        return [name for name in self.schema.names if name in dataset.schema.names]


def with_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Give rows the columns of a schema, and their types; null stands for what they lack."""
    arrays = [
        rows[f.name].cast(f.type)
        if f.name in rows.schema.names
        else pa.nulls(rows.num_rows, f.type)
        for f in schema
    ]
    return pa.table(arrays, schema=schema)


class Log:
    """One version of a table's log."""

    def __init__(self, table: DeltaTable, folder: Path) -> None:
        self._table = table
        self._folder = folder

    @property
    def state(self) -> tuple[str, int]:
        """What no other table has, and no other version of this one."""
        return str(self._table.metadata().id), self._table.version()

    @property
    def configuration(self) -> dict[str, str]:
        """The table's properties."""
        return dict(self._table.metadata().configuration)

    @property
    def schema_json(self) -> str:
        """The table's schema, as Spark writes it, too."""
        return str(self._table.schema().to_json())

    @property
    def marks_rows_deleted(self) -> bool:
        """Whether files may have rows that are deleted, which their readers have to know."""
        return _DELETION_VECTORS in (self._table.protocol().reader_features or ())

    def last_write(self, application: str) -> int:
        """Give the version of an application's last write, or -1."""
        version = self._table.transaction_version(application)
        return -1 if version is None else version

    def files(self, values: Mapping[str, str]) -> list[dict[str, Any]]:
        """Give the files of some partitions.

        Args:
            values: of columns that the table is partitioned by, as the log has them.

        Returns:
            `path`, `size_bytes`, `partition` with its values by column, and by column `min`, `max`
            and `null_count`, as far as the log has them.
        """
        actions = pa.table(self._table.get_add_actions()).to_pylist()
        return [
            {**file, "path": str(self._folder / file["path"])}
            for file in actions
            if all(text_of(file["partition"][name]) == value for name, value in values.items())
        ]

    def selection(self, schema: pa.Schema, where: Where) -> Selection:
        """Select the rows that meet a condition; files that cannot have one are passed over.

        Args:
            schema: what to read of them.
            where: the condition, of columns that the table has.
        """
        # By delta-rs's own way to files, Arrow's threads call Python, and about every other process
        # that had done so died of it at its end.
        files = SubTreeFileSystem(str(self._folder), LocalFileSystem())
        dataset = self._table.to_pyarrow_dataset(filesystem=files)
        return Selection(str(self._folder), dataset, schema, where)

    def add(
        self,
        files: Collection[DataFile],
        application: str,
        version: int,
        instead_of: Collection[Mapping[str, Any]] = (),
    ) -> bool:
        """Make files in the table's folder part of it.

        Args:
            files: what the rows are in.
            application: see `storage.tables.Lakehouse.append`.
            version: see `storage.tables.Lakehouse.append`.
            instead_of: the files, see `files`, that they take the place of.

        Returns:
            False if somebody else's commit came first, and this one has to look at it.

        Raises:
            ValueError: files are to be replaced of which rows may be marked as deleted, which
                delta-rs would leave in the table.
        """
        if instead_of and self.marks_rows_deleted:
            raise ValueError(f"{self._folder} marks rows as deleted")
        actions: list[AddAction | RemoveAction] = [_added(file) for file in files]
        actions += [self._removed(file) for file in instead_of]
        # Nobody's commit may come between, whatever it did: files that are to be replaced may have
        # been put together into larger ones in the meantime.
        properties = CommitProperties(
            max_commit_retries=0, app_transactions=[Transaction(application, version)]
        )
        try:
            self._table.create_write_transaction(
                actions,
                "append",
                self._table.schema(),
                self._table.metadata().partition_columns,
                commit_properties=properties,
                post_commithook_properties=_NO_HOOKS,
            )
        except CommitFailedError:
            return False
        self._table.update_incremental()
        if self._table.version() % _CHECKPOINT_EVERY == 0:
            self._table.create_checkpoint()
            self._table.cleanup_metadata()
        return True

    def _removed(self, file: Mapping[str, Any]) -> RemoveAction:
        return RemoveAction(
            path=str(Path(file["path"]).relative_to(self._folder)),
            data_change=True,
            deletion_timestamp=time.time_ns() // 1_000_000,
            size=file["size_bytes"],
            partition_values=dict(texts_of(file["partition"])),
        )


def make(
    folder: Path,
    schema_json: str,
    *,
    partitions: Sequence[str],
    description: str,
    properties: Mapping[str, str],
) -> None:
    """Make a table without rows.

    Args:
        folder: of the table.
        schema_json: its columns, as Spark writes them.
        partitions: those that it is partitioned by.
        description: what it holds.
        properties: its properties, constraints among them.

    Raises:
        DeltaError: it is there, or somebody else makes it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # By themselves constraints do not let delta-rs ask for writers that know of them.
    asked = {"delta.minWriterVersion": _OF_CONSTRAINTS} if _has_constraints(properties) else {}
    DeltaTable.create(
        folder,
        Schema.from_json(schema_json),
        partition_by=list(partitions),
        description=description,
        configuration={**properties, **asked},
        # Of two that make it at once, the second would put its own in the first one's place.
        commit_properties=CommitProperties(max_commit_retries=0),
        raise_if_key_not_exists=False,
    )


def _has_constraints(properties: Mapping[str, str]) -> bool:
    return any(name.startswith("delta.constraints.") for name in properties)


def opened(folder: Path) -> Log | None:
    """Read the newest state of a table's log; None if there is no table.

    Raises:
        LakehouseError: the log has a gap, or a commit that cannot be read.
    """
    log = folder / "_delta_log"
    if not log.is_dir():
        return None
    commits = [path for path in log.iterdir() if _COMMIT.fullmatch(path.name)]
    try:
        table = DeltaTable(folder)
    except TableNotFoundError:
        return None
    except DeltaError as error:
        raise LakehouseError(damaged(str(folder))) from error
    # One without anything in it would be taken for a commit that changed nothing.
    if not all(path.stat().st_size for path in commits):
        raise LakehouseError(damaged(str(folder)))
    return Log(table, folder)


def damaged(path: str) -> str:
    """Say that a table's log is not whole."""
    return (
        f"{path}: files of the table's log are missing or cut off, as when a folder is copied "
        "while it is written to; bring it back from a copy, or copy it again as a whole"
    )


def _added(file: DataFile) -> AddAction:
    return AddAction(
        path=f"{path_of(file.values)}/{Path(file.path).name}",
        size=file.size,
        partition_values=file.values,
        modification_time=time.time_ns() // 1_000_000,
        data_change=True,
        stats=file.stats,
    )

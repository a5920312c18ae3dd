"""Makes, reads and writes the Delta tables of one lakehouse, by Delta's public API alone.

A write that belongs to a run names it (Delta's ``txnAppId`` and ``txnVersion``, kept in the table's
own log, in the same commit as the rows): a write that is tried again is done once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn, TypeAlias

import pyarrow as pa
from delta.exceptions import (
    ConcurrentTransactionException,
    MetadataChangedException,
    ProtocolChangedException,
)
from delta.tables import DeltaTable
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from schemas.columns import ArrayOf, ColumnType, Primitive, arrow_schema
from schemas.columns import Column as DeclaredColumn
from schemas.errors import LakehouseError
from schemas.ledger import RunId
from schemas.tables import TableSpec
from storage import files

Rows: TypeAlias = "DataFrame | pa.Table | list[dict[str, object]]"
"""Rows of a table without the column `cluster`: in Spark, or here."""

FEW_ROWS = 1_000_000
"""So many rows of a stage are kept at hand; more would take the memory that their work needs."""

EVERY_ROW = "true"
"""The condition that each row meets."""

OPEN_ROWS = "NOT is_settled"
"""The condition of the rows that a later run may replace."""

# Of Delta's error classes, and of the reader of its JSON.
_DAMAGED = (
    *("DELTA_VERSIONS_NOT_CONTIGUOUS", "DELTA_TRUNCATED_TRANSACTION_LOG"),
    *("DELTA_LOG_FILE_NOT_FOUND", "DELTA_STATE_RECOVER_ERROR", "DELTA_MISSING_PART_FILES"),
    *("MALFORMED_RECORD_IN_PARSING", "JsonParseException", "JsonEOFException"),
)
# Where Delta notes the version that the session's last commit made.
_LAST_COMMIT = "spark.databricks.delta.lastCommitVersionInSession"
# Whether the folder of a cluster is named as the cluster is; Spark escapes other characters.
_IS_PLAIN = re.compile(r"[A-Za-z0-9._-]+").fullmatch
# So many are looked for one by one, before Delta is asked.
_FEW_COMMITS = 20
# What ends the name of the constraint that a column is never null.
_IS_GIVEN = "_is_given"
# Delta's default of 10 has every table write a checkpoint in the same run.
_CHECKPOINT_INTERVAL = 50
_PRIMITIVES: dict[str, T.DataType] = {
    "string": T.StringType(),
    "binary": T.BinaryType(),
    "boolean": T.BooleanType(),
    "tinyint": T.ByteType(),
    "smallint": T.ShortType(),
    "int": T.IntegerType(),
    "bigint": T.LongType(),
    "double": T.DoubleType(),
    "timestamp": T.TimestampType(),
}


def spark_schema(columns: Iterable[DeclaredColumn]) -> T.StructType:
    """Return Spark's type of rows of `columns`, their comments with them."""
    return T.StructType(
        [
            T.StructField(c.name, _spark_type(c.type), metadata={"comment": c.comment})
            for c in columns
        ]
    )


def _spark_type(declared: ColumnType) -> T.DataType:
    if isinstance(declared, Primitive):
        return _PRIMITIVES[declared.name]
    if isinstance(declared, ArrayOf):
        return T.ArrayType(_spark_type(declared.element))
    return spark_schema(declared.columns)


class Tables:
    """The tables of one lakehouse, as one cluster's jobs see them.

    Reads give the rows of this cluster only, and every row written is this cluster's.
    """

    def __init__(self, spark: SparkSession, root: str, cluster: str) -> None:
        self.spark = spark
        # Delta takes a relative path for a column's name.
        is_local = re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", root) is None
        self.root = str(Path(root).absolute()) if is_local else root.rstrip("/")
        self.cluster = cluster
        self._known: set[str] = set()
        self._made: set[str] = set()  # tables that have what made them, and nothing else
        self._kept: dict[str, tuple[int | None, DataFrame]] = {}

    def path(self, spec: TableSpec) -> str:
        """Return the folder of a table."""
        return f"{self.root}/{spec.name.replace('.', '/')}"

    def exists(self, spec: TableSpec) -> bool:
        """Return whether a table has been made."""
        if spec.name not in self._known:
            try:
                if not DeltaTable.isDeltaTable(self.spark, self.path(spec)):
                    return False
            except Py4JJavaError as error:
                _refuse_damaged(self.path(spec), error)
                raise
            self._known.add(spec.name)
        return True

    def may_hold(self, spec: TableSpec) -> bool:
        """Return whether a table may have rows of this cluster: if not, it has no folder for them.

        Who finds no run in the ledger asks the tables whether it was lost. Where a cluster is new
        in a lakehouse of others this is answered at once; queries take seconds.
        """
        if not self.exists(spec):
            return False
        folder = f"{self.path(spec)}/cluster={self.cluster}"
        return not _IS_PLAIN(self.cluster) or not files.is_empty(self.spark, folder)

    def clusters(self, spec: TableSpec) -> list[str]:
        """Name the clusters that have rows in a table that has been made."""
        every = self.spark.read.format("delta").load(self.path(spec))
        return sorted(row.cluster for row in every.select("cluster").distinct().collect())

    def create(self, spec: TableSpec) -> None:
        """Make a table without rows, unless it is there; a write makes its table itself."""
        if not self.exists(spec):
            self._write(spec, [], None, mode="append", options={})

    def read(self, spec: TableSpec) -> DataFrame:
        """Read this cluster's rows of a table, or take them from hand; none if it was never made.

        A column that the table lacks, since an older release made it, is null, also within structs;
        one that only a newer release knows is left out.
        """
        schema = spark_schema(spec.columns)
        number, kept = self._kept.get(spec.name, (-1, None))
        if kept is not None and (number is None or spec.name in self._made):
            return kept
        if not self.exists(spec):
            return no_rows(self.spark, spec.columns)
        try:
            rows = self.spark.read.format("delta").load(self.path(spec))
        except Exception as error:
            _refuse_damaged(self.path(spec), error)
            raise
        held = {field.name: field for field in rows.schema}
        of_cluster = F.col("cluster") == self.cluster
        if spec.run_column in held:
            # True of each row. With a filter on a column that has statistics, Delta takes the files
            # from its log without computing the table's state in a job of its own.
            run = F.col(spec.run_column)
            of_cluster &= (run >= 0) | run.isNull()
        # As text: a column is made by five calls of the JVM, and a run reads many.
        columns = (f.name if f.name in held else null_column(f) for f in schema.fields)
        found = rows.where(of_cluster).selectExpr(*columns)
        as_held = T.StructType([held.get(f.name, f) for f in schema])
        # As text they have no comments, which may be others.
        return found if as_held.simpleString() == schema.simpleString() else found.to(schema)

    def keep(self, spec: TableSpec, rows: Rows, run: int | None = None) -> None:
        """Keep rows at hand that a run has written, until others are: nobody reads them again.

        They are as cheap to compute again as to read. Those of a run are for `kept` and `of_runs`;
        without one they are all rows of this cluster, for `read`. So are those of the write that
        made the table.
        """
        self._kept[spec.name] = run, self.with_cluster(spec, rows)

    def let_go(self) -> None:
        """Forget all rows that are kept: another process has gone on."""
        self._kept.clear()

    def kept(self, spec: TableSpec, after: int, to: int) -> DataFrame | None:
        """Return what is kept of the one run behind another; None of several, or if none is."""
        number, rows = self._kept.get(spec.name, (-1, None))
        return rows if number == to == after + 1 else None

    def of_runs(self, spec: TableSpec, after: int, to: int) -> DataFrame:
        """Read the rows of the runs behind one, up to another; see `read`."""
        kept = self.kept(spec, after, to)
        rows = self.read(spec) if kept is None else kept
        return rows.where(between(str(spec.run_column), after, to))

    def append(
        self, spec: TableSpec, rows: Rows, run: RunId | None = None, note: str | None = None
    ) -> int | None:
        """Append rows to a table, once for each `run`; return the version, None if it was there.

        A write whose run, or a later one of its stage, is there already does nothing; rows without
        a run may be there twice. A note is kept with the commit, see `notes`. The version is right
        as long as no other thread of the session writes.
        """
        options = {} if note is None else {"userMetadata": note}
        return self._write(spec, rows, run, mode="append", options=options)

    def notes(self, spec: TableSpec, after: int | None = None) -> list[str]:
        """Return the notes of a table's commits behind a version, or of all, of all clusters."""
        newest = self.version(spec, after)
        if newest is None:
            return []
        # Delta gives the last ones first; of what comes meanwhile there is room for a few.
        most = None if after is None else max(0, newest - after) + _FEW_COMMITS
        history = DeltaTable.forPath(self.spark, self.path(spec)).history(most)
        noted = (
            history.where("userMetadata IS NOT NULL").select("version", "userMetadata").collect()
        )
        return [row.userMetadata for row in noted if after is None or row.version > after]

    def version(self, spec: TableSpec, since: int | None = None) -> int | None:
        """Return the newest version of a table, None without one; since which may be known."""
        if not self.exists(spec):
            return None
        number = since if since is not None and self._has_version(spec, since) else -1
        for version in range(number, number + _FEW_COMMITS):
            if not self._has_version(spec, version + 1) and version >= 0:
                return version
        newest = DeltaTable.forPath(self.spark, self.path(spec)).history(1).first()
        return None if newest is None else int(newest.version)

    def versions(
        self, specs: Iterable[TableSpec], former: Mapping[str, int | None]
    ) -> dict[str, int | None]:
        """Return versions of tables by name: the newest of some, of others what was noted."""
        now = {spec.name: self.version(spec, former.get(spec.name)) for spec in specs}
        return {**former, **now}

    def has_all(self, specs: Iterable[TableSpec], noted: Mapping[str, int | None]) -> bool:
        """Return whether tables have noted versions; an older copy has not, nor a cleaned log."""
        return all(self._has_version(spec, noted.get(spec.name)) for spec in specs)

    def _has_version(self, spec: TableSpec, version: int | None) -> bool:
        return version is not None and files.exists(
            self.spark, f"{self.path(spec)}/_delta_log/{version:020d}.json"
        )

    def is_at(self, spec: TableSpec, version: int | None) -> bool:
        """Return whether a version of a table is its newest.

        What was written since, or that an older copy lies there, are two reasons why not; a log
        that was cleaned up is a third.
        """
        if version is None or self._has_version(spec, version + 1):
            return False
        return self._has_version(spec, version)

    def replace(
        self, spec: TableSpec, rows: Rows, run: RunId | None = None, where: str = EVERY_ROW
    ) -> None:
        """Replace the rows of this cluster that meet a condition by others, in one commit.

        The rows themselves need not meet it. Done once for each `run`, see `append`; without one,
        where doing it again does no harm.
        """
        condition = f"cluster = {sql_text(self.cluster)} AND ({where})"
        self._write(spec, rows, run, mode="overwrite", options={"replaceWhere": condition})

    def _write(
        self, spec: TableSpec, rows: Rows, run: RunId | None, *, mode: str, options: dict[str, str]
    ) -> int | None:
        if run is not None:
            application = f"groupledger/{run.stage}/{self.cluster}"
            options = {**options, "txnAppId": application, "txnVersion": str(run.number)}
        # A later release may have added columns.
        options = {**options, "mergeSchema": "true"}
        written = self.with_cluster(spec, rows)
        partitions: tuple[str, ...] = ()
        is_new = not self.exists(spec)
        if is_new:
            _refuse_others(self.path(spec))
            written, partitions = written.to(spark_schema(spec.columns)), spec.partitions
            options |= _properties(spec)
        writer = written.write.format("delta").mode(mode).partitionBy(*partitions)
        self._kept.pop(spec.name, None)
        self.spark.conf.unset(_LAST_COMMIT)
        self._made.discard(spec.name)
        try:
            _save(writer.options(**options), self.path(spec), is_new=is_new)
        except ConcurrentTransactionException:
            pass  # another run with the same plan was faster
        except Exception as error:
            _refuse_damaged(self.path(spec), error)
            _refuse(spec, error)
            raise
        self._known.add(spec.name)
        if is_new and not self._has_version(spec, 1):
            self._made.add(spec.name)
        version = self.spark.conf.get(_LAST_COMMIT, None)
        return None if version is None else int(version)

    def with_cluster(self, spec: TableSpec, rows: Rows) -> DataFrame:
        """Return rows of a table with the cluster's name, its declared columns in their order."""
        if isinstance(rows, list):
            rows = pa.Table.from_pylist(rows, arrow_schema(spec.of_cluster))
        if isinstance(rows, pa.Table):
            schema = spark_schema(spec.of_cluster)
            rows = self.spark.createDataFrame(rows.select(schema.names), schema).coalesce(1)
        columns = (column.name for column in spec.of_cluster)
        return rows.selectExpr(f"{sql_literal(self.cluster)} AS cluster", *columns)


def no_rows(spark: SparkSession, columns: Iterable[DeclaredColumn]) -> DataFrame:
    """Return a frame that Spark knows to be empty: a list would pass through Python workers."""
    columns = [*columns]
    return spark.createDataFrame(arrow_schema(columns).empty_table(), spark_schema(columns))


def null_column(field: T.StructField) -> str:
    """Return a column of nulls, in SQL."""
    return f"CAST(NULL AS {field.dataType.simpleString()}) AS {field.name}"


def rows_of(rows: DataFrame, table: str) -> DataFrame:
    """Pick the rows of one table out of rows of several, see `schemas.tagged`."""
    return rows.where(F.col("table") == table).select(F.inline(table))


def sql_literal(text: str) -> str:
    """Return an SQL string literal, for where SQL takes no expression."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def sql_text(text: str) -> str:
    """Return an SQL expression of any text, whatever is in it."""
    return f"decode(unhex('{text.encode().hex()}'), 'UTF-8')" if text else "''"


def between(column: str, after: int, to: int) -> str:
    """Return the SQL condition of whole numbers behind one, up to another and with it."""
    return f"{column} > {after} AND {column} <= {to}"


def among(column: str, texts: Iterable[str]) -> str:
    """Return the SQL condition of rows with one of some texts; without any, no row meets it."""
    return f"{column} IN ({', '.join(map(sql_text, texts)) or 'NULL'})"


def _properties(spec: TableSpec) -> dict[str, str]:
    """Return what Delta keeps of a table, as options of the write that makes it."""
    # A write makes no column NOT NULL; a CHECK constraint says the same.
    given = [(f"{column}{_IS_GIVEN}", f"{column} IS NOT NULL") for column in spec.required]
    return {
        "delta.dataSkippingStatsColumns": ",".join(spec.skipping),
        "delta.checkpointInterval": str(_CHECKPOINT_INTERVAL),
        **{f"delta.constraints.{name}": sql for name, sql in (*spec.constraints, *given)},
    }


def _save(writer: DataFrameWriter, path: str, *, is_new: bool) -> None:
    """Write to a table, once more if it was to be made and another run has made it meanwhile.

    For each write Delta looks at its log again, and passes over one whose run is there.
    """
    try:
        writer.save(path)
    except (MetadataChangedException, ProtocolChangedException):
        if not is_new:
            raise  # what is to be written may rest on rows that are not there any more
        writer.save(path)


def _refuse_others(path: str) -> None:
    """Refuse to make a table among other files, as far as they are on this machine.

    Delta would write beside them, and what it removes later are files that it does not know.
    """
    folder = Path(path)
    if folder.is_dir() and not (folder / "_delta_log").exists() and any(folder.iterdir()):
        raise LakehouseError(
            f"{path} holds files that are no Delta table where a table has to go: name another "
            "--lakehouse"
        )


def _refuse_damaged(path: str, error: Exception) -> None:
    """Say that a table's log is not whole, if that is what is wrong."""
    text = str(error)
    is_damaged = any(sign in error_classes(error) or sign in text for sign in _DAMAGED)
    if is_damaged or re.search(r"Checksum error: .*/_delta_log/", text):
        refuse_log(path, error)


def refuse_log(path: str, error: Exception | None = None) -> NoReturn:
    """Say that the log of the table in a folder is not whole."""
    raise LakehouseError(
        f"{path}: files of the table's log are missing or cut off, as when a folder is copied "
        "while it is written to; bring it back from a copy, or copy it again as a whole"
    ) from error


def _refuse(spec: TableSpec, error: Exception) -> None:
    """Say which constraint a row broke, if that is what is wrong."""
    text = str(error)
    null = re.search(rf"CHECK constraint (\w+){_IS_GIVEN} ", text)
    broken = re.search(r"CHECK constraint (\w+) ", text)
    if null is not None:
        what = f"lacks {null.group(1)}"
    elif broken is not None:
        condition = dict(spec.constraints).get(broken.group(1), broken.group(1))
        what = f"breaks the constraint {broken.group(1)}: {condition}"
    else:
        return
    raise LakehouseError(
        f"{spec.name}: a row {what}; nothing was written. Please report this with what --verbose "
        "shows"
    ) from error


def error_classes(error: BaseException) -> set[str]:
    """Return the error classes of Spark and Delta that an error and its causes have.

    Those of Delta are made of words: ``DELTA_TRUNCATED_TRANSACTION_LOG``.
    """
    found = set()
    if isinstance(error, PySparkException):
        found.add(error.getCondition())
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause is not None:
            try:
                found.add(cause.getErrorClass())
            except Py4JError:  # an exception of Java's own has no class of errors
                found.add(cause.getClass().getSimpleName())
            cause = cause.getCause()
    return {name for name in found if name}

"""Makes, reads and writes the Delta tables of one lakehouse.

Each write names an application and a version (Delta's ``txnAppId`` and ``txnVersion``, kept in the
table's own log, in the same commit as the rows): a write that is tried again is done once.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import time
import uuid
from functools import cached_property, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from schemas.columns import ArrayOf, Primitive, arrow_schema
from schemas.tables import FORMAT_VERSION
from storage.conditions import Met, for_arrow, for_spark, in_file, in_range, narrowed
from storage.errors import ConflictError, LakehouseError
from storage.files import path_of, read_where, texts_of, write_batches, write_files
from storage.log import Selection, damaged, make, opened, with_schema

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, SparkSession

    from schemas.columns import Column as DeclaredColumn
    from schemas.columns import ColumnType
    from schemas.tables import TableSpec
    from storage.conditions import Test, Where
    from storage.files import DataFile
    from storage.log import Log

# Of Delta's errors, and of those of the reader of its log.
_OF_A_DAMAGED_LOG = (
    *("DELTA_VERSIONS_NOT_CONTIGUOUS", "DELTA_TRUNCATED_TRANSACTION_LOG"),
    *("DELTA_LOG_FILE_NOT_FOUND", "DELTA_STATE_RECOVER_ERROR", "DELTA_MISSING_PART_FILES"),
    *("MALFORMED_RECORD_IN_PARSING", "JsonParseException", "JsonEOFException"),
)
_FORMAT_PROPERTY = "groupledger.format"
# A write that others come before looks at what they wrote, and tries again.
_TRIES = 20
# delta-rs decodes what looks encoded, and takes a backslash for a slash.
_MISTAKEN = r"%[0-9A-Fa-f]{2}|\\"
# What is read here whole, whatever is asked of it.
_SMALL_BYTES = 2**20
_SMALL_FILES = 200
# Of more, Delta's log knows better than a list which to open.
_MANY_FILES = 1_000
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


def spark_schema(columns: Iterable[DeclaredColumn], required: Collection[str] = ()) -> T.StructType:
    """Give Spark's type of rows of `columns`, their comments with them."""
    return T.StructType(
        [
            T.StructField(c.name, _spark_type(c.type), c.name not in required, _comment(c))
            for c in columns
        ]
    )


def _comment(declared: DeclaredColumn) -> dict[str, str]:
    return {"comment": declared.comment}


def _spark_type(declared: ColumnType) -> T.DataType:
    if isinstance(declared, Primitive):
        return _PRIMITIVES[declared.name]
    if isinstance(declared, ArrayOf):
        return T.ArrayType(_spark_type(declared.element))
    return spark_schema(declared.columns)


class Lakehouse:
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
        # By table, the state of its log that was looked at last, and its rows as they were read.
        self._held: dict[str, tuple[tuple[str, int], DataFrame | None]] = {}

    def of(self, cluster: str) -> Lakehouse:
        """Give the tables as another cluster's jobs see them."""
        return Lakehouse(self.spark, self.root, cluster)

    def path(self, spec: TableSpec) -> str:
        """Give the folder of a table."""
        return f"{self.root}/{spec.name.replace('.', '/')}"

    def exists(self, spec: TableSpec) -> bool:
        """Tell whether a table has been made.

        Raises:
            LakehouseError: it was made by a release whose layout this one does not know.
        """
        if spec.name not in self._known:
            properties = self._properties(spec)
            if properties is None:
                return False
            version = properties.get(_FORMAT_PROPERTY, "unknown")
            if version != str(FORMAT_VERSION):
                raise LakehouseError(
                    f"{self.path(spec)} has lakehouse format {version}, this release of "
                    f"groupledger knows format {FORMAT_VERSION}: use the release that wrote it, or "
                    "another --lakehouse"
                )
            self._known.add(spec.name)
        return True

    def _properties(self, spec: TableSpec) -> dict[str, str] | None:
        """Give the properties of a table; None if it has not been made."""
        if self.local_root is not None:
            log = self._local_log(spec)
            return None if log is None else log.configuration
        snapshot = self.snapshot(spec)
        if snapshot.version() < 0:
            return None
        return dict(json.loads(snapshot.metadata().json())["metaData"]["configuration"])

    def ensure(self, spec: TableSpec) -> None:
        """Make a table unless it is there."""
        if self.exists(spec):
            return
        try:
            self._make(spec)
        except Exception:
            # Another run may have made it at the same moment, which Delta has several errors for.
            if not self.exists(spec):
                raise
        self._known.add(spec.name)

    def read(self, spec: TableSpec) -> DataFrame:
        """Read this cluster's rows of a table; none if the table has not been made.

        A column that the table lacks, since an older release made it, is null; one that only a
        newer release knows is left out.
        """
        schema = spark_schema(spec.columns)
        if not self.exists(spec):
            return self.spark.createDataFrame([], schema)
        here = self._read_here(spec)
        if here is not None:
            return here
        rows = self.spark.read.format("delta").load(self.path(spec))
        lacking = [f for f in schema.fields if f.name not in rows.columns]
        rows = rows.withColumns({f.name: F.lit(None).cast(f.dataType) for f in lacking})
        return rows.where(F.col("cluster") == self.cluster).select(*schema.names)

    def _read_here(self, spec: TableSpec) -> DataFrame | None:
        """Read this cluster's rows of a table on this disk, as what its log says is in its files.

        Delta begins each first look at a table with queries of its log, in a JVM that has still to
        compile them: eight tables took 27 s that way, and 8 s this way. Few rows are read at once:
        of rows that it is given, Spark often has the answer before it starts a task.
        """
        if self.local_root is None:
            return None
        log = self._there(spec)
        state, rows = self._held.get(spec.name, (("", -1), None))
        if state != log.state:
            rows = None if log.marks_rows_deleted else self._rows_in(spec, log)
            self._held[spec.name] = (log.state, rows)
        return rows

    def _rows_in(self, spec: TableSpec, log: Log) -> DataFrame | None:
        files = log.files({"cluster": self.cluster})
        schema = spark_schema(spec.columns)
        is_small = sum(file["size_bytes"] for file in files) <= _SMALL_BYTES
        if is_small and len(files) <= _SMALL_FILES:
            return self.spark.createDataFrame(_rows_of(spec, files), schema)
        folder = self._folder(spec)
        paths = [file["path"] for file in files]
        placed = [
            str(folder / path_of(texts_of(file["partition"])) / Path(file["path"]).name)
            for file in files
        ]
        if len(files) > _MANY_FILES or paths != placed:
            return None
        reader = self.spark.read.schema(schema).option("basePath", str(folder))
        # As Delta has it: a name is not a pattern, whatever is in it.
        rows = reader.option("__globPaths__", "false").parquet(*paths)
        return rows.select(*schema.names)

    def rows(self, spec: TableSpec, columns: Sequence[str], where: Where = ()) -> pa.Table:
        """Read rows of this cluster to here, on this disk without asking Spark.

        Args:
            spec: the table; one that was not made has no rows.
            columns: what to read; null where a table of an earlier release lacks them.
            where: what the rows meet.
        """
        selected = self.selection(spec, columns, where)
        if selected is not None:
            return selected.read()
        found = self.read(spec).where(for_spark(where)).select(*columns).toArrow()
        return with_schema(found, _schema_of(spec, columns))

    def count(self, spec: TableSpec, where: Where) -> int:
        """Count rows of this cluster that meet a condition, on this disk without asking Spark."""
        tested = {name for tests in where for name, _, _ in tests} or {spec.columns[-1].name}
        selected = self.selection(spec, sorted(tested), where)
        if selected is not None:
            return sum(part.num_rows for part in selected.parts())
        return self.read(spec).where(for_spark(where)).count()

    def selection(
        self, spec: TableSpec, columns: Sequence[str], where: Where = ()
    ) -> Selection | None:
        """Select rows of this cluster for tasks to read, see `rows`; None if only Spark can."""
        if self.local_root is None:
            return None
        schema = _schema_of(spec, columns)
        if not self.exists(spec):
            return Selection(str(self._folder(spec)), None, schema, where)
        log = self._there(spec)
        if log.marks_rows_deleted:
            return None
        return log.selection(schema, narrowed(where, [("cluster", "==", self.cluster)]))

    def last_write(self, spec: TableSpec, application: str) -> int:
        """Give the version of this cluster's last write of `application` to a table, or -1."""
        if not self.exists(spec):
            return -1
        name = self._application(application)
        if self.local_root is not None:
            return self._there(spec).last_write(name)
        version = self.snapshot(spec).transactions().get(name)
        return int(version.get()) if version.isDefined() else -1

    @cached_property
    def local_root(self) -> str | None:
        """The lakehouse's folder if it is on a disk that all tasks share with this process.

        None also for a path that delta-rs takes for another one, so that Spark does all there.
        """
        if not str(self.spark.sparkContext.master).startswith("local"):
            return None
        jvm: Any = self.spark._jvm  # noqa: SLF001
        configuration = self.spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001
        root = jvm.org.apache.hadoop.fs.Path(self.root)
        url = root.getFileSystem(configuration).makeQualified(root).toUri()
        path = str(url.getPath()) if url.getScheme() == "file" else None
        return None if path is None or re.search(_MISTAKEN, path) else path

    def _local_log(self, spec: TableSpec) -> Log | None:
        return opened(self._folder(spec))

    def _folder(self, spec: TableSpec) -> Path:
        return Path(self.local_root or "", *spec.name.split("."))

    def _there(self, spec: TableSpec) -> Log:
        """Read the log of a table that was made.

        Raises:
            LakehouseError: it is gone.
        """
        log = self._local_log(spec)
        if log is None:
            raise LakehouseError(f"{self.path(spec)} is gone, while a run needs it: start it again")
        return log

    def counts(self, specs: Iterable[TableSpec], condition: Column) -> dict[str, int]:
        """Count the rows of some tables that meet a condition, in one query.

        Returns:
            By name of the table, those without such a row left out.
        """
        parts = [
            self.read(spec).where(condition).select(F.lit(spec.name).alias("name"))
            for spec in specs
            if self.exists(spec)
        ]
        if not parts:
            return {}
        rows = reduce(DataFrame.unionByName, parts).groupBy("name").count().collect()
        return {row["name"]: row["count"] for row in rows}

    def append(self, spec: TableSpec, rows: DataFrame, application: str, version: int) -> bool:
        """Append rows to a table, once for each `version` of `application`.

        A write whose version, or a later one, is there already does nothing.

        Returns:
            False if another run's write was seen to come first; what was to be written is there.
        """
        if self.last_write(spec, application) >= version:
            return False
        root = self.local_root
        if root is not None:
            return self.add(spec, self._write_files(spec, rows, root), application, version)
        self.ensure(spec)
        try:
            self._write(spec, rows, application, version, note="")
        except ConflictError:
            return False
        return True

    def append_rows(
        self,
        spec: TableSpec,
        rows: pa.Table | list[dict[str, object]],
        application: str,
        version: int,
    ) -> bool:
        """Append rows that are here, not in Spark; see `append`.

        Args:
            spec: the table.
            rows: its columns but for the cluster, or rows of them by name.
            application: see `append`.
            version: see `append`.
        """
        if self.last_write(spec, application) >= version:
            return False
        if isinstance(rows, list):
            rows = pa.Table.from_pylist(rows, arrow_schema(spec.of_cluster))
        root = self.local_root
        if root is None:
            given = self.spark.createDataFrame(rows, spark_schema(spec.of_cluster))
            return self.append(spec, given, application, version)
        files = write_batches(spec, root, self.cluster, rows.to_batches())
        return self.add(spec, files, application, version)

    def add(
        self,
        spec: TableSpec,
        files: Collection[DataFile],
        application: str,
        version: int,
        *,
        instead_of: Where | None = None,
    ) -> bool:
        """Make files in the table's folder part of it, once for each `version` of `application`.

        Args:
            spec: the table.
            files: what its rows are in.
            application: see `append`.
            version: see `append`.
            instead_of: which rows of this cluster they take the place of.

        Returns:
            False if another run's write was seen to come first; what was to be added is there.

        Raises:
            LakehouseError: others write to the table all the time.
        """
        self.ensure(spec)
        self._widen(spec)
        name = self._application(application)
        for _ in range(_TRIES):
            log = self._there(spec)
            if log.last_write(name) >= version:
                return False
            replaced, parted = self._replaced(log, instead_of)
            kept = self._kept(spec, parted, instead_of or ())
            if log.add([*files, *kept], name, version, replaced):
                return True
        raise LakehouseError(
            f"{self.path(spec)}: other writes came first {_TRIES} times; nothing was written. Let "
            "one run end before the next starts"
        )

    def _replaced(
        self, log: Log, where: Where | None
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Give the files with rows that meet a condition, and those that have others, too."""
        if where is None:
            return [], []
        met = [(file, in_file(file, where)) for file in log.files({"cluster": self.cluster})]
        replaced = [file for file, how in met if how is not Met.BY_NONE]
        return replaced, [file for file, how in met if how is Met.BY_SOME]

    def add_first(
        self, spec: TableSpec, files: Collection[DataFile], application: str, version: int
    ) -> int:
        """Make files part of a table if nobody else has written this `version` of `application`.

        Returns:
            The number of their rows.

        Raises:
            ConflictError: somebody has; the files are no part of the table.
        """
        if not self.add(spec, files, application, version):
            raise ConflictError(_conflict(application, self.cluster))
        return sum(file.records for file in files)

    def local_files(self, spec: TableSpec, column: str, after: int, to: int) -> list[str] | None:
        """Name the files on this disk that may have rows of this cluster with `column` in a range.

        Args:
            spec: a table.
            column: one of its columns of whole numbers.
            after: the range begins behind this.
            to: the range ends with this.

        Returns:
            As `local_files_of`; also None if the table was not made.
        """
        files = self.logged_files(spec) if self.exists(spec) else None
        if files is None:
            return None
        where = [in_range(column, after, to)]
        return [file["path"] for file in files if in_file(file, where) is not Met.BY_NONE]

    def local_files_of(
        self, spec: TableSpec, values: Mapping[str, str] | None = None
    ) -> list[str] | None:
        """Name the files on this disk that have this cluster's rows of a table.

        Args:
            spec: a table; there are no files of one that was not made.
            values: of its partitions beside the cluster's, those to look into.

        Returns:
            None if the table is not on a disk that driver and tasks share, or if Delta marks rows
            of a file as deleted, which only Spark sees.
        """
        files = self.logged_files(spec, values)
        return None if files is None else [file["path"] for file in files]

    def logged_files(
        self, spec: TableSpec, values: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]] | None:
        """Give what the log says of the files that `local_files_of` names, see `Log.files`."""
        if self.local_root is None:
            return None
        if not self.exists(spec):
            return []
        log = self._there(spec)
        if log.marks_rows_deleted:
            return None
        return log.files({"cluster": self.cluster, **(values or {})})

    def _widen(self, spec: TableSpec) -> None:
        """Give a table that an earlier release made the columns that it lacks."""
        wanted = spark_schema(spec.columns)
        held = T.StructType.fromJson(json.loads(self._there(spec).schema_json))
        if not _holds(held, wanted):
            nothing = self.spark.createDataFrame([], wanted)
            writer = nothing.write.format("delta").mode("append").option("mergeSchema", "true")
            writer.save(self.path(spec))

    def _make(self, spec: TableSpec) -> None:
        """Make a table without rows; if it is there, do nothing, or raise one of several errors."""
        schema = spark_schema(spec.columns, spec.required).json()
        properties = {
            _FORMAT_PROPERTY: str(FORMAT_VERSION),
            "delta.dataSkippingStatsColumns": ",".join(spec.skipping),
            **{f"delta.constraints.{name}": sql for name, sql in spec.constraints},
        }
        if self.local_root is not None:
            make(
                self._folder(spec),
                schema,
                partitions=spec.partitions,
                description=spec.grain,
                properties=properties,
            )
            return
        transaction = self._log(spec).startTransaction()
        if transaction.readVersion() >= 0:
            return
        metadata = {
            "id": str(uuid.uuid4()),
            "description": spec.grain,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": list(spec.partitions),
            "configuration": properties,
            "createdTime": time.time_ns() // 1_000_000,
        }
        jvm: Any = self.spark._jvm  # noqa: SLF001
        delta = jvm.org.apache.spark.sql.delta
        action = delta.actions.Action.fromJson(json.dumps({"metaData": metadata}))
        transaction.updateMetadataForNewTable(action)
        operations = getattr(delta, "DeltaOperations$ManualUpdate$")
        nothing = jvm.PythonUtils.toSeq(jvm.java.util.ArrayList())
        transaction.commit(nothing, getattr(operations, "MODULE$"))

    def replace(
        self, spec: TableSpec, rows: DataFrame, where: Where, application: str, version: int
    ) -> None:
        """Put rows in the place of those of this cluster that meet a condition, in one commit.

        The rows themselves need not meet it. Done once for each `version` of `application`.

        Args:
            spec: the table.
            rows: all that is to be there instead.
            where: the condition.
            application: see `append`.
            version: see `append`.
        """
        root = self.local_root
        if root is not None and not self._marks_rows_deleted(spec):
            files = self._write_files(spec, rows, root)
            self.add(spec, files, application, version, instead_of=where)
            return
        self.ensure(spec)
        condition = f"cluster = {sql_text(self.cluster)} AND ({_sql(where)})"
        options = {"replaceWhere": condition, "txnAppId": self._application(application)}
        options |= {"txnVersion": str(version), "mergeSchema": "true"}
        writer = self._with_cluster(spec, rows).write.format("delta").mode("overwrite")
        try:
            writer.options(**options).save(self.path(spec))
        except Exception as error:
            if "ConcurrentTransactionException" in str(error):
                return
            _refuse(spec, error)
            raise

    def replace_rows(
        self, spec: TableSpec, rows: pa.Table, where: Where, application: str, version: int
    ) -> None:
        """Put rows that are here, not in Spark, in the place of others; see `replace`.

        Args:
            spec: the table.
            rows: its columns but for the cluster.
            where: see `replace`.
            application: see `replace`.
            version: see `replace`.
        """
        if self.local_root is None or self._marks_rows_deleted(spec):
            given = self.spark.createDataFrame(rows, spark_schema(spec.of_cluster))
            self.replace(spec, given, where, application, version)
            return
        files = write_batches(spec, self.local_root, self.cluster, rows.to_batches())
        self.add(spec, files, application, version, instead_of=where)

    def _marks_rows_deleted(self, spec: TableSpec) -> bool:
        return self.exists(spec) and self._there(spec).marks_rows_deleted

    def _kept(
        self, spec: TableSpec, files: Collection[dict[str, Any]], where: Where
    ) -> list[DataFile]:
        """Write the rows of files once more that do not meet a condition."""
        if not files or self.local_root is None:
            return []
        is_met = pc.coalesce(for_arrow(where), pc.scalar(False))  # noqa: FBT003
        rows = _rows_of(spec, files).filter(~is_met).drop_columns(["cluster"])
        return write_batches(spec, self.local_root, self.cluster, rows.to_batches())

    def append_first(self, spec: TableSpec, rows: DataFrame, application: str, version: int) -> int:
        """Append rows to a table if nobody else has written this `version` of `application`.

        Returns:
            The number of rows that were written; -1 if Delta does not say.

        Raises:
            ConflictError: somebody has; nothing was written.
        """
        root = self.local_root
        if root is not None:
            files = self._write_files(spec, rows, root)
            return self.add_first(spec, files, application, version)
        self.ensure(spec)
        before = self.snapshot(spec).version()
        note = f"{application} {version} {uuid.uuid4()}"
        self._write(spec, rows, application, version, note=note)
        # Delta passes over a version that it has seen without saying so.
        for action in self._actions_since(spec, before):
            info = action.get("commitInfo", {})
            if info.get("userMetadata") == note:
                return int(info.get("operationMetrics", {}).get("numOutputRows", -1))
        raise ConflictError(_conflict(application, self.cluster))

    def _actions_since(self, spec: TableSpec, version: int) -> Iterator[dict[str, Any]]:
        """Read what was committed behind a version of a table; DESCRIBE HISTORY takes longer."""
        none = self.spark._jvm.scala.Option.empty()  # type: ignore[union-attr]  # noqa: SLF001
        commits = self._log(spec).getChanges(version + 1, none, False)  # noqa: FBT003
        while commits.hasNext():
            actions = commits.next()._2().iterator()  # noqa: SLF001 - a Scala tuple
            while actions.hasNext():
                yield json.loads(actions.next().json())

    def _write(
        self, spec: TableSpec, rows: DataFrame, application: str, version: int, *, note: str
    ) -> None:
        writer = self._with_cluster(spec, rows).write.format("delta").mode("append")
        options = {
            "txnAppId": self._application(application),
            "txnVersion": str(version),
            # A later release may have added columns.
            "mergeSchema": "true",
        }
        if note:
            options["userMetadata"] = note
        try:
            writer.options(**options).save(self.path(spec))
        except Exception as error:
            if "ConcurrentTransactionException" in str(error):
                raise ConflictError(_conflict(application, self.cluster)) from error
            _refuse(spec, error)
            raise

    def _write_files(self, spec: TableSpec, rows: DataFrame, root: str) -> list[DataFile]:
        """Write rows into files that Delta does not see, so that what it enforces is asked here."""
        for name, condition in spec.constraints:
            # As Delta takes it: what is not known to be false holds.
            holds = F.coalesce(F.expr(condition), F.lit(True))  # noqa: FBT003
            broken = F.assert_true(holds, f"CHECK constraint {name} violated")
            rows = rows.where(broken.isNull())
        try:
            return write_files(
                rows.select(*(c.name for c in spec.of_cluster)), spec, root, self.cluster
            )
        except Exception as error:
            _refuse(spec, error)
            raise

    def _with_cluster(self, spec: TableSpec, rows: DataFrame) -> DataFrame:
        columns = [F.lit(self.cluster).alias("cluster")]
        columns += [F.col(c.name) for c in spec.of_cluster]
        return rows.select(*columns)

    def snapshot(self, spec: TableSpec) -> Any:  # noqa: ANN401 - a Scala object
        """Read the newest state of a table's log; its version is -1 if there is no table.

        Raises:
            LakehouseError: the log has a gap, or a commit that cannot be read.
        """
        none = self.spark._jvm.scala.Option.empty()  # type: ignore[union-attr]  # noqa: SLF001
        try:
            return self._log(spec).update(False, none, none)  # noqa: FBT003
        except Exception as error:
            _refuse_damaged(self.path(spec), error)
            raise

    def _log(self, spec: TableSpec) -> Any:  # noqa: ANN401 - a Scala object
        """Give a table's log.

        Delta shows a table's transactions to Scala only, and this asks less of Spark than SQL.
        """
        jvm: Any = self.spark._jvm  # noqa: SLF001
        session = self.spark._jsparkSession  # noqa: SLF001
        # Delta looks for it in the JVM's thread, which a thread of Python's has one of its own of.
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session)
        return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session, self.path(spec))

    def _application(self, application: str) -> str:
        return f"groupledger/{application}/{self.cluster}"


def _rows_of(spec: TableSpec, files: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Read files of a table, as its log tells of them; give its columns in their order."""
    schema = arrow_schema(spec.columns)
    in_files = arrow_schema(spec.in_files)
    parts = [pa.Table.from_pylist([], schema)]
    for file in files:
        rows = read_where([file["path"]], in_files)
        for name in spec.partitions:
            value = pa.scalar(file["partition"][name], schema.field(name).type)
            rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
        parts.append(rows.select(schema.names))
    return pa.concat_tables(parts)


def _schema_of(spec: TableSpec, columns: Sequence[str]) -> pa.Schema:
    declared = arrow_schema(spec.columns)
    return pa.schema([declared.field(name) for name in columns])


def _holds(held: T.DataType, wanted: T.DataType) -> bool:
    """Tell whether a type has all columns of another, those in structs among them."""
    if isinstance(held, T.ArrayType) and isinstance(wanted, T.ArrayType):
        return _holds(held.elementType, wanted.elementType)
    if isinstance(held, T.StructType) and isinstance(wanted, T.StructType):
        types = {f.name: f.dataType for f in held}
        return all(f.name in types and _holds(types[f.name], f.dataType) for f in wanted)
    return True


def sql_literal(text: str) -> str:
    """Give an SQL string literal, for where SQL takes no expression."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def sql_text(text: str) -> str:
    """Give an SQL expression of any text, whatever is in it."""
    return f"decode(unhex('{text.encode().hex()}'), 'UTF-8')" if text else "''"


def _sql(where: Where) -> str:
    """Write a condition in SQL, for where Spark takes nothing else."""
    return " OR ".join(" AND ".join(map(_sql_test, tests)) for tests in where) or "true"


def _sql_test(test: Test) -> str:
    name, operator, value = test
    if operator == "is null":
        return f"{name} IS NULL"
    if operator == "in":
        return f"{name} IN ({', '.join(map(_sql_value, value))})"
    return f"{name} {operator} {_sql_value(value)}"


def _sql_value(value: object) -> str:
    if isinstance(value, str):
        return sql_text(value)
    if isinstance(value, dt.datetime):
        return f"timestamp_micros({round(value.timestamp() * 1_000_000)})"
    return str(value).lower()


def _refuse_damaged(path: str, error: Exception) -> None:
    """Say that a table's log is not whole, if that is what is wrong."""
    if any(sign in str(error) for sign in _OF_A_DAMAGED_LOG):
        raise LakehouseError(damaged(path)) from error


def _refuse(spec: TableSpec, error: Exception) -> None:
    """Say which constraint a row broke, if that is what is wrong."""
    text = str(error)
    null = re.search(r"(?:NOT NULL constraint violated for column:| a row lacks) (\w+)", text)
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


def _conflict(application: str, cluster: str) -> str:
    return (
        f"another {application} of cluster {cluster} was faster and has done this work; this one "
        "wrote nothing. Let one run end before the next starts"
    )

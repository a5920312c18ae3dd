"""SQL over the tables of a lakehouse, in Spark's dialect: by DuckDB for tables on this disk.

Users run the same SQL by Spark, which is the only one elsewhere. For the few rows of an hour, most
of Spark's time goes into planning and compiling a query.
"""

from __future__ import annotations

import glob
import re
import tempfile
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp

from schemas.columns import ArrayOf, StructOf, arrow_schema
from schemas.tables import all_tables
from storage.files import refuse_damaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from schemas.tables import TableSpec
    from storage.tables import Lakehouse

_TABLE = re.compile(r"\b(?:bronze|silver|gold|dq)\.\w+\b(?!')")
_VIEW = "queried_"
# Each query is of few rows, and most of its time is Spark's planning.
_AT_ONCE = 3
# Beside what Spark's JVM and workers have; more than this goes to the disk.
_MEMORY = "1GB"

Rows: TypeAlias = "list[dict[str, Any]]"


class Queries(ABC):
    """Answers SQL over this cluster's rows of some tables."""

    @abstractmethod
    def tables(self, queries: Sequence[str]) -> list[pa.Table]:
        """Give the rows of each query.

        Raises:
            LakehouseError: a file cannot be read.
        """

    def answers(self, queries: Sequence[str]) -> list[Rows]:
        """Give the rows of each query, by name; times are of UTC, without a zone; see `tables`."""
        return [_plain(rows) for rows in self.tables(queries)]


@contextmanager
def queries_of(lakehouse: Lakehouse, specs: Iterable[TableSpec]) -> Iterator[Queries]:
    """Let SQL ask for rows of tables by their names; one that was not made has none."""
    specs = list(specs)
    files = [(spec, lakehouse.logged_files(spec)) for spec in specs]
    if any(logged is None for _, logged in files):
        yield SparkQueries(lakehouse, specs)
        return
    with tempfile.TemporaryDirectory(prefix="groupledger-") as folder:
        threads = lakehouse.spark.sparkContext.defaultParallelism
        settings = {
            "TimeZone": "UTC",
            "threads": threads,
            "memory_limit": _MEMORY,
            "temp_directory": folder,
            "autoinstall_known_extensions": False,
        }
        with duckdb.connect() as connection:
            for name, value in settings.items():
                connection.execute(f"SET {name} = {_literal(str(value))}")
            try:
                for spec, logged in files:
                    create_view(connection, spec, logged or [])
                yield DuckDBQueries(connection, cache(lambda: SparkQueries(lakehouse, specs)))
            except duckdb.Error:
                # DuckDB seldom names the file that it cannot read.
                for path in (file["path"] for _, logged in files for file in logged or ()):
                    refuse_damaged(path)
                raise


def answers(lakehouse: Lakehouse, queries: Sequence[str]) -> list[Rows]:
    """Have some queries answered, see `Queries.answers` and `tables`."""
    return [_plain(rows) for rows in tables(lakehouse, queries)]


def tables(lakehouse: Lakehouse, queries: Sequence[str]) -> list[pa.Table]:
    """Have the tables that some queries name answer them; one that was not made has no rows.

    Raises:
        LakehouseError: a file cannot be read.
    """
    named = {name for query in queries for name in tables_of(query)}
    with queries_of(lakehouse, [all_tables()[name] for name in sorted(named)]) as asked:
        return asked.tables(queries)


def tables_of(sql: str) -> set[str]:
    """Name the tables that some SQL reads."""
    return set(_TABLE.findall(sql)) & all_tables().keys()


def on_views(sql: str, view: Callable[[str], str]) -> str:
    """Put views into the place of the tables that some SQL reads."""
    return _TABLE.sub(lambda name: view(name.group()), sql)


class SparkQueries(Queries):
    """Has Spark answer."""

    def __init__(self, lakehouse: Lakehouse, specs: Iterable[TableSpec]) -> None:
        self._spark: SparkSession = lakehouse.spark

        def show(spec: TableSpec) -> None:
            lakehouse.read(spec).createOrReplaceTempView(_view(spec.name))

        with ThreadPoolExecutor(_AT_ONCE) as pool:  # the first look at a table reads its log
            list(pool.map(show, specs))

    def tables(self, queries: Sequence[str]) -> list[pa.Table]:
        """Give the rows of each query."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(self._table, queries))

    def _table(self, query: str) -> pa.Table:
        return self._spark.sql(on_views(query, _view)).toArrow()


def _view(table: str) -> str:
    return _VIEW + table.replace(".", "_")


class DuckDBQueries(Queries):
    """Has DuckDB answer.

    Args:
        connection: has the tables in schemas of the names that they have in SQL.
        otherwise: what answers a query that DuckDB has not enough memory for: not all that it holds
            can go to the disk, and a row group of large groups takes as much as they do.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, otherwise: Callable[[], Queries]
    ) -> None:
        self._connection = connection
        self._otherwise = otherwise
        _add_functions(connection)

    def tables(self, queries: Sequence[str]) -> list[pa.Table]:
        """Give the rows of each query."""
        return [self._table(query) for query in queries]

    def _table(self, query: str) -> pa.Table:
        try:
            return self._connection.execute(in_duckdb(query)).to_arrow_table()
        except duckdb.OutOfMemoryException:
            return self._otherwise().tables([query])[0]


def _plain(rows: pa.Table) -> Rows:
    fields = [field.with_type(_without_zone(field.type)) for field in rows.schema]
    return list(rows.cast(pa.schema(fields)).to_pylist())


def _without_zone(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us")
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_zone(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_zone(field.type)) for field in kind])
    return kind


def in_duckdb(query: str) -> str:
    """Translate SQL from Spark's dialect into DuckDB's."""
    tree = sqlglot.parse_one(query, read="spark")
    for hint in list(tree.find_all(exp.Hint)):  # it is for Spark
        hint.pop()
    return tree.transform(_translated, copy=False).sql("duckdb", copy=False)


def _translated(node: exp.Expr) -> exp.Expr:
    """Translate what sqlglot leaves as it is."""
    if isinstance(node, exp.Encode):
        return exp.func("encode_as", node.this, node.args["charset"])
    # A field of all structs in an array, which Spark writes as if it were one struct's.
    if isinstance(node, exp.Column) and node.table in _arrays_of_structs():
        element, field = exp.to_identifier("element"), exp.to_identifier(node.name)
        of_one = exp.Lambda(this=exp.Dot(this=element, expression=field), expressions=[element])
        return exp.Transform(this=exp.column(node.table), expression=of_one)
    return node


@cache
def _arrays_of_structs() -> set[str]:
    return {
        column.name
        for spec in all_tables().values()
        for column in spec.columns
        if isinstance(column.type, ArrayOf) and isinstance(column.type.element, StructOf)
    }


def _add_functions(connection: duckdb.DuckDBPyConnection) -> None:
    """Add the functions of Spark that our SQL uses and DuckDB lacks."""
    connection.create_function(
        "encode_as", lambda text, charset: text.encode(charset), ["VARCHAR", "VARCHAR"], "BLOB"
    )
    connection.execute(
        "CREATE MACRO try_parse_json(text) AS if(json_valid(text), text, NULL);"
        "CREATE MACRO conv(digits, of_base, to_base) AS CAST('0x' || digits AS BIGINT)"
    )


def create_view(
    connection: duckdb.DuckDBPyConnection, spec: TableSpec, files: Iterable[Mapping[str, Any]]
) -> None:
    """Make a view of a table; null stands for columns that an older release did not write."""
    layer, name = spec.name.split(".")
    # As a table of DuckDB's own: what joins know of their keys cannot be asked of Arrow's.
    none = f"none_of_{layer}_{name}"
    connection.register("none", arrow_schema(spec.columns).empty_table())
    connection.execute(f"CREATE TABLE {none} AS SELECT * FROM none")  # noqa: S608
    connection.unregister("none")
    placed: dict[str, list[str]] = {}
    for file in files:
        values = (f"{_literal(value)} AS {name}" for name, value in file["partition"].items())
        # A name is not a pattern, whatever is in it.
        placed.setdefault(", ".join(values), []).append(_literal(glob.escape(file["path"])))
    # Some writers leave what the log says of all rows in the file, too.
    own = f"COLUMNS(lambda name: name NOT IN ({', '.join(map(_literal, spec.partitions))}))"
    parts = [
        f"SELECT {values}, {own} FROM read_parquet([{', '.join(paths)}], union_by_name = true,"  # noqa: S608
        " hive_partitioning = false)"
        for values, paths in placed.items()
    ]
    rows = " UNION ALL BY NAME ".join([f"SELECT * FROM {none}", *parts])  # noqa: S608
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {layer}; CREATE VIEW {spec.name} AS {rows}")


def _literal(value: object) -> str:
    return str(value) if isinstance(value, bool) else "'" + str(value).replace("'", "''") + "'"

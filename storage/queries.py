"""SQL over this cluster's rows of the tables of a lakehouse."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from schemas.columns import in_millis
from schemas.placement import JAVA_HASH
from schemas.tables import all_tables
from storage.tables import Tables, sql_text

Ask: TypeAlias = "Callable[[Mapping[str, str], Mapping[str, Any]], dict[str, pa.Table]]"
"""Answers queries over the tables by name; `:name` in them stands for a value, or for several.

The queries are SQL that Spark and DuckDB both know, with functions by Spark's names, and
`java_hash(text)`. Times of the answers are epoch milliseconds. The value `pattern` is a regular
expression, as Java has them.
"""

_TABLE = re.compile(r"\b(?:bronze|silver|gold|dq)\.\w+\b(?!')")
_VALUE = re.compile(r":([a-z][a-z0-9]*)\b")
_VIEW = "queried_"
# Each query gives few rows, and most of its time is Spark's planning.
_AT_ONCE = 3


def rows_by(
    ask: Ask,
    queries: Mapping[str, str],
    **values: Any,  # noqa: ANN401 - as `Ask` has them
) -> dict[str, list[dict[str, Any]]]:
    """Return what answers some queries, as rows by the names of their columns."""
    return {name: rows.to_pylist() for name, rows in ask(queries, values).items()}


def by_spark(tables: Tables) -> Ask:
    """Return what has Spark answer queries with few rows each, all in a few jobs side by side."""

    def answers(queries: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, pa.Table]:
        show(tables, tables_of(*queries.values()))
        if any("java_hash(" in query for query in queries.values()):
            tables.spark.sql(
                "CREATE OR REPLACE TEMPORARY FUNCTION java_hash(text STRING) RETURNS BIGINT"
                f" RETURN {JAVA_HASH.format('text')}"
            )
        sql = [
            (name, with_values(on_views(query, view_of), values)) for name, query in queries.items()
        ]
        parts = [dict(sql[number::_AT_ONCE]) for number in range(min(_AT_ONCE, len(sql)))]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = pool.map(partial(_in_one_job, tables.spark), parts)
        return {name: rows for part in found for name, rows in part.items()}

    return answers


def _in_one_job(spark: SparkSession, queries: Mapping[str, str]) -> dict[str, pa.Table]:
    parts = [_tagged(name, spark.sql(query)) for name, query in queries.items()]
    one = reduce(lambda held, part: held.unionByName(part, allowMissingColumns=True), parts)
    found = one.toArrow()
    return {
        name: in_millis(_rows(found.filter(pc.equal(found["question"], name))[name]))
        for name in queries
    }


def _tagged(name: str, rows: DataFrame) -> DataFrame:
    """Return rows as structs, which are null beside the rows of another question."""
    kind = T.StructType([T.StructField(field.name, field.dataType) for field in rows.schema])
    return rows.select(F.lit(name).alias("question"), F.struct("*").cast(kind).alias(name))


def _rows(structs: pa.ChunkedArray) -> pa.Table:
    held = structs.combine_chunks()
    return pa.Table.from_arrays(held.flatten(), names=[field.name for field in held.type])


def show(tables: Tables, names: Iterable[str]) -> None:
    """Make temporary views of tables, by the names of `view_of`."""
    for name in sorted(names):
        tables.read(all_tables()[name]).createOrReplaceTempView(view_of(name))


def tables_of(*queries: str) -> set[str]:
    """Name the tables that some SQL reads."""
    return {name for sql in queries for name in _TABLE.findall(sql)} & all_tables().keys()


def on_views(sql: str, view: Callable[[str], str]) -> str:
    """Replace the tables that some SQL reads by views."""
    return _TABLE.sub(lambda name: view(name.group()), sql)


def bound(sql: str, values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return some SQL with DuckDB's parameters for values that it names as `:name`, and these."""
    used: dict[str, Any] = {}

    def parameters(name: re.Match[str]) -> str:
        value = values[name[1]]
        held = dict(enumerate(value)) if isinstance(value, list) else {"": value}
        own = {f"{name[1]}_{at}": one for at, one in held.items()}
        used.update(own)
        return ", ".join(f"${each}" for each in own) or "NULL"

    return _VALUE.sub(parameters, sql), used


def with_values(sql: str, values: Mapping[str, Any]) -> str:
    """Write values into some SQL, for Spark: with Delta's parser it binds none to their names."""
    return _VALUE.sub(lambda name: _literal(values[name[1]]), sql)


def _literal(value: str | int | dt.datetime | list[str]) -> str:
    if isinstance(value, list):
        return ", ".join(map(_literal, value)) or "NULL"
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    return sql_text(value) if isinstance(value, str) else str(value)


def view_of(table: str) -> str:
    """Name the temporary view of a table."""
    return _VIEW + table.replace(".", "_")

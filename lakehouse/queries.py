"""SQL over this cluster's rows of the tables of a lakehouse."""

from __future__ import annotations

import datetime as dt
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from lakehouse.tables import sql_text
from schemas.tables import all_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from lakehouse.tables import Lakehouse

_TABLE = re.compile(r"\b(?:bronze|silver|gold|dq)\.\w+\b(?!')")
_VALUE = re.compile(r":([a-z]+)\b")
_VIEW = "queried_"
# Each query is of few rows, and most of its time is Spark's planning.
_AT_ONCE = 3

Rows: TypeAlias = "list[dict[str, Any]]"


def answers(
    lakehouse: Lakehouse, queries: Sequence[str], given: Mapping[str, DataFrame] | None = None
) -> list[Rows]:
    """Return the rows of some queries, by name; times are of UTC, without a zone.

    Args:
        lakehouse: the tables that the queries name; one that was not made has no rows.
        queries: SQL.
        given: rows to be asked instead of some tables, by their names.
    """
    show(lakehouse, tables_of(*queries), given or {})
    asked = [on_views(query, view_of) for query in queries]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda query: lakehouse.spark.sql(query).toArrow(), asked)
        return [_plain(rows) for rows in found]


def show(lakehouse: Lakehouse, names: Iterable[str], given: Mapping[str, DataFrame]) -> None:
    """Make temporary views of tables, or of given rows of them, by the names of `view_of`."""
    for name in sorted(names):
        rows = given[name] if name in given else lakehouse.read(all_tables()[name])
        rows.createOrReplaceTempView(view_of(name))


def tables_of(*queries: str) -> set[str]:
    """Name the tables that some SQL reads."""
    return {name for sql in queries for name in _TABLE.findall(sql)} & all_tables().keys()


def on_views(sql: str, view: Callable[[str], str]) -> str:
    """Replace the tables that some SQL reads by views."""
    return _TABLE.sub(lambda name: view(name.group()), sql)


def values_of(sql: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of some values that some SQL names, as `:name`."""
    return {name: values[name] for name in _VALUE.findall(sql)}


def with_values(sql: str, values: Mapping[str, Any]) -> str:
    """Write values into some SQL, for Spark: with Delta's parser it binds none to their names."""
    return _VALUE.sub(lambda name: _literal(values[name[1]]), sql)


def _literal(value: str | int | dt.datetime) -> str:
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    return sql_text(value) if isinstance(value, str) else str(value)


def view_of(table: str) -> str:
    """Name the temporary view of a table."""
    return _VIEW + table.replace(".", "_")


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

"""Rows of several tables in one: a column names the table, a struct of that name has the row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from schemas.columns import Column, StructOf, arrow_schema, column


def tagged_columns(tables: Mapping[str, tuple[Column, ...]]) -> tuple[Column, ...]:
    """Return the columns of rows of some tables, which are given with their own columns."""
    return (
        column("table", "string", "Table that the row is of."),
        *(Column(name, StructOf(columns), f"A row of {name}.") for name, columns in tables.items()),
    )


def ddl(columns: Iterable[Column]) -> str:
    """Return the columns as Spark's DDL."""
    return ", ".join(f"`{c.name}` {c.type.sql()}" for c in columns)


def tagged(
    rows: Iterable[tuple[str, pa.RecordBatch]], columns: Iterable[Column]
) -> Iterator[pa.RecordBatch]:
    """Return batches of several tables, with their names, the columns of `tagged_columns`."""
    schema = arrow_schema(columns)
    for table, batch in rows:
        given = {
            "table": pa.repeat(table, batch.num_rows),
            table: pa.StructArray.from_arrays(batch.columns, names=batch.schema.names),
        }
        arrays = [
            given[f.name].cast(f.type) if f.name in given else pa.nulls(batch.num_rows, f.type)
            for f in schema
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)

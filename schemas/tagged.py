"""Rows of several tables in one: a column names a table, a list of that name has rows of it.

In Arrow a struct that is null takes what its columns take, and a list that is null next to nothing:
a struct for each table in each row was most of the bytes between Python and Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from schemas.columns import ArrayOf, Column, StructOf, arrow_schema, column

# Rows of a list at most: Spark holds a list as a whole.
_MOST_ROWS = 1_000


def tagged_columns(tables: Mapping[str, tuple[Column, ...]]) -> tuple[Column, ...]:
    """Return the columns of rows of some tables, which are given with their own columns."""
    return (
        column("table", "string", "Table that the rows are of."),
        column("rows", "int", "How many they are."),
        *(
            Column(name, ArrayOf(StructOf(columns)), f"Rows of {name}.")
            for name, columns in tables.items()
        ),
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
        bounds = np.append(np.arange(0, batch.num_rows, _MOST_ROWS), batch.num_rows)
        structs = pa.StructArray.from_arrays(batch.columns, names=batch.schema.names)
        lists = pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), structs)
        given = {
            "table": pa.repeat(table, len(lists)),
            "rows": pa.array(np.diff(bounds), pa.int32()),
            table: lists,
        }
        arrays = [
            given[f.name].cast(f.type) if f.name in given else pa.nulls(len(lists), f.type)
            for f in schema
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)

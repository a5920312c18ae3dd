"""SQL over the tables of a lakehouse on this machine, without Spark, which takes long to start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from lakehouse.queries import on_views, tables_of, values_of, view_of
from schemas.columns import arrow_schema, in_millis
from schemas.errors import GroupledgerError
from schemas.tables import all_tables

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow.dataset as ds

    from schemas.tables import TableSpec


class NeedsSparkError(GroupledgerError):
    """The tables cannot be read without Spark, which also says what is wrong with them."""


def answers_here(
    root: Path, cluster: str, queries: Mapping[str, str], values: Mapping[str, object]
) -> dict[str, pa.Table]:
    """Return the answers to some queries, in words that both Spark and DuckDB know.

    Args:
        root: the lakehouse.
        cluster: whose rows are asked.
        queries: SQL by name, over tables by their full names; one that was not made has no rows.
        values: what `:name` in a query stands for.

    Returns:
        The rows by the name of the query, times in epoch milliseconds.

    Raises:
        NeedsSparkError: a table has a feature that is not known here, as deletion vectors, or is
            damaged.
    """
    try:
        with duckdb.connect() as connection:
            for name in tables_of(*queries.values()):
                connection.register(view_of(name), _rows(root, cluster, all_tables()[name]))
            return {
                name: in_millis(
                    connection.execute(
                        on_views(query, view_of).replace(":", "$"), values_of(query, values)
                    ).to_arrow_table()
                )
                for name, query in queries.items()
            }
    except (DeltaError, duckdb.Error, pa.ArrowException, OSError) as error:
        raise NeedsSparkError(str(error)) from error


def _rows(root: Path, cluster: str, spec: TableSpec) -> pa.Table | ds.Dataset:
    schema, folder = arrow_schema(spec.columns), str(root / spec.name.replace(".", "/"))
    if not DeltaTable.is_deltatable(folder):
        return schema.empty_table()
    rows = DeltaTable(folder).to_pyarrow_dataset()
    # A column that an older release did not write is null.
    return rows.replace_schema(schema).filter(pc.field("cluster") == cluster)

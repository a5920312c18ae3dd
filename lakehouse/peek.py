"""Rows of a lakehouse of this machine, read without Spark, which takes many seconds to start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from schemas.columns import arrow_schema, in_millis

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from schemas.tables import TableSpec


def rows_in_files(
    root: Path, cluster: str, spec: TableSpec, columns: Iterable[str]
) -> pa.Table | None:
    """Return some columns of every row of a cluster that lies in a table's files.

    Delta's log is not asked which files count, so rows may be among them that the table no longer
    has. What is not found here is not in the table.

    Args:
        root: the lakehouse.
        cluster: whose rows.
        spec: the table; no rows, if it was never made.
        columns: names of columns, null in files of an older release that lack them.

    Returns:
        The rows, times in epoch milliseconds; None if a file cannot be read: a run that was killed
        left half of it, or `maintain` has just deleted it.
    """
    schema = arrow_schema(spec.columns)
    folder = root / spec.name.replace(".", "/")
    if not folder.is_dir():
        return in_millis(schema.empty_table().select([*columns]))
    try:
        files = ds.dataset(folder, schema=schema, format="parquet", partitioning="hive")
        rows = files.to_table([*columns], filter=pc.field("cluster") == cluster)
    except (OSError, pa.ArrowInvalid):
        return None
    return in_millis(rows)

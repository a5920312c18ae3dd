"""Reads a table with delta-rs and Arrow, without Spark: python read_with_deltalake.py LAKEHOUSE.

Needs `pip install deltalake pyarrow`.
"""

from __future__ import annotations

import sys

import pyarrow.compute as pc
from deltalake import DeltaTable


def main(lakehouse: str) -> None:
    """Print what is wrong, and what the first version of the table had."""
    table = DeltaTable(f"{lakehouse}/gold/anomalies")
    columns = ["severity", "kind", "group_id", "started_at", "summary"]
    found = table.to_pyarrow_table(columns=columns, filters=[("severity", "=", "critical")])
    for row in found.sort_by([("started_at", "ascending"), ("summary", "ascending")]).to_pylist():
        print(f"{row['started_at']:%H:%M:%S} {row['kind']} {row['summary']}")
    print(f"version {table.version()}, {pc.count(found['kind']).as_py()} critical")
    # A table as it was: by version, or by time with load_as_version(datetime).
    table.load_as_version(0)
    print(f"version {table.version()} had {table.to_pyarrow_dataset().count_rows()} rows")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "demo-lakehouse")

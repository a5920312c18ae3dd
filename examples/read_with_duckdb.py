"""Asks the tables with DuckDB, without Spark: python read_with_duckdb.py LAKEHOUSE.

Needs `pip install deltalake duckdb pyarrow`. deltalake finds the files of a table's newest version,
DuckDB reads from them what a query needs.
"""

from __future__ import annotations

import sys

import duckdb
from deltalake import DeltaTable

REBALANCES = """
SELECT group_id, cause, count(*) AS rebalances, sum(rebalance_ms) AS ms
FROM group_generations
WHERE join_started_at IS NOT NULL
GROUP BY group_id, cause
ORDER BY rebalances DESC, group_id, cause
LIMIT 5
"""
# Behind known_until it is not known who owned it, since records are missing.
OWNERS = """
SELECT group_id, CASE WHEN is_known THEN client_id END AS client_id,
  CASE WHEN is_known THEN generation END AS generation,
  CASE WHEN is_known THEN valid_from END AS since
FROM (
  SELECT *, known_until IS NULL OR known_until >= moment AS is_known
  FROM partition_owners, (SELECT TIMESTAMPTZ '2026-11-21 07:01:15Z' AS moment)
  WHERE topic = 'orders' AND topic_partition = 2
    AND valid_from <= moment AND (valid_to IS NULL OR valid_to > moment)
)
ORDER BY group_id
"""
# Members of a generation are a list in one row; here each is a row.
MEMBERS = """
SELECT generation, unnest(members).client_id AS client_id
FROM group_metadata
WHERE group_id = 'crash-loop' AND generation = 2
ORDER BY client_id
"""


def connect(lakehouse: str) -> duckdb.DuckDBPyConnection:
    """Open the tables that the questions are about, each by its own name."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name in ("gold/group_generations", "gold/partition_owners", "silver/group_metadata"):
        table = DeltaTable(f"{lakehouse}/{name}").to_pyarrow_dataset()
        connection.register(name.rpartition("/")[2], table)
    return connection


def main(lakehouse: str) -> None:
    """Ask, and print the answers."""
    connection = connect(lakehouse)
    for query in (REBALANCES, OWNERS, MEMBERS):
        connection.sql(query).show()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "demo-lakehouse")

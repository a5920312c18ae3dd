"""Asks the tables with Polars, without Spark: python read_with_polars.py LAKEHOUSE.

Needs `pip install deltalake polars`. Polars reads only the files and columns that a question needs.
"""

from __future__ import annotations

import datetime as dt
import sys

import polars as pl


def flapping_clients(lakehouse: str) -> pl.DataFrame:
    """Return the clients that joined a group more than twice, and how long their sessions were."""
    sessions = pl.scan_delta(f"{lakehouse}/gold/member_sessions")
    return (
        sessions.group_by("group_id", "client_id")
        .agg(
            pl.len().alias("sessions"),
            (pl.mean("duration_ms") / 1000).round(1).alias("mean_seconds"),
        )
        .filter(pl.col("sessions") > 2)  # noqa: PLR2004 - joined, restarted, and once more
        .sort("sessions", "group_id", "client_id", descending=[True, False, False])
        .collect()
    )


def committed_at(lakehouse: str, group_id: str, at: dt.datetime) -> pl.DataFrame:
    """Return what a group had committed at a time."""
    commits = pl.scan_delta(f"{lakehouse}/silver/offset_commits")
    return (
        commits.filter(pl.col("group_id") == group_id, pl.col("record_timestamp") <= at)
        .group_by("topic", "topic_partition")
        .agg(pl.col("committed_offset").sort_by("record_offset").last())
        .sort("topic", "topic_partition")
        .collect()
    )


def main(lakehouse: str) -> None:
    """Ask, and print the answers."""
    print(flapping_clients(lakehouse))
    at = dt.datetime(2026, 11, 21, 7, 2, tzinfo=dt.timezone.utc)
    print(committed_at(lakehouse, "crash-loop", at))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "demo-lakehouse")

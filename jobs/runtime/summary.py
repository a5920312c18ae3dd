"""What the lakehouse holds of a cluster, as tables that fit a terminal."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich import box
from rich.markup import escape
from rich.table import Table

from schemas.silver import silver_tables
from schemas.tables import COVERAGE, QUARANTINE, RECORDS, decoded_table

if TYPE_CHECKING:
    from jobs.runtime.runner import Run
    from storage.tables import Lakehouse

_SHOWN_GROUPS = 12
_MAX_NAME = 16


def show_summary(run: Run) -> None:
    """Print what the cluster's tables hold and what its busiest groups are."""
    run.out.print(_tables(run.lakehouse))
    run.out.print(_groups(run.lakehouse))
    for line in _remarks(run):
        run.out.print(line, markup=False, highlight=False)


def group_overview(commits: DataFrame, metadata: DataFrame, epochs: DataFrame) -> DataFrame:
    """Count what is known of each group.

    Args:
        commits: rows of silver.offset_commits.
        metadata: rows of silver.group_metadata.
        epochs: columns group_id and record_timestamp, a row for each group epoch of the new
            protocols.

    Returns:
        Columns group_id, generations, commits, members, first_at, last_at; the groups with most
        generations first.
    """
    parts = [
        commits.where(~F.col("is_tombstone")).select(
            "group_id",
            "record_timestamp",
            F.lit(1).alias("commit"),
            F.lit(None).cast("int").alias("generation"),
            F.lit(0).alias("member_count"),
        ),
        metadata.where(~F.col("is_tombstone")).select(
            "group_id",
            "record_timestamp",
            F.lit(0).alias("commit"),
            F.col("generation"),
            F.size("members").alias("member_count"),
        ),
        epochs.select(
            "group_id",
            "record_timestamp",
            F.lit(0).alias("commit"),
            F.col("epoch").alias("generation"),
            F.lit(0).alias("member_count"),
        ),
    ]
    rows = parts[0].unionByName(parts[1]).unionByName(parts[2])
    return (
        rows.groupBy("group_id")
        .agg(
            F.countDistinct("generation").alias("generations"),
            F.sum("commit").alias("commits"),
            F.max("member_count").alias("members"),
            F.min("record_timestamp").alias("first_at"),
            F.max("record_timestamp").alias("last_at"),
        )
        .orderBy(F.desc("generations"), F.desc("commits"), "group_id")
    )


def printable(text: str) -> str:
    """Show a name that anyone on the network may have chosen: no control characters, not long."""
    shown = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)
    return escape(shown if len(shown) <= _MAX_NAME else f"{shown[: _MAX_NAME - 1]}…")


def _tables(lakehouse: Lakehouse) -> Table:
    table = Table(
        title=f"Records of cluster {lakehouse.cluster} by table",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("table")
    table.add_column("records", justify="right")
    table.add_column("of them tombstones", justify="right")
    specs = [decoded_table(name) for name in silver_tables()]
    records = lakehouse.counts(specs, F.lit(1) == 1)
    tombstones = lakehouse.counts(specs, F.col("is_tombstone"))
    for name, count in records.items():
        table.add_row(name, f"{count:,}", f"{tombstones.get(name, 0):,}")
    in_quarantine = lakehouse.read(QUARANTINE).count()
    table.add_row(QUARANTINE.name, f"{in_quarantine:,}", "")
    return table


def _groups(lakehouse: Lakehouse) -> Table:
    epochs = [
        lakehouse.read(decoded_table(f"{kind}_group_metadata"))
        .where(~F.col("is_tombstone"))
        .select("group_id", "record_timestamp", "epoch")
        for kind in ("consumer", "share", "streams")
    ]
    overview = group_overview(
        lakehouse.read(decoded_table("offset_commits")),
        lakehouse.read(decoded_table("group_metadata")),
        reduce(DataFrame.unionByName, epochs),
    )
    rows = overview.collect()
    table = Table(
        title=f"Groups with most generations ({min(len(rows), _SHOWN_GROUPS)} of {len(rows)})",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("group", no_wrap=True)
    for name in ("generations", "commits", "members"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("first record", no_wrap=True)
    table.add_column("last (UTC)", no_wrap=True)
    for row in rows[:_SHOWN_GROUPS]:
        table.add_row(
            printable(row.group_id),
            f"{row.generations:,}",
            f"{row.commits:,}",
            f"{row.members:,}",
            f"{row.first_at:%m-%d %H:%M}" if row.first_at else "",
            f"{row.last_at:%m-%d %H:%M}" if row.last_at else "",
        )
    return table


def _remarks(run: Run) -> list[str]:
    """Say what is missing: offsets without a record, records without a meaning."""
    ends = run.lakehouse.read(COVERAGE).groupBy("record_partition").agg(F.max("next_offset"))
    offsets = sum(row[1] for row in ends.collect())
    missing = offsets - run.lakehouse.read(RECORDS).count()
    lines = []
    if missing:
        lines.append(
            f"{missing:,} of {offsets:,} offsets have no record here; {COVERAGE.name} says why"
        )
    refused = (
        run.lakehouse.read(QUARANTINE)
        .groupBy("error")
        .count()
        .orderBy(F.desc("count"), "error")
        .limit(3)
        .collect()
    )
    lines += [f"{row['count']:,} records in quarantine: {row.error}" for row in refused]
    lines.append(f"The tables are in {run.lakehouse.root}")
    return lines

"""What a run brought, and what the groups did of late, as tables that fit a terminal."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from rich import box
from rich.markup import escape
from rich.table import Table

from schemas.tables import COVERAGE, GROUP_GENERATIONS, GROUP_STATES, QUARANTINE, RECORDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from jobs.runtime.runner import Run
    from storage.tables import Lakehouse

_SHOWN_GROUPS = 12
_MAX_NAME = 20
_WINDOW = dt.timedelta(hours=24)


def show_summary(run: Run) -> None:
    """Print what the run decoded, what the groups did in the last 24 hours, and what is missing."""
    if run.summary.get("records_read"):
        run.out.print(_decoded(run))
    groups = _groups(run.lakehouse)
    if groups is not None:
        run.out.print(groups)
    for line in _remarks(run):
        run.out.print(line, markup=False, highlight=False)


def group_overview(states: DataFrame, generations: DataFrame) -> DataFrame:
    """Tell how each group is and what it went through.

    Args:
        states: the newest rows of group_states, of each group at least the last.
        generations: the rows of group_generations to sum up.

    Returns:
        Columns group_id, state, members, rebalances, aborted, rebalancing_ms, cause (the one most
        often seen); the groups that rebalanced most come first.
    """
    now = states.groupBy("group_id").agg(
        F.max_by("state", "sequence").alias("state"),
        F.max_by("member_count", "sequence").alias("members"),
    )
    summed = (
        generations.where(F.col("join_started_at").isNotNull())
        .groupBy("group_id")
        .agg(
            F.count("*").alias("rebalances"),
            F.sum("aborted_generations").alias("aborted"),
            F.sum("rebalance_ms").alias("rebalancing_ms"),
            F.mode("cause", deterministic=True).alias("cause"),
        )
    )
    joined = now.join(summed, "group_id", how="left").fillna(0, ["rebalances", "aborted"])
    return joined.orderBy(F.desc("rebalances"), "group_id")


def printable(text: str) -> str:
    """Show a name that anyone on the network may have chosen: no control characters, not long."""
    shown = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)
    return escape(shown if len(shown) <= _MAX_NAME else f"{shown[: _MAX_NAME - 1]}…")


def _decoded(run: Run) -> Table:
    table = _table("Records that this run decoded")
    table.add_column("table")
    table.add_column("records", justify="right")
    counts = run.summary.get("decoded_by_table")
    if isinstance(counts, dict):
        for name, count in counts.items():
            table.add_row(f"silver.{name}", f"{count:,}")
    table.add_row(QUARANTINE.name, f"{run.summary.get('quarantined', 0):,}")
    return table


def _groups(lakehouse: Lakehouse) -> Table | None:
    states = lakehouse.read(GROUP_STATES).where(~F.col("is_settled"))
    latest = states.agg(F.max("record_timestamp")).first()
    if latest is None or latest[0] is None:
        return None
    is_recent = F.col("join_started_at") >= F.lit(latest[0] - _WINDOW)
    generations = lakehouse.read(GROUP_GENERATIONS).where(is_recent)
    rows = group_overview(states, generations).collect()
    shown = min(len(rows), _SHOWN_GROUPS)
    table = _table(f"24 hours to {latest[0]:%Y-%m-%d %H:%M} UTC ({shown} of {len(rows)} groups)")
    table.add_column("group", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for name in ("members", "rebalances", "aborted", "took"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("mostly", no_wrap=True)
    for row in rows[:_SHOWN_GROUPS]:
        table.add_row(
            printable(row.group_id),
            row.state,
            f"{row.members:,}",
            f"{row.rebalances:,}",
            f"{row.aborted:,}",
            "" if row.rebalancing_ms is None else f"{row.rebalancing_ms / 1000:,.0f} s",
            row.cause or "",
        )
    return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)


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

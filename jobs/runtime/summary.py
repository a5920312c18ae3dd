"""What a run brought, and what the groups did of late, as tables that fit a terminal."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from rich import box
from rich.markup import escape
from rich.table import Table

from anomalies.health import severity_rank
from anomalies.model import SEVERITIES
from anomalies.telling import KINDS
from schemas.tables import ANOMALIES, COVERAGE, GROUP_HEALTH, QUARANTINE, RECORDS

if TYPE_CHECKING:
    from pyspark.sql import Row

    from jobs.runtime.runner import Run

_SHOWN_GROUPS = 12
_SHOWN_ANOMALIES = 8
_MOST_ANOMALIES = 500
_COLOURS = {"ok": "green", "info": "green", "warning": "yellow", "critical": "bold red"}
_MAX_NAME = 20
_WINDOW = dt.timedelta(hours=24)


def show_summary(run: Run) -> None:
    """Print what the run decoded, how the groups are, what is wrong, and what is missing."""
    if run.summary.get("records_read"):
        run.out.print(_decoded(run))
    show_anomalies(run)
    for line in _remarks(run):
        run.out.print(line, markup=False, highlight=False)


def show_anomalies(run: Run) -> None:
    """Print how the groups are, the worst first, and what is wrong with them."""
    health = run.lakehouse.read(GROUP_HEALTH)
    rank = severity_rank("health")
    worst = health.orderBy(rank.desc(), F.desc("rebalances_24h"), "group_id")
    rows = worst.limit(_SHOWN_GROUPS).collect()
    if not rows:
        return
    run.out.print(_health(rows, health.count()))
    found = run.lakehouse.read(ANOMALIES).where(
        (F.col("ended_at") >= F.lit(rows[0].as_of - _WINDOW)) | F.col("is_open")
    )
    rank = severity_rank("severity")
    counts = {row.severity: row["count"] for row in found.groupBy("severity").count().collect()}
    serious = found.where("severity <> 'info'").orderBy(rank.desc(), F.desc("ended_at"))
    for row, more in _worst_by_group(serious.limit(_MOST_ANOMALIES).collect()):
        run.out.print(_told(row, more), soft_wrap=True, highlight=False)
    numbers = ", ".join(f"{counts[s]:,} {s}" for s in reversed(SEVERITIES) if counts.get(s))
    line = f"Anomalies of these 24 hours: {numbers or 'none'}"
    text = f"{line}; {ANOMALIES.name} has them all"
    run.out.print(text, markup=False, highlight=False, soft_wrap=True)


def _worst_by_group(rows: list[Row]) -> list[tuple[Row, int]]:
    """Give what is worst with each group, and how much more there is."""
    by_group: dict[str | None, list[Row]] = {}
    for row in rows:
        by_group.setdefault(row.group_id, []).append(row)
    worst = [
        (min(found, key=lambda r: (-SEVERITIES.index(r.severity), KINDS.index(r.kind))), found)
        for found in by_group.values()
    ]
    return [(row, len(found) - 1) for row, found in worst[:_SHOWN_ANOMALIES]]


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


def _health(rows: list[Row], groups: int) -> Table:
    title = f"24 hours to {rows[0].as_of:%Y-%m-%d %H:%M} UTC ({len(rows)} of {groups} groups)"
    table = _table(title)
    table.add_column("group", no_wrap=True)
    for name in ("health", "state"):
        table.add_column(name, no_wrap=True)
    for name in ("members", "rebalances", "took", "lag"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            printable(row.group_id),
            f"[{_COLOURS[row.health]}]{row.health}[/]",
            row.state,
            f"{row.members or 0:,}",
            f"{row.rebalances_24h:,}",
            f"{row.rebalancing_24h_ms / 1000:,.0f} s" if row.rebalances_24h else "",
            _lag(row),
        )
    return table


def _lag(row: Row) -> str:
    """Tell how far a group is behind, and with a partition in trouble, its status."""
    if row.total_lag is None:
        return ""
    is_well = row.worst_lag_status in (None, "OK")
    return f"{row.total_lag:,}" + ("" if is_well else f" {row.worst_lag_status}")


def _told(row: Row, more: int) -> str:
    group = "" if row.group_id is None else f"{printable(row.group_id)}: "
    summary = escape("".join(c if c.isprintable() else " " for c in row.summary))
    at = f"{row.started_at:%H:%M:%S}"
    return f"[{_COLOURS[row.severity]}]{row.severity:<8}[/] {at} {row.kind}  {group}{summary}" + (
        f" (+{more} more)" if more else ""
    )


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)


def _remarks(run: Run) -> list[str]:
    """Say what is missing: offsets without a record, records without a meaning."""
    ends = run.lakehouse.read(COVERAGE).groupBy("record_partition").agg(F.max("next_offset"))
    offsets = sum(row[1] for row in ends.collect())
    missing = offsets - run.lakehouse.read(RECORDS).count()
    lines = []
    if "continued_as" in run.summary:
        lines.append(
            f"The cluster goes on as {run.summary['continued_as']}, another log: "
            f"{run.summary['continued_because']}"
        )
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
    if "report" in run.summary:
        lines.append(f"The report is {run.summary['report']}")
    return lines

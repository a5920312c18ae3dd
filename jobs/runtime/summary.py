"""What a run brought, and what the groups did of late, as tables that fit a terminal."""

from __future__ import annotations

import datetime as dt
from itertools import islice
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F
from rich import box
from rich.markup import escape
from rich.table import Table

from detectors.sentences import KINDS
from jobs.runtime.times import zone
from reporting.alerts import one_line
from reporting.model import Selection
from reporting.read import anomalies_of, ask, quality, quality_of, time_at, worst_groups
from schemas.errors import UsageError
from schemas.gold import INFO, SEVERITIES
from schemas.tables import ANOMALIES, COVERAGE, QUARANTINE

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from detectors.model import Row
    from jobs.runtime.run import Run
    from lakehouse.tables import Lakehouse
    from reporting.model import Quality

_SHOWN_GROUPS = 12
_SHOWN_ANOMALIES = 8
_MOST_ANOMALIES = 500
_COLOURS = {"ok": "green", "info": "green", "warning": "yellow", "critical": "bold red"}
_MAX_NAME = 20
_SHOWN_ERRORS = 3
_WINDOW_MS = 24 * 3_600_000


def show_summary(run: Run) -> None:
    """Print what the run decoded, how the groups are, what is wrong, and what is missing."""
    if run.summary.get("records_read"):
        run.out.print(_decoded(run))
    found = ask({**quality_of(run.lakehouse), **_of_groups(run.lakehouse)})
    _show_groups(run, found)
    for line in _remarks(run, quality(found)):
        run.out.print(line, markup=False, highlight=False)


def show_anomalies(run: Run) -> None:
    """Print how the groups are, the worst first, and what is wrong with them."""
    if run.options.is_narrowed:
        _list_anomalies(run)
    elif questions := _of_groups(run.lakehouse):
        _show_groups(run, ask(questions))


def _list_anomalies(run: Run) -> None:
    """Print each anomaly of the groups and the time that were chosen, in the order of time."""
    chosen, where = Selection(run.options.group, *run.options.span), zone(run.options.timezone)
    rows = anomalies_of(run.lakehouse, chosen).select(
        *("kind", "severity", "group_id", "started_at", "summary"),
        F.count("*").over(Window.partitionBy()).alias("row_count"),
    )
    newest = rows.orderBy(F.desc("started_at"), "group_id", "kind").limit(_MOST_ANOMALIES)
    answers = ask({"anomalies": newest, "groups": worst_groups(run.lakehouse, 1, chosen)})
    if chosen.groups is not None and not answers["groups"].num_rows:
        raise UsageError(f"--group {short_name(chosen.groups)}: no group has such an id")
    found = answers["anomalies"].to_pylist()
    found.sort(key=lambda row: row["started_at"])
    for row in found:
        at = dt.datetime.fromtimestamp(row["started_at"] / 1000, where)
        run.out.print(_line(row, 0, f"{at:%Y-%m-%d %H:%M:%S}"), soft_wrap=True, highlight=False)
    count = found[0]["row_count"] if found else 0
    cut = "" if count <= len(found) else f", of which the newest {len(found):,} are shown"
    what = "anomaly" if count == 1 else "anomalies"
    text = f"{count:,} {what}{cut}, times are {run.options.timezone}"
    run.out.print(
        f"{text}; {ANOMALIES.name} has them all", markup=False, highlight=False, soft_wrap=True
    )


def _of_groups(lakehouse: Lakehouse) -> dict[str, DataFrame]:
    """Ask how the groups are, and what is wrong of late, by severity the newest first."""
    last = lakehouse.runs.last("anomalies")
    if last is None or last.details["as_of"] is None:
        return {}
    since = time_at(last.details["as_of"] - _WINDOW_MS)
    of_severity = Window.partitionBy("severity")
    newest = of_severity.orderBy(F.desc("ended_at"), "anomaly_id")
    of_late = lakehouse.read(ANOMALIES).where(F.col("is_open") | (F.col("ended_at") >= since))
    counted = of_late.select(
        *("kind", "severity", "group_id", "started_at", "summary"),
        F.count("*").over(of_severity).alias("row_count"),
        F.row_number().over(newest).alias("rank"),
    )
    # Of those that only inform, one tells how many there are.
    anomalies = counted.where(f"rank <= IF(severity = '{INFO}', 1, {_MOST_ANOMALIES})")
    return {"groups": worst_groups(lakehouse, _SHOWN_GROUPS), "anomalies": anomalies}


def _show_groups(run: Run, found: Mapping[str, pa.Table]) -> None:
    groups = found["groups"].sort_by("rank").to_pylist() if "groups" in found else []
    if not groups:
        return
    run.out.print(_health(groups))
    anomalies = found["anomalies"].to_pylist()
    anomalies.sort(key=lambda row: (-SEVERITIES.index(row["severity"]), row["rank"]))
    serious = [row for row in anomalies if row["severity"] != INFO][:_MOST_ANOMALIES]
    for row, more in _worst_by_group(serious):
        run.out.print(_line(row, more), soft_wrap=True, highlight=False)
    counts = {row["severity"]: row["row_count"] for row in anomalies}
    shown = ", ".join(f"{counts[s]:,} {s}" for s in reversed(SEVERITIES) if s in counts)
    line = f"Anomalies of these 24 hours: {shown or 'none'}"
    text = f"{line}; {ANOMALIES.name} has them all"
    run.out.print(text, markup=False, highlight=False, soft_wrap=True)


def _worst_by_group(rows: list[Row]) -> list[tuple[Row, int]]:
    """Return what is worst with each group, and how much more there is."""
    by_group: dict[str | None, list[Row]] = {}
    for row in rows:
        by_group.setdefault(row["group_id"], []).append(row)
    worst = [
        (
            min(found, key=lambda r: (-SEVERITIES.index(r["severity"]), KINDS.index(r["kind"]))),
            found,
        )
        for found in by_group.values()
    ]
    return [(row, len(found) - 1) for row, found in worst[:_SHOWN_ANOMALIES]]


def short_name(text: str) -> str:
    """Show a name that anyone on the network may have chosen: no control characters, not long."""
    shown = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)
    return escape(shown if len(shown) <= _MAX_NAME else f"{shown[: _MAX_NAME - 1]}…")


def _decoded(run: Run) -> Table:
    table = titled("Records that this run decoded")
    table.add_column("table")
    table.add_column("records", justify="right")
    counts = run.summary.get("decoded_by_table")
    if isinstance(counts, dict):
        for name, count in counts.items():
            table.add_row(f"silver.{name}", f"{count:,}")
    table.add_row(QUARANTINE.name, f"{run.summary.get('quarantined', 0):,}")
    return table


def _health(rows: list[Row]) -> Table:
    as_of, groups = _time(rows[0]["as_of"]), rows[0]["row_count"]
    title = f"24 hours to {as_of:%Y-%m-%d %H:%M} UTC ({len(rows)} of {groups} groups)"
    table = titled(title)
    table.add_column("group", no_wrap=True)
    for name in ("health", "state"):
        table.add_column(name, no_wrap=True)
    for name in ("members", "rebalances", "took"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("lag", justify="right")
    for row in rows:
        health, ms = row["health"], row["rebalancing_24h_ms"]
        table.add_row(
            short_name(row["group_id"]),
            f"[{_COLOURS[health]}]{health}[/]",
            row["state"],
            f"{row['members'] or 0:,}",
            f"{row['rebalances_24h']:,}",
            f"{ms / 1000:,.0f} s" if row["rebalances_24h"] else "",
            _lag(row),
        )
    return table


def _lag(row: Row) -> str:
    """Return how far a group is behind, and with a partition in trouble, its status."""
    if row["total_lag"] is None:
        return ""
    is_well = row["worst_lag_status"] in (None, "OK")
    lag = records_behind(row["total_lag"], is_bound=row["total_lag_is_bound"])
    return lag + ("" if is_well else f" {row['worst_lag_status']}")


def records_behind(lag: int, *, is_bound: bool | None) -> str:
    """Say how many records behind; "at most" where no more is known than that."""
    return f"at most {lag:,}" if is_bound else f"{lag:,}"


def _line(row: Row, more: int, at: str | None = None) -> str:
    summary = escape(one_line(row["summary"]))
    severity, at = row["severity"], at or f"{_time(row['started_at']):%H:%M:%S}"
    shown = f"[{_COLOURS[severity]}]{severity:<8}[/] {at} {row['kind']}  {summary}"
    return shown + (f" (+{more} more)" if more else "")


def _time(millis: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(millis / 1000, dt.timezone.utc)


def titled(title: str) -> Table:
    """Return a table as jobs show it, without columns and rows."""
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)


def _remarks(run: Run, held: Quality) -> list[str]:
    """Say what is missing: offsets without a record, records without a meaning."""
    missing = held.offsets - held.records
    lines = []
    if missing:
        lines.append(
            f"{missing:,} of {held.offsets:,} offsets have no record here; {COVERAGE.name} says why"
        )
    refused = islice(held.quarantine.items(), _SHOWN_ERRORS)
    lines += [f"{records:,} records in quarantine: {error}" for error, records in refused]
    lines.append(f"The tables are in {run.lakehouse.root}")
    if "report" in run.summary:
        lines.append(f"The report is {run.summary['report']}")
    return lines

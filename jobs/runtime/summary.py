"""What a run brought, and what the groups did of late, as tables that fit a terminal."""

from __future__ import annotations

from rich.table import Table

from detectors.sentences import KINDS
from jobs.runtime.page import facts_of
from jobs.runtime.run import Run
from launch.times import zone
from reporting import screen
from reporting.model import Facts, For, Selection
from reporting.read import newest_anomalies, values_of, worst_groups
from reporting.screen import titled
from reporting.text import short_name
from schemas.errors import UsageError
from schemas.tables import QUARANTINE
from storage.local import quickest


def show_summary(run: Run, facts: Facts) -> None:
    """Print what the run decoded, how the groups are, what is wrong, and what is missing."""
    if run.summary.get("records_read"):
        run.out.print(_decoded(run))
    screen.show_groups(run.out, facts, KINDS)
    lines = [*screen.missing(facts.quality), f"The tables are in {run.lakehouse.root}"]
    if "report" in run.summary:
        lines.append(f"The report is {run.summary['report']}")
    for line in lines:
        run.out.print(line, markup=False, highlight=False)


def show_anomalies(run: Run) -> None:
    """Print how the groups are, the worst first, or the anomalies that were asked for."""
    if not run.options.is_narrowed:
        screen.show_groups(run.out, facts_of(run.lakehouse, 0, readers=For.HEALTH), KINDS)
        return
    chosen = Selection(run.options.group, *run.options.span)
    ask = quickest(run.lakehouse)
    questions = {"anomalies": newest_anomalies(chosen), "groups": worst_groups(1, chosen)}
    answers = ask(questions, values_of(chosen))
    if chosen.groups is not None and not answers["groups"].num_rows:
        raise UsageError(f"--group {short_name(chosen.groups)}: no group has such an id")
    found = answers["anomalies"].to_pylist()
    number = found[0]["row_count"] if found else 0
    screen.show_anomalies(run.out, found, number, zone(run.options.timezone))


def _decoded(run: Run) -> Table:
    table = titled("Records that this run decoded", "table", numbers=["records"])
    counts = run.summary.get("decoded_by_table")
    if isinstance(counts, dict):
        for name, count in counts.items():
            table.add_row(f"silver.{name}", f"{count:,}")
    table.add_row(QUARANTINE.name, f"{run.summary.get('quarantined', 0):,}")
    return table

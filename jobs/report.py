"""Writes the report: one HTML file of how the groups are and what they did."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path

from jobs.runtime.page import here, page_here, print_page, put, write_page
from jobs.runtime.run import Run, Told
from jobs.runtime.runner import run_job
from launch.options import local_path, report_path
from reporting.charts import MADE_OF
from reporting.files import digest
from reporting.model import EVERYTHING, Facts, For, Selection
from schemas.ledger import Stage
from storage import files
from storage.local import NeedsSparkError
from storage.runs import LastRuns

# What a page tells of.
_STAGES = (Stage.INGEST, Stage.DECODE, Stage.HISTORY, Stage.LAG, Stage.ANOMALIES, Stage.VALIDATE)
_HEAD = 1_000  # characters of a page with its mark


def report(run: Run) -> None:
    """Read what the groups did, and write the page of it."""
    bring_up(run, For.PAGE)


def report_here(told: Told) -> bool:
    """Do the same without Spark, of a lakehouse on this machine; false if it takes Spark."""
    chosen = told.options
    tables, target = here(chosen), local_path(report_path(chosen))
    if tables is None or target is None:
        return False
    selection = Selection(chosen.group, *chosen.span)
    told.summary["report"] = path = str(Path(target).absolute())
    try:
        if tables.runs.last(Stage.INGEST) is None:
            return False
        made_of = _made_of(selection, tables.root, tables.cluster, tables.runs)
        with told.step("writing the report"):
            put(path, page_here(tables, selection, made_of))
    except NeedsSparkError:
        return False
    print_page(told)
    return True


def bring_up(run: Run, readers: For) -> Facts | None:
    """Write the page, and give its facts; None if a pipeline leaves it as it is.

    It is left where it was made of the same runs, by the same code.
    """
    target = report_path(run.options)
    if local_path(target) is not None:
        target = str(Path(local_path(target) or "").absolute())
    run.summary["report"] = target
    chosen = Selection(run.options.group, *run.options.span)
    # Before the tables are read: what comes meanwhile is on the next page.
    tables = run.lakehouse
    root = local_path(tables.root) or tables.root
    made_of = _made_of(chosen, Path(root), tables.cluster, tables.runs)
    if run.options.job != "report" and _is_made_of(run, target, made_of):
        run.say("report: left as it is, no run has brought anything new since")
        return None
    facts = write_page(run, target, chosen, made_of=made_of, readers=readers)
    if run.options.job == "report":
        print_page(run)
    return facts


def _made_of(chosen: Selection, root: Path, cluster: str, runs: LastRuns) -> str:
    """Return a mark that a page has in common with no page of other runs, or by other code.

    A page of a selection has none: no run makes it.
    """
    if chosen != EVERYTHING:
        return ""
    numbers = [runs.last_number(stage) for stage in _STAGES]
    code = sorted(
        digest(file.read_text("utf-8"))
        for file in resources.files("reporting").iterdir()
        if file.is_file()
    )
    return digest(repr((str(root), cluster, numbers, code, MADE_OF)))


def _is_made_of(run: Run, target: str, made_of: str) -> bool:
    if local_path(target) is None:
        return f'"{made_of}"' in files.head(run.spark, target, _HEAD)
    try:
        with Path(target).open(encoding="utf-8") as file:
            return f'"{made_of}"' in file.read(_HEAD)
    except (OSError, UnicodeDecodeError):
        return False


if __name__ == "__main__":
    sys.exit(run_job(report, ["report", *sys.argv[1:]], report_here))

"""Writes the report: one HTML file of how the groups are and what they did."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.runtime.options import local_path, report_path
from jobs.runtime.page import digest, print_page, write_page
from jobs.runtime.runner import run_job
from lakehouse import files
from reporting.charts import MADE_OF
from reporting.model import EVERYTHING, For, Selection
from schemas.ledger import Stage

if TYPE_CHECKING:
    from jobs.runtime.run import Run
    from lakehouse.tables import Lakehouse
    from reporting.model import Facts

# What a page tells of.
_STAGES = (
    Stage.INGEST,
    Stage.DECODE,
    Stage.HISTORY,
    Stage.LAG,
    Stage.ANOMALIES,
    Stage.VALIDATE,
)
_HEAD = 1_000  # characters of a page with its mark


def report(run: Run) -> None:
    """Read what the groups did, and write the page of it."""
    bring_up(run, For.PAGE)


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
    made_of = _made_of(run.lakehouse) if chosen == EVERYTHING else ""
    if run.options.job != "report" and _is_made_of(run, target, made_of):
        run.say("report: left as it is, no run has brought anything new since")
        return None
    facts = write_page(run, run.lakehouse, target, chosen, made_of=made_of, readers=readers)
    if run.options.job == "report":
        print_page(run)
    return facts


def _made_of(lakehouse: Lakehouse) -> str:
    """Return a mark that a page has in common with no page of other runs, or by other code."""
    runs = [lakehouse.runs.last_number(stage) for stage in _STAGES]
    code = sorted(
        digest(file.read_text("utf-8"))
        for file in resources.files("reporting").iterdir()
        if file.is_file()
    )
    return digest(repr((lakehouse.root, lakehouse.cluster, runs, code, MADE_OF)))


def _is_made_of(run: Run, target: str, made_of: str) -> bool:
    if local_path(target) is None:
        return f'"{made_of}"' in files.head(run.spark, target, _HEAD)
    try:
        with Path(target).open(encoding="utf-8") as file:
            return f'"{made_of}"' in file.read(_HEAD)
    except (OSError, UnicodeDecodeError):
        return False


if __name__ == "__main__":
    sys.exit(run_job(report, ["report", *sys.argv[1:]]))

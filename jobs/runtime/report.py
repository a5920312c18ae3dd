"""Writes the report: one HTML file of how the groups are and what they did."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.runtime.options import report_path
from report.page import ingredients, page
from report.read import read_facts
from storage.errors import GroupledgerError

if TYPE_CHECKING:
    from jobs.runtime.runner import Run


class ReportError(GroupledgerError):
    """A report that cannot be written."""


def report(run: Run) -> None:
    """Read what the groups did, and write the page of it."""
    target = report_path(run.options)
    if target is None:
        run.say("report: left out, the lakehouse is not on this machine (--output FILE)")
        return
    with run.step("writing the report"):
        # The libraries take a second of this process, while Spark is busy in its own.
        with ThreadPoolExecutor(1) as pool:
            parts = pool.submit(ingredients)
            facts = read_facts(run.lakehouse, int(time.time() * 1000))
            text = page(facts, parts.result())
        path = _write(Path(target).absolute(), text)
    run.summary["report"] = str(path)
    if run.options.job == "report":
        run.out.print(f"The report is {path}", markup=False, highlight=False, soft_wrap=True)


def _write(path: Path, text: str) -> Path:
    """Write the file as a whole, or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_text(text, encoding="utf-8")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ReportError(f"--output {path}: cannot be written: {reason}") from error
    return path

"""Writes the report: one HTML file of how the groups are and what they did."""

from __future__ import annotations

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError

from detectors.sentences import KINDS
from jobs.launch.jars import cache_folder
from jobs.runtime.ingest import state_of
from jobs.runtime.options import local_path, report_path
from jobs.runtime.paths import write_whole
from jobs.runtime.session import configured
from lakehouse import files
from reporting.charts import MADE_OF, javascript
from reporting.model import EVERYTHING, For, Selection
from reporting.page import ingredients, page
from reporting.read import read_facts
from schemas.errors import GroupledgerError, UsageError

if TYPE_CHECKING:
    from jobs.runtime.run import Run
    from lakehouse.tables import Lakehouse
    from reporting.model import Facts

# What a page tells of.
_STAGES = ("ingest", "decode", "history", "lag", "anomalies", "validate")
_HEAD = 1_000  # characters of a page with its mark


class ReportError(GroupledgerError):
    """A report that cannot be written."""


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


def write_page(
    run: Run,
    lakehouse: Lakehouse,
    target: str,
    chosen: Selection,
    *,
    made_of: str = "",
    readers: For = For.PAGE,
) -> Facts:
    """Write the page of a selection to a path or URI, with a mark of what it was made of.

    Returns:
        The facts, read for the page and other readers.

    Raises:
        ReportError: The file cannot be written.
    """
    with run.step("writing the report"):
        # Where they are not kept, they take seconds; Spark is busy meanwhile.
        with ThreadPoolExecutor(1) as pool:
            parts = pool.submit(lambda: ingredients(libraries(_cache())))
            with configured(run.spark, "report", state_of(lakehouse).records):
                facts = read_facts(lakehouse, int(time.time() * 1000), chosen, readers, KINDS)
            if chosen.groups is not None and not facts.group_count:
                raise UsageError(f"--group {chosen.groups}: no group has such an id")
            text = page(facts, parts.result(), made_of)
        _write(run, target, text)
    return facts


def print_page(run: Run) -> None:
    """Print where the page is."""
    text = f"The report is {run.summary['report']}"
    run.out.print(text, markup=False, highlight=False, soft_wrap=True)


def _made_of(lakehouse: Lakehouse) -> str:
    """Return a mark that a page has in common with no page of other runs, or by other code."""
    runs = [lakehouse.runs.last_number(stage) for stage in _STAGES]
    code = sorted(
        _digest(file.read_text("utf-8"))
        for file in resources.files("reporting").iterdir()
        if file.is_file()
    )
    return _digest(repr((lakehouse.root, lakehouse.cluster, runs, code, MADE_OF)))


def _is_made_of(run: Run, target: str, made_of: str) -> bool:
    if local_path(target) is None:
        return f'"{made_of}"' in files.head(run.spark, target, _HEAD)
    try:
        with Path(target).open(encoding="utf-8") as file:
            return f'"{made_of}"' in file.read(_HEAD)
    except (OSError, UnicodeDecodeError):
        return False


def _cache() -> Path | None:
    try:
        return cache_folder()
    except RuntimeError:  # a user without a home, as a driver's on a cluster may be
        return None


def libraries(cache: Path | None) -> str:
    """Return the code that draws charts; what takes seconds to put together is kept."""
    if cache is None:
        return javascript()
    name = f"charts-{_digest(MADE_OF)}"
    for path in cache.glob(f"{name}.*.js"):
        with suppress(OSError, UnicodeDecodeError):
            kept = path.read_text("utf-8")
            if path.name == f"{name}.{_digest(kept)}.js":  # else it is not whole
                return kept
    made = javascript()
    with suppress(OSError):  # then the next run makes it again, too
        write_whole(cache / f"{name}.{_digest(made)}.js", made)
    return made


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _write(run: Run, target: str, text: str) -> None:
    try:
        if local_path(target) is None:
            files.write(run.spark, target, text)
        else:
            write_whole(Path(target), text)
    except Py4JJavaError as error:
        reason = error.java_exception.getMessage() or error.java_exception.getClass().getName()
        raise ReportError(
            f"the report {target} cannot be written: {' '.join(reason.split())}"
        ) from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ReportError(f"the report {target} cannot be written: {reason}") from error

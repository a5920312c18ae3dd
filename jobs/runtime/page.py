"""Writes a page of the report, whoever asks for it."""

from __future__ import annotations

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError

from detectors.sentences import KINDS
from jobs.launch.jars import cache_folder
from jobs.runtime.options import local_path
from jobs.runtime.paths import write_whole
from jobs.runtime.session import configured
from jobs.runtime.state import state_of
from lakehouse import files
from lakehouse.local import quickest
from reporting.charts import MADE_OF, javascript
from reporting.model import EVERYTHING, Facts, For
from reporting.page import ingredients, page
from reporting.read import read_facts
from schemas.errors import GroupledgerError, UsageError

if TYPE_CHECKING:
    from jobs.runtime.run import Run
    from lakehouse.tables import Lakehouse
    from reporting.model import Selection


class ReportError(GroupledgerError):
    """A report that cannot be written."""


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
                facts = facts_of(lakehouse, int(time.time() * 1000), chosen, readers)
            if chosen.groups is not None and not facts.group_count:
                raise UsageError(f"--group {chosen.groups}: no group has such an id")
            text = page(facts, parts.result(), made_of)
        _write(run, target, text)
    return facts


def facts_of(
    lakehouse: Lakehouse, made_at: int, chosen: Selection = EVERYTHING, readers: For = For.PAGE
) -> Facts:
    """Read what readers tell of a selection."""
    facts = Facts(lakehouse.cluster, lakehouse.root, made_at, chosen, kinds=KINDS)
    return read_facts(facts, quickest(lakehouse), lakehouse.runs, readers)


def print_page(run: Run) -> None:
    """Print where the page is."""
    text = f"The report is {run.summary['report']}"
    run.out.print(text, markup=False, highlight=False, soft_wrap=True)


def _cache() -> Path | None:
    try:
        return cache_folder()
    except RuntimeError:  # a user without a home, as a driver's on a cluster may be
        return None


def libraries(cache: Path | None) -> str:
    """Return the code that draws charts; what takes seconds to put together is kept."""
    if cache is None:
        return javascript()
    name = f"charts-{digest(MADE_OF)}"
    for path in cache.glob(f"{name}.*.js"):
        with suppress(OSError, UnicodeDecodeError):
            kept = path.read_text("utf-8")
            if path.name == f"{name}.{digest(kept)}.js":  # else it is not whole
                return kept
    made = javascript()
    with suppress(OSError):  # then the next run makes it again, too
        write_whole(cache / f"{name}.{digest(made)}.js", made)
    return made


def digest(text: str) -> str:
    """Return what tells a text from others."""
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

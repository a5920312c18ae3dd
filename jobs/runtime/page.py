"""Writes a page of the report, whoever asks for it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from detectors.sentences import KINDS
from jobs.runtime.run import Run, Told
from jobs.runtime.session import configured
from launch.jars import cache_folder
from launch.options import Options, local_path
from reporting.charts import libraries
from reporting.files import write_whole
from reporting.model import EVERYTHING, Facts, For, Selection
from reporting.page import ingredients, page
from reporting.read import read_facts
from reporting.text import to_second
from schemas.errors import GroupledgerError, UsageError
from sources.accounted import state_of
from storage import files
from storage.lakehouse import Lakehouse
from storage.local import asked_here, quickest
from storage.queries import Ask
from storage.runs import LastRuns


def write_page(
    run: Run, target: str, chosen: Selection, *, made_of: str = "", readers: For = For.PAGE
) -> Facts:
    """Write the page of a selection to a path or URI, with a mark of what it was made of.

    The facts are read for other readers, too.
    """

    def read() -> Facts:
        with configured(run.spark, "report", state_of(run.lakehouse).records):
            return facts_of(run.lakehouse, _now(), chosen, readers)

    with run.step("writing the report"):
        facts, text = _page(read, made_of)
        put(target, text, run.spark)
    return facts


class Here(NamedTuple):
    """The tables of a cluster in a lakehouse of this machine, without Spark."""

    root: Path
    cluster: str
    ask: Ask
    runs: LastRuns


def here(chosen: Options) -> Here | None:
    """Return the tables if they are on this machine; what is asked may raise a `NeedsSparkError`.

    None if they are elsewhere, or if only Spark knows where.
    """
    path = local_path(chosen.lakehouse)
    # Hadoop's settings may name another file system for paths without a scheme.
    names_one = any("fs.defaultFS" in text for text in chosen.conf)
    is_open = names_one or "HADOOP_CONF_DIR" in os.environ
    if path is None or (is_open and path == chosen.lakehouse):
        return None
    root = Path(path).absolute()
    ask = asked_here(root, chosen.cluster)
    return Here(root, chosen.cluster, ask, LastRuns(str(root), ask))


def page_here(tables: Here, chosen: Selection, made_of: str = "") -> str:
    """Make the page of a selection without Spark.

    Raises:
        NeedsSparkError: that takes Spark.
    """

    def read() -> Facts:
        facts = Facts(tables.cluster, str(tables.root), _now(), chosen, kinds=KINDS)
        return read_facts(facts, tables.ask, tables.runs)

    return _page(read, made_of)[1]


def _now() -> int:
    return int(time.time() * 1000)


def _page(read: Callable[[], Facts], made_of: str) -> tuple[Facts, str]:
    # Where they are not kept, they take seconds; the tables are read meanwhile.
    with ThreadPoolExecutor(1) as pool:
        parts = pool.submit(lambda: ingredients(libraries(_cache())))
        facts = read()
        if facts.chosen.groups is not None and not facts.group_count:
            raise UsageError(f"--group {facts.chosen.groups}: no group has such an id")
        since, newest = facts.chosen.since, facts.as_of
        if since is not None and newest is not None and since > newest:
            raise UsageError(
                f"--since {to_second(since)} is not before the newest record, {to_second(newest)}"
                " (UTC)"
            )
        return facts, page(facts, parts.result(), made_of)


def facts_of(
    lakehouse: Lakehouse, made_at: int, chosen: Selection = EVERYTHING, readers: For = For.PAGE
) -> Facts:
    """Read what readers tell of a selection."""
    facts = Facts(lakehouse.cluster, lakehouse.root, made_at, chosen, kinds=KINDS)
    return read_facts(facts, quickest(lakehouse), lakehouse.runs, readers)


def print_page(told: Told) -> None:
    """Print where the page is."""
    told.tell(f"The report is {told.summary['report']}")


def _cache() -> Path | None:
    try:
        return cache_folder()
    except RuntimeError:  # a user without a home, as a driver's on a cluster may be
        return None


def put(target: str, text: str, spark: SparkSession | None = None) -> None:
    """Write a page to a path, or to a URI, which takes Spark."""
    try:
        if spark is None or local_path(target) is not None:
            write_whole(Path(target), text)
        else:
            files.write(spark, target, text)
    except Py4JJavaError as error:
        reason = error.java_exception.getMessage() or error.java_exception.getClass().getName()
        raise GroupledgerError(
            f"the report {target} cannot be written: {' '.join(reason.split())}"
        ) from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise GroupledgerError(f"the report {target} cannot be written: {reason}") from error

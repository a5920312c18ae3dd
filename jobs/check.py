"""What a pipeline would lack: brokers, rights, JARs, a lakehouse. Nothing is left anywhere.

Each thing is a line of its own, and what is wrong with one hides none of the others. A cluster is
asked by kafka-python, and a folder of this machine looked at by Python: a JVM is started only for
what needs one, which are Parquet files, tables that are there, other stores, and what kafka-python
cannot log in to.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.text import Text

from decoders.records import decode
from decoders.transform import INPUT, is_of_type
from jobs.runtime.run import complain
from jobs.runtime.runner import run_alone
from jobs.runtime.session import session
from launch import jars
from launch.beforehand import nearest, why_not
from launch.options import Options, local_path
from reporting.text import printable
from schemas.messages import GROUP_METADATA, record_types
from schemas.tables import FORMAT_VERSION, RECORDS
from schemas.words import count, size, some
from sources import parquet
from sources.readiness import FAIL, OK, WARN, ClusterCheck, Finding, missing, ok, warn
from storage import files
from storage.failures import line_of
from storage.lakehouse import Lakehouse
from storage.runs import formats

_STYLES = {OK: "green", WARN: "yellow", FAIL: "bold red"}
# What all tables take, with room for small files before `maintain`: docs/performance.md.
_TABLE_BYTES = 100
_LEAST_FREE = 1_000_000_000
# Records that are looked at to tell who wrote them.
_SAMPLE = 1_000


class SparkOnDemand:
    """A session that begins when it is first asked for; with it, a JVM."""

    def __init__(self, chosen: Options, stack: ExitStack) -> None:
        self._chosen, self._stack = chosen, stack
        self.lacks_jars = False  # Spark has not all that it needs

    @cached_property
    def _session(self) -> SparkSession:
        return self._stack.enter_context(session(self._chosen))

    def finds(
        self, name: str, look: Callable[[SparkSession], Iterable[Finding]]
    ) -> Iterator[Finding]:
        """Give what a look by Spark finds; an error is a line, too."""
        if self.lacks_jars:
            yield warn(name, "not looked at: Spark lacks its JARs")
            return
        try:
            yield from look(self._session)
        except Exception as error:  # noqa: BLE001 - those of Java and Hadoop are of any class
            if self._chosen.verbose:
                traceback.print_exception(error)
            yield missing(name, line_of(error))


def check(chosen: Options, err: Console) -> int:
    """Print a line for each thing that a pipeline needs; return 1 if one of them is missing."""
    started, out = time.monotonic(), Console()
    found: list[Finding] = []
    with ExitStack() as stack:
        for finding in _findings(chosen, SparkOnDemand(chosen, stack)):
            found.append(finding)
            out.print(_line(finding), soft_wrap=True, highlight=False)
    failed = [finding for finding in found if finding.state == FAIL]
    warned = [finding for finding in found if finding.state == WARN]
    if failed:
        names = ", ".join(dict.fromkeys(finding.name for finding in failed))
        complain(err, f"check: a pipeline would fail, see {names}")
    else:
        with_warnings = f", with {count(len(warned), 'warning')}" if warned else ""
        out.print(f"A pipeline can run{with_warnings}.", highlight=False, soft_wrap=True)
    if chosen.json:
        summary = {
            "checks": [asdict(finding) for finding in found],
            "failed": len(failed),
            "warnings": len(warned),
            "seconds": {"check": round(time.monotonic() - started, 3)},
        }
        print(json.dumps({"job": chosen.job, "cluster": chosen.cluster, **summary}))
    return 1 if failed else 0


def _line(finding: Finding) -> Text:
    label = finding.state.upper() if finding.state == FAIL else finding.state
    line = Text(f"{label:<4} ", style=_STYLES[finding.state])
    line.append(f"{finding.name:<10} ", style="bold")
    line.append(printable(finding.text), style="default")
    if finding.advice:
        line.append(". Do: ", style="bold default")
        line.append(printable(finding.advice), style="default")
    return line


def _findings(chosen: Options, spark: SparkOnDemand) -> Iterator[Finding]:
    yield from _jars(chosen, spark)
    records: int | None = None
    if chosen.bootstrap_servers is not None:
        given = (chosen.bootstrap_servers, chosen.topic, spark.finds, chosen.kafka_config)
        about = ClusterCheck(*given, chosen.isolation_level)
        yield from about.findings()
        records = about.records
    elif chosen.records is not None:
        yield from spark.finds("records", lambda session: _files(chosen, session))
    else:
        yield warn("source", "none is given", "name it by --bootstrap-servers or --records")
    yield from _lakehouse(chosen, spark, records)


def _jars(chosen: Options, spark: SparkOnDemand) -> Iterator[Finding]:
    """Look for the JARs where the launcher keeps them; with code from a zip they came along."""
    if not (jars.CHECKOUT / "conf" / "jars.xml").is_file():
        return
    needed = [jars.spark_jars(), *jars.store_jars([chosen.lakehouse, chosen.records])]
    lacking = [each for each in needed if not jars.present(each)]
    if not lacking:
        files = sum(len(jars.present(each)) for each in needed)
        yield ok("jars", f"{files} of Delta Lake and Kafka's client are in {jars.cache_folder()}")
        return
    spark.lacks_jars = True
    folder = jars.cache_folder()
    if why_not(folder) is not None:
        yield missing(
            "jars",
            f"they cannot be kept in {folder}, which is not writable",
            "set GROUPLEDGER_CACHE to a writable folder",
        )
        return
    names = ", ".join(each.name for each in lacking)
    yield warn(
        "jars",
        f"{names} not in {folder} yet: the first job fetches them from Maven Central",
        "see that this machine reaches it, or copy the folder from one that does",
    )


def _files(chosen: Options, spark: SparkSession) -> Iterator[Finding]:
    """Look at the files of --records, as `ingest` does."""
    path = chosen.records or ""
    records = parquet.read(spark, path)
    counted = records.groupBy("topic").agg(F.count("*").alias("records"))
    by_topic = {row.topic: row.records for row in counted.collect()}
    held = by_topic.pop(chosen.topic, 0)
    if held:
        more = f", and {sum(by_topic.values()):,} of other topics" if by_topic else ""
        vendor = _vendor(records.where(F.col("topic") == chosen.topic))
        by = f", written by {vendor}" if vendor else ""
        yield ok("records", f"{path}: {count(held, 'record')} of {chosen.topic}{more}{by}")
    elif by_topic:
        yield missing(
            "records",
            f"{path} has no record of topic {chosen.topic}, but some of {some(list(by_topic))}",
            "name the topic by --topic",
        )
    else:
        yield warn("records", f"{path} has no records")


def _vendor(records: DataFrame) -> str | None:
    """Name who wrote records, by the layout of some; None if it is Kafka's."""
    some_groups = records.where(is_of_type([GROUP_METADATA]) & F.col("value").isNotNull())
    batches = some_groups.limit(_SAMPLE).select(*INPUT).toArrow().to_batches()
    found = (rows for batch in batches for rows in decode(batch).tables.get("group_metadata", ()))
    notes = {note for rows in found for note in rows["decode_notes"].flatten().to_pylist()}
    names = (m.layout for m in record_types()[GROUP_METADATA].variants)
    return next((name for name in names if f"layout: {name}" in notes), None)


def _lakehouse(chosen: Options, spark: SparkOnDemand, records: int | None) -> Iterator[Finding]:
    root = local_path(chosen.lakehouse)
    if root is None:
        yield from spark.finds("lakehouse", lambda session: _store(chosen, session))
        return
    folder = Path(root).absolute()
    there = nearest(folder)
    if not there.is_dir():
        yield missing(
            "lakehouse",
            f"{folder} lies below {there}, which is a file",
            "name another folder by --lakehouse",
        )
        return
    reason = why_not(folder)
    if reason is not None:
        yield missing(
            "lakehouse",
            f"user {os.geteuid()} cannot write to {folder}: {reason}",
            "change its owner or its mode, or name another folder by --lakehouse",
        )
    elif there != folder:
        yield ok("lakehouse", f"{folder} is made by the first run, {there} is writable")
    elif not (folder / "bronze" / "records").is_dir():
        yield ok("lakehouse", f"{folder} is writable, and has no tables yet")
    else:
        yield ok("lakehouse", f"{folder} is writable")
    yield from _space(there, records)
    if (folder / "bronze" / "records").is_dir():
        yield from spark.finds("tables", lambda session: _tables(chosen, session))


def _space(folder: Path, records: int | None) -> Iterator[Finding]:
    free, needed = shutil.disk_usage(folder).free, _TABLE_BYTES * (records or 0)
    takes = f"; the tables of a first run take about {size(needed)}" if records else ""
    if free < max(_LEAST_FREE, needed):
        yield warn(
            "space", f"{size(free)} are free{takes}", "make room, or name another --lakehouse"
        )
    else:
        yield ok("space", f"{size(free)} are free{takes}")


def _store(chosen: Options, spark: SparkSession) -> Iterator[Finding]:
    """Look at a lakehouse in another store; that it may be written shows only a write."""
    has_none = files.is_empty(spark, chosen.lakehouse)
    yield warn(
        "lakehouse", f"{chosen.lakehouse} is reachable; that it may be written shows the first run"
    )
    if not has_none:
        yield from _tables(chosen, spark)


def _tables(chosen: Options, spark: SparkSession) -> Iterator[Finding]:
    lakehouse = Lakehouse(spark, chosen.lakehouse, chosen.cluster)
    if not lakehouse.exists(RECORDS):
        return
    version, clusters = formats(lakehouse)
    if version is not None and version > FORMAT_VERSION:
        yield missing(
            "tables",
            f"they have lakehouse format {version}, this release knows format {FORMAT_VERSION}",
            "use the release that wrote them, or another --lakehouse",
        )
        return
    known = "no run is noted" if version is None else f"format {version}"
    yield ok("tables", f"{known}; clusters {some(clusters)}")


if __name__ == "__main__":
    sys.exit(run_alone(check, ["check", *sys.argv[1:]]))

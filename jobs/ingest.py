"""Source to bronze: finds what is new, appends it once, accounts for every offset."""

from __future__ import annotations

import datetime as dt
import sys
import time
from dataclasses import replace

from pyspark.sql import functions as F
from rich.text import Text

from jobs.runtime.run import Run
from jobs.runtime.runner import run_job
from jobs.runtime.session import configured
from reporting.screen import titled
from reporting.text import printable
from schemas.errors import GroupledgerError
from schemas.ledger import RunId, Stage
from schemas.tables import COVERAGE, RECORDS
from sources import kafka, parquet
from sources.accounted import account, note_of, note_run, of_run, recovered, state_of
from sources.beyond import Source, from_cluster, from_files, refuse_second_topic
from sources.coverage import extents, record_type
from sources.plan import State, by_type, truncated
from storage.lakehouse import Lakehouse
from storage.tables import FEW_ROWS


def ingest(run: Run) -> None:
    """Bring what is new into bronze.records, and account for it in bronze.coverage."""
    lakehouse = run.lakehouse
    # Until when no record is missing: the time before the source is asked for its ends.
    now = dt.datetime.now(dt.timezone.utc)
    with run.step("looking for new records"):
        state = recovered(lakehouse, state_of(lakehouse))
        source = _source(run, state)
    run.summary["records_ingested"] = 0
    if source.ranges:
        with (
            run.step("writing bronze.records", "records_ingested"),
            configured(lakehouse.spark, Stage.INGEST, source.offsets),
        ):
            added = _write(lakehouse, source, state, now)
            run.summary["records_ingested"] = added


def preview(run: Run) -> None:
    """Print what an ingest would read now, by partition, and write nothing."""
    with run.step("looking for new records"):
        state = state_of(run.lakehouse)
        source = _source(run, state)
    numbers = ("from offset", "up to", "offsets", "records")
    table = titled("What an ingest would read", "partition", numbers=numbers)
    found, records = source.found or {}, 0
    for r in source.ranges:
        count = r.next_offset - r.from_offset
        extent = found.get((r.topic, r.record_partition))
        records += extent.records if extent else 0
        shown = f"{extent.records:,}" if extent else "not known"
        title = Text(printable(f"{r.topic}-{r.record_partition}"))
        table.add_row(title, str(r.from_offset), str(r.next_offset - 1), f"{count:,}", shown)
    run.out.print(table)
    known = f"{source.offsets:,} offsets" + (f", {records:,} records" if found else "")
    run.out.print(f"{len(source.ranges):,} partitions, {known}; nothing was written")
    run.summary |= {"partitions": len(source.ranges), "offsets": source.offsets}


def _source(run: Run, state: State) -> Source:
    options, lakehouse = run.options, run.lakehouse
    refuse_second_topic(lakehouse, options.topic, state)
    if options.records is not None:
        files = parquet.listed(lakehouse.spark, options.records)
        unread = parquet.unread(files, state.files)
        with configured(lakehouse.spark, Stage.INGEST, parquet.estimated(unread)):
            source = from_files(
                lakehouse, options.records, options.topic, state, files=files, unread=unread
            )
        if source.markers:
            run.summary["transaction_markers"] = sum(map(len, source.markers.values()))
        return source
    cluster = kafka.Cluster.of(
        options.bootstrap_servers or "", options.kafka_config, options.isolation_level
    )
    source = from_cluster(lakehouse, cluster, options.topic, state)
    # Nobody can bring these records any more.
    if lost := truncated(source.ranges):
        run.summary["offsets_truncated"] = sum(lost)
        run.say(
            f"{sum(lost):,} offsets in {len(lost)} partitions were deleted from the start of the "
            f"log before they were read; run more often ({COVERAGE.name} lists them as truncated)"
        )
    return source


def _write(lakehouse: Lakehouse, source: Source, state: State, now: dt.datetime) -> int:
    """Append the records, account for them, and note the run; give the number of records."""
    started, number = time.monotonic(), state.run + 1
    rows = source.records.withColumns(
        {"ingested_at": F.lit(now), "ingest_run": F.lit(number).cast("bigint")}
    )
    are_few = source.offsets <= FEW_ROWS
    rows = rows.localCheckpoint(eager=False) if are_few else rows
    # If this process is killed behind this commit, the next run accounts for it by the note.
    note = note_of(lakehouse, number, source.ranges, now)
    version = lakehouse.append(RECORDS, rows, RunId(Stage.INGEST, number), note)
    if version is None:
        raise GroupledgerError(
            f"another ingest of cluster {lakehouse.cluster} has done this work; this run wrote"
            " nothing. Let one run end before the next starts"
        )
    if are_few:
        lakehouse.keep(RECORDS, rows, number)
    found, written = source.found, of_run(lakehouse, number)
    if found is None or written.count() != sum(e.records for e in found.values()):
        # A source that is read once, or a file that another program wrote to meanwhile.
        found = extents(written, record_type(F.col("key")))
    account(lakehouse, source.ranges, found, number, now, markers=source.markers)
    types = by_type(found)
    state = state.after(number, source.ranges, found, now)
    state = replace(state, files=source.files or state.files)
    note_run(lakehouse, state, types, version=version, seconds=time.monotonic() - started)
    return sum(types.values())


if __name__ == "__main__":
    sys.exit(run_job(ingest, ["ingest", *sys.argv[1:]]))

"""Source to bronze: finds what is new, appends it once, accounts for every offset.

Cluster, topic, partition and offset identify a record. A topic that was recreated, or that
lost its end, has the same offsets with other records: it is refused, with the name to give.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.text import Text

from jobs.runtime.run import Run
from jobs.runtime.runner import run_job
from jobs.runtime.state import state_of
from lakehouse.lakehouse import Lakehouse
from lakehouse.tables import FEW_ROWS
from reporting.screen import titled
from reporting.text import printable
from schemas.errors import GroupledgerError, LakehouseError, SourceError
from schemas.ledger import Detail, LedgerRow, RunId, Stage
from schemas.tables import COVERAGE, MARKER, RECORDS
from sources import kafka, parquet
from sources.coverage import (
    Extent,
    Position,
    Range,
    coverage,
    extents,
    inner_holes,
    is_marker,
    offsets_of,
    record_type,
)
from sources.kafka import Topic
from sources.plan import State, by_type, free_name, is_backfill, truncated

_NOTE = f'{{"{Stage.INGEST}": '
"""What a commit of records has in its userMetadata begins so."""

# The kind of a record of which the lakehouse has the position, with other bytes.
_OTHER = "other"

# Before a log is taken for one that lost its end, it is asked again: a new leader may not know at
# once how far it is.
_SECOND_LOOK_S = 5.0


@dataclass(frozen=True)
class Source:
    """What a source has that the lakehouse has not."""

    records: DataFrame  # the records
    ranges: list[Range]  # the offsets that they account for
    # What they hold, by record type; None of a source that is read only once.
    found: dict[Position, Extent] | None = None
    # Offsets of transactions' ends, which are no records, by partition.
    markers: dict[Position, np.ndarray] = field(default_factory=dict)
    # What tells the files that it is of, see `State`; None of a cluster.
    files: dict[str, Any] | None = None


def ingest(run: Run) -> None:
    """Bring what is new into bronze.records, and account for it in bronze.coverage."""
    lakehouse = run.lakehouse
    # Until when no record is missing: the time before the source is asked for its ends.
    now = dt.datetime.now(dt.timezone.utc)
    with run.step("looking for new records"):
        state = _recovered(lakehouse, state_of(lakehouse))
        source = _source(run, state)
    run.summary["records_ingested"] = 0
    if source.ranges:
        with run.step("writing bronze.records", "records_ingested"):
            added = _write(lakehouse, source, state, now)
            run.summary["records_ingested"] = added


def preview(run: Run) -> None:
    """Print what an ingest would read now, by partition, and write nothing."""
    with run.step("looking for new records"):
        state = state_of(run.lakehouse)
        source = _source(run, state)
    table = titled("What an ingest would read")
    table.add_column("partition")
    for name in ("from offset", "up to", "offsets", "records"):
        table.add_column(name, justify="right")
    found, offsets, records = source.found or {}, 0, 0
    for r in source.ranges:
        count = r.next_offset - r.from_offset
        extent = found.get((r.topic, r.record_partition))
        offsets += count
        records += extent.records if extent else 0
        shown = f"{extent.records:,}" if extent else "not known"
        title = Text(printable(f"{r.topic}-{r.record_partition}"))
        table.add_row(title, str(r.from_offset), str(r.next_offset - 1), f"{count:,}", shown)
    run.out.print(table)
    known = f", {records:,} records" if found else ""
    run.out.print(
        f"{len(source.ranges):,} partitions, {offsets:,} offsets{known}; nothing was written"
    )
    run.summary |= {"partitions": len(source.ranges), "offsets": offsets}


def _source(run: Run, state: State) -> Source:
    """Return what the source has; refuse a second topic: silver tells records apart by offsets."""
    if state.topic not in (None, run.options.topic):
        raise SourceError(
            f"cluster {run.lakehouse.cluster} of the lakehouse holds topic {state.topic}, not "
            f"{run.options.topic}: {_own_name(run.lakehouse)}"
        )
    if run.options.records is not None:
        return _from_files(run, run.options.records, state)
    return _from_cluster(run, state)


def _from_cluster(run: Run, state: State) -> Source:
    options = run.options
    cluster = kafka.Cluster.of(
        options.bootstrap_servers or "", options.kafka_config, options.isolation_level
    )
    topic = kafka.describe(run.spark, cluster, options.topic)
    _check_cluster(run, topic, state)
    _check_ends(run, cluster, topic, state)
    ranges = kafka.new_ranges(topic, cluster, state.positions)
    _check_last_records(run, cluster, ranges, state)
    _say_truncated(run, ranges)
    records = kafka.read(run.spark, cluster, ranges) if ranges else run.spark.range(0)
    return Source(records, ranges)


def _check_cluster(run: Run, topic: Topic, state: State) -> None:
    """Refuse another Kafka cluster: a wrong address is likelier than one that was recreated."""
    known, found = state.kafka_cluster_id, topic.kafka_cluster_id
    if known is not None and found is not None and known != found:
        raise SourceError(
            f"{run.options.bootstrap_servers} is Kafka cluster {found}, but cluster "
            f"{run.lakehouse.cluster} of the lakehouse was read from {known}: check "
            f"--bootstrap-servers, or {_own_name(run.lakehouse)}"
        )


def _check_ends(run: Run, cluster: kafka.Cluster, topic: Topic, state: State) -> None:
    """Compare id and ends of the topic with those of the one that was read."""
    if kafka.shorter(topic, state.positions):
        every = replace(cluster, isolation_level="read_uncommitted")
        topic = kafka.describe(run.spark, every, topic.name)
        if kafka.shorter(topic, state.positions):
            time.sleep(_SECOND_LOOK_S)
            topic = kafka.describe(run.spark, every, topic.name)
    _refuse_another(run, state, kafka.another_log(topic, state.positions, state.topic_id))


def _check_last_records(
    run: Run, cluster: kafka.Cluster, ranges: list[Range], state: State
) -> None:
    """Compare the last record held of each partition with the log's.

    A topic recreated has another id, but old brokers have no ids, and a killed run notes none; a
    log that lost its end and grew again keeps its id.
    """
    last = {}
    for r in ranges:
        offset = state.last_read.get((r.topic, r.record_partition), -1)
        if offset >= (r.first_offset_available or 0):
            last[r.record_partition] = offset
    theirs = kafka.fetch(run.spark, cluster, run.options.topic, last) if last else {}
    if not theirs:
        return
    at_any = F.col("record_partition").isin(*theirs) & F.col("record_offset").isin(
        *(last[p] for p in theirs)
    )
    rows = run.lakehouse.read(RECORDS).where(at_any).collect()
    ours = {(r.record_partition, r.record_offset): (r.key, r.value) for r in rows}
    found = {(p, last[p]): record for p, record in theirs.items()}
    _refuse_another(run, state, kafka.other_bytes(run.options.topic, found, ours))


def _refuse_another(run: Run, state: State, shown_by: str) -> None:
    """Refuse another log than the one that was read, if anything shows that it is one."""
    if shown_by:
        is_known = state.kafka_cluster_id is not None
        address = "" if is_known else "check --bootstrap-servers, or "
        raise SourceError(f"{shown_by}; {address}{_own_name(run.lakehouse)}")


def _own_name(lakehouse: Lakehouse) -> str:
    """Advise to keep records apart from those that a cluster has, under a name that is free."""
    name = free_name(lakehouse.cluster, lakehouse.clusters(RECORDS))
    return f"keep it under a name of its own: --cluster {name}"


def _say_truncated(run: Run, ranges: list[Range]) -> None:
    """Tell of records that nobody can bring any more."""
    if lost := truncated(ranges):
        run.summary["offsets_truncated"] = sum(lost)
        run.say(
            f"{sum(lost):,} offsets in {len(lost)} partitions were deleted from the start of the "
            f"log before they were read; run more often ({COVERAGE.name} lists them as truncated)"
        )


def _from_files(run: Run, path: str, state: State) -> Source:
    topic, files = run.options.topic, parquet.listed(run.spark, path)
    note, unread = parquet.noted(files), parquet.unread(files, state.files)
    if not unread:
        return Source(run.spark.range(0), [])
    every = parquet.read(run.spark, path, unread, is_part=len(unread) < len(files))
    records = every.where(F.col("topic") == topic)
    ends = is_marker(F.col("key"))
    found = extents(records, F.when(ends, MARKER).otherwise(record_type(F.col("key"))))
    markers: dict[Position, np.ndarray] = {}
    if any(MARKER in e.by_kind for e in found.values()):
        markers = offsets_of(records.where(ends))
        records = records.where(~ends)
        found = extents(records, record_type(F.col("key")))
        run.summary["transaction_markers"] = sum(len(offsets) for offsets in markers.values())
    elif not found and (other := every.select("topic").first()) is not None:
        raise SourceError(
            f"--records {path}: holds no record of topic {topic}, but some of {other.topic}: name "
            "it with --topic"
        )
    if found and all(e.by_kind.keys() == {""} for e in found.values()):
        parquet.check_keys(path, records)
    if state.reaches_back(found):
        held = run.lakehouse.read(RECORDS).where(_within(state.file_ranges(found)))
        compared = parquet.compared(records, held)
        kind = F.when(F.col("is_other"), _OTHER).otherwise(record_type(F.col("key")))
        found = extents(compared.where("NOT is_held OR is_other"), kind)
        if any(_OTHER in e.by_kind for e in found.values()):
            _refuse(compared.where("is_other"), path, run.lakehouse)
        records = compared.where("NOT is_held").drop("is_held", "is_other")
    if any(e.distinct_offsets < e.records for e in found.values()):
        _refuse_within(parquet.repeated_with_other_bytes(records), path)
        records = parquet.once(records)
        found = extents(records, record_type(F.col("key")))
    return Source(records, state.file_ranges(found), found, markers, note)


def _refuse(conflicts: DataFrame, path: str, lakehouse: Lakehouse) -> None:
    conflict = conflicts.first()
    if conflict is not None:
        raise SourceError(
            f"--records {path}: {conflict.topic}-{conflict.record_partition} at offset "
            f"{conflict.record_offset} has other bytes than cluster {lakehouse.cluster} of the "
            f"lakehouse has there, so it is another topic: {_own_name(lakehouse)}"
        )


def _refuse_within(conflicts: DataFrame, path: str) -> None:
    conflict = conflicts.first()
    if conflict is not None:
        raise SourceError(
            f"--records {path}: holds {conflict.topic}-{conflict.record_partition} at offset "
            f"{conflict.record_offset} twice with different bytes: it mixes several topics; ingest "
            "them one by one, each with its own --cluster"
        )


def _write(lakehouse: Lakehouse, source: Source, state: State, now: dt.datetime) -> int:
    """Append the records, account for them, and note the run; give the number of records."""
    started, number = time.monotonic(), state.run + 1
    rows = source.records.withColumns(
        {"ingested_at": F.lit(now), "ingest_run": F.lit(number).cast("bigint")}
    )
    are_few = sum(r.next_offset - r.from_offset for r in source.ranges) <= FEW_ROWS
    rows = rows.localCheckpoint(eager=False) if are_few else rows
    # If this process is killed behind this commit, the next run accounts for it by the note.
    note = {"cluster": lakehouse.cluster, "run": number, "at": now.isoformat()}
    note["ranges"] = [asdict(r) for r in source.ranges]
    version = lakehouse.append(
        RECORDS, rows, RunId(Stage.INGEST, number), json.dumps({Stage.INGEST: note})
    )
    if version is None:
        raise GroupledgerError(
            f"another ingest of cluster {lakehouse.cluster} has done this work; this run wrote"
            " nothing. Let one run end before the next starts"
        )
    if are_few:
        lakehouse.keep(RECORDS, rows, number)
    found, written = source.found, _of_run(lakehouse, number)
    if found is None or written.count() != sum(e.records for e in found.values()):
        # A source that is read once, or a file that another program wrote to meanwhile.
        found = extents(written, record_type(F.col("key")))
    _account(lakehouse, source.ranges, found, number, now, markers=source.markers)
    types = by_type(found)
    state = state.after(number, source.ranges, found, now)
    state = replace(state, files=source.files or state.files)
    _note(lakehouse, state, types, version=version, seconds=time.monotonic() - started)
    return sum(types.values())


def _of_run(lakehouse: Lakehouse, number: int) -> DataFrame:
    return lakehouse.of_runs(RECORDS, number - 1, number)


def _account(
    lakehouse: Lakehouse,
    ranges: list[Range],
    found: dict[Position, Extent],
    number: int,
    now: dt.datetime,
    *,
    markers: dict[Position, np.ndarray] | None = None,
) -> None:
    """Write the coverage of an ingest run that began at a time, from what it found."""
    records, held = _of_run(lakehouse, number), found
    if is_backfill(ranges, found):
        records = lakehouse.read(RECORDS).where(_within(ranges))
        held = extents(records)
    # Without a hole there is nothing to look for in the records, which takes longest.
    has_holes = not all(extent.is_complete for extent in held.values())
    rows = coverage(
        ranges,
        held,
        inner_holes(records) if has_holes else {},
        new_records={position: extent.records for position, extent in found.items()},
        of_run={"observed_at": now, "ingest_run": number},
        markers=markers,
    )
    lakehouse.append(COVERAGE, rows, RunId(Stage.INGEST, number))
    lakehouse.keep(COVERAGE, rows, number)


def _within(ranges: list[Range]) -> str:
    """Return SQL for the records that lie in some ranges, all of one topic."""
    return " OR ".join(
        f"record_partition = {r.record_partition}"
        f" AND record_offset BETWEEN {r.from_offset} AND {r.next_offset - 1}"
        for r in ranges
    )


# -- how far the lakehouse has got -----------------------------------------------------------------


def _recovered(lakehouse: Lakehouse, state: State) -> State:
    """Account for the records of runs that were killed, or whose ledger was lost."""
    last = lakehouse.runs.last(Stage.INGEST)
    version = None if last is None or last.run != state.run else last.versions.get(RECORDS.name)
    if lakehouse.is_at(RECORDS, version):
        return state
    # Before the notes are read: a commit that comes meanwhile is looked at by the next run.
    newest = lakehouse.version(RECORDS, version)
    notes = [
        json.loads(n)[Stage.INGEST]
        for n in lakehouse.notes(RECORDS, version)
        if n.startswith(_NOTE)
    ]
    by_run = {n["run"]: n for n in notes if n["cluster"] == lakehouse.cluster}
    known = lakehouse.runs.last_number(Stage.INGEST)
    for number in range(state.run + 1, max(_last_run(lakehouse, state), known, *by_run) + 1):
        records = _of_run(lakehouse, number)
        found = extents(records, record_type(F.col("key")))
        note = by_run.get(number)
        if note is None and not found:  # it brought no record, but its number is taken
            state = replace(state, run=number)
            continue
        if note is None:  # Delta keeps them for a month
            (at,) = records.agg(F.min("ingested_at")).collect()[0]
            now = at.astimezone(dt.timezone.utc)
            ranges = [  # without what only the source could say
                replace(r, first_offset_available=None, last_offset_available=None, source=None)
                for r in state.file_ranges(found)
            ]
        else:
            now = dt.datetime.fromisoformat(note["at"])
            ranges = [Range(**of_range) for of_range in note["ranges"]]
        _account(lakehouse, ranges, found, number, now)
        state = state.after(number, ranges, found, now)
        _note(lakehouse, state, by_type(found), version=newest)
    if state.run > lakehouse.runs.last_number(Stage.INGEST):
        _note(lakehouse, state, None, version=newest)
    return state


def _note(
    lakehouse: Lakehouse,
    state: State,
    types: dict[str, int] | None,
    *,
    version: int | None = None,
    seconds: float | None = None,
) -> None:
    """Note the run that a state is behind; without `types`, what it brought is not known."""
    former = lakehouse.runs.last_details(Stage.INGEST).get(Detail.VERSIONS, {})
    details = {
        **({} if types is None else {Detail.TYPES: types}),
        Detail.STATE: state.noted(),
        Detail.VERSIONS: lakehouse.versions([COVERAGE], former) | {RECORDS.name: version},
    }
    rows = {} if types is None else {RECORDS.name: sum(types.values())}
    row = LedgerRow(Stage.INGEST, state.run, seconds=seconds, rows=rows, details=details)
    lakehouse.runs.note(row)


def _last_run(lakehouse: Lakehouse, state: State) -> int:
    """Return the last run that has records in bronze."""
    if state.run_with_records < 0 and not lakehouse.may_hold(RECORDS):
        return -1
    records, number = lakehouse.read(RECORDS), F.col("ingest_run")
    # Delta opens no file of earlier runs, and one row tells that the last one's are there.
    last = records.where(number == state.run_with_records).select(number).limit(1)
    newer = records.where(number > state.run_with_records).select(number)
    newest = last.union(newer).agg(F.max("ingest_run").alias("run")).collect()[0].run
    if newest is None and state.run_with_records >= 0:
        last_run = records.agg(F.max(number).alias("run")).collect()[0].run
        raise LakehouseError(
            f"{lakehouse.path(RECORDS)} lacks the ingest runs "
            f"{0 if last_run is None else last_run + 1} to {state.run_with_records}, which "
            f"{COVERAGE.name} accounts for: bring it back from a copy, or use another --lakehouse"
        )
    return -1 if newest is None else int(newest)


if __name__ == "__main__":
    sys.exit(run_job(ingest, ["ingest", *sys.argv[1:]]))

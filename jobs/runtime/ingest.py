"""Source to bronze: finds what is new, appends it once, accounts for every offset.

Cluster, topic, partition and offset identify a record. A topic that was recreated, or that
lost its end, has the same offsets with other records: it is refused, with the name to give.
"""

from __future__ import annotations

import datetime as dt
import itertools
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from rich.text import Text

from jobs.runtime.sql import printable
from jobs.runtime.summary import titled
from lakehouse.runs import RunId
from schemas.errors import ConflictError, LakehouseError, SourceError
from schemas.tables import COVERAGE, RECORDS
from sources import kafka, parquet
from sources.coverage import Range, coverage, extents, inner_holes, record_type

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import Column, DataFrame

    from jobs.runtime.options import Options
    from jobs.runtime.run import Run
    from lakehouse.tables import Lakehouse
    from sources.coverage import Extent, Position
    from sources.kafka import Topic

STAGE = "ingest"
TYPES = "records_by_type"
"""Details of a run in the ledger: the number of its records by record type, "" for none."""

# The kind of a record of which the lakehouse has the position, with other bytes.
_OTHER = "other"

# Before a log is taken for one that lost its end, it is asked again: a new leader may not know at
# once how far it is.
_SECOND_LOOK_S = 5.0


@dataclass(frozen=True)
class Source:
    """What a source has that the lakehouse has not.

    Attributes:
        records: the records.
        ranges: the offsets that they account for.
        found: what they hold, by record type; None of a source that is read only once.
    """

    records: DataFrame
    ranges: list[Range]
    found: dict[Position, Extent] | None = None


@dataclass(frozen=True)
class State:
    """How far the lakehouse has got.

    Attributes:
        run: number of the last ingest run that is accounted for; -1 for none.
        run_with_records: that of the last one of them that brought records.
        positions: by partition, the offset behind the last one accounted for.
        last_read: by partition, the offset of the last record there; not if none was.
        topic_ids: by topic, its id when it was last read.
        kafka_cluster_id: id of the Kafka cluster that was last read; None if that is not known.
    """

    run: int
    run_with_records: int
    positions: dict[Position, int]
    last_read: dict[Position, int]
    topic_ids: dict[str, str]
    kafka_cluster_id: str | None


def ingest(run: Run) -> None:
    """Bring what is new into bronze.records, and account for it in bronze.coverage."""
    lakehouse = run.lakehouse
    # Until when no record is missing: the time before the source is asked for its ends.
    now = dt.datetime.now(dt.timezone.utc)
    with run.step("looking for new records"):
        state = _state(lakehouse)
        last_run = _check_records(lakehouse, state)
        for number in range(state.run + 1, last_run + 1):
            _recover(lakehouse, number, state)
            state = _state(lakehouse)
        if state.run > lakehouse.runs.last_number(STAGE):  # killed before it was noted
            lakehouse.runs.note(RunId(STAGE, state.run))
        _check_topic(state, run)
        source = _source(run, state)
    run.summary["records_ingested"] = 0
    if source.ranges:
        with run.step("writing bronze.records", "records_ingested"):
            added = _write(run, source, RunId(STAGE, state.run + 1), now)
            run.summary["records_ingested"] = added


def preview(run: Run) -> None:
    """Print what an ingest would read now, by partition, and write nothing."""
    with run.step("looking for new records"):
        state = _state(run.lakehouse)
        _check_topic(state, run)
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


def _check_records(lakehouse: Lakehouse, state: State) -> int:
    """Return the last run that has records in bronze, or is accounted for.

    Raises:
        LakehouseError: records are gone that their coverage accounts for.
    """
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
    return max(state.run, -1 if newest is None else int(newest))


def _check_topic(state: State, run: Run) -> None:
    """Refuse a second topic in one cluster: silver tells records apart by their offsets alone."""
    for topic, _ in state.positions:
        if topic != run.options.topic:
            raise SourceError(
                f"cluster {run.lakehouse.cluster} of the lakehouse holds topic {topic}, not "
                f"{run.options.topic}: {_own_name(run.lakehouse)}"
            )


def _source(run: Run, state: State) -> Source:
    if run.options.records is not None:
        return _from_files(run, run.options.records, state)
    return _from_cluster(run, run.options, state)


def _from_cluster(run: Run, options: Options, state: State) -> Source:
    properties = kafka.read_properties(options.kafka_config) if options.kafka_config else {}
    cluster = kafka.Cluster(options.bootstrap_servers or "", properties, options.isolation_level)
    topic = kafka.describe(run.spark, cluster, options.topic)
    _check_cluster(run, topic, state)
    _check_ends(run, cluster, topic, state)
    ranges = kafka.new_ranges(topic, cluster, state.positions)
    _check_last_records(run, cluster, ranges, state)
    _say_truncated(run, ranges)
    return Source(kafka.read(run.spark, cluster, ranges), ranges)


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
    _refuse_another(
        run, state, kafka.another_log(topic, state.positions, state.topic_ids.get(topic.name))
    )


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


def free_name(cluster: str, taken: Collection[str]) -> str:
    """Return the first free name of ``default.2``, ``default.3``, … behind a cluster's."""
    base, _, number = cluster.rpartition(".")
    if base not in taken or not number.isdecimal():
        base, number = cluster, "1"
    names = (f"{base}.{n}" for n in itertools.count(int(number) + 1))
    return next(name for name in names if name not in taken)


def _say_truncated(run: Run, ranges: list[Range]) -> None:
    """Tell of records that nobody can bring any more."""
    lost = [
        min(r.first_offset_available or 0, r.next_offset) - r.from_offset
        for r in ranges
        if (r.first_offset_available or 0) > r.from_offset
    ]
    if lost:
        run.summary["offsets_truncated"] = sum(lost)
        run.say(
            f"{sum(lost):,} offsets in {len(lost)} partitions were deleted from the start of the "
            f"log before they were read; run more often ({COVERAGE.name} lists them as truncated)"
        )


def _from_files(run: Run, path: str, state: State) -> Source:
    topic = run.options.topic
    every = parquet.read(run.spark, path)
    records = every.where(F.col("topic") == topic)
    found = extents(records, record_type(F.col("key")))
    if not found and (other := every.select("topic").first()) is not None:
        raise SourceError(
            f"--records {path}: holds no record of topic {topic}, but some of {other.topic}: name "
            "it with --topic"
        )
    if _reach_back(found, state):
        held = run.lakehouse.read(RECORDS).where(_within(_file_ranges(found, state)))
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
    return Source(records, _file_ranges(found, state), found)


def _reach_back(found: dict[Position, Extent], state: State) -> bool:
    """Return whether some records may be in the lakehouse."""
    return any(e.first_offset < state.positions.get(p, 0) for p, e in found.items())


def _file_ranges(found: dict[Position, Extent], state: State) -> list[Range]:
    return [_file_range(p, e, state.positions.get(p, 0)) for p, e in sorted(found.items())]


def _file_range(position: Position, extent: Extent, held_until: int) -> Range:
    topic, partition = position
    return Range(
        topic=topic,
        record_partition=partition,
        from_offset=min(held_until, extent.first_offset),
        next_offset=extent.last_offset + 1,
        first_offset_available=extent.first_offset,
        last_offset_available=extent.last_offset,
        source="parquet",
    )


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


def _write(run: Run, source: Source, number: RunId, now: dt.datetime) -> int:
    """Append the records, account for them, and note the run; give the number of records.

    Raises:
        ConflictError: another run has done this work.
    """
    lakehouse = run.lakehouse
    started = time.monotonic()
    rows = source.records.withColumns(
        {"ingested_at": F.lit(now), "ingest_run": F.lit(number.number).cast("bigint")}
    )
    lakehouse.append(RECORDS, rows, number)
    found = _written(lakehouse, source, number, now)
    _account(lakehouse, source.ranges, found, number, now)
    types: Counter[str] = Counter()
    for extent in found.values():
        types.update(extent.by_kind)
    records = types.total()
    lakehouse.runs.note(
        number,
        seconds=time.monotonic() - started,
        rows={RECORDS.name: records},
        details={TYPES: dict(sorted(types.items()))},
    )
    return records


def _written(
    lakehouse: Lakehouse, source: Source, number: RunId, now: dt.datetime
) -> dict[Position, Extent]:
    """Return what a run has written, by record type.

    Raises:
        ConflictError: another run has done this work: of a run that it has already, Delta writes
            nothing.
    """
    written = lakehouse.read(RECORDS).where(F.col("ingest_run") == number.number)
    is_other = F.col("ingested_at") != F.lit(now)
    counts = written.agg(F.count(F.lit(1)).alias("rows"), F.count_if(is_other).alias("others"))
    (held,) = counts.collect()
    expected = None if source.found is None else sum(e.records for e in source.found.values())
    if held.others or (expected and not held.rows):
        raise ConflictError(
            f"another ingest of cluster {lakehouse.cluster} has done this work; this run wrote"
            " nothing. Let one run end before the next starts"
        )
    if source.found is not None and held.rows == expected:
        return source.found
    # A source that is read once, or a file that another program wrote to meanwhile.
    return extents(written, record_type(F.col("key")))


def _account(
    lakehouse: Lakehouse,
    ranges: list[Range],
    found: dict[Position, Extent],
    number: RunId,
    now: dt.datetime,
) -> None:
    """Write the coverage of an ingest run.

    Args:
        lakehouse: where its records are.
        ranges: what the run accounts for.
        found: its records.
        number: the run.
        now: when it began.
    """
    within = f"ingest_run = {number.number}"
    held = found
    if any(_is_backfill(r, found) for r in ranges):
        # Offsets between the new records may have been held before.
        within = _within(ranges)
        held = extents(lakehouse.read(RECORDS).where(within))
    # Without a hole there is nothing to look for in the records, which takes longest.
    has_holes = not all(extent.is_complete for extent in held.values())
    rows = coverage(
        ranges,
        held,
        inner_holes(lakehouse, within) if has_holes else {},
        new_records={position: extent.records for position, extent in found.items()},
        of_run={"observed_at": now, "ingest_run": number.number},
    )
    lakehouse.append(COVERAGE, rows, number)


def _is_backfill(r: Range, found: dict[Position, Extent]) -> bool:
    extent = found.get((r.topic, r.record_partition))
    return extent is not None and extent.first_offset == r.from_offset and not extent.is_complete


def _within(ranges: list[Range]) -> str:
    """Return SQL for the records that lie in some ranges, all of one topic."""
    return " OR ".join(
        f"record_partition = {r.record_partition}"
        f" AND record_offset BETWEEN {r.from_offset} AND {r.next_offset - 1}"
        for r in ranges
    )


def _recover(lakehouse: Lakehouse, number: int, state: State) -> None:
    """Account for what a run wrote before it was killed."""
    written = lakehouse.read(RECORDS).where(F.col("ingest_run") == number)
    found = extents(written)
    (began,) = written.agg(F.unix_micros(F.min("ingested_at")).alias("at")).collect()
    ranges = [
        Range(
            topic=topic,
            record_partition=partition,
            from_offset=min(state.positions.get((topic, partition), 0), extent.first_offset),
            next_offset=extent.last_offset + 1,
        )
        for (topic, partition), extent in sorted(found.items())
    ]
    at = dt.datetime.fromtimestamp(began.at / 1_000_000, dt.timezone.utc)
    _account(lakehouse, ranges, found, RunId(STAGE, number), at)


def _state(lakehouse: Lakehouse) -> State:
    """Ask bronze.coverage how far the lakehouse has got: one row for each partition."""
    by_partition = (
        lakehouse.read(COVERAGE)
        .groupBy("topic", "record_partition")
        .agg(
            F.max("next_offset").alias("next_offset"),
            F.max("last_offset_read").alias("last_offset_read"),
            F.max("ingest_run").alias("run"),
            F.max(F.when(F.col("record_count") > 0, F.col("ingest_run"))).alias("run_with_records"),
            _newest_of("topic_id"),
            _newest_of("kafka_cluster_id"),
        )
    )
    found = by_partition.collect()
    ids = [(row.topic_id.run, row.topic, row.topic_id.value) for row in found if row.topic_id]
    clusters = [row.kafka_cluster_id for row in found if row.kafka_cluster_id]
    return State(
        run=max((row.run for row in found), default=-1),
        run_with_records=max(
            (r.run_with_records for r in found if r.run_with_records is not None), default=-1
        ),
        positions={(row.topic, row.record_partition): row.next_offset for row in found},
        last_read={
            (row.topic, row.record_partition): row.last_offset_read
            for row in found
            if row.last_offset_read is not None
        },
        topic_ids={topic: topic_id for _, topic, topic_id in sorted(ids)},
        kafka_cluster_id=max(clusters).value if clusters else None,
    )


def _newest_of(column: str) -> Column:
    """Return the value that a column had last, with the run; null if it never had one."""
    value = F.struct(F.col("ingest_run").alias("run"), F.col(column).alias("value"))
    return F.max(F.when(F.col(column).isNotNull(), value)).alias(column)

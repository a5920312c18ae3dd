"""How far the lakehouse has got: what an ingest goes on from, and what later stages know of it.

Each run accounts in bronze.coverage for the offsets that it has read, and notes the state behind
it. What a killed run has left to do, or is lost, is made good from the records.
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from schemas.errors import LakehouseError
from schemas.ledger import Detail, LedgerRow, RunId, Stage
from schemas.tables import COVERAGE, RECORDS
from sources.coverage import (
    Extent,
    Position,
    Range,
    coverage,
    extents,
    inner_holes,
    record_type,
    within,
)
from sources.plan import State, by_type, is_backfill
from storage.lakehouse import Lakehouse

_NOTE = f'{{"{Stage.INGEST}": '
"""What a commit of records has in its userMetadata begins so."""


def state_of(lakehouse: Lakehouse) -> State:
    """Return how far the lakehouse has got, by its ledger; by bronze.coverage if that was lost."""
    last = lakehouse.runs.last(Stage.INGEST)
    if last is not None and lakehouse.has_all([COVERAGE], last.versions):
        return State.of_note(last.run, last.details[Detail.STATE])
    return _state_covered(lakehouse) if lakehouse.may_hold(COVERAGE) else State()


def _state_covered(lakehouse: Lakehouse) -> State:
    """Ask bronze.coverage how far the lakehouse has got: one row for each partition."""
    at = F.unix_millis(F.max("observed_at"))
    is_behind = F.col("last_offset_available") >= F.col("next_offset")
    by_partition = (
        lakehouse.read(COVERAGE)
        .groupBy("topic", "record_partition")
        .agg(
            F.max("next_offset").alias("next_offset"),
            F.max("last_offset_read").alias("last_offset_read"),
            F.max("ingest_run").alias("run"),
            F.sum("record_count").alias("records"),
            F.max(F.when(F.col("record_count") > 0, F.col("ingest_run"))).alias("run_with_records"),
            F.max_by(is_behind, "ingest_run").alias("is_behind"),
            at.alias("observed_at"),
            _newest_of("topic_id"),
            _newest_of("kafka_cluster_id"),
        )
    )
    found = by_partition.collect()

    def newest(name: str, none: int | None = None) -> Any:  # noqa: ANN401 - or a struct of a column
        return max((row[name] for row in found if row[name] is not None), default=none)

    topic_id, kafka_cluster_id = newest("topic_id"), newest("kafka_cluster_id")
    return State(
        run=newest("run", -1),
        run_with_records=newest("run_with_records", -1),
        records=sum(row.records for row in found),
        topic=newest("topic"),
        positions={(row.topic, row.record_partition): row.next_offset for row in found},
        last_read={
            (row.topic, row.record_partition): row.last_offset_read
            for row in found
            if row.last_offset_read is not None
        },
        behind=frozenset(row.record_partition for row in found if row.is_behind),
        observed_at=newest("observed_at"),
        topic_id=None if topic_id is None else topic_id.value,
        kafka_cluster_id=None if kafka_cluster_id is None else kafka_cluster_id.value,
    )


def _newest_of(column: str) -> Column:
    """Return the value that a column had last, with the run; null if it never had one."""
    value = F.struct(F.col("ingest_run").alias("run"), F.col(column).alias("value"))
    return F.max(F.when(F.col(column).isNotNull(), value)).alias(column)


def recovered(lakehouse: Lakehouse, state: State) -> State:
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
        records = of_run(lakehouse, number)
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
        account(lakehouse, ranges, found, number, now)
        state = state.after(number, ranges, found, now)
        note_run(lakehouse, state, by_type(found), version=newest)
    if state.run > lakehouse.runs.last_number(Stage.INGEST):
        note_run(lakehouse, state, None, version=newest)
    return state


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


def note_of(lakehouse: Lakehouse, number: int, ranges: list[Range], now: dt.datetime) -> str:
    """Return what the commit of a run's records has with it, for `recovered`."""
    note = {"cluster": lakehouse.cluster, "run": number, "at": now.isoformat()}
    note["ranges"] = [asdict(r) for r in ranges]
    return json.dumps({Stage.INGEST: note})


def account(
    lakehouse: Lakehouse,
    ranges: list[Range],
    found: dict[Position, Extent],
    number: int,
    now: dt.datetime,
    *,
    markers: dict[Position, np.ndarray] | None = None,
) -> None:
    """Write the coverage of an ingest run that began at a time, from what it found."""
    records, held = of_run(lakehouse, number), found
    if is_backfill(ranges, found):
        records = lakehouse.read(RECORDS).where(within(ranges))
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


def note_run(
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


def of_run(lakehouse: Lakehouse, number: int) -> DataFrame:
    """Read the records of an ingest run."""
    return lakehouse.of_runs(RECORDS, number - 1, number)

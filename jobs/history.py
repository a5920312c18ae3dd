"""Silver to gold: rebuilds the history of the groups that have new records.

A run that was killed is resumed with the same range, and each table takes its rows once. The
checkpoints, from which the next run resumes, are written last.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.runtime.run import Run
from jobs.runtime.runner import run_job
from jobs.runtime.session import configured
from offsets.transform import FOLLOWED, follow_offsets, is_followed, joined_hours
from schemas.ledger import PLANNED, Detail, LedgerRow, Stage, taken
from schemas.placement import KAFKA, REDPANDA
from schemas.tables import (
    COMMITTED_OFFSETS,
    COVERAGE,
    GROUP_CHECKPOINTS,
    MARKER,
    OFFSET_MOVES,
    QUARANTINE,
    decoded_table,
)
from storage.history import (
    TABLES,
    Written,
    count_of,
    is_made,
    is_whole,
    last_run,
    named,
    summed_up,
    without,
)
from storage.lakehouse import Lakehouse
from storage.runs import StageRun
from storage.tables import between, no_rows
from timeline.changes import Changes, changes, late_partitions
from timeline.commits import COMMITS
from timeline.holes import HOLE
from timeline.homes import Locations, second_of, with_second
from timeline.transform import at_home, late_groups, locate, timeline

# To be raised when the same records make other rows: those of earlier releases are then rebuilt.
_RULES = 27


def history(run: Run) -> None:
    """Bring the gold tables up to what has been decoded."""
    run.summary |= {"groups_changed": 0, "groups_replayed": 0}
    while _follow(run):
        pass


def _follow(run: Run) -> bool:
    """Do one run; return whether it was one that another had begun, so that more may be left."""
    lakehouse, runs = run.lakehouse, run.lakehouse.runs
    with run.step("looking for new decoded records"):
        last, to = runs.last(Stage.HISTORY), runs.last_number(Stage.DECODE)
        # Without a run in the ledger it may be lost, and the tables name the last one.
        is_asked = last is None and runs.last(Stage.HISTORY, PLANNED) is None
        floor = last_run(lakehouse) if is_asked else -1
        refresh = floor >= 0 if last is None else _needs_refresh(lakehouse, last, to)
    with runs.incremental(
        Stage.HISTORY, to=to, refresh=refresh, floor=floor, plan={Detail.REVISION: _RULES}
    ) as stage:
        if stage is None:
            return False
        with run.step("writing the history", "groups_changed"):
            _update(run, stage)
    return stage.is_resumed


def _needs_refresh(lakehouse: Lakehouse, last: LedgerRow, to: int) -> bool:
    if last.details.get(Detail.REVISION) != _RULES or not is_made(lakehouse, last):
        return True
    if to <= last.to_run:
        return False
    new = lakehouse.runs.done(Stage.DECODE, last.to_run, to)
    return any(row.is_refresh for row in new) or not is_whole(lakehouse, last)


def _update(run: Run, stage: StageRun) -> None:
    lakehouse, number = run.lakehouse, stage.id.number
    new = _changes(lakehouse, stage)
    with configured(lakehouse.spark, Stage.HISTORY, new.records):
        given = _given(lakehouse, stage, new, run.options.placement)
        if not (stage.is_resumed and count_of(lakehouse, GROUP_CHECKPOINTS, number)):
            changed = _write(lakehouse, stage, new, given)
            run.add(groups_changed=changed, groups_replayed=len(given.replayed))
            stage.details[Detail.REPLAYED] = len(given.replayed)
    if stage.is_resumed:
        # What it would count now is not what the killed run wrote before it was killed.
        stage.rows = {spec.name: count_of(lakehouse, spec, number) for spec in TABLES}
        went_back = lakehouse.of_runs(OFFSET_MOVES, number - 1, number)
        stage.details[Detail.WENT_BACK] = went_back.where("last_there_at IS NOT NULL").count()
    written = {} if stage.is_refresh else stage.former.get(Detail.WRITTEN, {})
    of_run = [spec for spec in TABLES if stage.rows.get(spec.name)]
    versions = lakehouse.versions(of_run, stage.former.get(Detail.VERSIONS, {}))
    stage.details |= new.noted() | given.locations.noted()
    stage.details |= {
        Detail.WRITTEN: written | dict.fromkeys((spec.short_name for spec in of_run), number),
        Detail.VERSIONS: versions,
    }


def _changes(lakehouse: Lakehouse, stage: StageRun) -> Changes:
    runs, after = lakehouse.runs.done(Stage.DECODE, stage.after, stage.to), stage.after
    former = {} if stage.is_refresh else stage.former
    covered = _covered(lakehouse, runs)
    late = late_partitions(former, covered)
    is_late = bool(late) or any(row.details.get(Detail.RETRIED) for row in runs)
    is_late &= not stage.is_refresh
    if is_late:
        runs, after = lakehouse.runs.done(Stage.DECODE, -1, stage.to), -1
        covered = _covered(lakehouse, runs)
    refused = None
    if any(row.details.get(Detail.QUARANTINED) for row in runs):
        offset, is_new = F.col("record_offset"), between("decode_run", after, stage.to)
        rows = lakehouse.read(QUARANTINE).where(is_new).select("record_partition", offset, offset)
        refused = rows.toArrow().rename_columns(HOLE)
    ingests = lakehouse.runs.done(Stage.INGEST, *taken(runs))
    noted = {row.run: row.details.get(Detail.STATE, {}).get("newest_at") for row in ingests}
    newest = {run: at for run, at in noted.items() if at is not None}
    return changes(former, runs, covered, refused, newest, late=late, is_late=is_late)


def _covered(lakehouse: Lakehouse, runs: list[LedgerRow]) -> pa.Table:
    """Read the coverage rows of the ingest runs that some decode runs processed."""
    rows = lakehouse.of_runs(COVERAGE, *taken(runs))
    # Where a transaction ended, no record is missing.
    holes = F.filter("holes", lambda hole: hole["reason"] != MARKER)
    bounds = (holes[f"{end}_offset"].alias(end) for end in ("start", "end"))
    position = ("record_partition", "ingest_run", "from_offset", "next_offset", "source")
    return rows.select(*position, "partitions", *bounds).toArrow().sort_by("ingest_run")


class _Given(NamedTuple):
    """What a run processes."""

    silver: dict[str, DataFrame]  # rows by table
    checkpoints: DataFrame | None  # where their groups resume
    committed: DataFrame | None  # the last commits before the run
    replayed: list[str]  # groups that are rebuilt from their first record
    locations: Locations  # where the groups' records are


def _given(lakehouse: Lakehouse, stage: StageRun, new: Changes, placement: str | None) -> _Given:
    silver = {
        table: lakehouse.of_runs(decoded_table(table), stage.after, stage.to)
        for table in new.tables
    }
    is_new = between("decode_run", stage.after, stage.to)
    checkpoints, committed, replayed = None, None, list[str]()
    former = {} if stage.is_refresh else stage.former
    second = second_of(former)
    if former:
        checkpoints, committed = map(lakehouse.read, (GROUP_CHECKPOINTS, COMMITTED_OFFSETS))
        if new.is_late:
            replayed = late_groups(silver, checkpoints, new.before, new.late)
        replayed = with_second(replayed, second)
    if replayed:
        known = between("decode_run", -1, stage.to)
        names = named(lakehouse.spark, replayed).withColumn("is_replayed", F.lit(True))  # noqa: FBT003
        every = {table: lakehouse.read(decoded_table(table)) for table in new.tables}
        silver = {
            table: rows.where(known)
            .join(F.broadcast(names), "group_id", how="left")
            .where(f"is_replayed OR {is_new}")
            .select(*rows.columns)
            for table, rows in every.items()
        }
        checkpoints, committed = (
            None if rows is None else without(rows, names) for rows in (checkpoints, committed)
        )
    likeliest = placement or former.get(Detail.PLACED_BY, KAFKA)
    others = [each for each in (KAFKA, REDPANDA) if each != likeliest and placement is None]
    by = [likeliest, *others]
    locations = locate(silver, checkpoints, new.counts, is_new, by, second=second)
    return _Given(at_home(silver, locations), checkpoints, committed, replayed, locations)


def _write(lakehouse: Lakehouse, stage: StageRun, new: Changes, given: _Given) -> int:
    """Write the tables; give the number of groups with new rows."""
    is_known = stage.is_resumed and is_followed(given.committed, new.before)
    followed = (
        follow_offsets(given.silver[COMMITS], given.committed, new.holes)
        if COMMITS in given.silver and not is_known
        else no_rows(lakehouse.spark, FOLLOWED)
    )
    rebuilt = timeline(given.silver, given.checkpoints, new.holes, given.locations.placement)
    # Not persisted: a write to a table makes Spark recompute all cached rows that read from it. Two
    # frames, since to find a table's rows takes a pass over all that are held together. On the
    # disk: as objects they would need a larger heap, and be no faster.
    rebuilt, followed = (
        f.localCheckpoint(eager=False, storageLevel=StorageLevel.DISK_ONLY)
        for f in (rebuilt, followed)
    )
    rows = rebuilt.unionByName(followed, allowMissingColumns=True)
    # Late records have earlier offsets, and no earlier run had them.
    totals = summed_up(rows, {} if new.is_late else new.before)
    stage.rows = {f"gold.{table}": count for table, count in totals.counts.items()}
    stage.details |= totals.noted
    if is_known:  # the hours of the killed run are there, and it did not count them here
        del stage.details[Detail.FIRST_HOUR]
    Written(lakehouse, stage, rebuilt, followed, joined_hours, given.replayed, totals).write()
    return len(totals.groups)


if __name__ == "__main__":
    sys.exit(run_job(history, ["history", *sys.argv[1:]]))

"""Silver to gold: rebuilds the history of the groups that have new records.

A run that was killed is resumed with the same range, and each table takes its rows once. The
checkpoints, from which the next run resumes, are written last.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.runtime.run import Run
from jobs.runtime.runner import run_job
from jobs.runtime.session import configured
from lakehouse.lakehouse import Lakehouse
from lakehouse.runs import StageRun
from lakehouse.tables import (
    EVERY_ROW,
    FEW_ROWS,
    OPEN_ROWS,
    among,
    between,
    no_rows,
    rows_of,
)
from offsets.progress import HOURS, LATEST, MOVES
from offsets.transform import FOLLOWED, follow_offsets, joined_hours
from schemas.gold import HISTORY_RUN
from schemas.ledger import PLANNED, Detail, LedgerRow, Stage
from schemas.placement import KAFKA, REDPANDA
from schemas.silver import silver_tables
from schemas.tables import COVERAGE, MARKER, QUARANTINE, all_tables, decoded_table
from timeline.commits import COMMITS
from timeline.holes import HOLE, Holes, holes_in, holes_of, ranges, unread
from timeline.homes import Locations, second_of, with_second
from timeline.model import CHECKPOINTS, OWNERS, STATES, TABLES
from timeline.transform import at_home, locate, timeline

# To be raised when the same records make other rows: those of earlier releases are then rebuilt.
_RULES = 23
_TABLES_AT_ONCE = 4
_SPECS = {
    table: all_tables()[f"gold.{table}"] for table in (*TABLES, HOURS, MOVES, LATEST, CHECKPOINTS)
}
_RUN = HISTORY_RUN.name


def history(run: Run) -> None:
    """Bring the gold tables up to what has been decoded."""
    run.summary |= {"groups_changed": 0, "groups_replayed": 0}
    while _follow(run):
        pass


def _follow(run: Run) -> bool:
    """Do one run; return whether it was one that another had begun, so that more may be left."""
    lakehouse = run.lakehouse
    with run.step("looking for new decoded records"):
        last, to = lakehouse.runs.last(Stage.HISTORY), lakehouse.runs.last_number(Stage.DECODE)
        floor = -1 if last is not None else _last_run_of(lakehouse)
        refresh = floor >= 0 if last is None else _needs_refresh(lakehouse, last, to)
    plan = {Detail.REVISION: _RULES}
    with lakehouse.runs.incremental(
        Stage.HISTORY, to=to, refresh=refresh, floor=floor, plan=plan
    ) as stage:
        if stage is None:
            return False
        with run.step("writing the history", "groups_changed"):
            _update(run, stage)
    return stage.is_resumed


# -- whether a full refresh is due -----------------------------------------------------------------


def _last_run_of(lakehouse: Lakehouse) -> int:
    """Return the last run whose rows the tables have, if the ledger was lost; -1 without one."""
    if lakehouse.runs.last(Stage.HISTORY, PLANNED) is not None:
        return -1
    made = [table for table in _SPECS if _is_numbered(table) and lakehouse.may_hold(_SPECS[table])]
    numbers = [lakehouse.read(_SPECS[table]).select(_RUN) for table in made]
    if not numbers:
        return -1
    last = reduce(DataFrame.unionByName, numbers).agg(F.max(_RUN)).collect()[0][0]
    return -1 if last is None else int(last)


def _needs_refresh(lakehouse: Lakehouse, last: LedgerRow, to: int) -> bool:
    if last.details.get(Detail.REVISION) != _RULES:
        return True
    written: dict[str, int] = last.details.get(Detail.WRITTEN, {CHECKPOINTS: 0})
    if not all(lakehouse.exists(_SPECS[table]) for table in written):
        return True
    if to <= last.to_run:
        return False
    if any(row.is_refresh for row in lakehouse.runs.done(Stage.DECODE, last.to_run, to)):
        return True
    if lakehouse.has_all([_SPECS[table] for table in written], last.versions):
        return False
    parts = [
        lakehouse.read(_SPECS[table])
        .where(f"{_RUN} >= {number}" if _is_numbered(table) else EVERY_ROW)
        .select(F.lit(table).alias("name"))
        .limit(1)
        for table, number in written.items()
    ]
    held = reduce(DataFrame.unionByName, parts).collect() if parts else []
    return len(held) < len(written)


def _is_numbered(table: str) -> bool:
    return any(c is HISTORY_RUN for c in _SPECS[table].columns)


# -- what is new, and what is missing --------------------------------------------------------------


@dataclass(frozen=True)
class _Changes:
    """What a run has to process."""

    tables: list[str]  # silver tables that have new records; that of commits if all were refused
    # How many there are; None if groups may be rebuilt, which takes all of theirs.
    records: int | None
    # Some of them may lie before what earlier runs processed, since they were in quarantine, or
    # come from files of earlier times.
    is_late: bool
    holes: dict[int, Holes]  # offsets that were not read or not decoded, by partition
    positions: dict[int, int]  # by partition, the next offset to be processed after the run
    before: dict[int, int]  # the same, before the run
    late: set[int]  # partitions in which offsets below `before` were read
    # How many partitions the topic has had, the newest last, as far as a cluster or an earlier run
    # tells.
    counts: list[int]
    # By partition, the time of the newest record of all when it was read last, in epoch
    # milliseconds.
    read_until: dict[int, int]


def _changes(lakehouse: Lakehouse, stage: StageRun) -> _Changes:
    former = {} if stage.is_refresh else stage.former
    known, before, read_until = (
        _by_partition(former, name)
        for name in (Detail.POSITIONS, Detail.LAST_HOLES, Detail.READ_UNTIL)
    )
    runs = lakehouse.runs.done(Stage.DECODE, stage.after, stage.to)
    covered = _covered(lakehouse, runs)
    late = {p for p, start, _ in ranges(covered) if start < known.get(p, 0)}
    is_late = bool(late) or any(row.details.get(Detail.RETRIED) for row in runs)
    is_late &= not stage.is_refresh
    if is_late:
        # Groups that are rebuilt need all holes, not the last one alone.
        before, read_until, runs = {}, {}, lakehouse.runs.done(Stage.DECODE, -1, stage.to)
        covered = _covered(lakehouse, runs)
    positions = known.copy()
    for partition, _, end in ranges(covered):
        positions[partition] = max(positions.get(partition, 0), end)
    missing = holes_in(covered)
    if any(row.details.get(Detail.QUARANTINED) for row in runs):
        is_new = between("decode_run", -1 if is_late else stage.after, stage.to)
        # Columns of the quarantine are not nullable in its schema; those of `missing` are.
        refused = _refused(lakehouse, is_new).cast(missing.schema)
        missing = pa.concat_tables([missing, refused])
    partitions, starts, ends = (column.to_numpy() for column in missing.columns)
    holes = holes_of(partitions, starts, ends, before)
    newest = _newest(lakehouse, runs)
    for partition, unseen in unread(covered, newest, read_until).items():
        holes[partition] = holes[partition]._replace(unseen=unseen)
    listed = pc.unique(covered["partitions"]).drop_null()
    decoded = [t for t in silver_tables() if any(r.rows.get(decoded_table(t).name) for r in runs)]
    return _Changes(
        decoded or [COMMITS],
        None if is_late else sum(sum(row.rows.values()) for row in runs),
        is_late,
        holes,
        positions,
        known,
        late,
        sorted({*former.get(Detail.PARTITIONS, ()), *listed.to_pylist()}),
        read_until,
    )


def _by_partition(details: dict[str, dict[str, int]], name: str) -> dict[int, int]:
    return {int(partition): offset for partition, offset in details.get(name, {}).items()}


def _covered(lakehouse: Lakehouse, runs: list[LedgerRow]) -> pa.Table:
    """Read the coverage rows of the ingest runs that some decode runs processed."""
    first, last = min(row.after_run for row in runs), max(row.to_run for row in runs)
    rows = lakehouse.of_runs(COVERAGE, first, last)
    # Where a transaction ended, no record is missing.
    holes = F.filter("holes", lambda hole: hole["reason"] != MARKER)
    bounds = (holes[f"{end}_offset"].alias(end) for end in ("start", "end"))
    position = ("record_partition", "ingest_run", "from_offset", "next_offset", "source")
    return rows.select(*position, "partitions", *bounds).toArrow().sort_by("ingest_run")


def _newest(lakehouse: Lakehouse, runs: list[LedgerRow]) -> dict[int, int]:
    """Return the time of the newest record, by the ingest runs that some decode runs processed."""
    first, last = min(row.after_run for row in runs), max(row.to_run for row in runs)
    ingests = lakehouse.runs.done(Stage.INGEST, first, last)
    noted = {row.run: row.details.get(Detail.STATE, {}).get("newest_at") for row in ingests}
    return {run: at for run, at in noted.items() if at is not None}


def _refused(lakehouse: Lakehouse, is_new: str) -> pa.Table:
    """Return each offset that was not decoded, as a hole."""
    offset = F.col("record_offset")
    rows = lakehouse.read(QUARANTINE).where(is_new)
    return rows.select("record_partition", offset, offset).toArrow().rename_columns(HOLE)


# -- the run ---------------------------------------------------------------------------------------


def _update(run: Run, stage: StageRun) -> None:
    lakehouse = run.lakehouse
    changes = _changes(lakehouse, stage)
    with configured(lakehouse.spark, Stage.HISTORY, changes.records):
        given = _given(lakehouse, stage, changes, run.options.placement)
        if not (stage.is_resumed and _of_run(lakehouse, stage, CHECKPOINTS)):
            changed = _write(lakehouse, stage, changes, given)
            run.add(groups_changed=changed, groups_replayed=len(given.replayed))
            stage.details[Detail.REPLAYED] = len(given.replayed)
    if stage.is_resumed:
        # What it would count now is not what the killed run wrote before it was killed.
        stage.rows = {_SPECS[table].name: _of_run(lakehouse, stage, table) for table in _SPECS}
        went_back = lakehouse.of_runs(_SPECS[MOVES], stage.id.number - 1, stage.id.number)
        stage.details[Detail.WENT_BACK] = went_back.where("last_there_at IS NOT NULL").count()
    written = {} if stage.is_refresh else stage.former.get(Detail.WRITTEN, {})
    of_run = {table: stage.id.number for table, spec in _SPECS.items() if stage.rows.get(spec.name)}
    holes = changes.holes.items()
    stage.details |= {
        Detail.POSITIONS: {
            str(partition): offset for partition, offset in changes.positions.items()
        },
        Detail.PARTITIONS: given.locations.counts,
        Detail.PLACED_BY: given.locations.by,
        Detail.MISPLACED: given.locations.misplaced,
        Detail.SECOND: given.locations.second,
        Detail.HAS_MOVED: bool(given.locations.elsewhere),
        Detail.READ_UNTIL: {str(p): at for p, at in changes.read_until.items()},
        Detail.LAST_HOLES: {str(p): of_p.last for p, of_p in holes if of_p.last >= 0},
        Detail.WRITTEN: written | of_run,
        Detail.VERSIONS: lakehouse.versions(
            [_SPECS[table] for table in of_run], stage.former.get(Detail.VERSIONS, {})
        ),
    }


def _of_run(lakehouse: Lakehouse, stage: StageRun, table: str) -> int:
    """Count the rows of a table that a run wrote; all of them where they do not say so."""
    rows = lakehouse.read(_SPECS[table])
    return (rows.where(F.col(_RUN) == stage.id.number) if _is_numbered(table) else rows).count()


@dataclass(frozen=True)
class _Given:
    """What a run processes."""

    silver: dict[str, DataFrame]  # rows by table
    checkpoints: DataFrame | None  # where their groups resume
    committed: DataFrame | None  # the last commits before the run
    replayed: list[str]  # groups that are rebuilt from their first record
    locations: Locations  # where the groups' records are


def _given(
    lakehouse: Lakehouse, stage: StageRun, changes: _Changes, placement: str | None
) -> _Given:
    silver = {
        table: lakehouse.of_runs(decoded_table(table), stage.after, stage.to)
        for table in changes.tables
    }
    is_new = between("decode_run", stage.after, stage.to)
    checkpoints, committed, replayed = None, None, list[str]()
    former = {} if stage.is_refresh else stage.former
    second = second_of(former)
    if former:
        checkpoints, committed = (lakehouse.read(_SPECS[table]) for table in (CHECKPOINTS, LATEST))
        replayed = _replayed(silver, checkpoints, changes) if changes.is_late else []
        replayed = with_second(replayed, second)
    if replayed:
        known = between("decode_run", -1, stage.to)
        names = _named(lakehouse, replayed).withColumn("is_replayed", F.lit(True))  # noqa: FBT003
        every = {table: lakehouse.read(decoded_table(table)) for table in changes.tables}
        silver = {
            table: rows.where(known)
            .join(F.broadcast(names), "group_id", how="left")
            .where(f"is_replayed OR {is_new}")
            .select(*rows.columns)
            for table, rows in every.items()
        }
        checkpoints, committed = (
            None if rows is None else _without(rows, names) for rows in (checkpoints, committed)
        )
    likeliest = placement or former.get(Detail.PLACED_BY, KAFKA)
    others = [each for each in (KAFKA, REDPANDA) if each != likeliest and placement is None]
    by = [likeliest, *others]
    locations = locate(silver, checkpoints, changes.counts, is_new, by, second=second)
    return _Given(at_home(silver, locations), checkpoints, committed, replayed, locations)


def _replayed(new: dict[str, DataFrame], checkpoints: DataFrame, changes: _Changes) -> list[str]:
    """Return the groups to rebuild: those of late records, and all in the same partitions.

    Whether offsets are missing in a partition concerns all groups in it.
    """
    key = ("group_id", "record_partition")
    positions = (rows.select(*key, "record_offset") for rows in new.values())
    is_late = F.col("record_offset") < _first_new(changes.before, F.col("record_partition"))
    late = reduce(DataFrame.unionByName, positions).where(is_late).select(*key).distinct()
    partitions = changes.late | {row.record_partition for row in late.collect()}
    there = checkpoints.where(F.col("record_partition").isin(*partitions))
    moved = checkpoints.join(late.select("group_id"), "group_id", how="left_semi")
    groups = there.unionByName(moved).select("group_id").distinct().collect()
    return [row.group_id for row in groups]


def _first_new(before: dict[int, int], partition: Column) -> Column:
    """Return the first offset that no earlier run had, by partition; null where none had any."""
    return F.create_map(*(F.lit(x) for pair in before.items() for x in pair))[partition]


def _named(lakehouse: Lakehouse, groups: Iterable[str]) -> DataFrame:
    return lakehouse.spark.createDataFrame(pa.table({"group_id": pa.array(groups, pa.string())}))


def _without(rows: DataFrame, groups: DataFrame) -> DataFrame:
    return rows.join(F.broadcast(groups), "group_id", how="left_anti")


def _write(lakehouse: Lakehouse, stage: StageRun, changes: _Changes, given: _Given) -> int:
    """Write the tables; give the number of groups with new rows."""
    is_followed = stage.is_resumed and _is_followed(given.committed, changes.before)
    followed = (
        follow_offsets(given.silver[COMMITS], given.committed, changes.holes)
        if COMMITS in given.silver and not is_followed
        else no_rows(lakehouse.spark, FOLLOWED)
    )
    rebuilt = timeline(given.silver, given.checkpoints, changes.holes, given.locations.placement)
    # Not persisted: a write to a table makes Spark recompute all cached rows that read from it. Two
    # frames, since to find a table's rows takes a pass over all that are held together. On the
    # disk: as objects they would need a larger heap, and be no faster.
    rebuilt, followed = (
        f.localCheckpoint(eager=False, storageLevel=StorageLevel.DISK_ONLY)
        for f in (rebuilt, followed)
    )
    rows = rebuilt.unionByName(followed, allowMissingColumns=True)
    # Late records have earlier offsets, and no earlier run had them.
    totals = _summed_up(rows, {} if changes.is_late else changes.before)
    stage.rows = {_SPECS[table].name: count for table, count in totals.counts.items()}
    stage.details |= {
        **({} if is_followed else {Detail.FIRST_HOUR: totals.first_hour}),
        Detail.BEGUN_SINCE: totals.begun_since,
        Detail.WENT_BACK: totals.went_back,
    }
    of_table = dict.fromkeys(_SPECS, rebuilt) | dict.fromkeys((HOURS, MOVES, LATEST), followed)
    tables = _Tables(lakehouse, stage, of_table, given.replayed, totals)
    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        parts = [*(pool.submit(tables.write_open, table) for table in TABLES)]
        parts += [pool.submit(write) for write in (tables.write_moves, tables.write_hours)]
        for part in parts:
            part.result()
    # Written last: the next run resumes from these, and so does one that was killed before.
    tables.write_committed()
    tables.write_checkpoints()
    return len(totals.groups)


def _is_followed(committed: DataFrame | None, before: dict[int, int]) -> bool:
    """Return whether the last commits are those behind this run: they are written behind its moves.

    To follow its commits once more would find rewinds that were none.
    """
    if committed is None or not before:
        return False
    first = F.coalesce(_first_new(before, F.col("record_partition")), F.lit(0))
    return not committed.where(F.col("record_offset") >= first).isEmpty()


class _Totals(NamedTuple):
    """What a run wrote."""

    counts: dict[str, int]  # rows by table
    groups: list[str]  # the groups that they are of
    # The first hour with commits, in epoch milliseconds; None if they have no time.
    first_hour: int | None
    begun_since: int | None  # when the first state or ownership of its own records began, likewise
    went_back: int  # moves to where a group had been before


def _summed_up(rows: DataFrame, before: dict[int, int]) -> _Totals:
    """Sum up the rows of a run, in one query; those of its own records are from `before` on."""

    def begun(table: str, begin: str) -> Column:
        at = F.col(f"{table}.{begin}")
        if before:
            first = _first_new(before, F.col(f"{table}.record_partition"))
            at = F.when(F.col(f"{table}.record_offset") >= F.coalesce(first, F.lit(0)), at)
        return F.min(at)

    parts = (
        rows.groupBy("table")
        .agg(
            F.count("*").alias("rows"),
            F.collect_list(f"{CHECKPOINTS}.group_id").alias("groups"),
            F.unix_millis(F.min(f"{HOURS}.hour")).alias("first_hour"),
            F.count(f"{MOVES}.last_there_at").alias("went_back"),
            F.unix_millis(F.least(begun(STATES, "started_at"), begun(OWNERS, "valid_from"))).alias(
                "begun_since"
            ),
        )
        .collect()
    )
    hours, since = ([part[name] for part in parts] for name in ("first_hour", "begun_since"))
    return _Totals(
        {part.table: part.rows for part in parts},
        [group for part in parts for group in part.groups],
        min((at for at in hours if at is not None), default=None),
        min((at for at in since if at is not None), default=None),
        sum(part.went_back for part in parts),
    )


@dataclass(frozen=True)
class _Tables:
    """Writes the rows of a run, each table once."""

    lakehouse: Lakehouse
    stage: StageRun
    rows: dict[str, DataFrame]  # by table, those of all that are held together
    replayed: list[str]
    totals: _Totals

    def write_open(self, table: str) -> None:
        """Add the rows that are settled, and replace the former open ones."""
        rows = self._with_unchanged(table, self._numbered(table), OPEN_ROWS)
        self._put(table, rows, OPEN_ROWS)

    def write_moves(self) -> None:
        """Add the moves."""
        self._put(MOVES, self._numbered(MOVES), None)

    def write_hours(self) -> None:
        """Add the hours; those that earlier runs had begun go on."""
        hours, first = rows_of(self.rows[HOURS], HOURS), self.totals.first_hour
        may_go_on = "hour IS NULL"
        if first is not None:
            may_go_on += f" OR hour >= timestamp_millis({first})"
        if self._goes_on:
            earlier = self.lakehouse.read(_SPECS[HOURS]).where(may_go_on).select(*hours.columns)
            if self.replayed:
                earlier = _without(earlier, _named(self.lakehouse, self.replayed))
            joined = joined_hours(earlier.unionByName(hours))
            hours = rows_of(joined.localCheckpoint(eager=False), HOURS)
        self._put(HOURS, hours, may_go_on)

    def write_committed(self) -> None:
        """Write the last commit of each partition, also of those without new records."""
        self._put(LATEST, rows_of(self.rows[LATEST], LATEST), EVERY_ROW)

    def write_checkpoints(self) -> None:
        """Write the checkpoint of each group, also of those without new records."""
        since = F.coalesce("rebuilt_run", _RUN)
        rows = self._numbered(CHECKPOINTS).withColumn("rebuilt_run", since)
        self._put(CHECKPOINTS, self._with_unchanged(CHECKPOINTS, rows, EVERY_ROW), EVERY_ROW)

    @cached_property
    def _changed(self) -> DataFrame:
        return _named(self.lakehouse, self.totals.groups)

    @property
    def _goes_on(self) -> bool:
        return bool(self.stage.former) and not self.stage.is_refresh

    def _is_touched(self, table: str) -> bool:
        return bool(self.totals.counts.get(table) or self.replayed)

    def _with_unchanged(self, table: str, rows: DataFrame, where: str) -> DataFrame:
        """Add the rows that meet a condition of groups without new records."""
        if not self._goes_on or not self._is_touched(table):
            return rows
        kept = _without(self.lakehouse.read(_SPECS[table]).where(where), self._changed)
        return rows.unionByName(kept.select(*rows.columns).localCheckpoint(eager=False))

    def _put(self, table: str, rows: DataFrame, where: str | None) -> None:
        """Replace the rows that meet a condition, or are of rebuilt groups, by new ones."""
        lakehouse, stage, spec = self.lakehouse, self.stage, _SPECS[table]
        if stage.is_refresh:
            if self._is_touched(table) or lakehouse.exists(spec):
                lakehouse.replace(spec, rows, stage.id)
            return
        if not self._is_touched(table):
            return
        if self.replayed:
            where = f"({where or 'false'}) OR {among('group_id', self.replayed)}"
        if where is None or not stage.former:
            lakehouse.append(spec, rows, stage.id)
        else:
            lakehouse.replace(spec, rows, stage.id, where)
        # The tables may have other rows of a run that was killed than are made now.
        if not stage.is_resumed and sum(self.totals.counts.values()) <= FEW_ROWS:
            lakehouse.keep(spec, rows, None if where == EVERY_ROW else stage.id.number)

    def _numbered(self, table: str) -> DataFrame:
        number = F.lit(self.stage.id.number).cast("bigint")
        return rows_of(self.rows[table], table).withColumn(_RUN, number)


if __name__ == "__main__":
    sys.exit(run_job(history, ["history", *sys.argv[1:]]))

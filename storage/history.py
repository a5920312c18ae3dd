"""How the tables of the history take the rows of a run, and what they have of earlier ones.

Rows that a later run may change are open; each run replaces those of the groups that it has new
records of. Hours of commits go on, and of the rest there is one row a group, or partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from schemas.ledger import Detail, LedgerRow, is_beyond
from schemas.tables import (
    COMMITTED_OFFSETS,
    GROUP_CHECKPOINTS,
    GROUP_GENERATIONS,
    GROUP_STATES,
    MEMBER_SESSIONS,
    OFFSET_MOVES,
    OFFSET_PROGRESS,
    PARTITION_OWNERS,
    TableSpec,
)
from storage.lakehouse import Lakehouse
from storage.runs import StageRun
from storage.tables import EVERY_ROW, FEW_ROWS, OPEN_ROWS, among, between, rows_of

_TABLES_AT_ONCE = 4
_WITH_OPEN = (GROUP_STATES, GROUP_GENERATIONS, MEMBER_SESSIONS, PARTITION_OWNERS)
_OF_OFFSETS = (OFFSET_PROGRESS, OFFSET_MOVES, COMMITTED_OFFSETS)
TABLES = (*_WITH_OPEN, *_OF_OFFSETS, GROUP_CHECKPOINTS)
"""The tables that the history writes."""
_RUN = str(GROUP_STATES.run_column)


# -- what earlier runs wrote -----------------------------------------------------------------------


def last_run(lakehouse: Lakehouse) -> int:
    """Return the last run whose rows the tables have; -1 without one."""
    made = [spec for spec in TABLES if spec.run_column and lakehouse.may_hold(spec)]
    if not made:
        return -1
    numbers = reduce(DataFrame.unionByName, [lakehouse.read(spec).select(_RUN) for spec in made])
    last = numbers.agg(F.max(_RUN)).collect()[0][0]
    return -1 if last is None else int(last)


def is_made(lakehouse: Lakehouse, last: LedgerRow) -> bool:
    """Return whether the tables are there that runs up to the last one wrote to."""
    return all(lakehouse.exists(spec) for spec in _written(last))


def is_whole(lakehouse: Lakehouse, last: LedgerRow) -> bool:
    """Return whether each of them has rows of the last run that wrote to it: no older copy has."""
    written = _written(last)
    if lakehouse.has_all(written, last.versions):
        return True
    parts = [
        lakehouse.read(spec)
        .where(f"{_RUN} >= {number}" if spec.run_column else EVERY_ROW)
        .select(F.lit(spec.name).alias("name"))
        .limit(1)
        for spec, number in written.items()
    ]
    held = reduce(DataFrame.unionByName, parts).collect() if parts else []
    return len(held) == len(written)


def _written(last: LedgerRow) -> dict[TableSpec, int]:
    noted = last.details.get(Detail.WRITTEN, {GROUP_CHECKPOINTS.short_name: 0})
    return {spec: noted[spec.short_name] for spec in TABLES if spec.short_name in noted}


def with_open(lakehouse: Lakehouse, spec: TableSpec, after: int, to: int) -> DataFrame:
    """Return the rows of the runs behind one, up to another, and all that are open.

    Open rows have a partition of their own, and by statistics Delta skips files of the others. By
    one condition of both it would skip none, and read the whole history.
    """
    kept = lakehouse.kept(spec, after, to)
    if kept is not None:  # with the open rows of all other groups
        return kept
    rows, is_new = lakehouse.read(spec), between(_RUN, after, to)
    if after < 0:
        return rows.where(f"{OPEN_ROWS} OR {is_new}")  # there is nothing to skip
    return rows.where(OPEN_ROWS).unionByName(rows.where(f"is_settled AND {is_new}"))


def count_of(lakehouse: Lakehouse, spec: TableSpec, run: int) -> int:
    """Count the rows of a table that a run wrote; all of them where they do not say so."""
    rows = lakehouse.read(spec)
    return (rows.where(F.col(_RUN) == run) if spec.run_column else rows).count()


def named(spark: SparkSession, groups: Iterable[str]) -> DataFrame:
    """Return a frame of groups, for `without`."""
    return spark.createDataFrame(pa.table({"group_id": pa.array(groups, pa.string())}))


def without(rows: DataFrame, groups: DataFrame) -> DataFrame:
    """Leave out the rows of some groups."""
    return rows.join(F.broadcast(groups), "group_id", how="left_anti")


# -- what a run writes -----------------------------------------------------------------------------


class Totals(NamedTuple):
    """What a run writes."""

    counts: dict[str, int]  # rows by table
    groups: list[str]  # the groups that they are of
    noted: dict[str, int | None]  # what the ledger has of them


def summed_up(rows: DataFrame, before: Mapping[int, int]) -> Totals:
    """Sum up the rows of a run, in one query.

    Those of its own records are from the offsets on that it began with, by partition.
    """

    def least(spec: TableSpec, column: str, condition: str = "true") -> Column:
        rows = f"filter({spec.short_name}, row -> {condition})"
        return F.unix_millis(F.min(F.expr(f"array_min(transform({rows}, row -> row.{column}))")))

    is_own = is_beyond(before, "row")
    started = least(GROUP_STATES, "started_at", is_own)
    back = f"filter({OFFSET_MOVES.short_name}, row -> row.last_there_at IS NOT NULL)"
    parts = (
        rows.groupBy("table")
        .agg(
            F.sum("rows").alias("rows"),
            F.flatten(F.collect_list(f"{GROUP_CHECKPOINTS.short_name}.group_id")).alias("groups"),
            least(OFFSET_PROGRESS, "hour").alias("first_hour"),
            F.sum(F.array_size(F.expr(back))).alias("went_back"),
            F.least(started, least(PARTITION_OWNERS, "valid_from", is_own)).alias("begun_since"),
        )
        .collect()
    )

    def first(name: str) -> int | None:
        return min((part[name] for part in parts if part[name] is not None), default=None)

    return Totals(
        {part.table: part.rows for part in parts},
        [group for part in parts for group in part.groups],
        {
            Detail.FIRST_HOUR: first("first_hour"),
            Detail.BEGUN_SINCE: first("begun_since"),
            Detail.WENT_BACK: sum(part.went_back or 0 for part in parts),
        },
    )


@dataclass(frozen=True)
class Written:
    """The rows of a run, each table's written once."""

    lakehouse: Lakehouse
    stage: StageRun
    rebuilt: DataFrame  # rows of tables that are held together, see `schemas.tagged`
    followed: DataFrame  # the same of those of offsets
    joined_hours: Callable[[DataFrame], DataFrame]  # makes one row of those of an hour
    replayed: list[str]  # groups of which nothing that is there counts any more
    totals: Totals

    def write(self) -> None:
        """Write the tables; last those from which the next run resumes."""
        with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
            parts = [
                pool.submit(self._replace, spec, self._numbered(spec), OPEN_ROWS)
                for spec in _WITH_OPEN
            ]
            parts.append(pool.submit(self._put, OFFSET_MOVES, self._numbered(OFFSET_MOVES), None))
            parts.append(pool.submit(self._write_hours))
            for part in parts:
                part.result()
        # A run that was killed before resumes from these, too.
        self._put(COMMITTED_OFFSETS, self._rows(COMMITTED_OFFSETS), EVERY_ROW)
        since = F.coalesce("rebuilt_run", _RUN)
        rows = self._numbered(GROUP_CHECKPOINTS).withColumn("rebuilt_run", since)
        self._replace(GROUP_CHECKPOINTS, rows, EVERY_ROW)

    def _write_hours(self) -> None:
        """Add the hours; those that earlier runs had begun go on."""
        hours, first = self._rows(OFFSET_PROGRESS), self.totals.noted[Detail.FIRST_HOUR]
        may_go_on = "hour IS NULL"
        if first is not None:
            may_go_on += f" OR hour >= timestamp_millis({first})"
        if self._goes_on:
            earlier = self.lakehouse.read(OFFSET_PROGRESS).where(may_go_on).select(*hours.columns)
            if self.replayed:
                earlier = without(earlier, named(self.lakehouse.spark, self.replayed))
            joined = self.joined_hours(earlier.unionByName(hours))
            hours = rows_of(joined.localCheckpoint(eager=False), OFFSET_PROGRESS.short_name)
        self._put(OFFSET_PROGRESS, hours, may_go_on)

    @cached_property
    def _changed(self) -> DataFrame:
        return named(self.lakehouse.spark, self.totals.groups)

    @property
    def _goes_on(self) -> bool:
        return bool(self.stage.former) and not self.stage.is_refresh

    def _is_touched(self, spec: TableSpec) -> bool:
        return bool(self.totals.counts.get(spec.short_name) or self.replayed)

    def _replace(self, spec: TableSpec, rows: DataFrame, where: str) -> None:
        """Replace the rows that meet a condition, but those of groups without new records."""
        if self._goes_on and self._is_touched(spec):
            kept = without(self.lakehouse.read(spec).where(where), self._changed)
            rows = rows.unionByName(kept.select(*rows.columns).localCheckpoint(eager=False))
        self._put(spec, rows, where)

    def _put(self, spec: TableSpec, rows: DataFrame, where: str | None) -> None:
        """Replace the rows that meet a condition, or are of rebuilt groups, by new ones."""
        lakehouse, stage = self.lakehouse, self.stage
        if stage.is_refresh:
            if self._is_touched(spec) or lakehouse.exists(spec):
                lakehouse.replace(spec, rows, stage.id)
            return
        if not self._is_touched(spec):
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

    def _rows(self, spec: TableSpec) -> DataFrame:
        of_both = self.followed if spec in _OF_OFFSETS else self.rebuilt
        return rows_of(of_both, spec.short_name)

    def _numbered(self, spec: TableSpec) -> DataFrame:
        return self._rows(spec).withColumn(_RUN, F.lit(self.stage.id.number).cast("bigint"))

"""Where the records of groups are, and where they belong.

A group's records are in the partition that its id hashes to (`schemas.placement`).
When the topic grows, half of the groups or more get another partition, where the coordinator
knows nothing of them: what is in the old one is an earlier life of the group, and what is written
there afterwards, such as the expiry of its offsets, is no part of its history. If a coordinator
goes on there, the group has two histories: that of the old partition is told under a name of its
own, `name_of_second`.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.tables import of_groups
from schemas.placement import (
    HOME,
    KAFKA,
    REDPANDA,
    Placement,
    explained,
    inferred,
    partitions_of,
)
from timeline.commits import COMMITS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_KEY = ("group_id", "record_partition")
_STRAYS = "group_id STRING, record_partition INT, until BIGINT"
# So many groups are not all in wrong partitions by chance.
_FEW = 3
_MOST_LISTED = 1_000
# Clocks of two brokers may differ so much.
_LATE_MS = 5 * 60_000


class Found(NamedTuple):
    """Records of a group in one partition.

    Attributes:
        records: how many of them are new.
        first: time of the first of all in epoch milliseconds; None if none has one.
        last: that of the last new one.
        last_commit: that of the last new one that commits an offset.
    """

    group: str
    partition: int
    records: int
    first: int | None
    last: int | None
    last_commit: int | None = None


Second: TypeAlias = tuple[str, int, int]
"""Group and partition of a second coordinator, and since when, in epoch milliseconds."""
SECOND = "second"
"""Details of a run of the history: the second coordinators that were found up to it."""


class Locations(NamedTuple):
    """Where the records of some groups are.

    Attributes:
        counts: numbers of partitions that the topic has had, the newest last; none if not known.
        elsewhere: group and partition of records that are not where the group belongs, with the
            time in epoch milliseconds from which on they do not count; None if all do.
        misplaced: the same where no growth of the topic explains it, or where the coordinator there
            goes on although another one does, too; as `detectors.log.misplaced` takes them.
        by: who has placed the groups, as `schemas.placement` has it.
        second: group and partition of those that two coordinators serve, with the time from which
            on what is there is a history of its own.
    """

    counts: list[int]
    elsewhere: list[tuple[str, int, int | None]]
    misplaced: list[dict[str, Any]]
    by: str = KAFKA
    second: Sequence[Second] = ()

    @property
    def placement(self) -> Placement | None:
        """How groups are placed in the topic now; None if that is not known."""
        return Placement(self.counts[-1], self.by) if self.counts else None


def locate(
    silver: Mapping[str, DataFrame],
    checkpoints: DataFrame | None,
    counts: Sequence[int],
    is_new: str,
    by: Sequence[str] = (KAFKA, REDPANDA),
    *,
    second: Sequence[Second] = (),
) -> Locations:
    """Look where the records of some groups are.

    Args:
        silver: rows of the silver tables.
        checkpoints: rows of group_checkpoints before the run; None if there are none.
        counts: how many partitions the topic has had, as far as is known.
        is_new: the condition of rows that no run has looked at before.
        by: who may have placed the groups, the likeliest first.
        second: the second coordinators that earlier runs have found.
    """
    at = F.unix_millis("record_timestamp")
    every = (
        rows.select(
            *_KEY,
            "record_timestamp",
            F.expr(is_new).alias("is_new"),
            # A coordinator that has lost a group's members writes that it is empty, or nothing.
            (~F.col("is_tombstone") & F.lit(table == COMMITS)).alias("is_commit"),
        )
        for table, rows in silver.items()
    )
    counted = (
        reduce(DataFrame.unionByName, every)
        .groupBy(*_KEY)
        .agg(
            F.count_if("is_new"),
            F.min(at),
            F.max(F.when(F.col("is_new"), at)),
            F.max(F.when(F.col("is_new") & F.col("is_commit"), at)),
        )
    )
    found = [Found(*row) for row in counted.collect()]
    located = [(row.group, row.partition) for row in found]
    known: dict[str, int] = {}

    def all_located() -> list[tuple[str, int]]:
        rows = [] if checkpoints is None else checkpoints.select(*_KEY).collect()
        return [*located, *((row.group_id, row.record_partition) for row in rows)]

    if not counts or any(row.partition >= counts[-1] for row in found):
        # Files do not say it; the groups do, since nearly all of them are where they belong.
        placement = inferred(all_located(), by)
        if placement is None:
            return Locations([], [], [], by[0], second)
        counts = [*counts, placement.partitions]
    else:
        placement = _likeliest(located, counts[-1], by)
        if placement.by != by[0]:  # a few groups may be where they are by chance
            placement = _likeliest(all_located(), counts[-1], by)
    astray = {group for group, partition in located if partition != placement.of(group)}
    if not astray:
        return Locations(list(counts), [], [], placement.by, second)
    if checkpoints is not None:
        of_them = checkpoints.where(of_groups(sorted(astray))).select(*_KEY).collect()
        known = {row.group_id: row.record_partition for row in of_them}
    return sorted_out(found, known, counts, placement.by, second)


def _likeliest(located: Sequence[tuple[str, int]], partitions: int, by: Sequence[str]) -> Placement:
    """Return the placement that explains most groups; of several the first."""
    first, *others = (Placement(partitions, each) for each in by)
    if not others or explained(located, first) == len(located):
        return first
    return max((first, *others), key=lambda each: explained(located, each))


def sorted_out(
    found: Sequence[Found],
    known: Mapping[str, int],
    counts: Sequence[int],
    by: str = KAFKA,
    second: Sequence[Second] = (),
) -> Locations:
    """Return which records are not where their group belongs, and whether the topic grew.

    Args:
        found: where records are.
        known: the partition that a group's history has come to before.
        counts: how many partitions the topic has had; the last is that of now.
        by: who has placed the groups.
        second: the second coordinators that earlier runs have found.
    """
    now = Placement(counts[-1], by)
    homes = {row.group: now.of(row.group) for row in found}
    strays = [row for row in found if row.partition != homes[row.group]]
    begun = {row.group: row.first for row in found if row.partition == homes[row.group]}
    before = (group for group, partition in known.items() if partition == homes.get(group))
    since = begun | dict.fromkeys(before, 0)
    counts = _with_former(strays, counts, by)
    is_explained = {row: _is_explained(row, counts, by) for row in strays}
    both = {(group, partition): at for group, partition, at in second}
    goes_on = {
        row
        for row in strays
        if is_explained[row]
        and ((row.group, row.partition) in both or _goes_on(row, begun.get(row.group)))
    }
    for row in goes_on:
        both.setdefault((row.group, row.partition), begun.get(row.group) or 0)
    # What earlier runs have found goes on from then, also where all is read again.
    elsewhere = [
        (row.group, row.partition, both.get((row.group, row.partition), since.get(row.group)))
        for row in strays
    ]
    misplaced = [
        {
            "group_id": row.group,
            "record_partition": row.partition,
            "records": row.records,
            "at": row.last,
            "expected_partition": homes[row.group],
            "partitions": counts[-1],
            "label": "two_coordinators" if is_explained[row] else None,
            "since": both.get((row.group, row.partition)),
            "second": name_of_second(row.group, row.partition) if is_explained[row] else None,
        }
        for row in strays
        if row.records
        and row.last is not None
        and (not is_explained[row] or (row in goes_on and row.last_commit is not None))
        and row.last >= (since.get(row.group) or 0)
    ]
    of_second = [(group, partition, at) for (group, partition), at in sorted(both.items())]
    return Locations(list(counts), elsewhere, misplaced[:_MOST_LISTED], by, of_second)


def _goes_on(row: Found, since: int | None) -> bool:
    """Return whether a group is coordinated where it was, long after it is where it belongs.

    A broker that has not seen the topic grow takes the group's requests for the old partition.
    """
    last = row.last_commit
    return since is not None and last is not None and last > since + _LATE_MS


def _with_former(strays: Sequence[Found], counts: Sequence[int], by: str) -> Sequence[int]:
    """Add the number of partitions before the topic grew, if many groups show it."""
    rest = [(r.group, r.partition) for r in strays if not _is_explained(r, counts, by)]
    if len(rest) < _FEW:
        return counts
    former = partitions_of(rest, by)
    if former is None or former >= counts[-1]:
        return counts
    fits = explained(rest, Placement(former, by)) == len(rest)
    return [former, *counts] if fits else counts


def _is_explained(row: Found, counts: Sequence[int], by: str) -> bool:
    return any(Placement(n, by).of(row.group) == row.partition for n in counts)


def second_of(details: Mapping[str, Any]) -> list[Second]:
    """Return the second coordinators that the details of a run of the history name."""
    return [(group, partition, at) for group, partition, at in details.get(SECOND, ())]


def name_of_second(group: str, partition: int) -> str:
    """Return the name under which the history is told that a second coordinator makes."""
    return f"{group} (partition {partition})"


def with_second(groups: Sequence[str], second: Sequence[Second]) -> list[str]:
    """Return some groups with the other history of those that have two."""
    names = {*groups}
    for group, partition, _ in second:
        both = {group, name_of_second(group, partition)}
        names |= both if both & names else set()
    return sorted(names)


def by_coordinator(rows: DataFrame, second: Sequence[Second]) -> DataFrame:
    """Give rows of silver that a second coordinator has written the name of its history."""
    if not second:
        return rows
    named = [(*row, name_of_second(row[0], row[1])) for row in second]
    given = rows.sparkSession.createDataFrame(named, f"{_STRAYS}, second STRING")
    joined = rows.join(F.broadcast(given), list(_KEY), how="left")
    is_second = F.unix_millis("record_timestamp") >= F.col("until")
    name = F.when(is_second, F.col("second")).otherwise(F.col("group_id"))
    return joined.withColumn("group_id", name).select(*rows.columns)


def at_home(silver: dict[str, DataFrame], locations: Locations) -> dict[str, DataFrame]:
    """Leave out the records that are no part of their groups' history.

    Args:
        silver: rows of the silver tables.
        locations: where the records of their groups are.

    Returns:
        The others, with a column `placement.HOME` if some are not where they belong; what a second
        coordinator has written is of its own history.
    """
    if not locations.elsewhere or not silver:
        return silver
    spark = next(iter(silver.values())).sparkSession
    strays = F.broadcast(
        spark.createDataFrame(locations.elsewhere, _STRAYS).withColumn(HOME, F.lit(0))
    )
    at = F.unix_millis("record_timestamp")
    counts = F.col(HOME).isNull() | F.col("until").isNull() | (at < F.col("until"))
    return {
        table: by_coordinator(rows, locations.second)
        .join(strays, list(_KEY), how="left")
        .where(counts)
        .select(*rows.columns, F.col(HOME).isNull().alias(HOME))
        for table, rows in silver.items()
    }

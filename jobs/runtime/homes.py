"""Where the records of groups are, and where they belong.

A group's records are in the partition that its id hashes to (GroupMetadataManager.partitionFor).
When the topic grows, half of the groups or more get another place, where the coordinator knows
nothing of them: what is in the old place is an earlier life of the group, and what is written there
afterwards, such as the expiry of its offsets, is no part of its history.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.tables import of_groups
from schemas.placement import partition_for, partitions_of
from timeline.transform import HOME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import Row

_PLACE = ("group_id", "record_partition")
_STRAYS = "group_id STRING, record_partition INT, until BIGINT"
# So many groups are not all in wrong places by chance.
_FEW = 3
_MOST_TOLD = 1_000


class Places(NamedTuple):
    """Where the records of some groups are.

    Attributes:
        counts: numbers of partitions that the topic has had, the newest last; none if not known.
        elsewhere: group and partition of records that are not where the group belongs, with the
            time in epoch milliseconds from which on they do not count; None if all do.
        misplaced: the same where no growth of the topic explains it, as `detectors.log.misplaced`
            takes them.
    """

    counts: list[int]
    elsewhere: list[tuple[str, int, int | None]]
    misplaced: list[dict[str, Any]]

    @property
    def partitions(self) -> int | None:
        """How many partitions the topic has; None if that is not known."""
        return self.counts[-1] if self.counts else None


def places_of(
    silver: Mapping[str, DataFrame], heads: DataFrame | None, counts: Sequence[int]
) -> Places:
    """Look where the records of some groups are.

    Args:
        silver: rows of the silver tables.
        heads: rows of group_heads of before; None if there is none.
        counts: how many partitions the topic has had, as far as is known.
    """
    at = F.unix_millis("record_timestamp")
    found = (
        reduce(
            DataFrame.unionByName, (r.select(*_PLACE, "record_timestamp") for r in silver.values())
        )
        .groupBy(*_PLACE)
        .agg(F.count("*").alias("records"), F.min(at).alias("first"), F.max(at).alias("last"))
        .collect()
    )
    if not counts or any(row.record_partition >= counts[-1] for row in found):
        # Files do not tell; the groups do, since nearly all of them are where they belong.
        known = [] if heads is None else heads.select(*_PLACE).collect()
        inferred = partitions_of((row[0], row[1]) for row in (*known, *found))
        if inferred is None:
            return Places([], [], [])
        counts = [*counts, inferred]
    homes = {row.group_id: partition_for(row.group_id, counts[-1]) for row in found}
    strays = [row for row in found if row.record_partition != homes[row.group_id]]
    if not strays:
        return Places(list(counts), [], [])
    ends = _ends(found, strays, homes, heads)
    counts = _with_former(strays, counts)
    misplaced = [
        {
            "group_id": row.group_id,
            "record_partition": row.record_partition,
            "records": row.records,
            "at": row.last,
            "expected_partition": homes[row.group_id],
            "partitions": counts[-1],
        }
        for row in strays
        if row.last is not None
        and not _is_explained(row, counts)
        and row.last >= (ends[row.group_id] or 0)
    ]
    elsewhere = [(row.group_id, row.record_partition, ends[row.group_id]) for row in strays]
    return Places(list(counts), elsewhere, misplaced[:_MOST_TOLD])


def _ends(
    found: Iterable[Row], strays: Iterable[Row], homes: dict[str, int], heads: DataFrame | None
) -> dict[str, int | None]:
    """Tell since when groups with records elsewhere are where they belong; None if they are not."""
    groups = {row.group_id for row in strays}
    there = {r.group_id: r.first for r in found if r.record_partition == homes[r.group_id]}
    if heads is not None:
        known = heads.where(of_groups(list(groups))).select(*_PLACE).collect()
        there |= {r.group_id: 0 for r in known if r.record_partition == homes[r.group_id]}
    return {group: there.get(group) for group in groups}


def _with_former(strays: Sequence[Row], counts: Sequence[int]) -> Sequence[int]:
    """Add the number of partitions of before the topic grew, if many groups show it."""
    rest = [(r.group_id, r.record_partition) for r in strays if not _is_explained(r, counts)]
    if len(rest) < _FEW:
        return counts
    former = partitions_of(rest)
    if former is None or former >= counts[-1]:
        return counts
    fits = [place for place in rest if partition_for(place[0], former) == place[1]]
    return [former, *counts] if len(fits) == len(rest) else counts


def _is_explained(row: Row, counts: Sequence[int]) -> bool:
    return any(partition_for(row.group_id, n) == row.record_partition for n in counts)


def at_home(silver: dict[str, DataFrame], places: Places) -> dict[str, DataFrame]:
    """Leave out the records that are no part of their groups' history.

    Args:
        silver: rows of the silver tables.
        places: where the records of their groups are.

    Returns:
        The others, with a column `HOME` if some are not where they belong.
    """
    if not places.elsewhere or not silver:
        return silver
    spark = next(iter(silver.values())).sparkSession
    strays = F.broadcast(
        spark.createDataFrame(places.elsewhere, _STRAYS).withColumn(HOME, F.lit(0))
    )
    at = F.unix_millis("record_timestamp")
    counts = F.col(HOME).isNull() | F.col("until").isNull() | (at < F.col("until"))
    return {
        table: rows.join(strays, list(_PLACE), how="left")
        .where(counts)
        .select(*rows.columns, F.col(HOME).isNull().alias(HOME))
        for table, rows in silver.items()
    }

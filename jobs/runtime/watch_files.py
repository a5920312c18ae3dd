"""Watches groups whose tables are files on a disk that driver and tasks share.

Few records take this process less than starting tasks. Of many, each task takes the groups of some
partitions of the topic, for which each group has to have its records in one of them, as Kafka
writes them; `jobs.runtime.anomalies` lets Spark put the rows of others together.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from anomalies import arrow
from anomalies.watching import OUTPUT, batch_of, watched
from jobs.runtime.shares import GROUP, PARTITION, a_task, shared_out
from schemas.columns import millis_of
from storage.conditions import that_meet

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import SparkSession

    from anomalies.thresholds import Thresholds
    from jobs.runtime.shares import Share
    from storage.log import Selection

# A generation takes a watch as long as so many commits.
_WEIGHT = 100
# Of groups that the history does not know: they are taken with those of the first partitions.
_NOWHERE = -1


class Place(NamedTuple):
    """A partition that a group has records in, how many, and epoch milliseconds of the last."""

    group_id: str
    partition: int
    records: int
    at: int | None


@dataclass(frozen=True)
class Source:
    """What a watch looks at, see `anomalies.arrow.Sources`.

    Attributes:
        selections: its rows, by the name that they have there.
        lags: those of it.
        heads: those of it.
        partitions: columns group_id and record_partition, of the groups that the history knows.
    """

    selections: Mapping[str, Selection]
    lags: pa.Table
    heads: pa.Table
    partitions: Selection


@dataclass(frozen=True)
class Watch:
    """How groups are watched, see `anomalies.watching.watched`."""

    thresholds: Thresholds
    cluster: str
    now: int

    def here(self, source: Source) -> pa.Table:
        """Watch all groups in this process.

        Returns:
            Columns `OUTPUT`: the anomalies that are settled now, all open ones, and the heads.
        """
        read = {name: selection.read() for name, selection in source.selections.items()}
        return self._watched(arrow.Sources(**read, lags=source.lags, heads=source.heads))

    def in_tasks(self, spark: SparkSession, source: Source, places: Iterable[Place]) -> pa.Table:
        """Do what `here` does in tasks.

        Args:
            spark: the session.
            source: what to look at.
            places: where the records are that are new.
        """
        weights = _weights(source, places)
        least = a_task(weights.total(), spark.sparkContext.defaultParallelism)
        shares = shared_out(weights, least)
        known = source.partitions.read()
        lags, heads = (_located(rows, known) for rows in (source.lags, source.heads))
        located = replace(source, lags=lags, heads=heads)
        shared = spark.sparkContext.parallelize(shares, len(shares))
        parts = shared.map(partial(self._of_share, located)).collect()
        return pa.concat_tables(parts)

    def _of_share(self, source: Source, share: Share) -> pa.Table:
        """Watch the groups, located, of a share."""
        tests = share.tests()
        read = {
            name: selection.read(tests, threads=False)
            for name, selection in source.selections.items()
        }
        own = {
            name: that_meet(rows, tests)
            for name, rows in (("lags", source.lags), ("heads", source.heads))
        }
        return self._watched(arrow.Sources(**read, **own))

    def _watched(self, sources: arrow.Sources) -> pa.Table:
        found = watched(arrow.events(sources), self.thresholds, self.cluster, self.now)
        return pa.Table.from_batches([batch_of(list(found), OUTPUT)])


def places(selections: Iterable[Selection]) -> list[Place]:
    """Tell where groups have records.

    Args:
        selections: records, with columns group_id, record_partition and record_timestamp.
    """
    key = [GROUP, PARTITION]
    told = [*key, "records", "at"]
    parts = []
    for selection in selections:
        for rows in selection.parts():
            timed = rows.append_column("at", millis_of(rows["record_timestamp"]))
            counts = timed.group_by(key).aggregate([([], "count_all"), ("at", "max")])
            parts.append(counts.rename_columns(told))
    if not parts:
        return []
    sums = pa.concat_tables(parts).group_by(key).aggregate([("records", "sum"), ("at", "max")])
    return [Place(*row.values()) for row in sums.to_pylist() if row["group_id"] is not None]


def is_shareable(source: Source, places: Iterable[Place]) -> bool:
    """Tell whether the records of each group are in one partition, and were."""
    known = {(row["group_id"], row[PARTITION]) for row in source.partitions.read().to_pylist()}
    known.update((place.group_id, place.partition) for place in places)
    return len(known) == len({group for group, _ in known})


def _weights(source: Source, places: Iterable[Place]) -> Counter[tuple[str, int]]:
    """Give about how long each group takes, in commits."""
    weights: Counter[tuple[str, int]] = Counter()
    for place in places:
        weights[place.group_id, place.partition] += place.records
    schema = pa.schema([(GROUP, pa.string()), (PARTITION, pa.int32())])
    generations = replace(source.selections["generations"], schema=schema).read()
    counts = generations.group_by([GROUP, PARTITION]).aggregate([([], "count_all")])
    for row in counts.to_pylist():
        weights[row[GROUP], row[PARTITION]] += _WEIGHT * row["count_all"]
    return weights


def _located(rows: pa.Table, partitions: pa.Table) -> pa.Table:
    """Add the partition of each group."""
    place = pc.index_in(rows["group_id"], partitions["group_id"])
    known = pc.take(partitions[PARTITION], place).fill_null(_NOWHERE)
    return rows.append_column(PARTITION, known)

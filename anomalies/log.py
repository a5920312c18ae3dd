"""What is wrong with the log itself, and with groups that no record of their own tells of.

Each detector gives findings from a few aggregated rows; the window of each is what is new, or the
hours that are.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

from anomalies.model import HOUR_MS, INFO, WARNING, Hit, Position
from schemas.placement import partition_for, partitions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, Row

    from anomalies.thresholds import Thresholds, Values

# Findings of the same partition on the same day are one episode.
_EPISODE_MS = 24 * HOUR_MS
_LARGE_EMBEDDED = 20
_EMBEDDED = {
    "subscription_bytes": F.length,
    "assignment_bytes": F.length,
    "member_id": F.octet_length,
    "client_id": F.octet_length,
}


PASSING = frozenset({"stale_group"})
"""Kinds that are told of for as long as they hold, and no longer."""


class Finding(NamedTuple):
    """A hit, with the group it is about; None if it is about the log."""

    group_id: str | None
    hit: Hit


def coverage_gaps(coverage: DataFrame) -> Iterator[Finding]:
    """Find offsets that were lost before they could be read.

    Args:
        coverage: the rows of bronze.coverage that are new.
    """
    hole = F.explode("holes").alias("hole")
    holes = coverage.select("record_partition", "observed_at", hole).where(
        "hole.reason <> 'compacted'"
    )
    for row in holes.orderBy("observed_at", "record_partition").collect():
        at, lost = _millis(row.observed_at) or 0, row.hole
        start = Position(row.record_partition, lost.start_offset, None)
        end = Position(row.record_partition, lost.end_offset, None)
        yield Finding(
            None,
            Hit(
                "coverage_gap",
                str(row.record_partition),
                WARNING,
                at,
                at,
                start,
                end,
                _EPISODE_MS,
                label=lost.reason,
                add={"offsets": lost.end_offset - lost.start_offset + 1, "holes": 1},
            ),
        )


def undecodable(quarantine: DataFrame) -> Iterator[Finding]:
    """Find records that nobody could decode.

    Args:
        quarantine: the rows of silver.quarantine that are new.
    """
    rows = _by_partition(quarantine, F.mode("error", deterministic=True).alias("error"))
    for row in rows:
        hit = _of_partition("undecodable_records", row, WARNING)
        yield Finding(None, hit._replace(add={"records": row.records}, note={"error": row.error}))


def misplaced(pairs: Iterable[tuple[str, int, int, int]]) -> Iterator[Finding]:
    """Find groups with records in a partition that their id does not hash to.

    How many partitions the topic has is told by the groups themselves: it is the number by which
    most of them are where they belong (GroupMetadataManager.partitionFor).

    Args:
        pairs: group id, partition, number of records there, and epoch milliseconds of the last.
    """
    known = list(pairs)
    best = partitions_of((group, partition) for group, partition, *_ in known)
    if best is None:
        return
    for group, partition, records, at in known:
        expected = partition_for(group, best)
        if partition == expected:
            continue
        record = Position(partition, None, at)
        yield Finding(
            group,
            Hit(
                "misplaced_record",
                str(partition),
                WARNING,
                at,
                at,
                record,
                record,
                _EPISODE_MS,
                add={"records": records},
                note={"expected_partition": expected, "partitions": best},
            ),
        )


def oversized(metadata: DataFrame, thresholds: Thresholds) -> Iterator[Finding]:
    """Find groups whose members' subscriptions and assignments fill a record.

    Args:
        metadata: the rows of silver.group_metadata that are new.
        thresholds: the thresholds in force.
    """
    least = thresholds.least("oversized_record", "bytes")
    size = reduce(Column.__add__, [_length_of(name, how) for name, how in _EMBEDDED.items()])
    size += _LARGE_EMBEDDED * F.size("members.member_id")
    large = metadata.withColumn("bytes", size).where(F.col("bytes") > least)
    columns = ("group_id", "record_partition", "record_offset", "record_timestamp", "bytes")
    for row in large.select(*columns).orderBy("record_partition", "record_offset").collect():
        at = _millis(row.record_timestamp)
        if at is None or row.bytes <= thresholds.of(row.group_id)["oversized_record"]["bytes"]:
            continue
        record = Position(row.record_partition, row.record_offset, at)
        yield Finding(
            row.group_id,
            Hit(
                "oversized_record",
                "",
                WARNING,
                at,
                at,
                record,
                record,
                _EPISODE_MS,
                add={"records": 1},
                most={"bytes": row.bytes},
                note={"record_type": "group_metadata"},
            ),
        )


def _length_of(name: str, length: Callable[[Column], Column]) -> Column:
    """Add up the bytes of a field of all members; of the other fields Spark then reads nothing."""
    return F.aggregate(
        F.col(f"members.{name}"),
        F.lit(0).cast("bigint"),
        lambda total, value: total + F.coalesce(length(value), F.lit(0)),
    )


def cleaner_stalled(
    commits: DataFrame, limits: Values, oldest: int | None, now: int
) -> Iterator[Finding]:
    """Find partitions whose old records have nearly all been superseded, and are there still.

    Args:
        commits: the rows of silver.offset_commits that are new.
        limits: the thresholds.
        oldest: time of the oldest of them.
        now: time of the log.
    """
    limit = limits["cleaner_stalled"]
    before = now - limit["age_ms"]
    if oldest is None or oldest >= before:
        return
    old = commits.where(F.unix_millis("record_timestamp") < before)
    by_key = old.groupBy("record_partition", "group_id", "topic", "topic_partition").agg(
        F.count("*").alias("records"),
        F.min(F.struct("record_offset", "record_timestamp")).alias("first"),
        F.max(F.struct("record_offset", "record_timestamp")).alias("last"),
    )
    rows = by_key.groupBy("record_partition").agg(
        F.sum("records").alias("records"),
        F.count("*").alias("keys"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
    )
    for row in rows.where(F.col("records") >= limit["least_records"]).collect():
        share = 1 - row["keys"] / row.records
        if share > limit["superseded_share"]:
            hit = _of_partition("cleaner_stalled", row, WARNING)
            numbers = {"records": row.records, "superseded_share": round(share, 3)}
            yield Finding(None, hit._replace(most=numbers))


def hot_partitions(progress: DataFrame, limits: Values) -> Iterator[Finding]:
    """Find partitions of the log that take most of an hour's commits.

    Args:
        progress: the rows of offset_progress of the hours that are new.
        limits: the thresholds.
    """
    limit = limits["hot_partition"]
    by_group = (
        progress.where("hour IS NOT NULL")
        .groupBy("hour", "record_partition", "group_id")
        .agg(
            F.sum("commits").alias("commits"),
            F.min("first_commit_at").alias("first_at"),
            F.max("last_commit_at").alias("last_at"),
        )
    )
    by_partition = by_group.groupBy("hour", "record_partition").agg(
        F.sum("commits").alias("commits"),
        F.max_by("group_id", "commits").alias("busiest"),
        F.min("first_at").alias("first_at"),
        F.max("last_at").alias("last_at"),
    )
    hours: dict[dt.datetime, int] = defaultdict(int)
    rows = by_partition.orderBy("hour", "record_partition").collect()
    for row in rows:
        hours[row.hour] += row.commits
    for row in rows:
        share = row.commits / max(1, hours[row.hour])
        if row.commits < limit["least_records"] or share <= limit["share"]:
            continue
        first, last = _millis(row.first_at) or 0, _millis(row.last_at) or 0
        yield Finding(
            None,
            Hit(
                "hot_partition",
                str(row.record_partition),
                WARNING,
                first,
                last,
                Position(row.record_partition, None, first),
                Position(row.record_partition, None, last),
                HOUR_MS,
                most={"share": round(share, 3), "commits_an_hour": row.commits},
                note={"group": row.busiest},
            ),
        )


def no_progress(progress: DataFrame, thresholds: Thresholds) -> Iterator[Finding]:
    """Find partitions that a group commits at one offset, though there is more in them.

    That another group was further all the hour shows it.

    Args:
        progress: the rows of offset_progress of the hours that are new.
        thresholds: the thresholds in force.
    """
    keys = ["topic", "topic_partition", "hour"]
    stands = (F.col("progressed_offsets") == 0) & (F.col("rewinds") == 0) & (F.col("commits") > 1)
    ends = progress.groupBy(*keys).agg(F.max("first_committed_offset").alias("other_offset"))
    rows = (
        progress.where(stands & F.col("hour").isNotNull())
        .join(ends, keys, how="inner")
        .where(F.col("other_offset") > F.col("last_committed_offset"))
    )
    for row in rows.orderBy("hour", "group_id", "topic", "topic_partition").collect():
        if row.commits < thresholds.of(row.group_id)["no_progress"]["least_commits"]:
            continue
        first, last = _millis(row.first_commit_at) or 0, _millis(row.last_commit_at) or 0
        record = Position(row.record_partition, row.record_offset, last)
        yield Finding(
            row.group_id,
            Hit(
                "no_progress",
                f"{row.topic}/{row.topic_partition}",
                WARNING,
                first,
                last,
                record,
                record,
                HOUR_MS,
                most={"commits": row.commits, "other_offset": row.other_offset},
                note={"committed_offset": row.last_committed_offset},
            ),
        )


def stale_groups(
    committed: DataFrame, states: DataFrame, thresholds: Thresholds, now: int
) -> Iterator[Finding]:
    """Find groups without members that have not committed for long, and still hold offsets.

    It holds while it lasts, and is not told of afterwards.

    Args:
        committed: committed_offsets.
        states: the open rows of group_states.
        thresholds: the thresholds in force.
        now: time of the log.
    """
    live = committed.where(~F.col("is_deleted"))
    last = F.max_by(
        F.struct("record_partition", "record_offset", "record_timestamp"), "record_offset"
    )
    by_group = live.groupBy("group_id").agg(
        F.max(F.unix_millis(F.coalesce("committed_at", "record_timestamp"))).alias("last_at"),
        F.count("*").alias("partitions"),
        last.alias("record"),
    )
    quiet = by_group.join(
        states.select("group_id", "state", F.unix_millis("started_at").alias("since")),
        "group_id",
        how="left",
    ).where("state IS NULL OR state = 'Empty'")
    idle = F.lit(now) - F.greatest("last_at", "since")
    least = thresholds.least("stale_group", "idle_ms")
    rows = quiet.withColumn("idle", idle).where(F.col("idle") > least)
    for row in rows.orderBy("group_id").collect():
        if thresholds.ignores(row.group_id):
            continue
        if row.idle <= thresholds.of(row.group_id)["stale_group"]["idle_ms"]:
            continue
        last_record = row.record
        record = Position(
            last_record.record_partition,
            last_record.record_offset,
            _millis(last_record.record_timestamp),
        )
        yield Finding(
            row.group_id,
            Hit(
                "stale_group",
                "",
                INFO,
                now - row.idle,
                now,
                record,
                record,
                0,
                most={"idle_ms": row.idle, "partitions": row.partitions},
            ),
        )


def _by_partition(rows: DataFrame, *more: Column) -> list[Row]:
    record = F.struct("record_offset", "record_timestamp")
    return (
        rows.groupBy("record_partition")
        .agg(
            F.count("*").alias("records"),
            F.min(record).alias("first"),
            F.max(record).alias("last"),
            *more,
        )
        .orderBy("record_partition")
        .collect()
    )


def _of_partition(kind: str, row: Row, severity: str) -> Hit:
    partition, first, last = (getattr(row, n) for n in ("record_partition", "first", "last"))
    start, end = _millis(first.record_timestamp), _millis(last.record_timestamp)
    began = start if start is not None else end or 0
    return Hit(
        kind,
        str(partition),
        severity,
        began,
        max(began, end or 0),
        Position(partition, first.record_offset, start),
        Position(partition, last.record_offset, end),
        _EPISODE_MS,
    )


def _millis(at: dt.datetime | None) -> int | None:
    """Give epoch milliseconds; Spark gives times without a zone, in the one of the session: UTC."""
    if at is None:
        return None
    aware = at if at.tzinfo is not None else at.replace(tzinfo=dt.timezone.utc)
    return round(aware.timestamp() * 1000)

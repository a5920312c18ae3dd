"""What is wrong with the log itself, and with groups that no record of their own tells of.

Each detector asks in SQL, Spark's dialect, for a few aggregated rows, and gives findings from them;
the window of each is what is new, or the hours that are. What is new is told by conditions in SQL.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from anomalies.model import HOUR_MS, INFO, WARNING, Hit, Position
from schemas.placement import partition_for, partitions_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable, Iterator

    from anomalies.model import Row
    from anomalies.thresholds import Thresholds, Values

# Findings of the same partition on the same day are one episode.
_EPISODE_MS = 24 * HOUR_MS
# What a member takes beside its texts and bytes, about.
_MEMBER_BYTES = 20
_EMBEDDED = {
    "subscription_bytes": "octet_length(one)",
    "assignment_bytes": "octet_length(one)",
    "member_id": "bit_length(one) DIV 8",
    "client_id": "bit_length(one) DIV 8",
}
_FIRST_AND_LAST = """
    min(named_struct('offset', record_offset, 'at', unix_millis(record_timestamp))) AS first,
    max(named_struct('offset', record_offset, 'at', unix_millis(record_timestamp))) AS last"""


PASSING = frozenset({"stale_group"})
"""Kinds that are told of for as long as they hold, and no longer."""


class Finding(NamedTuple):
    """A hit, with the group it is about; None if it is about the log."""

    group_id: str | None
    hit: Hit


class Question(NamedTuple):
    """SQL, and what the rows that answer it tell."""

    sql: str
    found: Callable[[list[Row]], Iterable[Finding]]


def coverage_gaps(is_new: str) -> Question:
    """Ask for offsets that were lost before they could be read.

    Args:
        is_new: the condition of rows of bronze.coverage.
    """
    return Question(
        f"""
SELECT record_partition, unix_millis(observed_at) AS at, hole.start_offset, hole.end_offset,
  hole.reason
FROM (
  SELECT record_partition, observed_at, explode(holes) AS hole FROM bronze.coverage WHERE {is_new}
)
WHERE hole.reason <> 'compacted'
ORDER BY at, record_partition, hole.start_offset""",
        _coverage_gaps,
    )


def _coverage_gaps(holes: list[Row]) -> Iterator[Finding]:
    for row in holes:
        at, partition = row["at"] or 0, row["record_partition"]
        start = Position(partition, row["start_offset"], None)
        end = Position(partition, row["end_offset"], None)
        yield Finding(
            None,
            Hit(
                "coverage_gap",
                str(partition),
                WARNING,
                at,
                at,
                start,
                end,
                _EPISODE_MS,
                label=row["reason"],
                add={"offsets": row["end_offset"] - row["start_offset"] + 1, "holes": 1},
            ),
        )


def undecodable(is_new: str) -> Question:
    """Ask for records that nobody could decode.

    Args:
        is_new: the condition of rows of silver.quarantine.
    """
    return Question(
        f"""
SELECT record_partition, CAST(sum(records) AS BIGINT) AS records, min(first) AS first,
  max(last) AS last, max(CASE WHEN place = 1 THEN error END) AS error
FROM (
  SELECT *, row_number() OVER (PARTITION BY record_partition ORDER BY records DESC, error) AS place
  FROM (
    SELECT record_partition, error, count(*) AS records, {_FIRST_AND_LAST}
    FROM silver.quarantine WHERE {is_new} GROUP BY record_partition, error
  )
)
GROUP BY record_partition ORDER BY record_partition""",
        _undecodable,
    )


def _undecodable(rows: list[Row]) -> Iterator[Finding]:
    for row in rows:
        hit = _of_partition("undecodable_records", row, WARNING)
        numbers, texts = {"records": row["records"]}, {"error": row["error"]}
        yield Finding(None, hit._replace(add=numbers, note=texts))


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


def oversized(is_new: str, thresholds: Thresholds) -> Question:
    """Ask for groups whose members' subscriptions and assignments fill a record.

    Args:
        is_new: the condition of rows of silver.group_metadata.
        thresholds: the thresholds in force.
    """
    # Of the other fields Spark then reads nothing.
    sizes = [
        f"aggregate(transform(members.{name}, one -> CAST(coalesce({size}, 0) AS BIGINT)), 0L,"
        " (bytes, more) -> bytes + more)"
        for name, size in _EMBEDDED.items()
    ]
    return Question(
        f"""
SELECT group_id, record_partition, record_offset, unix_millis(record_timestamp) AS at, bytes
FROM (
  SELECT group_id, record_partition, record_offset, record_timestamp,
    {_MEMBER_BYTES} * size(members.member_id) + {" + ".join(sizes)} AS bytes
  FROM silver.group_metadata WHERE {is_new}
)
WHERE bytes > {thresholds.least("oversized_record", "bytes")} AND record_timestamp IS NOT NULL
ORDER BY record_partition, record_offset""",
        lambda rows: _oversized(rows, thresholds),
    )


def _oversized(rows: list[Row], thresholds: Thresholds) -> Iterator[Finding]:
    for row in rows:
        if row["bytes"] <= thresholds.of(row["group_id"])["oversized_record"]["bytes"]:
            continue
        record = Position(row["record_partition"], row["record_offset"], row["at"])
        yield Finding(
            row["group_id"],
            Hit(
                "oversized_record",
                "",
                WARNING,
                row["at"],
                row["at"],
                record,
                record,
                _EPISODE_MS,
                add={"records": 1},
                most={"bytes": row["bytes"]},
                note={"record_type": "group_metadata"},
            ),
        )


def cleaner_stalled(is_new: str, limits: Values, now: int) -> Question:
    """Ask for partitions whose old records have nearly all been superseded, and are there still.

    Args:
        is_new: the condition of rows of silver.offset_commits.
        limits: the thresholds.
        now: time of the log.
    """
    limit = limits["cleaner_stalled"]
    return Question(
        f"""
SELECT record_partition, CAST(sum(records) AS BIGINT) AS records, count(*) AS keys,
  min(first) AS first, max(last) AS last
FROM (
  SELECT record_partition, group_id, topic, topic_partition, count(*) AS records, {_FIRST_AND_LAST}
  FROM silver.offset_commits
  WHERE {is_new} AND unix_millis(record_timestamp) < {now - limit["age_ms"]}
  GROUP BY record_partition, group_id, topic, topic_partition
)
GROUP BY record_partition
HAVING sum(records) >= {limit["least_records"]}
ORDER BY record_partition""",
        lambda rows: _cleaner_stalled(rows, limit["superseded_share"]),
    )


def _cleaner_stalled(rows: list[Row], most: float) -> Iterator[Finding]:
    for row in rows:
        share = 1 - row["keys"] / row["records"]
        if share > most:
            hit = _of_partition("cleaner_stalled", row, WARNING)
            numbers = {"records": row["records"], "superseded_share": round(share, 3)}
            yield Finding(None, hit._replace(most=numbers))


def hours_of(is_new: str) -> str:
    """Give the condition of rows of gold.offset_progress of the hours that have new commits.

    Args:
        is_new: the condition of rows of silver.offset_commits.
    """
    return f"""hour >= (
  SELECT date_trunc('HOUR', min(coalesce(record_timestamp, commit_timestamp)))
  FROM silver.offset_commits WHERE {is_new})"""


def hot_partitions(hours: str, limits: Values) -> Question:
    """Ask for partitions of the log that take most of an hour's commits.

    Args:
        hours: the condition of rows of gold.offset_progress.
        limits: the thresholds.
    """
    return Question(
        f"""
SELECT hour, record_partition, CAST(sum(commits) AS BIGINT) AS commits,
  max(CASE WHEN place = 1 THEN group_id END) AS busiest, min(first_at) AS first_at,
  max(last_at) AS last_at
FROM (
  SELECT *, row_number() OVER (
    PARTITION BY hour, record_partition ORDER BY commits DESC, group_id) AS place
  FROM (
    SELECT hour, record_partition, group_id, sum(commits) AS commits,
      min(unix_millis(first_commit_at)) AS first_at, max(unix_millis(last_commit_at)) AS last_at
    FROM gold.offset_progress WHERE {hours} GROUP BY hour, record_partition, group_id
  )
)
GROUP BY hour, record_partition ORDER BY hour, record_partition""",
        lambda rows: _hot_partitions(rows, limits),
    )


def _hot_partitions(rows: list[Row], limits: Values) -> Iterator[Finding]:
    limit = limits["hot_partition"]
    hours: dict[dt.datetime, int] = defaultdict(int)
    for row in rows:
        hours[row["hour"]] += row["commits"]
    for row in rows:
        share = row["commits"] / max(1, hours[row["hour"]])
        if row["commits"] < limit["least_records"] or share <= limit["share"]:
            continue
        first, last = row["first_at"] or 0, row["last_at"] or 0
        partition = row["record_partition"]
        yield Finding(
            None,
            Hit(
                "hot_partition",
                str(partition),
                WARNING,
                first,
                last,
                Position(partition, None, first),
                Position(partition, None, last),
                HOUR_MS,
                most={"share": round(share, 3), "commits_an_hour": row["commits"]},
                note={"group": row["busiest"]},
            ),
        )


def no_progress(hours: str, thresholds: Thresholds) -> Question:
    """Ask for partitions that a group commits at one offset, though there is more in them.

    That another group was further all the hour shows it.

    Args:
        hours: the condition of rows of gold.offset_progress.
        thresholds: the thresholds in force.
    """
    return Question(
        f"""
SELECT group_id, topic, topic_partition, commits, other_offset, last_committed_offset,
  record_partition, record_offset, unix_millis(first_commit_at) AS first_at,
  unix_millis(last_commit_at) AS last_at
FROM (SELECT * FROM gold.offset_progress WHERE {hours})
JOIN (
  SELECT topic, topic_partition, hour, max(first_committed_offset) AS other_offset
  FROM gold.offset_progress WHERE {hours} GROUP BY topic, topic_partition, hour
) USING (topic, topic_partition, hour)
WHERE progressed_offsets = 0 AND rewinds = 0 AND commits > 1
  AND other_offset > last_committed_offset
ORDER BY hour, group_id, topic, topic_partition""",
        lambda rows: _no_progress(rows, thresholds),
    )


def _no_progress(rows: list[Row], thresholds: Thresholds) -> Iterator[Finding]:
    for row in rows:
        if row["commits"] < thresholds.of(row["group_id"])["no_progress"]["least_commits"]:
            continue
        first, last = row["first_at"] or 0, row["last_at"] or 0
        record = Position(row["record_partition"], row["record_offset"], last)
        yield Finding(
            row["group_id"],
            Hit(
                "no_progress",
                f"{row['topic']}/{row['topic_partition']}",
                WARNING,
                first,
                last,
                record,
                record,
                HOUR_MS,
                most={"commits": row["commits"], "other_offset": row["other_offset"]},
                note={"committed_offset": row["last_committed_offset"]},
            ),
        )


def stale_groups(thresholds: Thresholds, now: int) -> Question:
    """Ask for groups without members that have not committed for long, and still hold offsets.

    It holds while it lasts, and is not told of afterwards.

    Args:
        thresholds: the thresholds in force.
        now: time of the log.
    """
    return Question(
        f"""
SELECT group_id, partitions, record, idle
FROM (
  SELECT group_id, partitions, record, {now} - greatest(last_at, unix_millis(started_at)) AS idle
  FROM (
    SELECT group_id, count(*) AS partitions,
      max(unix_millis(coalesce(committed_at, record_timestamp))) AS last_at,
      max(named_struct('record_offset', record_offset, 'record_partition', record_partition,
        'at', unix_millis(record_timestamp))) AS record
    FROM gold.committed_offsets WHERE NOT is_deleted GROUP BY group_id
  )
  LEFT JOIN (
    SELECT group_id, state, started_at FROM gold.group_states
    WHERE NOT is_settled AND ended_at IS NULL
  ) USING (group_id)
  WHERE state IS NULL OR state = 'Empty'
)
WHERE idle > {thresholds.least("stale_group", "idle_ms")} ORDER BY group_id""",
        lambda rows: _stale_groups(rows, thresholds, now),
    )


def _stale_groups(rows: list[Row], thresholds: Thresholds, now: int) -> Iterator[Finding]:
    for row in rows:
        group, idle, last = row["group_id"], row["idle"], row["record"]
        if thresholds.ignores(group) or idle <= thresholds.of(group)["stale_group"]["idle_ms"]:
            continue
        record = Position(last["record_partition"], last["record_offset"], last["at"])
        yield Finding(
            group,
            Hit(
                "stale_group",
                "",
                INFO,
                now - idle,
                now,
                record,
                record,
                0,
                most={"idle_ms": idle, "partitions": row["partitions"]},
            ),
        )


def _of_partition(kind: str, row: Row, severity: str) -> Hit:
    partition, first, last = (row[name] for name in ("record_partition", "first", "last"))
    start, end = first["at"], last["at"]
    began = start if start is not None else end or 0
    return Hit(
        kind,
        str(partition),
        severity,
        began,
        max(began, end or 0),
        Position(partition, first["offset"], start),
        Position(partition, last["offset"], end),
        _EPISODE_MS,
    )

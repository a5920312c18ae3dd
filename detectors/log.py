"""Anomalies of the log itself, and of groups where none of their own records shows them.

Each detector asks in SQL for a few aggregated rows, and returns findings from them. Its window is
the new rows, or the hours with new commits; a condition in SQL selects them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import orjson

from detectors.members import host_of
from detectors.model import DAY_MS, HOUR_MS, Findings, Hit, Position, Row, partition_name
from detectors.rows import anomaly_rows
from detectors.thresholds import Thresholds, Values
from schemas.gold import INFO, WARNING
from schemas.tables import NOT_LOST

Ask: TypeAlias = Callable[..., Mapping[str, list[Row]]]
"""Answers queries by name with rows; `:name` in them stands for a value that is given by name."""

# Findings of the same partition on the same day are one episode.
_EPISODE_MS = DAY_MS
# What a client makes up for a group of its own: a UUID, the end of a pod's name, which Kubernetes
# makes without vowels, letters mixed with digits, or a number.
_GIVEN = re.compile(
    r"[0-9a-f]{8}([-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12}|[0-9a-f]{16,}"
    r"|(?<=-)(?=[a-z]*\d)[bcdf-hj-np-tv-z2-9]{8,10}-[bcdf-hj-np-tv-z2-9]{5}\b"
    r"|(?<![0-9a-z])(?=[a-z]*\d)(?=\d*[a-z])[0-9a-z]{8,}(?![0-9a-z])|\d+",
    re.IGNORECASE,
)
# So many groups of a name tell which clients make them.
_ASKED = 100
# What a member takes beside its texts and bytes, about.
_MEMBER_BYTES = 20
_EMBEDDED, _NAMES = ("subscription_bytes", "assignment_bytes"), ("member_id", "client_id")
_FIRST_AND_LAST = """
  min(record_offset) AS first_offset, max(record_offset) AS last_offset,
  unix_millis(min_by(record_timestamp, record_offset)) AS first_at,
  unix_millis(max_by(record_timestamp, record_offset)) AS last_at"""
_SPAN_OF_PARTS = """
  min(first_offset) AS first_offset, min_by(first_at, first_offset) AS first_at,
  max(last_offset) AS last_offset, max_by(last_at, last_offset) AS last_at"""


COMMITS, METADATA = "silver.offset_commits", "silver.group_metadata"
QUARANTINE = "silver.quarantine"
"""Tables that some questions are about."""

KINDS = (
    *("coverage_gap", "undecodable_records", "misplaced_record", "oversized_record"),
    *("cleaner_stalled", "hot_partition", "no_progress", "stale_group"),
)
"""The kinds that are found here, of the log or of groups, and not by `GroupDetector`."""

HOURLY_KINDS = ("hot_partition", "no_progress")
"""Those that are found hour by hour."""

MOMENTARY_KINDS = frozenset({"stale_group"})
"""Kinds that are reported for as long as they hold, and no longer."""


class Finding(NamedTuple):
    """A hit, with the group it is about; None if it is about the log."""

    group_id: str | None
    hit: Hit


class LogFindings:
    """The findings of the log as a whole; those of each group are kept apart.

    Args:
        kept: what `to_json` gave after the last run; None without one.
        is_backfill: whether all hours are looked at again, so that their findings do not count.
    """

    # Prefix of the keys of groups, since a group's id may be empty: that is the key of the log.
    _GROUP = "="
    _LOST = "lost"

    def __init__(self, kept: str | None, *, is_backfill: bool) -> None:
        known = orjson.loads(kept or "{}")
        # The last offset that was lost before it could be read, by partition of the log.
        self.lost = {int(p): offset for p, offset in known.pop(self._LOST, {}).items()}
        self._findings: dict[str, Findings] = {
            key: Findings([e for e in episodes if not (is_backfill and e["kind"] in HOURLY_KINDS)])
            for key, episodes in known.items()
        }

    def add(self, group: str | None, hit: Hit) -> None:
        """Take a finding of a group, or of the log."""
        key = "" if group is None else f"{self._GROUP}{group}"
        partition, offset, _ = hit.last
        if hit.kind == "coverage_gap" and partition is not None and offset is not None:
            self.lost[partition] = max(offset, self.lost.get(partition, offset))
        self._findings.setdefault(key, Findings()).add(hit)

    def rows(self, cluster: str, thresholds: Thresholds, now: int) -> Iterator[Row]:
        """Return the anomalies, and what is to be kept of the log."""
        kept: Row = {}
        for key, findings in self._findings.items():
            group = key.removeprefix(self._GROUP) if key else None
            limits = thresholds.values if group is None else thresholds.of(group)
            settled, still_open = findings.settle(now), findings.current.values()
            yield from anomaly_rows(settled, still_open, cluster, group, limits, now=now)
            if lasting := [e for e in findings.to_json() if e["kind"] not in MOMENTARY_KINDS]:
                kept[key] = lasting
        if self.lost:
            kept[self._LOST] = {str(partition): offset for partition, offset in self.lost.items()}
        yield {"group_id": None, "state": orjson.dumps(kept).decode()}


class Asked(NamedTuple):
    """What is new in the tables of a lakehouse."""

    is_read: str  # the condition of new rows of bronze
    is_decoded: str  # the condition of new rows of silver
    rows: Mapping[str, int]  # how many rows are new, by table of silver
    since: int | None  # the time of the earliest new commit; None without one
    hours: str  # the condition of rows of gold.offset_progress of the hours to look at
    misplaced: Sequence[Row] = ()  # records that are not where their group belongs


class Question(NamedTuple):
    """SQL, the columns that put its rows in order, and what finds anomalies in them."""

    sql: str
    order: tuple[str, ...]
    evaluate: Callable[[list[Row]], Iterable[Finding]]

    def found(self, rows: Iterable[Row]) -> list[Finding]:
        """Return what is found in the rows that the SQL gave."""

        # A sort in Spark looks twice at the rows: Python sorts these few in less time.
        def rank(row: Row) -> list[tuple[bool, Any]]:
            return [(row[name] is not None, row[name]) for name in self.order]

        return list(self.evaluate(sorted(rows, key=rank)))


def questions(new: Asked, limits: Thresholds, now: int) -> list[Question]:
    """Ask the tables that have new rows."""
    asked = [coverage_gaps(new.is_read)]
    if new.rows[QUARANTINE]:
        asked.append(undecodable(new.is_read))
    if new.rows[METADATA]:
        asked.append(oversized(new.is_decoded, limits))
    if new.since is not None:
        if new.since < now - limits.values["cleaner_stalled"]["age_ms"]:
            asked.append(cleaner_stalled(new.is_decoded, limits.values, now))
        asked.append(hot_partitions(new.hours, limits.values))
    return asked


def findings(
    ask: Ask,
    new: Asked,
    groups: Iterable[Row],
    limits: Thresholds,
    now: int,
) -> Iterator[Finding]:
    """Find what is wrong with the log as a whole, and with groups whose own records do not tell.

    The groups are as `health.GROUPS_NOW` asks for.
    """
    asked = {str(n): question for n, question in enumerate(questions(new, limits, now))}
    sql = {name: question.sql for name, question in asked.items()}
    stuck = None if new.since is None else unchanged(new.hours, limits)
    if stuck is not None:
        sql["stuck"] = stuck
    rows = ask(sql)
    for name, question in asked.items():
        yield from question.found(rows[name])
    if stuck is not None and rows["stuck"]:
        question = overtaken(stuck, rows["stuck"], limits)
        yield from question.found(ask({"overtaken": question.sql})["overtaken"])
    yield from misplaced(new.misplaced)
    stale = list(stale_groups(groups, limits, now))
    names = alike(stale)
    yield from with_clients(stale, ask({"of": SESSIONS}, names=names)["of"] if names else [])


def coverage_gaps(new_rows: str) -> Question:
    """Ask new rows of bronze.coverage for offsets that were lost before they could be read."""
    return Question(
        f"""
SELECT record_partition, observed_at, hole.start_offset, hole.end_offset, hole.reason
FROM (
  SELECT record_partition, observed_at, explode(holes) AS hole
  FROM bronze.coverage WHERE {new_rows}
)
WHERE hole.reason NOT IN {NOT_LOST}""",
        ("observed_at", "record_partition", "start_offset"),
        _coverage_gaps,
    )


def _coverage_gaps(holes: list[Row]) -> Iterator[Finding]:
    for row in holes:
        at, partition = row["observed_at"] or 0, row["record_partition"]
        hit = Hit(
            "coverage_gap",
            WARNING,
            *(at, at, Position(partition, row["end_offset"], None), _EPISODE_MS),
            Position(partition, row["start_offset"], None),
            subject=str(partition),
            label=row["reason"],
            sums={"offsets": row["end_offset"] - row["start_offset"] + 1, "holes": 1},
        )
        yield Finding(None, hit)


def undecodable(new_rows: str) -> Question:
    """Ask for records that nobody could decode, among new rows of bronze.records.

    A record counts when it was read, and not again when another release has tried it.
    """
    return Question(
        f"""
SELECT record_partition, sum(records) AS records, {_SPAN_OF_PARTS},
  min(CASE WHEN records = most THEN error END) AS error
FROM (
  SELECT *, max(records) OVER (PARTITION BY record_partition) AS most
  FROM (
    SELECT record_partition, error, count(*) AS records, {_FIRST_AND_LAST}
    FROM silver.quarantine AS refused
    WHERE EXISTS (
      SELECT 1 FROM bronze.records AS new WHERE {new_rows}
        AND new.record_partition = refused.record_partition
        AND new.record_offset = refused.record_offset)
    GROUP BY record_partition, error
  )
)
GROUP BY record_partition""",
        ("record_partition",),
        _undecodable,
    )


def _undecodable(rows: list[Row]) -> Iterator[Finding]:
    for row in rows:
        hit = Hit(
            "undecodable_records",
            WARNING,
            *_of_partition(row),
            subject=str(row["record_partition"]),
            sums={"records": row["records"]},
            last_values={"error": row["error"]},
        )
        yield Finding(None, hit)


def misplaced(rows: Iterable[Row]) -> Iterator[Finding]:
    """Find groups with records in a partition that their id does not hash to.

    Args:
        rows: group_id and record_partition; records, how many there are; at, the time of the last
            in epoch milliseconds; expected_partition; partitions, how many the topic has; and
            label, if it is coordinated there, too, since, and second, the name of that history.
    """
    for row in rows:
        partition, at = row["record_partition"], row["at"]
        began = at if row.get("since") is None else min(at, row["since"])
        hit = Hit(
            "misplaced_record",
            WARNING,
            *(began, at, Position(partition, None, at), _EPISODE_MS),
            subject=str(partition),
            label=row.get("label"),
            sums={"records": row["records"]},
            last_values={
                name: row[name]
                for name in ("expected_partition", "partitions", "second")
                if row.get(name) is not None
            },
        )
        yield Finding(row["group_id"], hit)


def oversized(new_rows: str, thresholds: Thresholds) -> Question:
    """Ask new rows of silver.group_metadata for members' texts and bytes that fill a record."""
    sizes = [f"coalesce(octet_length(member.{name}), 0)" for name in _EMBEDDED]
    sizes += [f"coalesce(CAST(bit_length(member.{name}) / 8 AS BIGINT), 0)" for name in _NAMES]
    return Question(
        f"""
SELECT group_id, record_partition, record_offset, record_timestamp,
  sum({_MEMBER_BYTES} + {" + ".join(sizes)}) AS bytes
FROM (
  SELECT group_id, record_partition, record_offset, record_timestamp, explode(members) AS member
  FROM silver.group_metadata WHERE {new_rows} AND record_timestamp IS NOT NULL
)
GROUP BY group_id, record_partition, record_offset, record_timestamp
HAVING bytes > {thresholds.least("oversized_record", "bytes")}""",
        ("record_partition", "record_offset"),
        lambda rows: _oversized(rows, thresholds),
    )


def _oversized(rows: list[Row], thresholds: Thresholds) -> Iterator[Finding]:
    for row in rows:
        if row["bytes"] <= thresholds.of(row["group_id"])["oversized_record"]["bytes"]:
            continue
        at = row["record_timestamp"]
        record = Position(row["record_partition"], row["record_offset"], at)
        hit = Hit(
            "oversized_record",
            WARNING,
            *(at, at, record, _EPISODE_MS),
            sums={"records": 1},
            maxima={"bytes": row["bytes"]},
            last_values={"record_type": "group_metadata"},
        )
        yield Finding(row["group_id"], hit)


def cleaner_stalled(new_rows: str, limits: Values, now: int) -> Question:
    """Ask for partitions whose old records have nearly all been superseded, and are there still.

    It asks new rows of silver.offset_commits, at the time of the log.
    """
    limit = limits["cleaner_stalled"]
    return Question(
        f"""
SELECT record_partition, sum(records) AS records, count(*) AS keys, {_SPAN_OF_PARTS}
FROM (
  SELECT record_partition, count(*) AS records, {_FIRST_AND_LAST}
  FROM silver.offset_commits
  WHERE {new_rows} AND record_timestamp < timestamp_millis({now - limit["age_ms"]})
  GROUP BY record_partition, group_id, topic, topic_partition
)
GROUP BY record_partition
HAVING sum(records) >= {limit["least_records"]}""",
        ("record_partition",),
        lambda rows: _cleaner_stalled(rows, limit["superseded_share"]),
    )


def _cleaner_stalled(rows: list[Row], most: float) -> Iterator[Finding]:
    for row in rows:
        share = 1 - row["keys"] / row["records"]
        if share > most:
            hit = Hit(
                "cleaner_stalled",
                WARNING,
                *_of_partition(row),
                subject=str(row["record_partition"]),
                maxima={"records": row["records"], "superseded_share": round(share, 3)},
            )
            yield Finding(None, hit)


def hours_since(first: int) -> str:
    """Return the condition of rows of gold.offset_progress of the hours from a commit's time on."""
    return f"hour >= timestamp_millis({first // HOUR_MS * HOUR_MS})"


def hot_partitions(hours: str, limits: Values) -> Question:
    """Ask gold.offset_progress for partitions of the log that take most of an hour's commits."""
    return Question(
        f"""
SELECT hour, record_partition, sum(commits) AS commits,
  min(CASE WHEN commits = most THEN group_id END) AS busiest,
  unix_millis(min(first_at)) AS first_at, unix_millis(max(last_at)) AS last_at
FROM (
  SELECT *, max(commits) OVER (PARTITION BY hour, record_partition) AS most
  FROM (
    SELECT hour, record_partition, group_id, sum(commits) AS commits,
      min(first_commit_at) AS first_at, max(last_commit_at) AS last_at
    FROM gold.offset_progress WHERE {hours} GROUP BY hour, record_partition, group_id
  )
)
GROUP BY hour, record_partition""",
        ("hour", "record_partition"),
        lambda rows: _hot_partitions(rows, limits),
    )


def _hot_partitions(rows: list[Row], limits: Values) -> Iterator[Finding]:
    limit = limits["hot_partition"]
    hours: dict[int, int] = defaultdict(int)
    for row in rows:
        hours[row["hour"]] += row["commits"]
    for row in rows:
        share = row["commits"] / max(1, hours[row["hour"]])
        if row["commits"] < limit["least_records"] or share <= limit["share"]:
            continue
        first, last, partition = row["first_at"] or 0, row["last_at"] or 0, row["record_partition"]
        hit = Hit(
            "hot_partition",
            WARNING,
            *(first, last, Position(partition, None, last)),
            first=Position(partition, None, first),
            subject=str(partition),
            maxima={"share": round(share, 3), "commits_an_hour": row["commits"]},
            last_values={"group": row["busiest"]},
        )
        yield Finding(None, hit)


def unchanged(hours: str, thresholds: Thresholds) -> str:
    """Return SQL for partitions that a group commits at one offset, though there may be more.

    It gives the columns of gold.offset_progress on the time without progress.
    """
    least_ms, commits = (thresholds.least("no_progress", n) for n in ("least_ms", "least_commits"))
    return f"""
SELECT group_id, topic, topic_partition, hour, unchanged_since, unchanged_until, unchanged_commits,
  unchanged_offset, record_partition, record_offset
FROM (
  SELECT *, max(last_committed_offset) OVER (PARTITION BY topic, topic_partition, hour) AS furthest
  FROM gold.offset_progress WHERE {hours}
)
WHERE unchanged_commits >= {commits} AND furthest > unchanged_offset
  AND unix_millis(unchanged_until) - unix_millis(unchanged_since) >= {least_ms}"""


def overtaken(stuck: str, rows: Iterable[Row], thresholds: Thresholds) -> Question:
    """Ask which of these partitions another group has committed further meanwhile, and since when.

    The rows, one at least, are those of `unchanged`.
    """
    times = [row[name] for row in rows for name in ("unchanged_since", "unchanged_until")]
    return Question(
        f"""
SELECT stuck.*, unix_millis(unchanged_since) AS since, unix_millis(unchanged_until) AS until,
  unix_millis(min(coalesce(record_timestamp, commit_timestamp))) AS passed_at,
  max(committed_offset) AS other_offset
FROM ({stuck}) AS stuck JOIN silver.offset_commits AS commits
ON commits.topic = stuck.topic AND commits.topic_partition = stuck.topic_partition
  AND commits.group_id <> stuck.group_id AND committed_offset > unchanged_offset
  AND coalesce(record_timestamp, commit_timestamp) BETWEEN unchanged_since AND unchanged_until
WHERE NOT is_tombstone AND (record_timestamp IS NULL
  OR record_timestamp BETWEEN timestamp_millis({min(times)}) AND timestamp_millis({max(times)}))
GROUP BY ALL""",
        ("hour", "group_id", "topic", "topic_partition"),
        lambda found: _no_progress(found, thresholds),
    )


def _no_progress(rows: list[Row], thresholds: Thresholds) -> Iterator[Finding]:
    for row in rows:
        limit = thresholds.of(row["group_id"])["no_progress"]
        # As long as nobody was further there was nothing to read.
        first, last = max(row["since"], row["passed_at"]), row["until"]
        if last - first < limit["least_ms"] or row["unchanged_commits"] < limit["least_commits"]:
            continue
        hit = Hit(
            "no_progress",
            WARNING,
            *(first, last, Position(row["record_partition"], row["record_offset"], last)),
            subject=partition_name(row),
            maxima={"commits": row["unchanged_commits"], "other_offset": row["other_offset"]},
            last_values={"committed_offset": row["unchanged_offset"]},
        )
        yield Finding(row["group_id"], hit)


def stale_groups(groups: Iterable[Row], thresholds: Thresholds, now: int) -> Iterator[Finding]:
    """Find groups without members that have not committed for long, and still hold offsets.

    It is reported while it lasts, and not afterwards. `health.GROUPS_NOW` asks for the groups. Many
    whose names differ by a number or an id alone are one finding of the log.
    """
    of_pattern: dict[str, list[tuple[int, Row]]] = defaultdict(list)
    every = list(groups)
    made = Counter(pattern_of(row["group_id"]) for row in every)
    for row in every:
        group = row["group_id"]
        if not row["partitions"] or thresholds.ignores(group):
            continue
        if row["state"] not in {None, "Empty"} or row["until"] is not None:
            continue  # it has members, or may be gone
        known = [t for t in (row["kept_at"], row["since"]) if t is not None]
        idle = now - max(known, default=now)
        if idle > thresholds.of(group)["stale_group"]["idle_ms"]:
            of_pattern[pattern_of(group)].append((idle, row))
    for pattern, stale in of_pattern.items():
        if len(stale) >= thresholds.values["stale_group"]["groups_of_a_name"]:
            yield Finding(None, _alike(stale, now, pattern, made[pattern]))
        else:
            yield from (Finding(row["group_id"], _stale([(i, row)], now)) for i, row in stale)


def pattern_of(group: str) -> str:
    """Return the id of a group with * for what a client makes up for a group of its own."""
    return _GIVEN.sub("*", group)


def _stale(stale: list[tuple[int, Row]], now: int) -> Hit:
    idle, row = max(stale, key=lambda s: (s[0], s[1]["group_id"]))
    partitions = sum(of_group["partitions"] for _, of_group in stale)
    return Hit(
        "stale_group",
        INFO,
        *(now - idle, now),
        Position(row["held_partition"], row["held_offset"], row["held_at"]),
        0,
        maxima={"idle_ms": idle, "partitions": partitions},
    )


def _alike(stale: list[tuple[int, Row]], now: int, pattern: str, made: int) -> Hit:
    """Find groups whose names follow one pattern, of which there are `made` in all."""
    hit = _stale(stale, now)
    return hit._replace(
        subject=pattern,
        label="one_name",
        maxima={**hit.maxima, "groups": len(stale), "made": made},
        lists={"names": sorted(of_group["group_id"] for _, of_group in stale)},
    )


def alike(found: Iterable[Finding]) -> list[str]:
    """Return groups that are one finding with others, as many as tell who makes them."""
    return [name for f in found for name in f.hit.lists.get("names", ())[:_ASKED]]


SESSIONS = """
SELECT DISTINCT group_id, client_id, client_host FROM gold.member_sessions
WHERE group_id IN (:names)"""
"""SQL for the members of groups of some names."""


def with_clients(found: Iterable[Finding], sessions: Iterable[Row]) -> Iterator[Finding]:
    """Name the clients that made the groups of a finding, by what `SESSIONS` asks for."""
    clients: dict[str, set[str]] = defaultdict(set)
    for row in sessions:
        clients[row["group_id"]].add(host_of(row))
    for group, hit in found:
        named = sorted({c for name in hit.lists.get("names", ()) for c in clients.get(name, ())})
        lists = {**hit.lists, "clients": named} if named else hit.lists
        yield Finding(group, hit._replace(lists=lists))


def _of_partition(row: Row) -> tuple[int, int, Position, int, Position]:
    """Return the span of the records of a partition, from the first to the last."""
    partition = row["record_partition"]
    start, end = (
        Position(partition, row[f"{which}_offset"], row[f"{which}_at"])
        for which in ("first", "last")
    )
    began = start.timestamp if start.timestamp is not None else end.timestamp or 0
    return began, max(began, end.timestamp or 0), end, _EPISODE_MS, start

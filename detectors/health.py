"""How each group is now: the front page."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator

from detectors.model import Row
from detectors.sentences import KINDS
from detectors.thresholds import Thresholds
from schemas.gold import OK, SEVERITIES, STATUSES, STOP, WARN

WINDOWS = {"1h": dt.timedelta(hours=1), "24h": dt.timedelta(hours=24), "7d": dt.timedelta(days=7)}
# The most important one of the same severity comes last.
_KINDS = KINDS[::-1]
_MS = dt.timedelta(milliseconds=1)
NOT_KNOWN = "not known"
"""The state of a group that may be gone."""
_COUNTS = (
    *(f"rebalances_{name}" for name in WINDOWS),
    *(f"rebalancing_{name}_ms" for name in WINDOWS),
    *("open_anomalies", "anomalies_24h"),
)


GROUPS_NOW = """
SELECT group_id, max_by(state, sequence) AS state,
  unix_millis(max_by(started_at, sequence)) AS since, max_by(group_type, sequence) AS group_type,
  max_by(member_count, sequence) AS members, unix_millis(max_by(ended_at, sequence)) AS until,
  unix_millis(max(newest_at)) AS newest_at, unix_millis(max(commit_at)) AS last_commit_at,
  unix_millis(max(CASE WHEN is_held THEN commit_at END)) AS kept_at,
  count_if(is_held) AS partitions,
  max(CASE WHEN place = 1 THEN record_partition END) AS held_partition,
  max(CASE WHEN place = 1 THEN record_offset END) AS held_offset,
  unix_millis(max(CASE WHEN place = 1 THEN record_timestamp END)) AS held_at,
  max_by(record_partition, newest_at) AS record_partition
FROM (
  SELECT group_id, record_partition, NULL AS record_offset, record_timestamp,
    record_timestamp AS newest_at, NULL AS commit_at, false AS is_held, NULL AS place,
    sequence, state, started_at, group_type, member_count, ended_at
  FROM gold.group_states WHERE NOT is_settled
  UNION ALL
  SELECT group_id, record_partition, record_offset, record_timestamp,
    coalesce(record_timestamp, committed_at), coalesce(committed_at, record_timestamp),
    NOT is_deleted, CASE WHEN NOT is_deleted THEN row_number() OVER (
      PARTITION BY group_id, is_deleted ORDER BY record_offset DESC, record_partition DESC) END,
    NULL, NULL, NULL, NULL, NULL, NULL
  FROM gold.committed_offsets
)
GROUP BY group_id"""
"""SQL for how groups are: one row for each that is in a state, or has ever committed.

Columns, times in epoch milliseconds: group_id; of its last state, null without one, state, since,
group_type, members, and until, when it ended: the group may be gone since then, its end would have
left nothing; newest_at, of the newest record that tells of it; last_commit_at; and of the offsets
that the group still holds partitions, their number, kept_at, of the last commit of one, and
held_partition, held_offset and held_at, where the last one is, and from when; record_partition, of
the newest record.
"""


def rebalances(as_of: int) -> str:
    """Return SQL for the number and duration of each group's rebalances before the log's time."""
    since = {name: as_of - window // _MS for name, window in WINDOWS.items()}
    begun = "join_started_at >= timestamp_millis({})"
    sums = ",\n  ".join(
        f"count_if({begun.format(start)}) AS rebalances_{name},"
        f" sum(rebalance_ms) FILTER (WHERE {begun.format(start)}) AS rebalancing_{name}_ms"
        for name, start in since.items()
    )
    return f"""
SELECT group_id,
  {sums}
FROM gold.group_generations WHERE {begun.format(since["7d"])} GROUP BY group_id"""


def lags(lag_run: int) -> str:
    """Return SQL for how far groups are behind in a run of gold.lag."""
    return f"""
SELECT group_id, sum(lag) AS total_lag, bool_or(lag_is_bound) AS lag_is_bound,
  max(rank) AS lag_status, min(CASE WHEN rank = worst THEN since END) AS lag_status_at
FROM (
  SELECT *, max(rank) OVER (PARTITION BY group_id) AS worst
  FROM (
    SELECT group_id, lag, lag_is_bound, {index_among("status", STATUSES)} AS rank,
      unix_millis(CASE WHEN status = '{STOP}' AND committed_at IS NOT NULL THEN committed_at
        ELSE sampled_at END) AS since
    FROM gold.lag WHERE lag_run = {lag_run}
  )
)
GROUP BY group_id"""


def sampled_until(lag_run: int) -> str:
    """Return SQL for until when no commit was missing at a run of gold.lag, in column `at`."""
    return f"SELECT min(commits_known_until) AS at FROM gold.lag WHERE lag_run = {lag_run}"


FORMER = f"""
SELECT group_id, unix_millis(lag_status_since) AS former_trouble_at FROM gold.group_health
WHERE lag_status_since IS NOT NULL AND worst_lag_status NOT IN ('{OK}', '{WARN}')"""
"""SQL for since when groups have been in trouble by their lag, as the last run knew."""


def _since(own: Row) -> int | None:
    """Return since when a group has had its lag's status, or another of those that are trouble."""
    status, at = own.get("lag_status"), own.get("lag_status_at")
    if status is None or at is None or STATUSES[status] == OK:
        return None
    former = None if STATUSES[status] == WARN else own.get("former_trouble_at")
    return int(at if former is None else min(former, at))


def known_anomalies(as_of: int, run: int) -> str:
    """Return SQL for the anomalies that there are: a row for each group, and one for each kind.

    A row of a kind has how many there are (`known`), how many the anomalies run wrote (`written`),
    when the first of these began (`since`), and a `mark` that is another if one is new, gone, worse
    or over; kind is null in those of groups, which have the other columns.
    """
    severity, kind = index_among("severity", SEVERITIES), index_among("kind", _KINDS)
    since = as_of - WINDOWS["24h"] // _MS
    return f"""
SELECT kind, count(*) AS known, count_if(anomalies_run = {run}) AS written,
  unix_millis(min(CASE WHEN anomalies_run = {run} THEN started_at END)) AS since,
  bit_xor(xxhash64(anomaly_id, severity, is_open)) AS mark,
  group_id, count_if(is_open) AS open_anomalies,
  count_if(is_open OR ended_at >= timestamp_millis({since})) AS anomalies_24h,
  max(CASE WHEN is_open THEN {severity} * {len(_KINDS)} + {kind} END) AS worst
FROM gold.anomalies
GROUP BY GROUPING SETS ((kind), (group_id))"""


def index_among(column: str, values: Iterable[str]) -> str:
    """Return SQL for the index of a text in some, from 0; null if it is none of them."""
    cases = " ".join(f"WHEN '{value}' THEN {n}" for n, value in enumerate(values))
    return f"CASE {column} {cases} END"


def group_health(
    groups: Iterable[Row], sums: Iterable[Iterable[Row]], thresholds: Thresholds, as_of: int
) -> Iterator[Row]:
    """Return the columns of group_health for each group, without the cluster.

    The groups are as `GROUPS_NOW` asks for, the sums as `rebalances`, `lags`, `FORMER` and
    `known_anomalies` do; times are epoch milliseconds.
    """
    known: dict[str, Row] = defaultdict(dict)
    for row in (row for rows in sums for row in rows):
        known[row["group_id"]] |= row
    for group in groups:
        group_id = group["group_id"]
        if group["state"] is None or thresholds.ignores(group_id):
            continue
        own, until = known[group_id], group["until"]
        now = {name: group[name] for name in ("state", "since", "members")}
        if until is not None:
            now = {"state": NOT_KNOWN, "since": until, "members": None}
        worst, lag_status = own.get("worst"), own.get("lag_status")
        severity, kind = (None, None) if worst is None else divmod(worst, len(_KINDS))
        yield {
            "group_id": group_id,
            "group_type": group["group_type"],
            "health": "ok" if severity is None else SEVERITIES[severity],
            **now,
            **{name: own.get(name) or 0 for name in _COUNTS},
            "worst_anomaly": None if kind is None else _KINDS[kind],
            "total_lag": own.get("total_lag"),
            "total_lag_is_bound": own.get("lag_is_bound"),
            "worst_lag_status": None if lag_status is None else STATUSES[lag_status],
            "lag_status_since": _since(own),
            "last_commit_at": group["last_commit_at"],
            "as_of": as_of,
        }

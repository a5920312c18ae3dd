"""How each group is now: the front page."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from anomalies.model import SEVERITIES
from anomalies.telling import KINDS
from lag.burrow import STATUSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from anomalies.model import Row
    from anomalies.thresholds import Thresholds

WINDOWS = {"1h": dt.timedelta(hours=1), "24h": dt.timedelta(hours=24), "7d": dt.timedelta(days=7)}
# The most important one of the same severity comes last.
_KINDS = KINDS[::-1]
_MS = dt.timedelta(milliseconds=1)
_COUNTS = (
    *(f"rebalances_{name}" for name in WINDOWS),
    *(f"rebalancing_{name}_ms" for name in WINDOWS),
    *("open_anomalies", "anomalies_24h"),
)


def sums_by_group(as_of: int, lag_run: int) -> str:
    """Give SQL, of Spark's dialect, for what `group_health` is made of: a row for each group.

    Args:
        as_of: time of the log in epoch milliseconds.
        lag_run: the newest run of gold.lag; -1 if lag was never sampled.
    """
    since = {name: as_of - window // _MS for name, window in WINDOWS.items()}
    begun = "unix_millis(join_started_at) >= {}"
    rebalances = ",\n    ".join(
        f"count_if({begun.format(start)}) AS rebalances_{name},"
        f" CAST(sum(CASE WHEN {begun.format(start)} THEN rebalance_ms END) AS BIGINT)"
        f" AS rebalancing_{name}_ms"
        for name, start in since.items()
    )
    severity, status = place_among("severity", SEVERITIES), place_among("status", STATUSES)
    kind = place_among("kind", _KINDS)
    return f"""
SELECT *
FROM (
  SELECT group_id, group_type, state, started_at AS since, member_count AS members
  FROM gold.group_states WHERE NOT is_settled AND ended_at IS NULL
)
LEFT JOIN (
  SELECT group_id,
    {rebalances}
  FROM gold.group_generations WHERE {begun.format(since["7d"])} GROUP BY group_id
) USING (group_id)
LEFT JOIN (
  SELECT group_id, count_if(is_open) AS open_anomalies, count(*) AS anomalies_24h,
    max(CASE WHEN is_open THEN named_struct('rank', {severity}, 'kind', {kind}) END) AS worst
  FROM gold.anomalies
  WHERE group_id IS NOT NULL AND (is_open OR unix_millis(ended_at) >= {since["24h"]})
  GROUP BY group_id
) USING (group_id)
LEFT JOIN (
  SELECT group_id, max(coalesce(committed_at, record_timestamp)) AS last_commit_at
  FROM gold.committed_offsets GROUP BY group_id
) USING (group_id)
LEFT JOIN (
  SELECT group_id, CAST(sum(lag) AS BIGINT) AS total_lag, max({status}) AS lag_status
  FROM gold.lag WHERE lag_run = {lag_run} GROUP BY group_id
) USING (group_id)"""


def place_among(column: str, values: Iterable[str]) -> str:
    """Give SQL for the place of a text among some, the first is 0; null for none of them."""
    cases = " ".join(f"WHEN '{value}' THEN {n}" for n, value in enumerate(values))
    return f"CASE {column} {cases} END"


def group_health(sums: Iterable[Row], thresholds: Thresholds, as_of: dt.datetime) -> Iterator[Row]:
    """Tell how each group is.

    Args:
        sums: what `sums_by_group` asks for.
        thresholds: the thresholds in force.
        as_of: time of the log.

    Returns:
        The columns of group_health by name, but for the cluster.
    """
    for of_group in sums:
        if thresholds.ignores(of_group["group_id"]):
            continue
        row = of_group | {name: of_group[name] or 0 for name in _COUNTS}
        worst, lag_status = row.pop("worst"), row.pop("lag_status")
        row["health"] = "ok" if worst is None else SEVERITIES[worst["rank"]]
        row["worst_anomaly"] = None if worst is None else _KINDS[worst["kind"]]
        row["worst_lag_status"] = None if lag_status is None else STATUSES[lag_status]
        row["as_of"] = as_of
        yield row

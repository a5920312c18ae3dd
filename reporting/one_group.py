"""The questions of one group and a window of time, as SQL that Spark and DuckDB both know."""

from __future__ import annotations

from reporting.model import Log, Row, Selection, quoted
from reporting.text import moment
from schemas.errors import UsageError
from schemas.tables import INCIDENTS
from storage.queries import Ask, rows_by

_LOG = {
    "states": "SELECT min(started_at), max(record_timestamp) FROM gold.group_states",
    "groups": "SELECT DISTINCT group_id FROM gold.group_states WHERE NOT is_settled",
    "health": "SELECT max(as_of) FROM gold.group_health",
    "lag": "SELECT max(sampled_at) FROM gold.lag",
    # Nobody knows what came after the newest record of a file.
    "coverage": (
        "SELECT max(observed_at) FROM bronze.coverage WHERE coalesce(source, 'kafka') <> 'parquet'"
    ),
}
# A classic generation is recorded when it ends, another when it begins.
_END_OF_JOIN = (
    "CASE WHEN group_type = 'classic' THEN coalesce(stable_at, record_timestamp)"
    " ELSE coalesce(stable_at, ended_at) END"
)
_ITS = "group_id = :group"
_OF_INCIDENT = ", ".join(column.name for column in INCIDENTS.columns if column.name != "groups")


def log_of(ask: Ask) -> Log:
    """Read which groups a log has, and of which time."""
    found = ask(_LOG, {})
    groups = found.pop("groups")["group_id"].to_pylist()
    times = {name: [column[0].as_py() for column in rows] for name, rows in found.items()}
    (first, record), (observed,) = times["states"], times["coverage"]
    newest = max(time or 0 for time in (record, *times["health"], *times["lag"]))
    return Log(groups, first or 0, newest, max(newest, observed or 0))


def known_log(ask: Ask, cluster: str) -> Log:
    """Return which groups the log of a cluster has, and of which time."""
    log = log_of(ask)
    if not log.groups:
        raise UsageError(f"cluster {cluster} has no group yet; run the pipeline")
    return log


def pattern_in(log: Log, group: str) -> str:
    """Return the pattern of the group of an id, or of those whose whole ids match it."""
    return Selection(quoted(group) if group in log.groups else group).pattern or ""


def rows_of_group(
    ask: Ask, group: str, partition: str | None, since: int, until: int
) -> dict[str, list[Row]]:
    """Read the group's rows that touch a window, times in epoch milliseconds."""
    topic, _, number = (partition or "").rpartition(":")
    its, its_named = _ITS, _ITS
    if partition is not None:
        its += " AND topic = :topic AND topic_partition = :number"
        its_named += " AND coalesce(topic, topic_id) = :topic AND topic_partition = :number"
    queries = {
        "incidents": (
            f"SELECT {_OF_INCIDENT} FROM gold.incidents"
            f" WHERE array_contains(groups, :group) AND {_touches('started_at', 'ended_at')}"
        ),
        "states": _touching("gold.group_states", "started_at", "ended_at"),
        "generations": _touching("gold.group_generations", "join_started_at", _END_OF_JOIN),
        "owners": _touching("gold.partition_owners", "valid_from", "valid_to", its_named),
        "members": _touching("gold.member_sessions", "joined_at", "left_at"),
        # An hour may have nothing but deletions, which are no commits.
        "offsets": (
            f"SELECT * FROM gold.offset_progress WHERE {its}"
            " AND coalesce(first_commit_at, record_timestamp) < :until"
            " AND greatest(last_commit_at, record_timestamp) >= :since"
        ),
        "anomalies": _touching("gold.anomalies", "started_at", "ended_at"),
        "lag": (
            "SELECT sampled_at, group_status, sum(lag) AS lag,"
            " count(lag) AS partitions, bool_or(lag_is_bound) AS is_bound"
            f" FROM gold.lag WHERE {its} AND sampled_at BETWEEN :since AND :until"
            " GROUP BY sampled_at, group_status"
        ),
    }
    found: dict[str, list[Row]] = rows_by(
        ask,
        queries,
        group=group,
        since=moment(since),
        until=moment(until),
        topic=topic,
        number=int(number or 0),
    )
    found["states"].sort(key=lambda row: row["sequence"])
    return found


def _touching(table: str, start: str, end: str, its: str = _ITS) -> str:
    return f"SELECT * FROM {table} WHERE {its} AND {_touches(start, end)}"


def _touches(start: str, end: str) -> str:
    return f"{start} < :until AND (({end}) IS NULL OR ({end}) > :since)"

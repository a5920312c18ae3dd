"""The seam to the tables: they in, the bounded rows that the page shows out."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from anomalies.health import place_among
from anomalies.model import SEVERITIES
from lag.burrow import STATUSES
from report.model import (
    DAY_MS,
    LISTED_ANOMALIES,
    LISTED_FINDINGS,
    LISTED_GROUPS,
    PANELS,
    SHOWN_GROUPS,
    WINDOW_MS,
    Facts,
    Group,
)
from schemas.columns import in_millis
from schemas.tables import (
    ANOMALIES,
    COVERAGE,
    GROUP_GENERATIONS,
    GROUP_HEALTH,
    QUARANTINE,
    RESULTS,
    VALIDATION_RUNS,
)
from storage.queries import tables
from storage.tables import sql_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.conditions import Where
    from storage.tables import Lakehouse

_BARS = 170  # a week has 168 hours
_STEPS_MS = (1, 2, 5, 10, 30, 60, 300, 900, 3_600, 10_800, 21_600, 86_400)
_QUARANTINE_REASONS = 5
_REASONS = ("compacted", "truncated", "not read")
_NAMED_MEMBERS = 8
_MOST_TEXT = 4_000
"""Characters of a text: what members send may be large, and the page has many rows."""


def read_facts(lakehouse: Lakehouse, made_at: int) -> Facts:
    """Read what the page shows; how many rows that is does not grow with the number of groups."""
    facts = Facts(lakehouse.cluster, lakehouse.root, made_at)
    _read_quality(lakehouse, facts)
    _read_findings(lakehouse, facts, made_at - WINDOW_MS)
    _read_health(lakehouse, facts)
    if facts.as_of is not None:
        since = facts.as_of - WINDOW_MS
        facts.shown = [Group(name) for name in facts.groups["group_id"][:SHOWN_GROUPS].to_pylist()]
        _read_anomalies(lakehouse, facts, since)
        _read_rebalances(lakehouse, facts, since)
        _read_panels(lakehouse, facts, since)
    return facts


def _read_health(lakehouse: Lakehouse, facts: Facts) -> None:
    columns = [c.name for c in GROUP_HEALTH.of_cluster]
    groups = _ranked(lakehouse.rows(GROUP_HEALTH, columns), "health")
    worst = [(name, "descending") for name in ("rank", "rebalances_24h", "rebalances_7d")]
    facts.group_count = groups.num_rows
    facts.groups = _shown(_first(groups, [*worst, ("group_id", "ascending")], LISTED_GROUPS))
    if facts.groups.num_rows:
        facts.as_of = facts.groups["as_of"][0].as_py()


def _read_anomalies(lakehouse: Lakehouse, facts: Facts, since: int) -> None:
    columns = (
        *("anomaly_id", "kind", "severity", "group_id", "subject", "started_at", "ended_at"),
        *("is_open", "label", "summary", "evidence", "thresholds"),
        *("first_record_partition", "first_record_offset"),
        *("last_record_partition", "last_record_offset"),
    )
    where: Where = [[("ended_at", ">=", _time(since))], [("is_open", "==", True)]]
    found = _ranked(lakehouse.rows(ANOMALIES, columns, where), "severity")
    worst = [(name, "descending") for name in ("is_open", "rank", "started_at")]
    order = [*worst, ("anomaly_id", "ascending")]
    facts.anomaly_count = found.num_rows
    facts.anomalies = _shown(_first(found, order, LISTED_ANOMALIES))


def _read_rebalances(lakehouse: Lakehouse, facts: Facts, since: int) -> None:
    columns = ("group_id", "join_started_at")
    where: Where = [[("join_started_at", ">=", _time(since))]]
    found = in_millis(lakehouse.rows(GROUP_GENERATIONS, columns, where))
    if not found.num_rows:
        return
    begun = found["join_started_at"]
    bounds = pc.min_max(begun).as_py()
    span = bounds["max"] - bounds["min"]
    facts.step_ms = next((step * 1000 for step in _STEPS_MS if span <= step * 1000 * _BARS), DAY_MS)
    at = pc.multiply(pc.divide(begun, facts.step_ms), facts.step_ms)
    # The others are one group without a name.
    shown = pa.array([group.group_id for group in facts.shown], pa.string())
    is_shown = pc.is_in(found["group_id"], shown)
    named = pc.if_else(is_shown, found["group_id"], pa.scalar(None, pa.string()))
    counted = pa.table({"group_id": named, "at": at}).group_by(["group_id", "at"])
    counts = counted.aggregate([([], "count_all")]).rename_columns(["group_id", "at", "count"])
    facts.rebalances = counts.sort_by([("at", "ascending"), ("group_id", "ascending")])


def _read_quality(lakehouse: Lakehouse, facts: Facts) -> None:
    quality = facts.quality
    columns = ("topic", "record_partition", "next_offset", "record_count", "observed_at", "holes")
    covered = in_millis(lakehouse.rows(COVERAGE, columns))
    sums = [("next_offset", "max"), ("record_count", "sum")]
    ends = covered.group_by(["topic", "record_partition"]).aggregate(sums).to_pylist()
    quality.offsets = sum(row["next_offset_max"] for row in ends)
    quality.records = sum(row["record_count_sum"] for row in ends)
    quality.partitions = sum(row["record_count_sum"] > 0 for row in ends)
    quality.last_ingest_at = pc.max(covered["observed_at"]).as_py()
    holes = pc.list_flatten(covered["holes"])
    start, end, reason = (
        pc.struct_field(holes, name) for name in ("start_offset", "end_offset", "reason")
    )
    missing = pa.table({"reason": reason, "offsets": pc.add(pc.subtract(end, start), 1)})
    by_reason = missing.group_by(["reason"]).aggregate([("offsets", "sum")]).to_pylist()
    found = {row["reason"]: row["offsets_sum"] for row in by_reason}
    quality.holes = {reason: found[reason] for reason in _REASONS if found.get(reason)}
    refused = lakehouse.rows(QUARANTINE, ("error",))
    counts = refused.group_by(["error"]).aggregate([([], "count_all")])
    often = [("count_all", "descending"), ("error", "ascending")]
    first = _first(counts, often, _QUARANTINE_REASONS).to_pylist()
    quality.quarantine = {row["error"]: row["count_all"] for row in first}
    quality.quarantined = refused.num_rows


def _read_findings(lakehouse: Lakehouse, facts: Facts, since: int) -> None:
    quality = facts.quality
    runs = in_millis(lakehouse.rows(VALIDATION_RUNS, ("at",)))
    quality.last_validation_at = pc.max(runs["at"]).as_py()
    columns = (
        *("table_name", "expectation", "meaning", "severity", "rows_unexpected", "at"),
        "validation_run",
    )
    where: Where = [[("success", "==", False), ("at", ">=", _time(since))]]
    failed = _ranked(lakehouse.rows(RESULTS, columns, where), "severity")
    newest = {}
    for row in _shown(failed.sort_by("validation_run")).to_pylist():
        newest[row["table_name"], row["expectation"]] = row
    worst = sorted(newest.items(), key=lambda item: (-item[1]["rank"], -item[1]["at"], item[0]))
    quality.findings = [row for _, row in worst[:LISTED_FINDINGS]]


# -- the charts of the groups ----------------------------------------------------------------------

_SAMPLES = f"""(
  SELECT group_id, sampled_at, CAST(sum(lag) AS BIGINT) AS lag, max(lag_seconds) AS lag_seconds,
    max({place_among("status", STATUSES)}) AS status, count(*) AS partitions
  FROM gold.lag GROUP BY group_id, sampled_at
)"""
# What rows are read from, and the columns of their begin and end.
_SOURCES = {
    "states": ("gold.group_states", "started_at", "ended_at"),
    "generations": ("gold.group_generations", "join_completed_at", "ended_at"),
    "members": ("gold.member_sessions", "joined_at", "left_at"),
    "owners": ("gold.partition_owners", "valid_from", "valid_to"),
    "offsets": ("gold.offset_progress", "hour", "last_commit_at"),
    "lag": (_SAMPLES, "sampled_at", "sampled_at"),
}
_NAME = "member -> coalesce(member.group_instance_id, member.client_id, member.member_id)"
# Columns that are not there by their names.
_MADE_OF = {
    "owners": {
        "topic": "coalesce(topic, topic_id)",
        "client_id": "coalesce(client_id, member_id)",
    },
    "generations": {
        what: f"array_join(transform(slice(members_{what}, 1, {_NAMED_MEMBERS}), {_NAME}), ', ')"
        for what in ("joined", "left", "replaced")
    },
    "lag": {
        "status": "CASE status "
        + " ".join(f"WHEN {n} THEN '{status}'" for n, status in enumerate(STATUSES))
        + " END"
    },
}


def _read_panels(lakehouse: Lakehouse, facts: Facts, since: int) -> None:
    if not facts.shown:
        return
    asked = [_newest(panel, facts.shown, since) for panel in PANELS]
    for panel, found in zip(PANELS, tables(lakehouse, asked), strict=True):
        groups = {group.group_id: group for group in facts.shown}
        # Of many chunks, Arrow takes rows by putting all of them together, each time.
        rows = _shown(_in_time(found.combine_chunks()))
        start = 0
        for of_group in pc.value_counts(rows["group_id"]).to_pylist():
            group, held = groups[of_group["values"]], of_group["counts"]
            group.counts[panel] = rows["row_count"][start].as_py()
            start += held
            shown = min(held, PANELS[panel].most)
            newest = rows.slice(start - shown, shown)
            group.rows[panel] = newest.drop_columns(["begun", "row_count"])


def _in_time(rows: pa.Table) -> pa.Table:
    """Order rows by group and from the oldest on; of those begun at once, by all else."""
    by_time = sorted(rows.schema, key=lambda field: not pa.types.is_timestamp(field.type))
    others = [field.name for field in by_time if field.name not in ("group_id", "begun")]
    # What has no end yet is the newest.
    order = [(name, "ascending", "at_end") for name in ("group_id", "begun", *others)]
    return rows.take(pc.sort_indices(rows, order))


def _newest(panel: str, groups: Sequence[Group], since: int) -> str:
    """Give SQL for the newest rows of groups, and how many there are of each.

    The rows as a whole are read only once it is known since when they are shown. Where the place in
    an order is all that is asked of it, neither DuckDB nor Spark brings all rows into that order.
    """
    source, begin, end = _SOURCES[panel]
    made_of = _MADE_OF.get(panel, {})
    columns = [f"{made_of.get(name, name)} AS {name}" for name in PANELS[panel].columns]
    begun = f"coalesce(unix_millis({begin}), -1)"
    names = ", ".join(sql_text(group.group_id) for group in groups)
    is_shown = f"group_id IN ({names}) AND ({end} IS NULL OR unix_millis({end}) >= {since})"
    return f"""
WITH begun_at AS (SELECT group_id, {begun} AS begun FROM {source} WHERE {is_shown})
SELECT group_id, {begun} AS begun, row_count, {", ".join(columns)}
FROM {source} AS held
JOIN (SELECT group_id, count(*) AS row_count FROM begun_at GROUP BY group_id) USING (group_id)
JOIN (
  SELECT group_id, min(begun) AS first_begun
  FROM (
    SELECT group_id, begun, row_number() OVER (PARTITION BY group_id ORDER BY begun DESC) AS place
    FROM begun_at
  )
  WHERE place <= {PANELS[panel].most} GROUP BY group_id
) USING (group_id)
WHERE {is_shown} AND {begun} >= first_begun"""


# -- rows ------------------------------------------------------------------------------------------


def _time(millis: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(millis / 1000, dt.timezone.utc)


def _ranked(rows: pa.Table, column: str) -> pa.Table:
    """Add the place of a severity among all; -1 for none of them, such as ok."""
    rank = pc.index_in(rows[column], pa.array(SEVERITIES))
    return rows.append_column("rank", pc.fill_null(rank, -1))


def _first(rows: pa.Table, order: Sequence[tuple[str, str]], most: int) -> pa.Table:
    return rows.sort_by(list(order)).slice(0, most)


def _shown(rows: pa.Table) -> pa.Table:
    """Give rows as the page has them; texts that are longer than it can show are cut."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_string(field.type) and field.name != "group_id":
            short = pc.utf8_slice_codeunits(rows[field.name], 0, _MOST_TEXT)
            rows = rows.set_column(at, field.name, short)
    return in_millis(rows)

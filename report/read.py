"""The seam to the tables: they in, the bounded rows that the page shows out."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

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
    GROUP_STATES,
    LAG,
    MEMBER_SESSIONS,
    OFFSET_PROGRESS,
    PARTITION_OWNERS,
    QUARANTINE,
    RESULTS,
    VALIDATION_RUNS,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from report.model import Row
    from storage.conditions import Test, Where
    from storage.tables import Lakehouse

_BARS = 170  # a week has 168 hours
_STEPS_MS = (1, 2, 5, 10, 30, 60, 300, 900, 3_600, 10_800, 21_600, 86_400)
_QUARANTINE_REASONS = 5
_REASONS = ("compacted", "truncated", "not read")
_NAMED_MEMBERS = 8
_AT_ONCE = 2
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
        facts.shown = [Group(row["group_id"]) for row in facts.groups[:SHOWN_GROUPS]]
        _read_anomalies(lakehouse, facts, since)
        _read_rebalances(lakehouse, facts, since)
        # Arrow leaves Python alone while it reads.
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda panel: _read_panel(lakehouse, facts, panel, since), PANELS))
    return facts


def _read_health(lakehouse: Lakehouse, facts: Facts) -> None:
    columns = [c.name for c in GROUP_HEALTH.of_cluster]
    groups = _ranked(lakehouse.rows(GROUP_HEALTH, columns), "health")
    worst = [(name, "descending") for name in ("rank", "rebalances_24h", "rebalances_7d")]
    facts.group_count = groups.num_rows
    facts.groups = _rows(_first(groups, [*worst, ("group_id", "ascending")], LISTED_GROUPS))
    if facts.groups:
        facts.as_of = facts.groups[0]["as_of"]


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
    facts.anomalies = _rows(_first(found, order, LISTED_ANOMALIES))


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
    facts.rebalances = counts.sort_by([("at", "ascending"), ("group_id", "ascending")]).to_pylist()


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
    for row in _rows(failed.sort_by("validation_run")):
        newest[row["table_name"], row["expectation"]] = row
    worst = sorted(newest.items(), key=lambda item: (-item[1]["rank"], -item[1]["at"], item[0]))
    quality.findings = [row for _, row in worst[:LISTED_FINDINGS]]


# -- the charts of the groups ----------------------------------------------------------------------

_TABLES = {
    "states": (GROUP_STATES, "started_at", "ended_at"),
    "generations": (GROUP_GENERATIONS, "join_completed_at", "ended_at"),
    "members": (MEMBER_SESSIONS, "joined_at", "left_at"),
    "owners": (PARTITION_OWNERS, "valid_from", "valid_to"),
    "offsets": (OFFSET_PROGRESS, "hour", "last_commit_at"),
    "lag": (LAG, "sampled_at", "sampled_at"),
}
# Columns that panels are made of, beside their own.
_BESIDE = {"owners": ("topic_id", "member_id")}
_OF_LAG = ("group_id", "sampled_at", "lag", "lag_seconds", "status")
_MEMBERS = {"joined": "members_joined", "left": "members_left", "replaced": "members_replaced"}


def _read_panel(lakehouse: Lakehouse, facts: Facts, panel: str, since: int) -> None:
    spec, begin, end = _TABLES[panel]
    if not facts.shown:
        return
    shown: Test = ("group_id", "in", [group.group_id for group in facts.shown])
    where: Where = [[shown, (end, "is null", None)], [shown, (end, ">=", _time(since))]]
    columns = ("group_id", *PANELS[panel].columns, *_BESIDE.get(panel, ()))
    if panel == "lag":  # made of many rows each
        columns = _OF_LAG
    held = [_MEMBERS.get(name, name) for name in columns]
    found = lakehouse.rows(spec, held, where).rename_columns(columns)
    # Of many chunks, Arrow takes rows by putting all of them together, each time.
    prepared = _prepared(panel, found).combine_chunks()
    order = pc.sort_indices(prepared, [("group_id", "ascending"), (begin, "descending")])
    groups = {group.group_id: group for group in facts.shown}
    start = 0
    for of_group in pc.value_counts(prepared["group_id"].take(order)).to_pylist():
        group, count = groups[of_group["values"]], of_group["counts"]
        group.counts[panel] = count
        # Rows are moved only if they are shown.
        newest = prepared.take(order.slice(start, min(count, PANELS[panel].most)))
        group.rows[panel] = _told(panel, _rows(newest))[::-1]
        start += count


def _prepared(panel: str, rows: pa.Table) -> pa.Table:
    if panel == "owners":
        for name, other in (("topic", "topic_id"), ("client_id", "member_id")):
            known = pc.coalesce(rows[name], rows[other])
            rows = rows.set_column(rows.schema.get_field_index(name), name, known)
    elif panel == "lag":
        worst = pc.index_in(rows["status"], pa.array(STATUSES))
        sums = [("lag", "sum"), ("rank", "max"), ("lag_seconds", "max"), ([], "count_all")]
        of_sample = rows.append_column("rank", worst).group_by(["group_id", "sampled_at"])
        named = ("group_id", "sampled_at", "lag", "rank", "lag_seconds", "partitions")
        rows = of_sample.aggregate(sums).rename_columns(named)
        rows = rows.append_column("status", pc.take(pa.array(STATUSES), rows["rank"]))
    return rows


def _told(panel: str, rows: list[Row]) -> list[Row]:
    if panel == "generations":
        for row in rows:
            for name in _MEMBERS:
                names = map(_name_of, (row[name] or ())[:_NAMED_MEMBERS])
                row[name] = ", ".join(names)[:_MOST_TEXT]
    return rows


def _name_of(member: Row) -> str:
    names = (member["group_instance_id"], member["client_id"], member["member_id"])
    return str(next((name for name in names if name is not None), ""))


# -- rows ------------------------------------------------------------------------------------------


def _time(millis: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(millis / 1000, dt.timezone.utc)


def _ranked(rows: pa.Table, column: str) -> pa.Table:
    """Add the place of a severity among all; -1 for none of them, such as ok."""
    rank = pc.index_in(rows[column], pa.array(SEVERITIES))
    return rows.append_column("rank", pc.fill_null(rank, -1))


def _first(rows: pa.Table, order: Sequence[tuple[str, str]], most: int) -> pa.Table:
    return rows.sort_by(list(order)).slice(0, most)


def _rows(rows: pa.Table) -> list[Row]:
    """Give rows as the page has them; texts that are longer than it can show are cut."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_string(field.type) and field.name != "group_id":
            short = pc.utf8_slice_codeunits(rows[field.name], 0, _MOST_TEXT)
            rows = rows.set_column(at, field.name, short)
    found: list[Row] = in_millis(rows).to_pylist()
    return found

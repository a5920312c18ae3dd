"""The seam to Spark: tables in, the bounded rows that the page shows out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from anomalies.health import severity_rank
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
    from collections.abc import Callable

    from pyspark.sql import Column

    from report.model import Row
    from storage.tables import Lakehouse

_AT_ONCE = 4
_BARS = 170  # a week has 168 hours
_STEPS_MS = (1, 2, 5, 10, 30, 60, 300, 900, 3_600, 10_800, 21_600, 86_400)
_QUARANTINE_REASONS = 5
_REASONS = ("compacted", "truncated", "not read")
_MOST_TEXT = 4_000
"""Characters of a text: what members send may be large, and the page has many rows."""


def read_facts(lakehouse: Lakehouse, made_at: int) -> Facts:
    """Read what the page shows; how many rows that is does not grow with the number of groups."""
    facts = Facts(lakehouse.cluster, lakehouse.root, made_at)
    if lakehouse.exists(GROUP_HEALTH):
        _read_health(lakehouse, facts)
    tasks: list[Callable[[], None]] = [
        partial(_read_quality, lakehouse, facts),
        partial(_read_findings, lakehouse, facts, made_at - WINDOW_MS),
    ]
    if facts.as_of is not None:
        since = facts.as_of - WINDOW_MS
        facts.shown = [Group(row["group_id"]) for row in facts.groups[:SHOWN_GROUPS]]
        tasks += [
            partial(_read_anomalies, lakehouse, facts, since),
            partial(_read_rebalances, lakehouse, facts, since),
            *(partial(_read_panel, lakehouse, facts, panel, since) for panel in PANELS),
        ]
    # Each asks for few rows, and most of its time is the asking.
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for done in [pool.submit(task) for task in tasks]:
            done.result()
    return facts


def _read_health(lakehouse: Lakehouse, facts: Facts) -> None:
    health = _millis(lakehouse.read(GROUP_HEALTH).drop("cluster"))
    rank = severity_rank("health")
    often = (F.desc("rebalances_24h"), F.desc("rebalances_7d"))
    worst = health.orderBy(rank.desc(), *often, "group_id")
    facts.groups, facts.group_count = _first(worst, LISTED_GROUPS)
    if facts.groups:
        facts.as_of = facts.groups[0]["as_of"]


def _read_anomalies(lakehouse: Lakehouse, facts: Facts, since: int) -> None:
    found = lakehouse.read(ANOMALIES).where((F.col("ended_at") >= _time(since)) | F.col("is_open"))
    rank = severity_rank("severity")
    rows = _millis(found).select(
        *("anomaly_id", "kind", "severity", "group_id", "subject", "started_at", "ended_at"),
        *("is_open", "label", "summary", "evidence", "thresholds"),
        *("first_record_partition", "first_record_offset"),
        *("last_record_partition", "last_record_offset"),
    )
    worst = _short(rows).orderBy("is_open", rank, "started_at", ascending=False)
    facts.anomalies, facts.anomaly_count = _first(worst, LISTED_ANOMALIES)


def _read_rebalances(lakehouse: Lakehouse, facts: Facts, since: int) -> None:
    begun = F.unix_millis("join_started_at")
    rows = lakehouse.read(GROUP_GENERATIONS).where(F.col("join_started_at") >= _time(since))
    first = rows.agg(F.min(begun).alias("first"), F.max(begun).alias("last")).first()
    if first is None or first["first"] is None:
        return
    span = first["last"] - first["first"]
    facts.step_ms = next((step * 1000 for step in _STEPS_MS if span <= step * 1000 * _BARS), DAY_MS)
    at = (F.floor(begun / facts.step_ms) * facts.step_ms).cast("bigint").alias("at")
    # The others are one group without a name.
    is_shown = F.col("group_id").isin([group.group_id for group in facts.shown])
    named = rows.select(F.when(is_shown, F.col("group_id")).alias("group_id"), at)
    counted = _rows(named.groupBy("group_id", "at").count())
    facts.rebalances = sorted(counted, key=lambda row: row["at"])


def _read_quality(lakehouse: Lakehouse, facts: Facts) -> None:
    quality = facts.quality
    if lakehouse.exists(COVERAGE):
        of_partition = (
            lakehouse.read(COVERAGE)
            .groupBy("topic", "record_partition")
            .agg(
                F.max("next_offset").alias("offsets"),
                F.sum("record_count").alias("records"),
                F.unix_millis(F.max("observed_at")).alias("observed_at"),
                *(F.sum(_missing(reason)).alias(reason) for reason in _REASONS),
            )
        )
        ends = _rows(of_partition)
        quality.offsets = sum(row["offsets"] for row in ends)
        quality.records = sum(row["records"] for row in ends)
        quality.partitions = sum(row["records"] > 0 for row in ends)
        quality.last_ingest_at = max((row["observed_at"] for row in ends), default=None)
        missing = {reason: sum(row[reason] for row in ends) for reason in _REASONS}
        quality.holes = {reason: n for reason, n in missing.items() if n}
    if lakehouse.exists(QUARANTINE):
        refused = lakehouse.read(QUARANTINE)
        by_error = refused.groupBy("error").count().orderBy(F.desc("count"), "error")
        rows = _rows(by_error.limit(_QUARANTINE_REASONS))
        quality.quarantine = {row["error"]: row["count"] for row in rows}
        quality.quarantined = refused.count() if rows else 0


def _read_findings(lakehouse: Lakehouse, facts: Facts, since: int) -> None:
    if not lakehouse.exists(VALIDATION_RUNS) or not lakehouse.exists(RESULTS):
        return
    (last,) = _rows(lakehouse.read(VALIDATION_RUNS).agg(F.unix_millis(F.max("at")).alias("at")))
    facts.quality.last_validation_at = last["at"]
    failed = lakehouse.read(RESULTS).where(~F.col("success") & (F.col("at") >= _time(since)))
    of_one = Window.partitionBy("table_name", "expectation").orderBy(F.desc("validation_run"))
    newest = _millis(failed.withColumn("rank", F.row_number().over(of_one)).where("rank = 1"))
    rows = newest.select(
        *("table_name", "expectation", "meaning", "severity", "rows_unexpected", "at")
    ).orderBy(severity_rank("severity").desc(), F.desc("at"), "table_name", "expectation")
    facts.quality.findings = _rows(rows.limit(LISTED_FINDINGS))


def _missing(reason: str) -> Column:
    """Count the offsets of a run's holes that have a reason."""
    of_reason = F.filter("holes", lambda hole: hole["reason"] == reason)
    none = F.lit(0).cast("bigint")
    return F.aggregate(
        of_reason, none, lambda n, hole: n + hole["end_offset"] - hole["start_offset"] + 1
    )


# -- the charts of the groups ----------------------------------------------------------------------

_TABLES = {
    "states": (GROUP_STATES, "started_at", "ended_at"),
    "generations": (GROUP_GENERATIONS, "join_completed_at", "ended_at"),
    "members": (MEMBER_SESSIONS, "joined_at", "left_at"),
    "owners": (PARTITION_OWNERS, "valid_from", "valid_to"),
    "offsets": (OFFSET_PROGRESS, "hour", "last_commit_at"),
    "lag": (LAG, "sampled_at", "sampled_at"),
}


def _read_panel(lakehouse: Lakehouse, facts: Facts, panel: str, since: int) -> None:
    spec, begin, end = _TABLES[panel]
    if not lakehouse.exists(spec):
        return
    is_shown = F.col("group_id").isin([group.group_id for group in facts.shown])
    is_recent = F.col(end).isNull() | (F.col(end) >= _time(since))
    rows = _prepared(panel, lakehouse.read(spec).where(is_shown & is_recent))
    most = PANELS[panel].most
    enough = most * len(facts.shown)
    selected = _short(_millis(rows).select("group_id", *PANELS[panel].columns))
    found = _rows(selected.limit(enough + 1))
    if len(found) > enough:  # only then is it worth to have Spark rank them
        of_group = Window.partitionBy("group_id")
        ranked = selected.withColumns(
            {
                "rank": F.row_number().over(of_group.orderBy(F.desc_nulls_last(begin))),
                "total": F.count("*").over(of_group),
            }
        )
        found = _rows(ranked.where(F.col("rank") <= most))
    by_group: dict[str, list[Row]] = {}
    for row in found:
        by_group.setdefault(row["group_id"], []).append(row)
    for group in facts.shown:
        own = by_group.get(group.group_id, [])
        own.sort(key=lambda row: row[begin] or 0)
        group.counts[panel] = own[0].get("total", len(own)) if own else 0
        group.rows[panel] = own[-most:]


def _prepared(panel: str, rows: DataFrame) -> DataFrame:
    if panel == "generations":
        names = {
            new: F.array_join(F.transform(F.slice(spec_column, 1, 8), _name_of), ", ")
            for new, spec_column in (
                ("joined", "members_joined"),
                ("left", "members_left"),
                ("replaced", "members_replaced"),
            )
        }
        return rows.withColumns(names)
    if panel == "owners":
        return rows.withColumns(
            {
                "topic": F.coalesce("topic", "topic_id"),
                "client_id": F.coalesce("client_id", "member_id"),
            }
        )
    if panel == "lag":
        order = F.array_position(F.array(*map(F.lit, STATUSES)), F.col("status"))
        return rows.groupBy("group_id", "sampled_at").agg(
            F.sum("lag").alias("lag"),
            F.count("*").alias("partitions"),
            F.max("lag_seconds").alias("lag_seconds"),
            F.max_by("status", order).alias("status"),
        )
    return rows


def _name_of(member: Column) -> Column:
    return F.coalesce(member["group_instance_id"], member["client_id"], member["member_id"])


# -- rows ------------------------------------------------------------------------------------------


def _time(millis: int) -> Column:
    return F.timestamp_millis(F.lit(millis))


def _millis(rows: DataFrame) -> DataFrame:
    """Turn times into epoch milliseconds, which no zone can bend."""
    times = [f.name for f in rows.schema.fields if isinstance(f.dataType, T.TimestampType)]
    return rows.withColumns({name: F.unix_millis(name) for name in times})


def _short(rows: DataFrame) -> DataFrame:
    """Cut texts that are longer than a page can show."""
    texts = [f.name for f in rows.schema.fields if isinstance(f.dataType, T.StringType)]
    texts.remove("group_id")
    return rows.withColumns({name: F.substring(name, 1, _MOST_TEXT) for name in texts})


def _rows(rows: DataFrame) -> list[Row]:
    found: list[Row] = rows.toArrow().to_pylist()
    return found


def _first(rows: DataFrame, most: int) -> tuple[list[Row], int]:
    """Give the first rows of ordered ones, and how many there are."""
    found = _rows(rows.limit(most + 1))
    return found[:most], len(found) if len(found) <= most else rows.count()

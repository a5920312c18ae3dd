"""The seam to Spark: tables in, the bounded rows that the page shows out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from anomalies.model import SEVERITIES
from report.model import (
    DAY_MS,
    LISTED_ANOMALIES,
    LISTED_GROUPS,
    PANELS,
    SHOWN_GROUPS,
    WINDOW_MS,
    Facts,
    Group,
    Quality,
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
_MOST_TEXT = 4_000
"""Characters of a text: what members send may be large, and the page has many rows."""

_BARRED_GROUPS = 200


def read_facts(lakehouse: Lakehouse, made_at: int) -> Facts:
    """Read what the page shows; what it costs does not grow with the number of groups."""
    facts = Facts(lakehouse.cluster, lakehouse.root, made_at)
    health = _millis(lakehouse.read(GROUP_HEALTH).drop("cluster"))
    rank = F.array_position(F.array(*map(F.lit, SEVERITIES)), F.col("health"))
    worst = health.orderBy(
        rank.desc(), F.desc("rebalances_24h"), F.desc("rebalances_7d"), "group_id"
    )
    facts.groups = _rows(worst.withColumn("total", _total()).limit(LISTED_GROUPS))
    if facts.groups:
        facts.as_of = facts.groups[0]["as_of"]
        facts.group_count = facts.groups[0]["total"]
    names = [row["group_id"] for row in facts.groups[:SHOWN_GROUPS]]
    since = None if facts.as_of is None else facts.as_of - WINDOW_MS
    tasks: list[Callable[[], None]] = [lambda: _read_quality(lakehouse, facts)]
    if since is not None:
        tasks += [
            lambda: _read_anomalies(lakehouse, facts, since),
            lambda: _read_rebalances(lakehouse, facts, since),
        ]
        facts.shown = [Group(name) for name in names]
        tasks += [
            lambda panel=panel: _read_panel(lakehouse, facts, panel, since)  # type: ignore[misc]
            for panel in PANELS
        ]
    # Each asks for few rows, and most of its time is the asking.
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for done in [pool.submit(task) for task in tasks]:
            done.result()
    return facts


def _read_anomalies(lakehouse: Lakehouse, facts: Facts, since: int) -> None:
    found = lakehouse.read(ANOMALIES).where((F.col("ended_at") >= _time(since)) | F.col("is_open"))
    rank = F.array_position(F.array(*map(F.lit, SEVERITIES)), F.col("severity"))
    rows = _millis(found).select(
        *("anomaly_id", "kind", "severity", "group_id", "subject", "started_at", "ended_at"),
        *("is_open", "label", "summary", "evidence", "thresholds"),
        *("first_record_partition", "first_record_offset"),
        *("last_record_partition", "last_record_offset"),
        _total().alias("total"),
    )
    worst = rows.orderBy("is_open", rank, "started_at", ascending=False)
    facts.anomalies = _rows(_short(worst.limit(LISTED_ANOMALIES)))
    facts.anomaly_count = facts.anomalies[0]["total"] if facts.anomalies else 0


def _read_rebalances(lakehouse: Lakehouse, facts: Facts, since: int) -> None:
    begun = F.unix_millis("join_started_at")
    rows = lakehouse.read(GROUP_GENERATIONS).where(F.col("join_started_at") >= _time(since))
    first = rows.agg(F.min(begun).alias("first"), F.max(begun).alias("last")).first()
    if first is None or first["first"] is None:
        return
    span = first["last"] - first["first"]
    facts.step_ms = next((step * 1000 for step in _STEPS_MS if span <= step * 1000 * _BARS), DAY_MS)
    most = rows.groupBy("group_id").count().orderBy(F.desc("count"), "group_id")
    most = most.limit(_BARRED_GROUPS).select("group_id", F.lit(True).alias("is_named"))  # noqa: FBT003
    named = rows.join(F.broadcast(most), "group_id", how="left")
    at = (F.floor(begun / facts.step_ms) * facts.step_ms).cast("bigint").alias("at")
    name = F.when(F.col("is_named"), F.col("group_id")).alias("group_id")
    counted = named.select(name, at).groupBy("group_id", "at").count()
    facts.rebalances = _rows(counted.orderBy("at", "group_id"))


def _read_quality(lakehouse: Lakehouse, facts: Facts) -> None:
    runs = lakehouse.read(COVERAGE)
    holes = runs.select(F.explode("holes").alias("hole"))
    size = F.col("hole.end_offset") - F.col("hole.start_offset") + 1
    by_reason = holes.groupBy(F.col("hole.reason").alias("reason")).agg(F.sum(size).alias("n"))
    quality = Quality()
    quality.holes = {row["reason"]: row["n"] for row in _rows(by_reason)}
    ends = runs.groupBy("topic", "record_partition").agg(
        F.max("next_offset").alias("next"),
        F.sum("record_count").alias("records"),
        F.max("observed_at").alias("observed_at"),
    )
    accounted = ends.agg(
        F.sum("next").alias("offsets"),
        F.sum("records").alias("records"),
        F.count_if(F.col("records") > 0).alias("partitions"),
        F.unix_millis(F.max("observed_at")).alias("last_ingest_at"),
    )
    for row in _rows(accounted):
        quality.offsets, quality.records = row["offsets"] or 0, row["records"] or 0
        quality.partitions = row["partitions"]
        quality.last_ingest_at = row["last_ingest_at"]
    refused = lakehouse.read(QUARANTINE).groupBy("error").count()
    refused = refused.withColumn("total", F.sum("count").over(Window.partitionBy(F.lit(1))))
    refused = refused.orderBy(F.desc("count"), "error").limit(_QUARANTINE_REASONS)
    for row in _rows(refused):
        quality.quarantine[row["error"]] = row["count"]
        quality.quarantined = row["total"]
    facts.quality = quality


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
    names = [group.group_id for group in facts.shown]
    is_shown = F.col("group_id").isin(names)
    is_recent = F.col(end).isNull() | (F.col(end) >= _time(since))
    rows = _prepared(panel, lakehouse.read(spec).where(is_shown & is_recent))
    of_group = Window.partitionBy("group_id")
    newest = of_group.orderBy(F.desc_nulls_last(begin))
    rows = (
        rows.withColumn("rank", F.row_number().over(newest))
        .withColumn("total", F.count("*").over(of_group))
        .where(F.col("rank") <= PANELS[panel].most)
        .orderBy("group_id", F.desc("rank"))
    )
    columns = ("group_id", "total", *PANELS[panel].columns)
    found: dict[str, list[Row]] = {}
    for row in _rows(_short(_millis(rows).select(*columns))):
        found.setdefault(row["group_id"], []).append(row)
    for group in facts.shown:
        group.rows[panel] = found.get(group.group_id, [])
        group.counts[panel] = group.rows[panel][0]["total"] if group.rows[panel] else 0


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
        rank = {"OK": 0, "WARN": 1, "REWIND": 2, "STALL": 3, "STOP": 4}
        order = F.array_position(F.array(*map(F.lit, rank)), F.col("status"))
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


def _total() -> Column:
    return F.count("*").over(Window.partitionBy(F.lit(1)))


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

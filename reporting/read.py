"""Reads from the tables the rows that the report shows, a bounded number of each."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from reporting.model import (
    DAY_MS,
    EVERYTHING,
    LISTED_ANOMALIES,
    LISTED_FINDINGS,
    LISTED_GROUPS,
    PANELS,
    SHOWN_GROUPS,
    WINDOW_MS,
    Facts,
    Group,
    Quality,
    Selection,
)
from schemas.columns import in_millis
from schemas.gold import SEVERITIES, STATUSES
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
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column
    from pyspark.sql.window import WindowSpec

    from lakehouse.tables import Lakehouse
    from schemas.tables import TableSpec

_BARS = 170  # a week has 168 hours
_MINUTE_MS = 60_000
_STEPS_MS = (1, 2, 5, 10, 30, 60, 300, 900, 3_600, 10_800, 21_600, 86_400)
_QUARANTINE_REASONS = 5
_REASONS = ("compacted", "truncated", "not read")
_NAMED_MEMBERS = 8
_MOST_TEXT = 4_000
"""Characters of a text: what members send may be large, and the page has many rows."""


def read_facts(lakehouse: Lakehouse, made_at: int, chosen: Selection = EVERYTHING) -> Facts:
    """Read what the page shows; how many rows that is does not grow with the number of groups."""
    facts = Facts(lakehouse.cluster, lakehouse.root, made_at, chosen)
    failed, worst = _failed(lakehouse, made_at - WINDOW_MS), worst_groups(lakehouse, chosen=chosen)
    found = ask({**quality_of(lakehouse), "findings": failed, "groups": worst})
    facts.quality = quality(found)
    validated = lakehouse.runs.last("validate")
    if validated is not None:
        facts.quality.last_validation_at = int(validated.at.timestamp() * 1000)
    facts.quality.findings = found["findings"].drop_columns(["rank"]).to_pylist()
    facts.groups, facts.group_count = _counted(found["groups"])
    if not facts.group_count:
        return facts
    facts.as_of = facts.groups["as_of"][0].as_py()
    facts.shown = [Group(name) for name in facts.groups["group_id"][:SHOWN_GROUPS].to_pylist()]
    if chosen.since is None:
        until = facts.as_of if chosen.until is None else chosen.until
        facts.chosen = replace(chosen, since=until - WINDOW_MS)
    _read_window(lakehouse, facts)
    return facts


def _read_window(lakehouse: Lakehouse, facts: Facts) -> None:
    names, chosen = [group.group_id for group in facts.shown], facts.chosen
    found = ask(
        {
            "anomalies": _first_anomalies(lakehouse, chosen),
            "anomaly_counts": _anomaly_counts(lakehouse, names, chosen),
            "rebalances": _rebalances(lakehouse, names, chosen),
            **{panel: _panel(lakehouse, panel, names, chosen) for panel in PANELS},
        }
    )
    facts.anomalies, facts.anomaly_count = _counted(found["anomalies"])
    bars = found["rebalances"]
    if bars.num_rows:
        facts.step_ms = bars["step_ms"][0].as_py()
        order = [("at", "ascending"), ("group_id", "ascending")]
        facts.rebalances = bars.drop_columns(["step_ms"]).sort_by(order)
    groups = {group.group_id: group for group in facts.shown}
    for of_group in found["anomaly_counts"].to_pylist():
        groups[of_group["group_id"]].counts["anomalies"] = of_group["count"]
    for panel in PANELS:
        rows = found[panel].sort_by([("group_id", "ascending"), ("rank", "descending")])
        start = 0
        for of_group in pc.value_counts(rows["group_id"]).to_pylist():
            group, held = groups[of_group["values"]], of_group["counts"]
            group.counts[panel] = rows["row_count"][start].as_py()
            group.rows[panel] = rows.slice(start, held).drop_columns(["rank", "row_count"])
            start += held


# -- asking ----------------------------------------------------------------------------------------


def ask(questions: Mapping[str, DataFrame]) -> dict[str, pa.Table]:
    """Have Spark answer some questions in one job, whose stages run side by side.

    Args:
        questions: few rows each, by name.

    Returns:
        The rows by name, times as epoch milliseconds; texts that are longer than the page can show
        are cut.
    """
    parts = [
        rows.select(F.lit(name).alias("question"), _row(rows).alias(name))
        for name, rows in questions.items()
    ]
    one = reduce(lambda held, part: held.unionByName(part, allowMissingColumns=True), parts)
    answers = one.toArrow()
    return {
        name: in_millis(_rows(answers.filter(pc.equal(answers["question"], name))[name]))
        for name in questions
    }


def _row(rows: DataFrame) -> Column:
    """Return a row as a struct, which is null beside the rows of another question."""

    def cut(field: T.StructField) -> Column:
        if isinstance(field.dataType, T.StringType) and field.name != "group_id":
            return F.substring(field.name, 1, _MOST_TEXT).alias(field.name)
        return F.col(field.name)

    kind = T.StructType([T.StructField(field.name, field.dataType) for field in rows.schema])
    return F.struct(*map(cut, rows.schema)).cast(kind)


def _rows(structs: pa.ChunkedArray) -> pa.Table:
    held = structs.combine_chunks()
    return pa.Table.from_arrays(held.flatten(), names=[field.name for field in held.type])


def _counted(rows: pa.Table) -> tuple[pa.Table, int]:
    """Return rows in their order, without what it is made of; and how many there are of all."""
    count = rows["row_count"][0].as_py() if rows.num_rows else 0
    return rows.sort_by("rank").drop_columns(["rank", "row_count"]), count


def _first(rows: DataFrame, order: Sequence[Column], most: int) -> DataFrame:
    """Take the first rows in an order; `row_count` tells how many there are of all."""
    placed = rows.withColumns(
        {
            "rank": F.row_number().over(Window.orderBy(*order)),
            "row_count": F.count("*").over(_every_row()),
        }
    )
    return placed.where(F.col("rank") <= most)


def _every_row() -> WindowSpec:
    return Window.partitionBy()


def _index_among(column: str, values: Sequence[str]) -> Column:
    """Return the index of a text in some, from 1; 0 if it is none of them."""
    index = F.array_position(F.array(*map(F.lit, values)), F.col(column))
    return F.coalesce(index, F.lit(0))


def time_at(millis: int) -> Column:
    """Return a time in epoch milliseconds as a timestamp."""
    return F.timestamp_millis(F.lit(millis))


# -- the log, and what was expected of it ----------------------------------------------------------


def quality_of(lakehouse: Lakehouse) -> dict[str, DataFrame]:
    """Return the questions that `quality` has to have answered."""
    missing = {
        reason: F.expr(
            f"aggregate(filter(holes, hole -> hole.reason = '{reason}'), 0L,"
            " (sum, hole) -> sum + hole.end_offset - hole.start_offset + 1)"
        )
        for reason in _REASONS
    }
    ends = (
        lakehouse.read(COVERAGE)
        .groupBy("topic", "record_partition")
        .agg(
            F.max("next_offset").alias("offsets"),
            F.sum("record_count").alias("records"),
            F.max("observed_at").alias("observed_at"),
            *(F.sum(offsets).alias(reason) for reason, offsets in missing.items()),
        )
    )
    log = ends.agg(
        F.sum("offsets").alias("offsets"),
        F.sum("records").alias("records"),
        F.count_if(F.col("records") > 0).alias("partitions"),
        F.max("observed_at").alias("last_ingest_at"),
        *(F.sum(reason).alias(reason) for reason in missing),
    )
    refused = lakehouse.read(QUARANTINE).groupBy("error").agg(F.count("*").alias("records"))
    all_refused = refused.withColumn("quarantined", F.sum("records").over(_every_row()))
    often = (F.desc("records"), F.asc("error"))
    return {"log": log, "quarantine": all_refused.orderBy(*often).limit(_QUARANTINE_REASONS)}


def quality(found: Mapping[str, pa.Table]) -> Quality:
    """Return what the data cover, but for what validate found."""
    (log,) = found["log"].to_pylist()
    often = found["quarantine"].sort_by([("records", "descending"), ("error", "ascending")])
    refused = often.to_pylist()
    return Quality(
        records=log["records"] or 0,
        offsets=log["offsets"] or 0,
        partitions=log["partitions"],
        holes={reason: log[reason] for reason in _REASONS if log[reason]},
        quarantined=refused[0]["quarantined"] if refused else 0,
        quarantine={row["error"]: row["records"] for row in refused},
        last_ingest_at=log["last_ingest_at"],
    )


def _failed(lakehouse: Lakehouse, since: int) -> DataFrame:
    """Ask for the expectations that did not hold, each as it failed last; the worst first."""
    expectation = ("table_name", "expectation")
    columns = (*expectation, "meaning", "severity", "rows_unexpected", "at", "validation_run")
    is_failed = ~F.col("success") & (F.col("at") >= time_at(since))
    failed = lakehouse.read(RESULTS).where(is_failed).select(*columns)
    last = Window.partitionBy(*expectation).orderBy(F.desc("validation_run"))
    newest = failed.withColumn("rank", F.row_number().over(last)).where("rank = 1")
    worst = (F.desc(_index_among("severity", SEVERITIES)), F.desc("at"), *map(F.asc, expectation))
    return _first(newest.drop("rank"), worst, LISTED_FINDINGS).drop("row_count")


# -- the front page --------------------------------------------------------------------------------


def worst_groups(
    lakehouse: Lakehouse, most: int = LISTED_GROUPS, chosen: Selection = EVERYTHING
) -> DataFrame:
    """Ask how groups are; `rank` is the order, the worst first, `row_count` how many there are."""
    columns = [column.name for column in GROUP_HEALTH.of_cluster]
    worst = (F.desc(_index_among("health", SEVERITIES)), F.desc("rebalances_24h"))
    order = (*worst, F.desc("rebalances_7d"), F.asc("group_id"))
    return _first(_of(lakehouse, GROUP_HEALTH, chosen).select(*columns), order, most)


def _of(lakehouse: Lakehouse, spec: TableSpec, chosen: Selection) -> DataFrame:
    rows, pattern = lakehouse.read(spec), chosen.pattern
    return rows if pattern is None else rows.where(F.col("group_id").rlike(pattern))


def touching(rows: DataFrame, begin: str, end: Column, chosen: Selection) -> DataFrame:
    """Return the rows whose time, from a column to another or an open end, is of a selection."""
    if chosen.since is not None:
        rows = rows.where(end.isNull() | (end >= time_at(chosen.since)))
    if chosen.until is not None:
        start = F.col(begin)
        rows = rows.where(start.isNull() | (start < time_at(chosen.until)))
    return rows


def anomalies_of(lakehouse: Lakehouse, chosen: Selection) -> DataFrame:
    """Return the anomalies that touch the time of a selection; one that is open has no end."""
    end = F.when(~F.col("is_open"), F.col("ended_at"))
    return touching(_of(lakehouse, ANOMALIES, chosen), "started_at", end, chosen)


def _anomaly_counts(lakehouse: Lakehouse, names: Sequence[str], chosen: Selection) -> DataFrame:
    """Ask how many anomalies groups have, those that are left out too."""
    of_groups = anomalies_of(lakehouse, chosen).where(F.col("group_id").isin(*names))
    return of_groups.groupBy("group_id").agg(F.count("*").alias("count"))


def _first_anomalies(lakehouse: Lakehouse, chosen: Selection) -> DataFrame:
    columns = (
        *("anomaly_id", "kind", "severity", "group_id", "subject", "started_at", "ended_at"),
        *("is_open", "label", "summary", "evidence", "thresholds"),
        *("first_record_partition", "first_record_offset"),
        *("last_record_partition", "last_record_offset"),
    )
    found = anomalies_of(lakehouse, chosen).select(*columns)
    worst = (F.desc("is_open"), F.desc(_index_among("severity", SEVERITIES)), F.desc("started_at"))
    return _first(found, (*worst, F.asc("anomaly_id")), LISTED_ANOMALIES)


def _rebalances(lakehouse: Lakehouse, names: Sequence[str], chosen: Selection) -> DataFrame:
    """Ask how many rebalances began in each step of time; all steps are of one length."""
    begun = F.col("join_started_at")
    # The others are one group without a name.
    named = F.when(F.col("group_id").isin(*names), F.col("group_id")).alias("group_id")
    at = F.unix_millis(begun).alias("at")
    held = _of(lakehouse, GROUP_GENERATIONS, chosen).where(begun.isNotNull())
    found = touching(held, "join_started_at", begun, chosen).select(named, at)
    seconds = found.groupBy("group_id", F.expr("at div 1000").alias("second")).agg(
        F.count("*").alias("count"), F.min("at").alias("first"), F.max("at").alias("last")
    )
    span = F.max("last").over(_every_row()) - F.min("first").over(_every_row())
    fits = [F.when(span <= step * 1000 * _BARS, step * 1000) for step in _STEPS_MS]
    stepped = seconds.withColumn("step_ms", F.coalesce(*fits, F.lit(DAY_MS)))
    bar = F.expr("second * 1000 div step_ms * step_ms").alias("at")
    return stepped.groupBy("group_id", bar, "step_ms").agg(F.sum("count").alias("count"))


# -- the charts of the groups ----------------------------------------------------------------------

# What rows are read from, and the columns of their begin and end.
_SOURCES: dict[str, tuple[TableSpec, str, str]] = {
    "states": (GROUP_STATES, "started_at", "ended_at"),
    "generations": (GROUP_GENERATIONS, "join_completed_at", "ended_at"),
    "members": (MEMBER_SESSIONS, "joined_at", "left_at"),
    "owners": (PARTITION_OWNERS, "valid_from", "valid_to"),
    "offsets": (OFFSET_PROGRESS, "hour", "last_commit_at"),
    "lag": (LAG, "sampled_at", "sampled_at"),
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
}


def _panel(lakehouse: Lakehouse, panel: str, names: Sequence[str], chosen: Selection) -> DataFrame:
    """Ask for the newest rows of groups, and how many there are of each group.

    The `rank` of the newest row of a group is 1; rows that began at once are ordered by all else.
    A week may have millions of rows: all are counted by the minute, and only those of a group's
    last minutes are read whole and put in order.
    """
    spec, begin, end = _SOURCES[panel]
    of_groups = lakehouse.read(spec).where(F.col("group_id").isin(*names))
    held = touching(of_groups, begin, F.col(end), chosen)
    if panel == "lag":
        held = _samples(held)
    made_of, most = _MADE_OF.get(panel, {}), PANELS[panel].most
    columns = [F.expr(made_of.get(name, name)).alias(name) for name in PANELS[panel].columns]
    at, of_group = F.coalesce(F.unix_millis(begin), F.lit(-1)), Window.partitionBy("group_id")
    last_minutes = (
        held.groupBy("group_id", F.floor(at / _MINUTE_MS).alias("minute"))
        .agg(F.count("*").alias("rows"))
        .withColumn("reached", F.sum("rows").over(of_group.orderBy(F.desc("minute"))))
        .groupBy("group_id")
        .agg(
            F.sum("rows").alias("row_count"),
            F.coalesce(
                F.max(F.when(F.col("reached") >= most, F.col("minute"))), F.min("minute")
            ).alias("first_minute"),
        )
    )
    rows = held.select("group_id", *columns)
    few = rows.join(F.broadcast(last_minutes), "group_id").where(
        at >= F.col("first_minute") * _MINUTE_MS
    )
    by_time = sorted(rows.drop("group_id").schema, key=lambda f: f.dataType != T.TimestampType())
    order = (F.desc(at), *(F.desc_nulls_first(field.name) for field in by_time))
    placed = few.drop("first_minute").withColumn(
        "rank", F.row_number().over(of_group.orderBy(*order))
    )
    return placed.where(F.col("rank") <= most)


def _samples(lag: DataFrame) -> DataFrame:
    """Sum the lag of each group's partitions up, by sample."""
    statuses = F.array(*map(F.lit, STATUSES))
    worst = F.max(F.array_position(statuses, F.col("status")))
    return lag.groupBy("group_id", "sampled_at").agg(
        F.sum("lag").alias("lag"),
        F.bool_or("lag_is_bound").alias("is_bound"),
        F.max("lag_seconds").alias("lag_seconds"),
        F.get(statuses, (worst - 1).cast("int")).alias("status"),
        F.count("*").alias("partitions"),
    )

"""How each group is now: the front page."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from anomalies.model import SEVERITIES
from lag.burrow import STATUSES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WINDOWS = {"1h": dt.timedelta(hours=1), "24h": dt.timedelta(hours=24), "7d": dt.timedelta(days=7)}


def group_health(
    *,
    states: DataFrame,
    generations: DataFrame,
    anomalies: DataFrame,
    committed: DataFrame,
    lag: DataFrame,
    as_of: dt.datetime,
    ignored_groups: str | None,
) -> DataFrame:
    """Sum up each group.

    Args:
        states: the open rows of group_states.
        generations: the rows of group_generations that began in the last 7 days.
        anomalies: the rows of anomalies that ended in the last 24 hours or are open.
        committed: committed_offsets.
        lag: the newest run's rows of gold.lag; none if lag was never sampled.
        as_of: time of the log.
        ignored_groups: regular expression of groups to leave out.

    Returns:
        The columns of group_health.
    """
    now = F.lit(as_of)
    began = F.col("join_started_at")
    rebalanced = generations.where(began.isNotNull())
    sums: list[Column] = []
    for name, window in WINDOWS.items():
        is_in = began >= F.lit(as_of - window)
        sums.append(F.count_if(is_in).alias(f"rebalances_{name}"))
        sums.append(F.sum(F.when(is_in, F.col("rebalance_ms"))).alias(f"rebalancing_{name}_ms"))
    rank = severity_rank("severity")
    is_open = F.col("is_open")
    wrong = (
        anomalies.where(F.col("group_id").isNotNull())
        .groupBy("group_id")
        .agg(
            F.count_if(is_open).cast("int").alias("open_anomalies"),
            F.max(F.when(is_open, rank)).alias("worst"),
            F.max_by(F.when(is_open, F.col("kind")), F.when(is_open, rank)).alias("worst_anomaly"),
            F.count("*").alias("anomalies_24h"),
        )
    )
    commits = committed.groupBy("group_id").agg(
        F.max(F.coalesce("committed_at", "record_timestamp")).alias("last_commit_at")
    )
    known = states.select(
        "group_id",
        "group_type",
        "state",
        F.col("started_at").alias("since"),
        F.col("member_count").alias("members"),
    )
    joined = (
        known.join(rebalanced.groupBy("group_id").agg(*sums), "group_id", how="left")
        .join(wrong, "group_id", how="left")
        .join(commits, "group_id", how="left")
        .join(_lag_by_group(lag), "group_id", how="left")
    )
    if ignored_groups is not None:
        joined = joined.where(~F.col("group_id").rlike(f"^(?:{ignored_groups})$"))
    counts = [f"rebalances_{n}" for n in WINDOWS] + [f"rebalancing_{n}_ms" for n in WINDOWS]
    filled = joined.fillna(0, [*counts, "open_anomalies", "anomalies_24h"])
    names = F.array(F.lit("ok"), *map(F.lit, SEVERITIES))
    health = F.element_at(names, F.coalesce(F.col("worst"), F.lit(0)).cast("int") + 1)
    return filled.select(
        "group_id",
        "group_type",
        health.alias("health"),
        *("state", "since", "members"),
        *counts,
        *("open_anomalies", "worst_anomaly", "anomalies_24h"),
        *("total_lag", "worst_lag_status", "last_commit_at"),
        now.alias("as_of"),
    )


def severity_rank(column: str) -> Column:
    """Give the place of a severity among all, from 1 for info; 0 for none of them, such as ok."""
    return F.array_position(F.array(*map(F.lit, SEVERITIES)), F.col(column))


def _lag_by_group(lag: DataFrame) -> DataFrame:
    statuses = F.array(*map(F.lit, STATUSES))
    worst = F.max(F.array_position(statuses, F.col("status")))
    return lag.groupBy("group_id").agg(
        F.sum("lag").alias("total_lag"),
        F.when(worst > 0, F.element_at(statuses, worst.cast("int"))).alias("worst_lag_status"),
    )

"""The last commits and the ends of the logs, as the cluster has them now, to gold.lag.

A run is a sample of a moment, so there is nothing to make good: one that was killed has written its
rows of gold.lag in one commit or not at all, and the next run is a sample of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as F

from jobs.runtime.summary import printable
from lakehouse.errors import SourceError
from lakehouse.runs import RunId
from offsets.transform import measured, with_samples
from schemas.gold import ERR
from schemas.tables import (
    COMMITTED_OFFSETS,
    COVERAGE,
    LAG,
    LOG_OFFSETS,
)
from sources import kafka
from sources.log_offsets import NO_LOG, NOT_AUTHORIZED, Sample, UnsupportedError, sample

if TYPE_CHECKING:
    import datetime as dt

    from pyspark.sql import DataFrame

    from jobs.runtime.run import Run
    from lakehouse.tables import Lakehouse

STAGE = "lag"
_SHOWN = 3
_LOGS = (
    "topic STRING, topic_partition INT, log_start_offset BIGINT, log_end_offset BIGINT, "
    "problem STRING, sampled_at TIMESTAMP"
)


@dataclass(frozen=True)
class Told:
    """What the history knows of commits.

    Attributes:
        positions: by partition of the offsets topic, the offset behind the last one told of.
        until: when those were read, in microseconds; None if they came from files.
    """

    positions: dict[int, int]
    until: int | None


def lag(run: Run) -> None:
    """Sample how far each group is behind; without a cluster say so, and do nothing."""
    run.summary |= {"lag_partitions": 0, "lag_groups": 0}
    if run.options.bootstrap_servers is None:
        run.say("lag: left out, there is no cluster to ask (--bootstrap-servers)")
        return
    is_there = F.col("committed_offset").isNotNull() & ~F.col("is_deleted")
    committed = run.lakehouse.read(COMMITTED_OFFSETS).where(is_there)
    asked = {tuple(r) for r in committed.select("topic", "topic_partition").distinct().collect()}
    if not asked:
        run.say("lag: no group of the lakehouse has a committed offset (job history tells of them)")
        return
    told = _told(run.lakehouse)
    with run.step("asking for the ends of logs"):
        found = _sample(run, asked, told)
    if found is None:
        return
    with run.step("writing gold.lag"):
        logs = [log for log in found.logs if (log.topic, log.partition) in asked]
        _write(run, committed, Sample(found.at, logs), _known_until(run, committed, found, told))


def _told(lakehouse: Lakehouse) -> Told:
    last = lakehouse.runs.last("history")
    if last is None:
        return Told({}, None)
    decoded = lakehouse.runs.done("decode", last.to_run - 1, last.to_run)
    to = max((row.to_run for row in decoded), default=-1)
    is_told = (F.col("ingest_run") <= to) & (F.col("source") == "kafka")
    covered = lakehouse.read(COVERAGE).where(is_told)
    until = covered.agg(F.unix_micros(F.max("observed_at"))).first()
    positions = {int(p): offset for p, offset in last.details["positions"].items()}
    return Told(positions, None if until is None else until[0])


def _sample(run: Run, asked: set[tuple[str, int]], told: Told) -> Sample | None:
    options = run.options
    properties = kafka.read_properties(options.kafka_config) if options.kafka_config else {}
    cluster = kafka.Cluster(options.bootstrap_servers or "", properties, options.isolation_level)
    try:
        found = sample(cluster, asked | {(options.topic, p) for p in told.positions})
    except UnsupportedError as error:
        if options.job == STAGE:
            raise
        # A pipeline's other work does without kafka-python.
        run.say(f"lag: left out. {error}")
        return None
    topics = {topic for topic, _ in asked}
    refused = sorted(topics & {log.topic for log in found.logs if log.problem == NOT_AUTHORIZED})
    if refused:
        names = ", ".join(map(printable, refused[:3]))
        line = f"lag: not authorized: the user needs the ACL DESCRIBE on topics, for one {names}"
        if len(refused) == len(topics):
            if options.job == STAGE:
                raise SourceError(line)
            run.say(f"{line}; left out")
            return None
        run.say(f"{line}; {len(refused)} of {len(topics)} topics are left without lag")
    return found


def _known_until(run: Run, committed: DataFrame, found: Sample, told: Told) -> int:
    """Tell until when no commit is missing, in microseconds."""
    topic = run.options.topic
    ends = {x.partition: x.end for x in found.logs if x.topic == topic and x.end is not None}
    positions = told.positions.items()
    if positions and all(p in ends and ends[p] <= position for p, position in positions):
        return _micros(found.at)
    if told.until is not None:
        return told.until
    last = committed.agg(F.unix_micros(F.max("committed_at"))).first()
    return _micros(found.at) if last is None or last[0] is None else int(last[0])


def _micros(at: dt.datetime) -> int:
    return int(at.timestamp() * 1_000_000)


def _write(run: Run, committed: DataFrame, found: Sample, known_until: int) -> None:
    lakehouse = run.lakehouse
    number = RunId(STAGE, lakehouse.runs.last_number(STAGE) + 1)
    rows = [(x.topic, x.partition, x.start, x.end, x.problem, found.at) for x in found.logs]
    sampled = with_samples(
        lakehouse.spark.createDataFrame(rows, _LOGS), lakehouse.read(LOG_OFFSETS)
    )
    lag_run = F.lit(number.number).cast("bigint")
    logs = sampled.withColumn("lag_run", lag_run).persist(StorageLevel.MEMORY_AND_DISK)
    lags = measured(committed, logs, known_until).withColumn("lag_run", lag_run)
    lags = lags.persist(StorageLevel.MEMORY_AND_DISK)
    lakehouse.append(LAG, lags, number)
    still_there = logs.where(F.col("problem").isNull() | (F.col("problem") != NO_LOG))
    lakehouse.replace(LOG_OFFSETS, still_there, number)
    partitions = _summarize(run, lags)
    lakehouse.runs.note(number, rows={LAG.name: partitions})
    lags.unpersist()
    logs.unpersist()


def _summarize(run: Run, lags: DataFrame) -> int:
    groups = (
        lags.groupBy("group_id")
        .agg(
            F.coalesce(F.sum("lag"), F.lit(0)).alias("lag"),
            F.count("*").alias("partitions"),
            F.first("group_status").alias("status"),
        )
        .orderBy(F.desc("lag"), "group_id")
        .collect()
    )
    statuses = lags.groupBy("status").count().orderBy(F.desc("count"), "status").collect()
    by_status = {row.status or "no log": row["count"] for row in statuses}
    total, partitions = sum(g.lag for g in groups), int(sum(g.partitions for g in groups))
    run.summary |= {
        "lag_partitions": partitions,
        "lag_groups": len(groups),
        "total_lag": total,
        "lag_by_status": by_status,
    }
    most = f", most {printable(groups[0].group_id)}: {groups[0].lag:,}" if total else ""
    counted = ", ".join(f"{count:,} {status}" for status, count in by_status.items())
    troubled = [printable(g.group_id) for g in groups if g.status == ERR]
    run.out.print(f"Lag of {len(groups):,} groups: {total:,}{most}", highlight=False)
    more = f"; in trouble: {', '.join(troubled[:_SHOWN])}" if troubled else ""
    more += f" and {len(troubled) - _SHOWN:,} more" if len(troubled) > _SHOWN else ""
    run.out.print(f"{partitions:,} partitions: {counted}{more}", highlight=False)
    return partitions

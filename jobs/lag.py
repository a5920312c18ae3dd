"""The last commits and the ends of the logs, as the cluster has them now, to gold.lag.

A run is a sample of a moment, so there is nothing to make good: one that was killed has written its
rows of gold.lag in one commit or not at all, and the next run is a sample of its own.
"""

from __future__ import annotations

import sys

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.runtime.run import Run
from jobs.runtime.runner import run_job
from offsets.measure import known_until
from offsets.transform import measured, with_samples
from reporting.text import records_behind, short_name
from schemas.columns import arrow_schema
from schemas.errors import SourceError
from schemas.gold import ERR
from schemas.ledger import Detail, LedgerRow, RunId, Stage
from schemas.tables import COMMITTED_OFFSETS, LAG, LOG_OFFSETS
from schemas.words import some
from sources import kafka
from sources.log_offsets import NO_LOG, NOT_AUTHORIZED, Sample, UnsupportedError, sample

_LOGS = arrow_schema(
    c for c in LOG_OFFSETS.of_cluster if c.name not in ("end_samples", "lag_run")
).append(pa.field("problem", pa.string()))


def lag(run: Run) -> None:
    """Sample how far each group is behind; without a cluster say so, and do nothing."""
    run.summary |= {"lag_partitions": 0, "lag_groups": 0}
    if run.options.bootstrap_servers is None:
        run.say("lag: left out, there is no cluster to ask (--bootstrap-servers)")
        return
    committed = run.lakehouse.read(COMMITTED_OFFSETS).where(~F.col("is_deleted"))
    asked = {tuple(r) for r in committed.select("topic", "topic_partition").distinct().collect()}
    if not asked:
        run.say("lag: no group of the lakehouse has a committed offset; run history first")
        return
    # How far the history has come: by partition, the offset behind the last record.
    noted = run.lakehouse.runs.last_details(Stage.HISTORY).get(Detail.POSITIONS, {})
    positions = {int(partition): offset for partition, offset in noted.items()}
    with run.step("asking for the ends of logs"):
        found = _sample(run, asked, positions)
    if found is None:
        return
    with run.step("writing gold.lag"):
        logs = [log for log in found.logs if (log.topic, log.partition) in asked]
        _write(run, committed, Sample(found.at, logs), _known_until(run, found, positions))


def _sample(run: Run, asked: set[tuple[str, int]], positions: dict[int, int]) -> Sample | None:
    options = run.options
    cluster = kafka.Cluster.of(
        options.bootstrap_servers or "", options.kafka_config, options.isolation_level
    )
    try:
        found = sample(cluster, asked | {(options.topic, p) for p in positions})
    except UnsupportedError as error:
        if options.job == Stage.LAG:
            raise
        # A pipeline's other work does without kafka-python.
        run.say(f"lag: left out. {error}")
        return None
    topics = {topic for topic, _ in asked}
    refused = sorted(topics & {log.topic for log in found.logs if log.problem == NOT_AUTHORIZED})
    if refused:
        names = ", ".join(map(short_name, refused[:3]))
        need = f"the user needs the ACL DESCRIBE on topics, for instance on {names}"
        line = f"lag: not authorized: {need}"
        if len(refused) == len(topics):
            if options.job == Stage.LAG:
                raise SourceError(line)
            run.say(f"{line}; left out")
            return None
        run.say(f"{line}; {len(refused)} of {len(topics)} topics have no lag")
    return found


def _known_until(run: Run, found: Sample, positions: dict[int, int]) -> dict[int, int]:
    """Tell until when no commit is missing, see `known_until`."""
    topic = run.options.topic
    # Deleted ones were read, too.
    every = run.lakehouse.read(COMMITTED_OFFSETS)
    last = every.groupBy("record_partition").agg(F.unix_micros(F.max("committed_at")).alias("at"))
    return known_until(
        {row.record_partition: row.at for row in last.collect()},
        positions,
        {x.partition: x.end for x in found.logs if x.topic == topic and x.end is not None},
        sampled_at=pa.scalar(found.at).value,  # in microseconds
    )


def _write(run: Run, committed: DataFrame, found: Sample, until: dict[int, int]) -> None:
    lakehouse = run.lakehouse
    number = RunId(Stage.LAG, lakehouse.runs.last_number(Stage.LAG) + 1)
    rows = [(x.topic, x.partition, x.start, x.end, found.at, x.problem) for x in found.logs]
    asked = pa.Table.from_pylist([dict(zip(_LOGS.names, row, strict=True)) for row in rows], _LOGS)
    sampled = with_samples(lakehouse.spark.createDataFrame(asked), lakehouse.read(LOG_OFFSETS))
    lag_run = F.lit(number.number).cast("bigint")
    logs = sampled.withColumn("lag_run", lag_run).localCheckpoint(eager=False)
    lags = measured(committed, logs, until).withColumn("lag_run", lag_run)
    lags = lags.localCheckpoint(eager=False)
    if lakehouse.append(LAG, lags, number) is not None:
        lakehouse.keep(LAG, lags, number.number)
    still_there = logs.where(F.col("problem").isNull() | (F.col("problem") != NO_LOG))
    lakehouse.replace(LOG_OFFSETS, still_there, number)
    partitions = _summarize(run, lags)
    lakehouse.runs.note(LedgerRow(*number, rows={LAG.name: partitions}))


def _summarize(run: Run, lags: DataFrame) -> int:
    groups = (
        lags.groupBy("group_id")
        .agg(
            F.coalesce(F.sum("lag"), F.lit(0)).alias("lag"),
            F.count_if("lag_is_bound").alias("bounds"),
            F.count("*").alias("partitions"),
            F.first("group_status").alias("status"),
        )
        .orderBy(F.desc("lag"), "group_id")
        .collect()
    )
    why_none = F.when(F.col("log_end_offset").isNull(), "no log").otherwise("no offset")
    status = F.coalesce("status", why_none).alias("status")
    statuses = lags.groupBy(status).count().orderBy(F.desc("count"), "status").collect()
    by_status = {row.status: row["count"] for row in statuses}
    total, partitions = sum(g.lag for g in groups), int(sum(g.partitions for g in groups))
    bounds = int(sum(g.bounds for g in groups))
    run.summary |= {
        "lag_partitions": partitions,
        "lag_groups": len(groups),
        "total_lag": total,
        "lag_bounds": bounds,
        "lag_by_status": by_status,
    }
    said, worst = records_behind(total, is_bound=bounds > 0), groups[0]
    most = f", most {short_name(worst.group_id)}: " if total else ""
    most += records_behind(worst.lag, is_bound=worst.bounds > 0) if total else ""
    counted = ", ".join(f"{count:,} {status}" for status, count in by_status.items())
    troubled = [short_name(g.group_id) for g in groups if g.status == ERR]
    run.out.print(f"Lag of {len(groups):,} groups: {said}{most}", highlight=False, soft_wrap=True)
    more = f"; groups with status ERR: {some(troubled)}" if troubled else ""
    line = f"{partitions:,} partitions: {counted}{more}"
    line += f"; of {bounds:,} nothing but a bound is known yet: no earlier sample" if bounds else ""
    run.out.print(line, highlight=False, soft_wrap=True)
    return partitions


if __name__ == "__main__":
    sys.exit(run_job(lag, ["lag", *sys.argv[1:]]))

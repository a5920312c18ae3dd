"""How far the lakehouse has got: what an ingest goes on from, and what later stages know of it."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from lakehouse.lakehouse import Lakehouse
from schemas.ledger import Detail, Stage
from schemas.tables import COVERAGE
from sources.plan import State


def state_of(lakehouse: Lakehouse) -> State:
    """Return how far the lakehouse has got, by its ledger; by bronze.coverage if that was lost."""
    last = lakehouse.runs.last(Stage.INGEST)
    if last is not None and lakehouse.has_all([COVERAGE], last.versions):
        return State.of_note(last.run, last.details[Detail.STATE])
    return _state_covered(lakehouse) if lakehouse.may_hold(COVERAGE) else State()


def _state_covered(lakehouse: Lakehouse) -> State:
    """Ask bronze.coverage how far the lakehouse has got: one row for each partition."""
    at = F.unix_millis(F.max("observed_at"))
    is_behind = F.col("last_offset_available") >= F.col("next_offset")
    by_partition = (
        lakehouse.read(COVERAGE)
        .groupBy("topic", "record_partition")
        .agg(
            F.max("next_offset").alias("next_offset"),
            F.max("last_offset_read").alias("last_offset_read"),
            F.max("ingest_run").alias("run"),
            F.sum("record_count").alias("records"),
            F.max(F.when(F.col("record_count") > 0, F.col("ingest_run"))).alias("run_with_records"),
            F.max_by(is_behind, "ingest_run").alias("is_behind"),
            at.alias("observed_at"),
            _newest_of("topic_id"),
            _newest_of("kafka_cluster_id"),
        )
    )
    found = by_partition.collect()

    def newest(name: str, none: int | None = None) -> Any:  # noqa: ANN401 - or a struct of a column
        return max((row[name] for row in found if row[name] is not None), default=none)

    topic_id, kafka_cluster_id = newest("topic_id"), newest("kafka_cluster_id")
    return State(
        run=newest("run", -1),
        run_with_records=newest("run_with_records", -1),
        records=sum(row.records for row in found),
        topic=newest("topic"),
        positions={(row.topic, row.record_partition): row.next_offset for row in found},
        last_read={
            (row.topic, row.record_partition): row.last_offset_read
            for row in found
            if row.last_offset_read is not None
        },
        behind=frozenset(row.record_partition for row in found if row.is_behind),
        observed_at=newest("observed_at"),
        topic_id=None if topic_id is None else topic_id.value,
        kafka_cluster_id=None if kafka_cluster_id is None else kafka_cluster_id.value,
    )


def _newest_of(column: str) -> Column:
    """Return the value that a column had last, with the run; null if it never had one."""
    value = F.struct(F.col("ingest_run").alias("run"), F.col(column).alias("value"))
    return F.max(F.when(F.col(column).isNotNull(), value)).alias(column)

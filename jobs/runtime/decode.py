"""Bronze to silver: decodes what came since the last run, each record into exactly one table.

A run is planned first: its range of ingest runs is written down. A run that was killed is done
again with the same range, and Delta passes over the tables that have its rows already.
"""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta.tables import DeltaTable
from pyspark.sql import functions as F

from decoders.spark import decoded, decoder_id, quarantined, record_type
from schemas.silver import decoded_columns, quarantine_columns, silver_tables
from schemas.tables import DECODE_RUNS, QUARANTINE, RECORDS, decoded_table
from storage.errors import LakehouseError
from storage.tables import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from jobs.runtime.runner import Run
    from storage.tables import Lakehouse

_APPLICATION = "decode"
# Most tables get few rows, so that starting and committing a write is most of it.
_TABLES_AT_ONCE = 4
_FREQUENT = ("offset_commits", "group_metadata")
_PLAN = "decode plan"
_DONE = "decode done"


@dataclass(frozen=True)
class Plan:
    """One decode run: the ingest runs behind `after`, up to and with `to`.

    Attributes:
        again: there are records that an older decoder refused; this run tries them again.
    """

    number: int
    after: int
    to: int
    again: bool


def decode(run: Run) -> None:
    """Decode what is new in bronze.records, and what an older decoder refused."""
    lakehouse = run.lakehouse
    with run.step("looking for new bronze records"):
        plan = _plan(lakehouse)
    if plan is None:
        run.summary |= {"records_read": 0, "decoded": 0, "quarantined": 0, "decoded_by_table": {}}
        return
    with run.step("decoding into silver"):
        _decode(run, plan)


def _plan(lakehouse: Lakehouse) -> Plan | None:
    """Take up the run that was not ended, or plan one if there is something to do."""
    lakehouse.ensure(DECODE_RUNS)
    lakehouse.ensure(QUARANTINE)
    rows = (
        lakehouse.read(DECODE_RUNS)
        .groupBy("decode_run")
        .agg(
            F.max("after_ingest_run").alias("after"),
            F.max("to_ingest_run").alias("to"),
            F.bool_or(F.col("step") == "done").alias("is_done"),
        )
        .orderBy(F.desc("decode_run"))
        .limit(1)
        .collect()
    )
    old = F.col("decoder") != decoder_id()
    again = not lakehouse.read(QUARANTINE).where(old).isEmpty()
    if rows and not rows[0].is_done:
        return Plan(rows[0].decode_run, rows[0].after, rows[0].to, again)
    after = rows[0].to if rows else -1
    to = lakehouse.last_write(RECORDS, "ingest")
    if to <= after and not again:
        return None
    plan = Plan(rows[0].decode_run + 1 if rows else 0, after, max(to, after), again)
    _note(lakehouse, plan, "planned", _PLAN)
    return plan


def _decode(run: Run, plan: Plan) -> None:
    lakehouse = run.lakehouse
    batch = _batch(lakehouse, plan)
    in_type = {
        row.type: row["count"]
        for row in batch.groupBy(record_type().alias("type")).count().collect()
    }
    by_table = {
        table: [t.id for t in types if t.id in in_type] for table, types in silver_tables().items()
    }
    by_table = {table: ids for table, ids in by_table.items() if ids}
    frequent = [t.id for table in _FREQUENT for t in silver_tables()[table]]
    # Rare records are picked out once, not by each of their many tables.
    rare = batch.where(~record_type().isin(frequent)).persist()
    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        jobs = [
            pool.submit(
                _decode_table, lakehouse, plan, batch if table in _FREQUENT else rare, table, ids
            )
            for table, ids in by_table.items()
        ]
        for job in jobs:
            job.result()
    rare.unpersist()
    counts = lakehouse.counts(
        [decoded_table(table) for table in by_table], F.col("decode_run") == plan.number
    )
    written = {table: counts.get(decoded_table(table).name, 0) for table in by_table}
    refused: set[int | None] = set(in_type) - {i for ids in by_table.values() for i in ids}
    for table, ids in by_table.items():
        if written[table] < sum(in_type[i] for i in ids):
            refused.update(ids)
    read = sum(in_type.values())
    in_quarantine = _quarantine(lakehouse, plan, batch, refused)
    if sum(written.values()) + in_quarantine != read:
        raise LakehouseError(
            f"decode run {plan.number} read {read} records but has {sum(written.values())} decoded "
            f"and {in_quarantine} quarantined ones; please report this, the run is not ended"
        )
    _note(
        lakehouse,
        plan,
        "done",
        _DONE,
        decoded_count=sum(written.values()),
        quarantined_count=in_quarantine,
    )
    run.summary |= {
        "records_read": read,
        "decoded": sum(written.values()),
        "quarantined": in_quarantine,
        "decoded_by_table": written,
    }


def _batch(lakehouse: Lakehouse, plan: Plan) -> DataFrame:
    """Give the records of a run."""
    columns = ["record_partition", "record_offset", "record_timestamp", "key", "value"]
    run = F.col("ingest_run")
    new = lakehouse.read(RECORDS).where((run > plan.after) & (run <= plan.to)).select(*columns)
    if not plan.again:
        return new
    # What an older decoder refused stays in quarantine until the run's last write.
    old = lakehouse.read(QUARANTINE).where(F.col("decoder") != decoder_id())
    return new.unionByName(old.select(*columns))


def _decode_table(
    lakehouse: Lakehouse, plan: Plan, batch: DataFrame, table: str, ids: list[int]
) -> None:
    """Write the rows of one silver table."""
    spec = decoded_table(table)
    if lakehouse.last_write(spec, _APPLICATION) >= plan.number:
        return
    records = batch.where(record_type().isin(ids))
    rows = decoded(records, table, spark_schema(decoded_columns(table)))
    rows = rows.withColumn("decode_run", F.lit(plan.number).cast("bigint"))
    lakehouse.append(spec, rows, _APPLICATION, plan.number)


def _quarantine(
    lakehouse: Lakehouse, plan: Plan, batch: DataFrame, refused: set[int | None]
) -> int:
    """Write what could not be decoded; give its number."""
    known = [number for number in refused if number is not None]
    wanted = record_type().isin(known)
    if None in refused:
        wanted |= record_type().isNull()
    rows = quarantined(batch.where(wanted), spark_schema(quarantine_columns())).withColumns(
        {
            "decoder": F.lit(decoder_id()),
            "decode_run": F.lit(plan.number).cast("bigint"),
            "cluster": F.lit(lakehouse.cluster),
        }
    )
    if plan.again:
        _replace_refused(lakehouse, rows)
    elif refused and lakehouse.last_write(QUARANTINE, _APPLICATION) < plan.number:
        lakehouse.append(QUARANTINE, rows, _APPLICATION, plan.number)
    return lakehouse.read(QUARANTINE).where(F.col("decode_run") == plan.number).count()


def _replace_refused(lakehouse: Lakehouse, rows: DataFrame) -> None:
    """Put what is refused now in the place of what an older decoder refused, in one commit."""
    is_old = (F.col("old.cluster") == lakehouse.cluster) & (F.col("old.decoder") != decoder_id())
    same = (
        (F.col("old.cluster") == F.col("new.cluster"))
        & (F.col("old.record_partition") == F.col("new.record_partition"))
        & (F.col("old.record_offset") == F.col("new.record_offset"))
    )
    (
        DeltaTable.forPath(lakehouse.spark, lakehouse.path(QUARANTINE))
        .alias("old")
        .merge(rows.alias("new"), same)
        .whenMatchedUpdateAll()
        .whenNotMatchedInsertAll()
        .whenNotMatchedBySourceDelete(is_old)
        .execute()
    )


def _note(
    lakehouse: Lakehouse,
    plan: Plan,
    step: str,
    application: str,
    *,
    decoded_count: int | None = None,
    quarantined_count: int | None = None,
) -> None:
    row = (
        lakehouse.cluster,
        plan.number,
        step,
        dt.datetime.now(dt.timezone.utc),
        plan.after,
        plan.to,
        decoder_id(),
        decoded_count,
        quarantined_count,
    )
    rows = lakehouse.spark.createDataFrame([row], spark_schema(DECODE_RUNS.columns))
    lakehouse.append(DECODE_RUNS, rows, application, plan.number)

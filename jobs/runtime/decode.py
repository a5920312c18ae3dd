"""Bronze to silver: decodes what came since the last run, each record into exactly one table.

A run is planned first: its range of ingest runs is written down. A run that was killed is done
again with the same range, and Delta passes over the tables that have its rows already.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from delta.tables import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from decoders.clients import ClientKey
from decoders.spark import decoded, decoder_id, is_of_type, quarantined, type_bytes, type_number
from jobs.runtime import silver_files
from jobs.runtime.logs import of_every_log
from schemas.silver import decoded_columns, quarantine_columns, silver_tables
from schemas.tables import DECODE_RUNS, QUARANTINE, RECORDS, decoded_table
from storage.conditions import for_spark, in_range
from storage.errors import LakehouseError
from storage.tables import spark_schema

if TYPE_CHECKING:
    from delta.tables import DeltaMergeBuilder

    from jobs.runtime.runner import Run
    from storage.conditions import Where
    from storage.files import DataFile
    from storage.tables import Lakehouse

_APPLICATION = "decode"
# Most tables get few rows, so that starting and committing a write is most of it.
_TABLES_AT_ONCE = 4
_MERGE_TRIES = 5
_CONFLICT = "DELTA_CONCURRENT"
_TYPE_WIDTH = 2
_FREQUENT = ("offset_commits", "group_metadata")
_RECORD = ("record_partition", "record_offset", "record_timestamp", "key", "value")
_PLAN = "decode plan"
_DONE = "decode done"


@dataclass(frozen=True)
class Plan:
    """One decode run: the ingest runs behind `after`, up to and with `to`.

    Attributes:
        retried: records in quarantine that another decoder refused, which this run tries again.
        decoder: the decoder that planned the run; after an upgrade another may have to end it.
        clients: which key hashes the names of clients; None if they are kept.
    """

    number: int
    after: int
    to: int
    retried: int
    decoder: str
    clients: str | None = None

    @property
    def ingest_runs(self) -> Where:
        """The condition for the records of bronze that it reads."""
        return [in_range("ingest_run", self.after, self.to)]


@of_every_log
def decode(run: Run) -> None:
    """Decode what is new in bronze.records, and what an older decoder refused."""
    lakehouse = run.lakehouse
    secret = run.options.hash_key
    key = None if secret is None else ClientKey(secret)
    with run.step("looking for new bronze records"):
        plan = _plan(lakehouse, None if key is None else key.fingerprint)
    if plan is None:
        run.summary |= {"records_read": 0, "decoded": 0, "quarantined": 0, "decoded_by_table": {}}
        return
    with run.step("decoding into silver"):
        _decode(run, plan, key)


def _plan(lakehouse: Lakehouse, clients: str | None) -> Plan | None:
    """Take up the run that was not ended, or plan one if there is something to do."""
    lakehouse.ensure(DECODE_RUNS)
    lakehouse.ensure(QUARANTINE)
    last, is_done = _last_plan(lakehouse)
    if last is None and _restore(lakehouse, clients):
        last, is_done = _last_plan(lakehouse)
    _check_clients(lakehouse, last, clients)
    if last is not None and not is_done:
        return last
    after = last.to if last is not None else -1
    to = lakehouse.last_write(RECORDS, "ingest")
    if to < after:
        raise LakehouseError(
            f"{lakehouse.path(RECORDS)} ends with ingest run {to}, but run {after} was decoded: it "
            "is older than silver and gold; bring all of the lakehouse back from one copy"
        )
    retried = _refused_by_others(lakehouse)
    if to == after and retried == 0:
        return None
    number = last.number + 1 if last is not None else 0
    plan = Plan(number, after, to, retried, decoder_id(), clients)
    if _note(lakehouse, plan, "planned", _PLAN):
        return plan
    # Another run has planned this number first, and then its plan holds.
    last, _ = _last_plan(lakehouse)
    _check_clients(lakehouse, last, clients)
    return last


def _check_clients(lakehouse: Lakehouse, last: Plan | None, clients: str | None) -> None:
    """Refuse to go on under other names of clients: each would seem to leave, and another to come.

    Raises:
        LakehouseError: the last run named clients otherwise.
    """
    if last is None or last.clients == clients:
        return
    if last.clients is None:
        held, advice = "the names of clients as they are", "leave --hash-clients out"
    elif clients is None:
        held, advice = "hashes in the place of clients", "give --hash-clients and its key"
    else:
        held, advice = "hashes of clients by another key", "give the key of the former runs"
    raise LakehouseError(
        f"silver of cluster {lakehouse.cluster} holds {held}: {advice}, or take silver and gold "
        "away, so that they are made anew from bronze"
    )


def _refused_by_others(lakehouse: Lakehouse) -> int:
    """Count the records in quarantine that another decoder refused."""
    if lakehouse.last_write(QUARANTINE, _APPLICATION) < 0:
        return 0  # as of most clusters
    return lakehouse.read(QUARANTINE).where(F.col("decoder") != decoder_id()).count()


def _restore(lakehouse: Lakehouse, clients: str | None) -> bool:
    """Write the runs down again if their table was lost: silver and bronze tell what they did."""
    silver = {table: decoded_table(table) for table in silver_tables()} | {"": QUARANTINE}
    ends = {t: lakehouse.last_write(spec, _APPLICATION) for t, spec in silver.items()}
    last = max(ends.values())
    if last < 0:
        return False
    position = ["record_partition", "record_offset"]
    decoded = reduce(
        DataFrame.unionByName,
        [
            lakehouse.read(silver[t]).select(*position, "decode_run", F.lit(t).alias("table"))
            for t in silver
            if lakehouse.exists(silver[t])
        ],
    )
    records = lakehouse.read(RECORDS).select(*position, "ingest_run")
    parts = (
        decoded.join(records, position)
        .groupBy("decode_run", "table")
        .agg(F.count("*").alias("records"), F.max("ingest_run").alias("to"))
        .collect()
    )
    # A run that only tried again writes no number of its own.
    last = max([last, *(part.decode_run for part in parts)])
    left = records.join(decoded, position, how="left_anti").agg(F.min("ingest_run")).first()
    missing = None if left is None else left[0]
    planned, done, after = [], [], -1
    for number in range(last + 1):
        of_run = [part for part in parts if part.decode_run == number]
        to = max([after, *(p.to for p in of_run)])
        plan = Plan(number, after, to, 0, decoder_id(), clients)
        written = {p.table: p.records for p in of_run if p.table}
        quarantined = sum(p.records for p in of_run if not p.table)
        planned.append(_step(plan, "planned"))
        if number < last or missing is None or missing > plan.to:
            done.append(_step(plan, "done", written=written, quarantined=quarantined))
        after = plan.to
    if done:
        lakehouse.append_rows(DECODE_RUNS, done, _DONE, len(done) - 1)
    lakehouse.append_rows(DECODE_RUNS, planned, _PLAN, last)
    return True


def _last_plan(lakehouse: Lakehouse) -> tuple[Plan | None, bool]:
    """Read the last plan, and whether it was carried out."""
    columns = ("after_ingest_run", "to_ingest_run", "retried", "decoder", "clients")
    steps = lakehouse.rows(DECODE_RUNS, ("decode_run", "step", *columns))
    number = pc.max(steps["decode_run"]).as_py()
    if number is None:
        return None, False
    of_last = steps.filter(pc.equal(steps["decode_run"], number)).to_pylist()
    plan = Plan(number, *(of_last[0][name] for name in columns))
    return plan, any(step["step"] == "done" for step in of_last)


def _decode(run: Run, plan: Plan, key: ClientKey | None) -> None:
    lakehouse = run.lakehouse
    root = lakehouse.local_root
    if root is None:
        in_type = _write_by_spark(lakehouse, plan, key)
        written: dict[str, int] = {}
    else:
        target = silver_files.Target(root, lakehouse.cluster, plan.number, key)
        in_type, written = _write_files(lakehouse, plan, target)
    by_table = _by_table(in_type)
    others = {decoded_table(table).name: table for table in by_table if table not in written}
    if others:
        specs = [decoded_table(table) for table in others.values()]
        counts = lakehouse.counts(specs, F.col("decode_run") == plan.number)
        written |= {table: counts.get(name, 0) for name, table in others.items()}
    refused: set[int | None] = set(in_type) - {i for ids in by_table.values() for i in ids}
    for table, ids in by_table.items():
        if written[table] < sum(in_type[i] for i in ids):
            refused.update(ids)
    in_quarantine = _quarantine(lakehouse, plan, refused, list(by_table))
    read = lakehouse.count(RECORDS, plan.ingest_runs) + plan.retried
    if sum(written.values()) + in_quarantine != read:
        raise LakehouseError(
            f"decode run {plan.number} read {read} records but has {sum(written.values())} decoded "
            f"and {in_quarantine} quarantined ones; please report this, the run is not ended"
        )
    is_first = _note(
        lakehouse,
        plan,
        "done",
        _DONE,
        written=written,
        quarantined=in_quarantine,
    )
    if not is_first:
        run.say(
            f"another decode of cluster {lakehouse.cluster} did the same work at the same time; "
            "nothing is there twice. Let one run end before the next starts"
        )
    run.summary |= {
        "records_read": read,
        "decoded": sum(written.values()),
        "quarantined": in_quarantine,
        "decoded_by_table": written,
    }


def _by_table(in_type: dict[int | None, int]) -> dict[str, list[int]]:
    """Give the silver tables that records of some types go to, with those of their types."""
    found = {
        table: [t.id for t in types if t.id in in_type] for table, types in silver_tables().items()
    }
    return {table: ids for table, ids in found.items() if ids}


def _write_files(
    lakehouse: Lakehouse, plan: Plan, target: silver_files.Target
) -> tuple[dict[int | None, int], dict[str, int]]:
    """Write all tables in one pass.

    Returns:
        The number of records of each type, and that of the rows added to each table; a table is
        left out if another run came first.
    """
    # What is tried again is not in bronze's files alone.
    paths = (
        None if plan.retried else lakehouse.local_files(RECORDS, "ingest_run", plan.after, plan.to)
    )
    if paths is None:
        found = silver_files.write(_batch(lakehouse, plan), target)
    else:
        bronze = silver_files.BronzeFiles(paths, plan.after, plan.to)
        found = silver_files.write_from_files(lakehouse.spark, bronze, target)
    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        jobs = {
            table: pool.submit(_add_table, lakehouse, plan, table, files)
            for table, files in found.files.items()
        }
    added = {table: job.result() for table, job in jobs.items()}
    in_type: Counter[int | None] = Counter()
    for first, records in found.in_type.items():
        in_type[type_number(first)] += records
    return in_type, {table: rows for table, rows in added.items() if rows is not None}


def _add_table(lakehouse: Lakehouse, plan: Plan, table: str, files: list[DataFile]) -> int | None:
    """Make files part of a silver table; give the number of their rows, None if it has them."""
    if lakehouse.add(decoded_table(table), files, _APPLICATION, plan.number):
        return sum(file.records for file in files)
    return None


def _write_by_spark(
    lakehouse: Lakehouse, plan: Plan, key: ClientKey | None
) -> dict[int | None, int]:
    """Write the tables one by one; give the number of records of each type."""
    batch = _batch(lakehouse, plan)
    in_type = {
        type_number(row.type): row["count"]
        for row in batch.groupBy(type_bytes().alias("type")).count().collect()
    }
    frequent = [t.id for table in _FREQUENT for t in silver_tables()[table]]
    # Rare records are picked out once, not by each of their many tables.
    rare = batch.where(~is_of_type(frequent)).persist()
    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        jobs = [
            pool.submit(
                _decode_table,
                lakehouse,
                plan,
                batch if table in _FREQUENT else rare,
                (table, ids),
                key,
            )
            for table, ids in _by_table(in_type).items()
        ]
        for job in jobs:
            job.result()
    rare.unpersist()
    return in_type


def _batch(lakehouse: Lakehouse, plan: Plan) -> DataFrame:
    """Give the records of a run."""
    new = lakehouse.read(RECORDS).where(for_spark(plan.ingest_runs)).select(*_RECORD)
    if not plan.retried:
        return new
    # What another decoder refused stays in quarantine until the run's last write.
    old = lakehouse.read(QUARANTINE).where(F.col("decoder") != plan.decoder)
    return new.unionByName(old.select(*_RECORD))


def _decode_table(
    lakehouse: Lakehouse,
    plan: Plan,
    batch: DataFrame,
    of: tuple[str, list[int]],
    key: ClientKey | None,
) -> None:
    """Write the rows of one silver table, of the record types that go there."""
    table, ids = of
    spec = decoded_table(table)
    if lakehouse.last_write(spec, _APPLICATION) >= plan.number:
        return
    records = batch.where(is_of_type(ids))
    rows = decoded(records, table, spark_schema(decoded_columns(table)), key)
    rows = rows.withColumn("decode_run", F.lit(plan.number).cast("bigint"))
    lakehouse.append(spec, rows, _APPLICATION, plan.number)


def _quarantine(
    lakehouse: Lakehouse,
    plan: Plan,
    refused: set[int | None],
    tables: list[str],
) -> int:
    """Write what could not be decoded; give its number."""
    if not refused and not plan.retried:
        return 0
    batch = _batch(lakehouse, plan)
    wanted = is_of_type(number for number in refused if number is not None)
    if None in refused:
        wanted |= F.col("key").isNull() | (F.length("key") < _TYPE_WIDTH)
    rows = _refused(lakehouse, plan, batch.where(wanted), tables).withColumns(
        {
            "decoder": F.lit(plan.decoder),
            "decode_run": F.lit(plan.number).cast("bigint"),
            "cluster": F.lit(lakehouse.cluster),
        }
    )
    if plan.retried:
        _replace_refused(lakehouse, plan, rows)
    elif lakehouse.last_write(QUARANTINE, _APPLICATION) < plan.number:
        lakehouse.append(QUARANTINE, rows, _APPLICATION, plan.number)
    return lakehouse.read(QUARANTINE).where(F.col("decode_run") == plan.number).count()


def _refused(lakehouse: Lakehouse, plan: Plan, records: DataFrame, tables: list[str]) -> DataFrame:
    """Give the records that are in no table of this run, with the reasons."""
    rows = quarantined(records, spark_schema(quarantine_columns()))
    if plan.decoder == decoder_id():
        return rows
    # The run was begun by another release: what that refused, this one may read, but the tables
    # are written. It waits in quarantine under the other's name, for the next run to retry it.
    position = ["record_partition", "record_offset"]
    in_run = F.col("decode_run") == plan.number
    written = [
        lakehouse.read(decoded_table(table)).where(in_run).select(*position) for table in tables
    ]
    left = reduce(lambda left, t: left.join(t, position, how="left_anti"), written, records)
    unread = left.join(rows.select(*position), position, how="left_anti").select(
        *_RECORD,
        F.conv(F.hex(type_bytes()), 16, 10).try_cast("smallint").alias("record_type"),
        F.lit(None).cast("smallint").alias("value_version"),
        F.lit("refused by the release that began the decode run").alias("error"),
    )
    return rows.join(left.select(*position), position, how="left_semi").unionByName(unread)


def _replace_refused(lakehouse: Lakehouse, plan: Plan, rows: DataFrame) -> None:
    """Put what is refused now in the place of what another decoder refused, in one commit."""
    is_old = (F.col("old.cluster") == lakehouse.cluster) & (F.col("old.decoder") != plan.decoder)
    same = (
        (F.col("old.cluster") == F.col("new.cluster"))
        & (F.col("old.record_partition") == F.col("new.record_partition"))
        & (F.col("old.record_offset") == F.col("new.record_offset"))
    )
    merge = (
        DeltaTable.forPath(lakehouse.spark, lakehouse.path(QUARANTINE))
        .alias("old")
        .merge(rows.alias("new"), same)
        .whenMatchedUpdateAll()
        .whenNotMatchedInsertAll()
        .whenNotMatchedBySourceDelete(is_old)
    )
    # Another run may write to the quarantine meanwhile. Done again, a MERGE changes nothing.
    for _ in range(_MERGE_TRIES - 1):
        if _is_executed(merge):
            return
    merge.execute()


def _is_executed(merge: DeltaMergeBuilder) -> bool:
    """Execute a MERGE unless another write gets in its way."""
    try:
        merge.execute()
    except Exception as error:
        if _CONFLICT in str(error):
            return False
        raise
    return True


def _note(
    lakehouse: Lakehouse,
    plan: Plan,
    step: str,
    application: str,
    *,
    written: dict[str, int] | None = None,
    quarantined: int | None = None,
) -> bool:
    """Write a step of a run down; tell whether it was the first to do so."""
    row = _step(plan, step, written=written, quarantined=quarantined)
    return lakehouse.append_rows(DECODE_RUNS, [row], application, plan.number)


def _step(
    plan: Plan,
    step: str,
    *,
    written: dict[str, int] | None = None,
    quarantined: int | None = None,
) -> dict[str, object]:
    """Give the row of a step of a run."""
    return {
        "decode_run": plan.number,
        "step": step,
        "at": dt.datetime.now(dt.timezone.utc),
        "after_ingest_run": plan.after,
        "to_ingest_run": plan.to,
        "retried": plan.retried,
        "decoder": plan.decoder,
        "clients": plan.clients,
        "decoded": None if written is None else sum(written.values()),
        "quarantined": quarantined,
        "decoded_by_table": None
        if written is None
        else [{"table_name": table, "records": n} for table, n in sorted(written.items())],
    }

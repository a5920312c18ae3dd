"""Bronze to silver: decodes what came since the last run, each record into exactly one table.

A run that was killed is done again with the same range, and Delta passes over the tables that have
its rows already.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from decoders.clients import ClientKey
from decoders.records import times_off
from decoders.transform import INPUT, decoded, decoded_together, decoder_id, is_of_type, quarantined
from jobs.runtime.run import Run
from jobs.runtime.runner import run_job
from jobs.runtime.session import configured
from schemas.errors import LakehouseError
from schemas.ledger import DONE, PLANNED, Detail, LedgerRow, Stage
from schemas.messages import OFFSET_COMMIT, OFFSETS_TOPIC, WRAPPED_TYPES, record_types
from schemas.silver import decoded_columns, quarantine_columns, silver_tables
from schemas.tables import QUARANTINE, RECORDS, decoded_table, silver_specs
from schemas.words import duration
from sources.coverage import record_type
from storage.lakehouse import Lakehouse
from storage.runs import StageRun
from storage.tables import FEW_ROWS, rows_of, spark_schema, sql_text

# Most tables get few rows, so that starting and committing a write is most of it.
_TABLES_AT_ONCE = 4
_FREQUENT = ("offset_commits", "group_metadata")
# Tables of records whose keys Redpanda has wrapped.
_WRAPPED = tuple(dict.fromkeys(record_types()[number].table for number in WRAPPED_TYPES))
# Commits that are looked at, and by how much clocks may differ.
_SAMPLE = 20_000
_CLOCKS_MS = 60_000


def decode(run: Run) -> None:
    """Decode what is new in bronze.records, and what an older decoder refused."""
    run.summary |= {"records_read": 0, "decoded": 0, "quarantined": 0, "decoded_by_table": {}}
    while _follow(run):
        pass


def _follow(run: Run) -> bool:
    """Do one run; return whether it was one that another had begun, so that more may be left."""
    lakehouse = run.lakehouse
    secret = run.options.hash_key
    key = None if secret is None else ClientKey(secret)
    with run.step("looking for new bronze records"):
        clients = None if key is None else key.fingerprint
        if lakehouse.runs.last(Stage.DECODE, PLANNED) is None:
            _restore(lakehouse, clients)
        last, to = lakehouse.runs.last(Stage.DECODE), lakehouse.runs.last_number(Stage.INGEST)
        is_gone = last is not None and _is_gone(lakehouse, last)
        retried = 0
        if last is not None and not is_gone:
            _check_clients(lakehouse, last.details[Detail.CLIENTS], clients)
            if to < last.to_run:
                raise LakehouseError(
                    f"{lakehouse.path(RECORDS)} ends with ingest run {to}, but run {last.to_run} "
                    "was decoded: the table is an older copy than silver and gold; bring all "
                    "of the lakehouse back from one copy"
                )
            retried = _refused_by_others(lakehouse, last)
            if to > last.to_run or retried:
                _check_whole(lakehouse, last)
    plan = {Detail.RETRIED: retried, Detail.DECODER: decoder_id(), Detail.CLIENTS: clients}
    plan[Detail.COPIED] = last is not None and bool(last.details.get(Detail.COPIED))
    if not plan[Detail.COPIED] and (last is None or to > last.to_run):
        plan[Detail.COPIED] = _is_copied(run, -1 if last is None or is_gone else last.to_run, to)
    with lakehouse.runs.incremental(
        Stage.DECODE, to=to, refresh=is_gone, force=retried > 0, plan=plan
    ) as stage:
        if stage is None:
            return False
        _check_clients(lakehouse, stage.plan[Detail.CLIENTS], clients)
        if stage.is_resumed:
            run.say(
                f"decode run {stage.id.number} was planned and not done: this run resumes it, and "
                "nothing is written twice"
            )
        with run.step("decoding into silver", "records_read"):
            _decode(run, stage, key)
    return stage.is_resumed


def _is_copied(run: Run, after: int, to: int) -> bool:
    """Return whether a topic of another name has times that are not those of its records.

    A coordinator writes a commit with the time that it handles it, but a mirror may give the copy
    its own, if the topic that it writes to has LogAppendTime.
    """
    lakehouse = run.lakehouse
    topic = lakehouse.runs.last_details(Stage.INGEST).get(Detail.STATE, {}).get("topic")
    if topic in {None, OFFSETS_TOPIC}:
        return False
    is_commit = is_of_type([OFFSET_COMMIT]) & F.col("value").isNotNull()
    records = lakehouse.of_runs(RECORDS, after, to).where(is_commit).select(*INPUT).limit(_SAMPLE)
    off = times_off(records.toArrow().to_batches())
    if off is None or off <= _CLOCKS_MS:
        return False
    run.say(
        f"records of {topic} have the times of a copy, which are {duration(off)} off those of their"
        " commits: times come from commits and groups, and are bounds where these have none"
    )
    return True


def _check_clients(lakehouse: Lakehouse, held: str | None, clients: str | None) -> None:
    """Refuse other names of clients than before: each would seem to leave, and another to come."""
    if held == clients:
        return
    if held is None:
        what, advice = "the names of clients as they are", "leave --hash-clients out"
    elif clients is None:
        what, advice = "hashes instead of clients", "give --hash-clients and its key"
    else:
        what, advice = "hashes of clients by another key", "give the key of the former runs"
    raise LakehouseError(
        f"silver of cluster {lakehouse.cluster} holds {what}: {advice}, or delete the folders "
        "silver and gold, which are then rebuilt from bronze"
    )


def _refused_by_others(lakehouse: Lakehouse, last: LedgerRow) -> int:
    """Count the records in quarantine that another decoder refused."""
    if last.details[Detail.DECODER] == decoder_id() or not last.details[Detail.IN_QUARANTINE]:
        return 0
    return lakehouse.read(QUARANTINE).where(F.col("decoder") != decoder_id()).count()


def _is_gone(lakehouse: Lakehouse, last: LedgerRow) -> bool:
    """Return whether silver has been taken away, so that all of it has to be rebuilt."""
    return any(last.rows.values()) and not any(map(lakehouse.exists, silver_specs().values()))


def _check_whole(lakehouse: Lakehouse, last: LedgerRow) -> None:
    """Look for the last run in the tables that it wrote to, each in one commit."""
    names = [name for name, rows in last.rows.items() if rows and name != QUARANTINE.name]
    specs = silver_specs()
    if lakehouse.has_all([specs[name] for name in names], last.versions):
        return
    held = _count(lakehouse, [(name, last.run) for name in names], most=1)
    for name in names:
        if (name, last.run) not in held:
            raise LakehouseError(
                f"{name} has no row of decode run {last.run}, which wrote {last.rows[name]:,}: it "
                "is lost in part. Bring all of the lakehouse back from one copy, or delete the "
                "folders silver and gold, which are then rebuilt from bronze"
            )


def _restore(lakehouse: Lakehouse, clients: str | None) -> None:
    """Write the ledger of the runs again if it was lost: silver and bronze show what they did."""
    made = {name: spec for name, spec in silver_specs().items() if lakehouse.may_hold(spec)}
    if not made:
        return
    position = ["record_partition", "record_offset"]
    every = (
        lakehouse.read(spec).select(*position, "decode_run", F.lit(name).alias("table"))
        for name, spec in made.items()
    )
    decoded_rows = reduce(DataFrame.unionByName, every)
    records = lakehouse.read(RECORDS).select(*position, "ingest_run")
    parts = (
        decoded_rows.join(records, position)
        .groupBy("decode_run", "table")
        .agg(F.count("*").alias("records"), F.max("ingest_run").alias("to"))
        .collect()
    )
    left = records.join(decoded_rows, position, how="left_anti")
    ((missing,),) = left.agg(F.min("ingest_run")).collect()
    last = max((part.decode_run for part in parts), default=-1)
    plan = {Detail.RETRIED: 0, Detail.DECODER: decoder_id(), Detail.CLIENTS: clients}
    rows: list[LedgerRow] = []
    after, in_quarantine = -1, 0
    for number in range(last + 1):
        of_run = [part for part in parts if part.decode_run == number]
        to = max([after, *(part.to for part in of_run)])
        written = {part.table: part.records for part in of_run}
        quarantined = written.get(QUARANTINE.name, 0)
        in_quarantine += quarantined
        planned = LedgerRow(Stage.DECODE, number, PLANNED, after_run=after, to_run=to, details=plan)
        rows.append(planned)
        if number < last or missing is None or missing > to:
            # Which decoder refused what is in quarantine, its rows say: the next run looks.
            details = plan | {Detail.DECODER: ""}
            details |= {Detail.QUARANTINED: quarantined, Detail.IN_QUARANTINE: in_quarantine}
            rows.append(replace(planned, state=DONE, rows=written, details=details))
        after = to
    if rows:
        lakehouse.runs.restore(rows)


def _count(
    lakehouse: Lakehouse, of: Iterable[tuple[str, int]], most: int | None = None
) -> Counter[tuple[str, int]]:
    """Count the rows of tables and runs, in one query, of each so many at most."""
    parts = []
    for name, number in of:
        if lakehouse.exists(silver_specs()[name]):
            rows = lakehouse.read(silver_specs()[name]).where(F.col("decode_run") == number)
            rows = rows.select(F.lit(name).alias("name"), "decode_run")
            parts.append(rows if most is None else rows.limit(most))
    if not parts:
        return Counter()
    counts = reduce(DataFrame.unionByName, parts).groupBy("name", "decode_run").count().collect()
    return Counter({(row["name"], row["decode_run"]): row["count"] for row in counts})


def _decode(run: Run, stage: StageRun, key: ClientKey | None) -> None:
    lakehouse = run.lakehouse
    # Whoever asks what was refused gets an answer, also where nothing was.
    lakehouse.create(QUARANTINE)
    in_type, read = _types(lakehouse, stage)
    by_table = _by_table(in_type)
    written = _write_tables(lakehouse, stage, in_type, by_table, key)
    refused = set(in_type) - {i for ids in by_table.values() for i in ids}
    strange = sum(in_type[i] for i in _strange(in_type))
    for table, ids in by_table.items():
        if written[table] < sum(in_type[i] for i in ids) + strange:
            refused.update(ids)
    in_quarantine = _quarantine(lakehouse, stage, refused, list(by_table))
    decoded_records = sum(written.values())
    if decoded_records + in_quarantine != read:
        raise LakehouseError(
            f"decode run {stage.id.number} read {read} records but has {decoded_records} decoded "
            f"and {in_quarantine} quarantined ones; please report this: the run does not "
            "count as done"
        )
    stage.rows = {decoded_table(table).name: rows for table, rows in written.items()}
    stage.rows[QUARANTINE.name] = in_quarantine
    before = 0 if stage.is_refresh else int(stage.former.get(Detail.IN_QUARANTINE, 0))
    former = {} if stage.is_refresh else stage.former.get(Detail.VERSIONS, {})
    made = [spec for name, spec in silver_specs().items() if stage.rows.get(name)]
    stage.details = {
        Detail.VERSIONS: lakehouse.versions(made, former),
        Detail.QUARANTINED: in_quarantine,
        Detail.IN_QUARANTINE: before - stage.plan[Detail.RETRIED] + in_quarantine,
    }
    run.add(records_read=read, decoded=decoded_records, quarantined=in_quarantine)
    run.add(decoded_by_table=written)


def _types(lakehouse: Lakehouse, stage: StageRun) -> tuple[dict[int | None, int], int]:
    """Count the records of a run by record type; None is for those without one.

    What was in quarantine is not there any more if another run has got as far as its last write: so
    how many the run has in all is counted beside those that are still to be decoded.
    """
    noted = [
        row.details.get(Detail.TYPES)
        for row in lakehouse.runs.done(Stage.INGEST, stage.after, stage.to)
    ]
    counts: Counter[str] = Counter()
    if None in noted or len(noted) < stage.to - stage.after:
        counts += _counted(_new(lakehouse, stage))
    else:
        for of_run in noted:
            counts.update(of_run)
    read = counts.total() + stage.plan[Detail.RETRIED]
    if stage.plan[Detail.RETRIED]:
        counts += _counted(_former(lakehouse, stage))
    return {int(text) if text else None: count for text, count in counts.items()}, read


def _counted(records: DataFrame) -> Counter[str]:
    by_type = records.groupBy(record_type(F.col("key")).alias("type")).count()
    return Counter({row["type"]: row["count"] for row in by_type.collect()})


def _strange(in_type: Iterable[int | None]) -> list[int]:
    """Return types that no record has: what a key begins with that stands behind its length."""
    return [i for i in in_type if i is not None and i not in record_types()]


def _by_table(in_type: dict[int | None, int]) -> dict[str, list[int]]:
    """Return the silver tables that records of some types go to, with those of their types."""
    found = {
        table: [t.id for t in types if t.id in in_type] for table, types in silver_tables().items()
    }
    return {table: ids for table, ids in found.items() if ids}


def _write_tables(
    lakehouse: Lakehouse,
    stage: StageRun,
    in_type: dict[int | None, int],
    by_table: dict[str, list[int]],
    key: ClientKey | None,
) -> dict[str, int]:
    """Write the tables; give how many rows of the run each has."""
    batch, run = _batch(lakehouse, stage), stage.id
    strange = _strange(in_type)
    sought = {t: [*ids, *(strange if t in _WRAPPED else ())] for t, ids in by_table.items()}
    sought |= {t: strange for t in _WRAPPED if strange and t not in by_table}
    # A pass over the records for each table that gets very many rows, and one for all others.
    apart = [] if sum(in_type.values()) <= FEW_ROWS else [t for t in sought if t in _FREQUENT]
    rest = {table: ids for table, ids in sought.items() if table not in apart}
    counts: Counter[str] = Counter()
    rows_by_table: dict[str, DataFrame] = {}

    def numbered(rows: DataFrame) -> DataFrame:
        return rows.withColumn("decode_run", F.lit(run.number).cast("bigint"))

    def write_apart(table: str) -> None:
        records = batch.where(is_of_type(sought[table]))
        rows = decoded(records, table, spark_schema(decoded_columns(table)), key)
        lakehouse.append(decoded_table(table), numbered(rows), run)

    with (
        configured(lakehouse.spark, Stage.DECODE, sum(in_type.values())),
        ThreadPoolExecutor(_TABLES_AT_ONCE) as pool,
    ):
        if rest:
            of_rest = batch.where(is_of_type(i for ids in rest.values() for i in ids))
            together = decoded_together(of_rest, list(rest), key).localCheckpoint()
            in_table = together.groupBy("table").agg(F.sum("rows")).collect()
            counts.update(dict(in_table))
            rows_by_table = {table: numbered(rows_of(together, table)) for table in counts}
        # Behind the count of the others, which would wait for them.
        parts: list[Future[Any]] = [pool.submit(write_apart, table) for table in apart]
        for table, rows in rows_by_table.items():
            parts.append(pool.submit(lakehouse.append, decoded_table(table), rows, run))
        for part in parts:
            part.result()
    # The tables may have what another decoder read of a run that was killed.
    if not stage.is_resumed and counts.total() <= FEW_ROWS:
        for table, rows in rows_by_table.items():
            lakehouse.keep(decoded_table(table), rows, run.number)
    # The tables show what a run that another one began has written.
    asked = silver_tables() if stage.is_resumed else apart
    of_run = {table: (decoded_table(table).name, run.number) for table in asked}
    held = _count(lakehouse, of_run.values())
    for table, asked_of in of_run.items():
        counts[table] = held[asked_of]
    return {t: counts[t] for t in silver_tables() if t in by_table or counts[t]}


def _batch(lakehouse: Lakehouse, stage: StageRun) -> DataFrame:
    """Return the records of a run."""
    new = _new(lakehouse, stage)
    records = new.unionByName(_former(lakehouse, stage)) if stage.plan[Detail.RETRIED] else new
    no_time = F.lit(None).cast("timestamp")
    return (
        records.withColumn("record_timestamp", no_time)
        if stage.plan.get(Detail.COPIED)
        else records
    )


def _new(lakehouse: Lakehouse, stage: StageRun) -> DataFrame:
    return lakehouse.of_runs(RECORDS, stage.after, stage.to).select(*INPUT)


def _former(lakehouse: Lakehouse, stage: StageRun) -> DataFrame:
    """Return what another decoder refused; it is in quarantine until the run's last write."""
    return lakehouse.read(QUARANTINE).where(_is_of_others(stage.plan)).select(*INPUT)


def _is_of_others(plan: dict[str, Any]) -> str:
    return f"decoder <> {sql_text(plan[Detail.DECODER])}"


def _quarantine(
    lakehouse: Lakehouse, stage: StageRun, refused: set[int | None], tables: list[str]
) -> int:
    """Write what could not be decoded; give its number."""
    if not refused and not stage.plan[Detail.RETRIED]:
        return 0
    wanted = is_of_type(number for number in refused if number is not None)
    if None in refused:
        wanted |= record_type(F.col("key")) == ""
    records = _batch(lakehouse, stage).where(F.coalesce(wanted, F.lit(False)))  # noqa: FBT003
    rows = _refused(lakehouse, stage, records, tables).withColumns(
        {
            "decoder": F.lit(stage.plan[Detail.DECODER]),
            "decode_run": F.lit(stage.id.number).cast("bigint"),
        }
    )
    if stage.plan[Detail.RETRIED]:
        lakehouse.replace(QUARANTINE, rows, stage.id, where=_is_of_others(stage.plan))
    else:
        lakehouse.append(QUARANTINE, rows, stage.id)
    of_run = (QUARANTINE.name, stage.id.number)
    return _count(lakehouse, [of_run])[of_run]


def _refused(
    lakehouse: Lakehouse, stage: StageRun, records: DataFrame, tables: list[str]
) -> DataFrame:
    """Return the records that are in no table of this run, with the reasons."""
    rows = quarantined(records, spark_schema(quarantine_columns()))
    if stage.plan[Detail.DECODER] == decoder_id():
        return rows
    # The run was begun by another release: what that refused, this one may read, but the tables
    # are written. It waits in quarantine under the other's name, for the next run to retry it.
    position = ["record_partition", "record_offset"]
    in_run = F.col("decode_run") == stage.id.number
    written = [
        lakehouse.read(decoded_table(table)).where(in_run).select(*position) for table in tables
    ]
    left = reduce(lambda left, t: left.join(t, position, how="left_anti"), written, records)
    unread = left.join(rows.select(*position), position, how="left_anti").select(
        *INPUT,
        F.when(record_type(F.col("key")) != "", record_type(F.col("key")))
        .cast("smallint")
        .alias("record_type"),
        F.lit(None).cast("smallint").alias("value_version"),
        F.lit("refused by the release that began the decode run").alias("error"),
    )
    return rows.join(left.select(*position), position, how="left_semi").unionByName(unread)


if __name__ == "__main__":
    sys.exit(run_job(decode, ["decode", *sys.argv[1:]]))

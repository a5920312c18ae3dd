"""Silver to gold: tells what became known of the groups that have new records.

Like a decode run, a history run is planned first, and done again with the same range if it was
killed. Each table is written once a run; the heads, from which the next run goes on, come last.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from history import offsets
from history.groups import HEADS, OUTPUT, TABLES, Holes
from history.spark import (
    BEGIN_MODERN,
    COMMITS,
    MODERN_TYPES,
    events,
    fold,
    follow_offsets,
    joined_hours,
    row_columns,
    rows_of,
)
from jobs.runtime import gold_files
from jobs.runtime.logs import of_every_log
from schemas.columns import arrow_schema
from schemas.silver import silver_tables
from schemas.tables import (
    COMMITTED_OFFSETS,
    COVERAGE,
    DECODE_RUNS,
    GROUP_HEADS,
    HISTORY_RUNS,
    OFFSET_MOVES,
    OFFSET_PROGRESS,
    QUARANTINE,
    all_tables,
    decoded_table,
)
from storage.conditions import EVERY_ROW, OPEN_ROWS, for_spark, in_range, open_rows_and_of
from storage.files import read_where
from storage.tables import spark_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from history.model import Row
    from jobs.runtime.runner import Run
    from storage.conditions import Where
    from storage.files import DataFile
    from storage.tables import Lakehouse

_APPLICATION = "history"
_PLAN = "history plan"
_DONE = "history done"
_TABLES_AT_ONCE = 3
_PARTITION = ("record_partition", "next_offset", "last_hole")
_EVENTS_A_TASK = 250_000
# So many rows of offset_progress, new and of before, this process joins.
_HOURS_HERE = 1_000_000
_OPEN = {"is_settled": "false"}
_OF_OFFSETS = (COMMITTED_OFFSETS, OFFSET_PROGRESS, OFFSET_MOVES)
# More groups than this are replaced by replacing all.
_REPLAYED_BY_NAME = 1_000


@dataclass(frozen=True)
class Plan:
    """One history run: the decode runs behind `after`, up to and with `to`.

    Attributes:
        positions: by partition, the offset behind the last one that earlier runs told of.
        holes_before: by partition, the last offset missing in what they read.
    """

    number: int
    after: int
    to: int
    positions: dict[int, int] = field(default_factory=dict)
    holes_before: dict[int, int] = field(default_factory=dict)

    @property
    def is_anew(self) -> bool:
        """Whether all groups are told of anew, since what earlier runs kept of them is gone."""
        return self.number > 0 and self.after < 0


@dataclass(frozen=True)
class News:
    """What a run has to tell of.

    Attributes:
        counts: by silver table, how many records came.
        is_late: some of them may lie before what was told already, since they were in quarantine,
            or brought by files of earlier times.
        holes: offsets that were not read or not decoded, by partition.
        positions: see `Plan`, after this run.
    """

    counts: dict[str, int]
    is_late: bool
    holes: dict[int, Holes]
    positions: dict[int, int]

    def partitions(self) -> list[tuple[int, int, int]]:
        """Give what the next run has to know of each partition."""
        last = {p: max([h.before, *h.ends]) for p, h in self.holes.items()}
        known = sorted(self.positions.keys() | last.keys())
        return [(p, self.positions.get(p, 0), last.get(p, -1)) for p in known]


@of_every_log
def history(run: Run) -> None:
    """Bring the gold tables up to what has been decoded."""
    lakehouse = run.lakehouse
    with run.step("looking for new decoded records"):
        plan = _plan(lakehouse)
    if plan is None:
        run.summary |= {"groups_changed": 0}
        return
    with run.step("writing the history"):
        _carry_out(run, plan)


# -- planning --------------------------------------------------------------------------------------


def _plan(lakehouse: Lakehouse) -> Plan | None:
    """Take up the run that was not ended, or plan one if there is something to tell of."""
    lakehouse.ensure(HISTORY_RUNS)
    last, is_done = _last_plan(lakehouse)
    if last is not None and not is_done:
        return last
    number = last.number + 1 if last is not None else 0
    after = last.to if last is not None else -1
    to = _decoded_until(lakehouse)
    kept = {lakehouse.last_write(GROUP_HEADS, _APPLICATION)}
    of_offsets: set[int] = set()
    if to > after:
        # Each run writes these; to look at them costs nothing that it would not pay anyway.
        tables = (all_tables()[f"gold.{table}"] for table in TABLES)
        kept |= {lakehouse.last_write(spec, _APPLICATION) for spec in tables}
        # Each run that has commits writes all three.
        of_offsets = {lakehouse.last_write(spec, _APPLICATION) for spec in _OF_OFFSETS}
    # Somebody deleted one of them, or the runs, or put an old copy in their place.
    is_lost = kept != {number - 1} or len(of_offsets) > 1
    if is_lost or (of_offsets == {-1} and _had_commits(lakehouse, after)):
        if _last_plan(lakehouse)[0] != last:  # another run has ended in between
            return _plan(lakehouse)
        number, after = max(number, *(write + 1 for write in kept | of_offsets)), -1
    if to <= after:
        return None
    _note(lakehouse, Plan(number, after, to), "planned", _PLAN)
    # Another run may have planned this number first, and then its plan holds.
    return _last_plan(lakehouse)[0]


def _had_commits(lakehouse: Lakehouse, until: int) -> bool:
    where: Where = [[("decode_run", "<=", until)]]
    done = lakehouse.rows(DECODE_RUNS, ("decoded_by_table",), where)["decoded_by_table"]
    parts = (part for run in done.to_pylist() for part in run or ())
    return any(part["table_name"] == COMMITS and part["records"] for part in parts)


def _decoded_until(lakehouse: Lakehouse) -> int:
    done = lakehouse.rows(DECODE_RUNS, ("decode_run",), [[("step", "==", "done")]])
    last = pc.max(done["decode_run"]).as_py()
    return -1 if last is None else int(last)


def _last_plan(lakehouse: Lakehouse) -> tuple[Plan | None, bool]:
    """Read the last plan, and whether it was carried out."""
    ranges = ("after_decode_run", "to_decode_run")
    steps = lakehouse.rows(HISTORY_RUNS, ("history_run", "step", *ranges, "partitions"))
    number = pc.max(steps["history_run"]).as_py()
    if number is None:
        return None, False
    newest = steps.filter(pc.greater_equal(steps["history_run"], number - 1)).to_pylist()
    of_last = [s for s in newest if s["history_run"] == number]
    before = [s for s in newest if s["history_run"] < number and s["step"] == "done"]
    known = [p for s in before for p in s["partitions"] or ()]
    after, to = (of_last[0][name] for name in ranges)
    positions = {p["record_partition"]: p["next_offset"] for p in known}
    plan = Plan(
        number, after, to, positions, {p["record_partition"]: p["last_hole"] for p in known}
    )
    return plan, any(s["step"] == "done" for s in of_last)


def _note(
    lakehouse: Lakehouse,
    plan: Plan,
    step: str,
    application: str,
    partitions: list[tuple[int, int, int]] | None = None,
) -> None:
    now = dt.datetime.now(dt.timezone.utc)
    row = {
        "history_run": plan.number,
        "step": step,
        "at": now,
        "after_decode_run": plan.after,
        "to_decode_run": plan.to,
        "partitions": None
        if partitions is None
        else [dict(zip(_PARTITION, p, strict=True)) for p in partitions],
    }
    lakehouse.append_rows(HISTORY_RUNS, [row], application, plan.number)


# -- carrying out ----------------------------------------------------------------------------------


def _carry_out(run: Run, plan: Plan) -> None:
    lakehouse = run.lakehouse
    news = _news(lakehouse, plan)
    if lakehouse.last_write(GROUP_HEADS, _APPLICATION) < plan.number:
        run.summary |= _write(lakehouse, plan, news)
    _note(lakehouse, plan, "done", _DONE, news.partitions())


def _write(lakehouse: Lakehouse, plan: Plan, news: News) -> dict[str, int]:
    groups = None if news.is_late else _write_files(lakehouse, plan, news)
    if groups is None:
        return _write_by_spark(lakehouse, plan, news)
    return {"groups_changed": groups, "groups_replayed": 0}


def _write_files(lakehouse: Lakehouse, plan: Plan, news: News) -> int | None:
    """Let tasks write the tables' files; None if that takes Spark, else the number of groups."""
    root = lakehouse.local_root
    silver = {
        name: lakehouse.local_files(decoded_table(name), "decode_run", plan.after, plan.to)
        for name in news.counts
    }
    heads, committed = map(lakehouse.local_files_of, (GROUP_HEADS, COMMITTED_OFFSETS))
    if root is None or heads is None or committed is None:
        return None
    found = {name: paths for name, paths in silver.items() if paths is not None}
    if len(found) < len(silver):
        return None
    source = gold_files.Source(found, plan.after, plan.to, heads, committed)
    places = gold_files.places(source)
    told = {group for group, _ in places}
    if len(told) < len(places):
        return None  # records outside the group's partition
    target = gold_files.Target(root, lakehouse.cluster, plan.number)
    specs = [all_tables()[f"gold.{table}"] for table in TABLES]
    open_files = {spec.name: lakehouse.local_files_of(spec, _OPEN) for spec in specs}
    replaced = {name: paths or [] for name, paths in open_files.items()}
    replaced |= {GROUP_HEADS.name: heads}
    if COMMITS in found:
        replaced |= {COMMITTED_OFFSETS.name: committed}
    if any(paths is None for paths in open_files.values()):
        return None
    files: dict[str, list[DataFile]] = defaultdict(list)
    for name, file in [
        *gold_files.write(lakehouse.spark, source, target, news.holes, places),
        *gold_files.keep(lakehouse.spark, replaced, places, target),
    ]:
        files[name].append(file)
    number = (_APPLICATION, plan.number)
    for spec in specs:
        lakehouse.add(spec, files[spec.name], *number, instead_of=OPEN_ROWS)
    if COMMITS in found:
        _add_progress(lakehouse, plan, files[OFFSET_PROGRESS.name])
        lakehouse.add(OFFSET_MOVES, files[OFFSET_MOVES.name], *number)
        # From these the next run goes on, and so one that was killed before this.
        lakehouse.add(
            COMMITTED_OFFSETS, files[COMMITTED_OFFSETS.name], *number, instead_of=EVERY_ROW
        )
    lakehouse.add(GROUP_HEADS, files[GROUP_HEADS.name], *number, instead_of=EVERY_ROW)
    return len(told)


def _add_progress(lakehouse: Lakehouse, plan: Plan, files: list[DataFile]) -> None:
    """Add the hours of a run; those that the one before had begun go on."""
    number = (_APPLICATION, plan.number)
    if lakehouse.last_write(OFFSET_PROGRESS, _APPLICATION) < 0:
        lakehouse.add(OFFSET_PROGRESS, files, *number)
        return
    paths, schema = [file.path for file in files], arrow_schema(OFFSET_PROGRESS.of_cluster)
    where = _hours_since(pc.min(read_where(paths, [schema.field("hour")])["hour"]).as_py())
    rows = sum(file.records for file in files) + lakehouse.count(OFFSET_PROGRESS, where)
    if rows > _HOURS_HERE:
        later = lakehouse.spark.read.parquet(*paths)
        _join_hours(lakehouse, plan, later, tasks=-(-rows // _HOURS_HERE))
        return
    earlier = lakehouse.rows(OFFSET_PROGRESS, schema.names, where)
    hours = offsets.joined_hours(earlier, read_where(paths, schema))
    lakehouse.replace_rows(OFFSET_PROGRESS, hours, where, *number)


def _join_hours(
    lakehouse: Lakehouse,
    plan: Plan,
    later: DataFrame,
    tasks: int,
    replayed: Sequence[str] = (),
) -> None:
    """Let the hours that an earlier run had begun go on, and add the later ones."""
    earlier, begun = lakehouse.read(OFFSET_PROGRESS), later
    if replayed:
        is_other = ~F.col("group_id").isin(*replayed)
        earlier, begun = earlier.where(is_other), later.where(is_other)
    first = begun.agg(F.unix_micros(F.min("hour")).alias("at")).collect()[0]["at"]
    since = None if first is None else dt.datetime.fromtimestamp(first / 1_000_000, dt.timezone.utc)
    where = _hours_since(since)
    may_go_on = F.coalesce(for_spark(where), F.lit(False))  # noqa: FBT003
    schema = spark_schema(OFFSET_PROGRESS.of_cluster)
    hours = joined_hours(earlier.where(may_go_on), later, schema, tasks)
    if replayed:
        hours = hours.unionByName(earlier.where(~may_go_on).select(*hours.columns))
        where = EVERY_ROW
    lakehouse.replace(OFFSET_PROGRESS, hours, where, _APPLICATION, plan.number)


def _hours_since(first: dt.datetime | None) -> Where:
    """Give the condition for hours not before one, if it is known, and for what has no time."""
    since: Where = [] if first is None else [[("hour", ">=", first)]]
    return [[("hour", "is null", None)], *since]


def _write_by_spark(lakehouse: Lakehouse, plan: Plan, news: News) -> dict[str, int]:
    new = _new_rows(lakehouse, plan, news)
    heads = lakehouse.read(GROUP_HEADS)
    if plan.is_anew:
        heads = heads.limit(0)
        replayed = _every_group(new)
    else:
        replayed = _replayed(new, heads) if news.is_late else []
    if replayed:
        new, heads = _from_the_start(lakehouse, plan, new, heads, replayed)
    known = _modern_groups(new, heads)
    cores = lakehouse.spark.sparkContext.defaultParallelism
    tasks = max(cores, -(-sum(news.counts.values()) // _EVENTS_A_TASK))
    schema = spark_schema(row_columns(OUTPUT))
    folded = fold(events(new, heads, known), news.holes, schema, tasks)
    folded = folded.persist(StorageLevel.MEMORY_AND_DISK)
    changed = rows_of(folded, HEADS).select("group_id").persist(StorageLevel.MEMORY_AND_DISK)
    groups = changed.count()
    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        jobs = [
            pool.submit(
                _replace_open, lakehouse, plan, folded, changed, table=table, replayed=replayed
            )
            for table in TABLES
        ]
        if COMMITS in new:
            of_commits = (lakehouse, plan, new[COMMITS], replayed, tasks)
            jobs.append(pool.submit(_write_offsets, *of_commits))
        for job in jobs:
            job.result()
    former = lakehouse.read(GROUP_HEADS).drop("cluster")
    if plan.is_anew:
        former = former.limit(0)
    number = F.lit(plan.number).cast("bigint")
    told_since = F.coalesce(
        F.when(~F.col("group_id").isin(replayed), F.col("told_since"))
        if replayed
        else "told_since",
        number,
    )
    head_rows = (
        rows_of(folded, HEADS)
        .join(former.select("group_id", "told_since"), "group_id", how="left")
        .withColumns({"history_run": number, "told_since": told_since})
    )
    unchanged = former
    unchanged = unchanged.join(changed, "group_id", how="left_anti")
    heads_now = unchanged.select(*head_rows.columns).unionByName(head_rows)
    lakehouse.replace(GROUP_HEADS, heads_now, EVERY_ROW, _APPLICATION, plan.number)
    folded.unpersist()
    changed.unpersist()
    return {"groups_changed": groups, "groups_replayed": len(replayed)}


def _new_rows(lakehouse: Lakehouse, plan: Plan, news: News) -> dict[str, DataFrame]:
    """Read what the plan's decode runs brought, by silver table."""
    run = F.col("decode_run")
    is_new = (run > plan.after) & (run <= plan.to)
    return {name: lakehouse.read(decoded_table(name)).where(is_new) for name in news.counts}


def _replayed(new: dict[str, DataFrame], heads: DataFrame) -> list[str]:
    """Name the groups of which records came that lie before what was told already."""
    firsts = [
        rows.groupBy("group_id", "record_partition").agg(F.min("record_offset").alias("first"))
        for rows in new.values()
    ]
    if not firsts:
        return []
    first = reduce(DataFrame.unionByName, firsts)
    late = first.join(
        heads.select("group_id", "record_partition", "record_offset"),
        ["group_id", "record_partition"],
    ).where(F.col("first") <= F.col("record_offset"))
    return [row.group_id for row in late.select("group_id").distinct().collect()]


def _every_group(new: dict[str, DataFrame]) -> list[str]:
    """Name all groups that there are records of."""
    if not new:
        return []
    groups = reduce(DataFrame.unionByName, [rows.select("group_id") for rows in new.values()])
    return [row.group_id for row in groups.distinct().collect()]


def _from_the_start(
    lakehouse: Lakehouse,
    plan: Plan,
    new: dict[str, DataFrame],
    heads: DataFrame,
    replayed: list[str],
) -> tuple[dict[str, DataFrame], DataFrame]:
    """Take all records of the groups to be told of anew, and forget their heads."""
    names = lakehouse.spark.createDataFrame([(name,) for name in replayed], "group_id string")
    rows = {}
    for name in silver_tables():
        spec = decoded_table(name)
        if not lakehouse.exists(spec):
            continue
        known = lakehouse.read(spec).where(F.col("decode_run") <= plan.to)
        every = known.join(F.broadcast(names), "group_id", how="left_semi")
        rest = new.get(name)
        if rest is not None:
            rest = rest.join(F.broadcast(names), "group_id", how="left_anti")
            every = every.unionByName(rest)
        rows[name] = every
    return rows, heads.join(F.broadcast(names), "group_id", how="left_anti")


def _modern_groups(new: dict[str, DataFrame], heads: DataFrame) -> DataFrame | None:
    """Give the groups whose records have ids of topics; None if there are none."""
    of_records = [new[name].select("group_id") for name in BEGIN_MODERN if name in new]
    of_heads = heads.where(F.col("group_type").isin(*MODERN_TYPES)).select("group_id")
    if not of_records and of_heads.isEmpty():
        return None
    return reduce(DataFrame.unionByName, [*of_records, of_heads]).distinct()


def _replace_open(
    lakehouse: Lakehouse,
    plan: Plan,
    folded: DataFrame,
    changed: DataFrame,
    *,
    table: str,
    replayed: list[str],
) -> None:
    """Add the rows that are settled, and put the open ones in the place of the former."""
    spec = all_tables()[f"gold.{table}"]
    rows = rows_of(folded, table).withColumn("history_run", F.lit(plan.number).cast("bigint"))
    if lakehouse.last_write(spec, _APPLICATION) >= 0:
        still_open = lakehouse.read(spec).where(~F.col("is_settled")).drop("cluster")
        rows = rows.unionByName(still_open.join(changed, "group_id", how="left_anti"))
    where = open_rows_and_of(replayed)
    if len(replayed) > _REPLAYED_BY_NAME:
        settled = lakehouse.read(spec).where(F.col("is_settled")).drop("cluster")
        rows = rows.unionByName(settled.join(changed, "group_id", how="left_anti"))
        where = EVERY_ROW
    lakehouse.replace(spec, rows, where, _APPLICATION, plan.number)


def _write_offsets(
    lakehouse: Lakehouse, plan: Plan, commits: DataFrame, replayed: list[str], tasks: int
) -> None:
    """Go on with the progress of each partition, and with its last commit."""
    former = lakehouse.read(COMMITTED_OFFSETS)
    if replayed:
        former = former.where(~F.col("group_id").isin(replayed))
    schema = spark_schema(row_columns(offsets.TABLES))
    followed = follow_offsets(commits, former, schema, tasks)
    followed = followed.persist(StorageLevel.MEMORY_AND_DISK)
    _join_hours(lakehouse, plan, rows_of(followed, offsets.HOURS), tasks, replayed)
    _write_moves(lakehouse, plan, rows_of(followed, offsets.MOVES), replayed)
    latest = rows_of(followed, offsets.LATEST)
    lakehouse.replace(COMMITTED_OFFSETS, latest, EVERY_ROW, _APPLICATION, plan.number)
    followed.unpersist()


def _write_moves(lakehouse: Lakehouse, plan: Plan, moves: DataFrame, replayed: list[str]) -> None:
    moves = moves.withColumn("history_run", F.lit(plan.number).cast("bigint"))
    if not replayed:
        lakehouse.append(OFFSET_MOVES, moves, _APPLICATION, plan.number)
        return
    known = lakehouse.read(OFFSET_MOVES).where(~F.col("group_id").isin(replayed)).drop("cluster")
    rows = known.unionByName(moves.select(*known.columns))
    lakehouse.replace(OFFSET_MOVES, rows, EVERY_ROW, _APPLICATION, plan.number)


# -- what is new, and what is missing -------------------------------------------------------------


def _news(lakehouse: Lakehouse, plan: Plan) -> News:
    columns = ("retried", "quarantined", "decoded_by_table", "after_ingest_run", "to_ingest_run")
    is_planned: Where = [[("step", "==", "done"), *in_range("decode_run", plan.after, plan.to)]]
    runs = lakehouse.rows(DECODE_RUNS, columns, is_planned).to_pylist()
    counts: Counter[str] = Counter()
    for row in runs:
        for part in row["decoded_by_table"] or ():
            counts[part["table_name"]] += part["records"]
    after = min(row["after_ingest_run"] for row in runs)
    to = max(row["to_ingest_run"] for row in runs)
    covered = _covered(lakehouse, after, to)
    is_late = (
        plan.is_anew
        or any(row["retried"] for row in runs)
        or any(r["from_offset"] < plan.positions.get(r["record_partition"], 0) for r in covered)
    )
    before = plan.holes_before
    if is_late:
        # Groups told of anew need all holes, not the last one alone.
        after, before = -1, {}
        covered = _covered(lakehouse, after, to)
    positions = dict(plan.positions)
    missing = []
    for row in covered:
        partition = row["record_partition"]
        positions[partition] = max(positions.get(partition, 0), row["next_offset"])
        missing += [(partition, h["start_offset"], h["end_offset"]) for h in row["holes"]]
    refused = any(row["quarantined"] for row in runs) or is_late
    if refused:
        missing += _quarantined(lakehouse, -1 if is_late else plan.after, plan.to)
    found = {name: count for name, count in counts.items() if count}
    return News(found, is_late, _holes(missing, before), positions)


def _covered(lakehouse: Lakehouse, after: int, to: int) -> list[Row]:
    columns = ("record_partition", "from_offset", "next_offset", "holes")
    found = lakehouse.rows(COVERAGE, columns, [in_range("ingest_run", after, to)])
    rows: list[Row] = found.to_pylist()
    return rows


def _quarantined(lakehouse: Lakehouse, after: int, to: int) -> list[tuple[int, int, int]]:
    columns = ("record_partition", "record_offset")
    rows = lakehouse.rows(QUARANTINE, columns, [in_range("decode_run", after, to)])
    positions = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    return [(partition, offset, offset) for partition, offset in positions]


def _holes(missing: list[tuple[int, int, int]], before: dict[int, int]) -> dict[int, Holes]:
    by_partition: dict[int, list[tuple[int, int]]] = {}
    for partition, start, end in sorted(missing):
        by_partition.setdefault(partition, []).append((start, end))
    return {
        partition: Holes(
            [start for start, _ in by_partition.get(partition, ())],
            [end for _, end in by_partition.get(partition, ())],
            before.get(partition, -1),
        )
        for partition in by_partition.keys() | before.keys()
    }

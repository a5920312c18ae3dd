"""Gold and silver to gold.anomalies and gold.group_health: watches what the history has brought.

A run is planned first, and done again with the same range if it was killed. Each table is written
once a run; the heads, from which the next run goes on, come last.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import reduce
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anomalies import arrow, log
from anomalies.health import group_health, sums_by_group
from anomalies.model import Findings
from anomalies.rows import rows_of
from anomalies.spark import Sources, commit_minutes, events, watch
from anomalies.watching import OUTPUT, batch_of
from jobs.runtime import watch_files
from jobs.runtime.limits import read_thresholds
from jobs.runtime.logs import of_every_log
from jobs.runtime.shares import PARTITION
from jobs.runtime.watch_files import Place
from schemas.columns import arrow_schema, in_millis
from schemas.tables import (
    ANOMALIES,
    ANOMALY_HEADS,
    ANOMALY_RUNS,
    DECODE_RUNS,
    GROUP_GENERATIONS,
    GROUP_HEADS,
    GROUP_HEALTH,
    GROUP_STATES,
    HISTORY_RUNS,
    LAG,
    MEMBER_SESSIONS,
    OFFSET_MOVES,
    decoded_table,
)
from storage.conditions import EVERY_ROW, OPEN_ROWS, for_spark, in_range, open_rows_and_of
from storage.queries import answers
from storage.tables import spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anomalies.log import Finding
    from anomalies.model import Row
    from anomalies.thresholds import Thresholds
    from jobs.runtime.runner import Run
    from schemas.tables import TableSpec
    from storage.conditions import Where
    from storage.tables import Lakehouse

_APPLICATION = "anomalies"
_PLAN = "anomalies plan"
_DONE = "anomalies done"
_COMMITS = "offset_commits"
_RECORDS_A_TASK = 100_000
# So many take this process less than starting Spark's tasks.
_RECORDS_HERE = 500_000
# The rows of the states that groups are in.
_NEWEST: Where = [[*OPEN_ROWS[0], ("ended_at", "is null", None)]]
# More groups than this are replaced by replacing all.
_REPLAYED_BY_NAME = 1_000


@dataclass(frozen=True)
class Plan:
    """One anomalies run: the history runs behind `after`, up to and with `to`.

    Attributes:
        as_of: time of the log in epoch milliseconds: that of its newest record.
        is_anew: nothing of earlier runs counts, since other thresholds held then.
    """

    number: int
    after: int
    to: int
    as_of: int
    is_anew: bool


@dataclass(frozen=True)
class News:
    """What a run looks at.

    Attributes:
        decode_runs: the decode runs behind the first, up to and with the second.
        ingest_runs: the same of the ingest runs.
        tables: how many records came into which silver table.
        replayed: groups of which the history was told anew.
    """

    decode_runs: tuple[int, int]
    ingest_runs: tuple[int, int]
    tables: dict[str, int]
    replayed: list[str]

    @property
    def tasks(self) -> int:
        """Tasks that share what the groups' own records made known."""
        own = sum(count for table, count in self.tables.items() if table != _COMMITS)
        return -(-own // _RECORDS_A_TASK)


@of_every_log
def anomalies(run: Run) -> None:
    """Bring gold.anomalies and gold.group_health up to the history."""
    limits = read_thresholds(run.options.thresholds)
    with run.step("looking for new history"):
        plan = _plan(run.lakehouse, limits)
    if plan is not None:
        with run.step("watching the groups"):
            _carry_out(run.lakehouse, plan, limits)
    run.summary |= {"anomalies_run": plan is not None, "anomalies": _by_kind(run.lakehouse)}


# -- planning --------------------------------------------------------------------------------------


def _plan(lakehouse: Lakehouse, limits: Thresholds) -> Plan | None:
    """Take up the run that was not ended, or plan one if there is something to look at."""
    lakehouse.ensure(ANOMALY_RUNS)
    last, is_done, fingerprint = _last_plan(lakehouse)
    if last is not None and not is_done:
        return last
    to = lakehouse.last_write(HISTORY_RUNS, "history done")
    number = last.number + 1 if last is not None else 0
    kept = [lakehouse.last_write(spec, _APPLICATION) for spec in (ANOMALY_HEADS, ANOMALIES)]
    # Somebody deleted one of them, or the runs, or put an old copy in their place.
    is_lost = set(kept) != {number - 1}
    if is_lost and _last_plan(lakehouse)[0] != last:  # another run has ended in between
        return _plan(lakehouse, limits)
    number = max(number, *(last_write + 1 for last_write in kept))
    is_anew = is_lost or (
        last is not None
        and (fingerprint != limits.fingerprint or _is_told_anew(lakehouse, last.to, to))
    )
    after = -1 if last is None or is_anew else last.to
    if to <= after:
        return None
    is_anew = number > 0 and after < 0
    plan = Plan(number, after, to, _newest_record(lakehouse), is_anew)
    _note(lakehouse, plan, limits, "planned", _PLAN)
    # Another run may have planned this number first, and then its plan holds.
    return _last_plan(lakehouse)[0]


def _is_told_anew(lakehouse: Lakehouse, after: int, to: int) -> bool:
    """Tell whether a history run told of all groups anew, and so of findings that are known."""
    run = "history_run"
    anew: Where = [[*in_range(run, max(after, 0), to), ("after_decode_run", "<", 0)]]
    return bool(lakehouse.rows(HISTORY_RUNS, (run,), anew).num_rows)


def _newest_record(lakehouse: Lakehouse) -> int:
    asked = """
SELECT unix_millis(max(at)) AS at FROM (
  SELECT record_timestamp AS at FROM gold.group_states WHERE NOT is_settled
  UNION ALL
  SELECT coalesce(record_timestamp, committed_at) AS at FROM gold.committed_offsets
)"""
    ((newest,),) = answers(lakehouse, [asked])
    return newest["at"] or 0


def _last_plan(lakehouse: Lakehouse) -> tuple[Plan | None, bool, str | None]:
    """Read the last plan, whether it was carried out, and by which thresholds."""
    columns = (
        "anomalies_run",
        "step",
        "after_history_run",
        "to_history_run",
        "thresholds",
        "as_of",
    )
    steps = in_millis(lakehouse.rows(ANOMALY_RUNS, columns)).sort_by("anomalies_run").to_pylist()
    if not steps:
        return None, False, None
    of_last = [step for step in steps if step["anomalies_run"] == steps[-1]["anomalies_run"]]
    number, after, to, as_of = (
        of_last[0][name]
        for name in ("anomalies_run", "after_history_run", "to_history_run", "as_of")
    )
    plan = Plan(number, after, to, as_of, is_anew=number > 0 and after < 0)
    return plan, any(step["step"] == "done" for step in of_last), of_last[0]["thresholds"]


def _note(
    lakehouse: Lakehouse, plan: Plan, limits: Thresholds, step: str, application: str
) -> None:
    row = {
        "anomalies_run": plan.number,
        "step": step,
        "at": dt.datetime.now(dt.timezone.utc),
        "after_history_run": plan.after,
        "to_history_run": plan.to,
        "as_of": _time(plan.as_of),
        "thresholds": limits.fingerprint,
    }
    lakehouse.append_rows(ANOMALY_RUNS, [row], application, plan.number)


def _time(millis: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(millis / 1000, dt.timezone.utc)


# -- carrying out ----------------------------------------------------------------------------------


def _carry_out(lakehouse: Lakehouse, plan: Plan, limits: Thresholds) -> None:
    if lakehouse.last_write(ANOMALY_HEADS, _APPLICATION) < plan.number:
        _watch(lakehouse, plan, limits)
    _write_health(lakehouse, plan, limits)
    _note(lakehouse, plan, limits, "done", _DONE)


def _watch(lakehouse: Lakehouse, plan: Plan, limits: Thresholds) -> None:
    news = _news(lakehouse, plan)
    places = _places(lakehouse, news)
    of_log = _watch_log(lakehouse, plan, news, limits, places)
    source = _source(lakehouse, plan, news)
    how = watch_files.Watch(limits, lakehouse.cluster, plan.as_of)
    if source is not None and sum(news.tables.values()) <= _RECORDS_HERE:
        _write(lakehouse, plan, news, how.here(source), of_log)
    elif source is not None and watch_files.is_shareable(source, places):
        _write(lakehouse, plan, news, how.in_tasks(lakehouse.spark, source, places), of_log)
    else:
        _watch_by_spark(lakehouse, plan, news, limits, of_log)


def _source(lakehouse: Lakehouse, plan: Plan, news: News) -> watch_files.Source | None:
    """Give what to look at where tables are files that tasks may read; None elsewhere."""
    is_new = _of_runs("history_run", plan.after, plan.to, news.replayed)
    is_told = [*OPEN_ROWS, *is_new]
    decoded = _of_runs("decode_run", *news.decode_runs, news.replayed)
    wanted: dict[str, tuple[TableSpec, tuple[str, ...], Where]] = {
        "generations": (GROUP_GENERATIONS, arrow.GENERATIONS, is_told),
        "states": (GROUP_STATES, arrow.STATES, _NEWEST),
        "stays": (MEMBER_SESSIONS, arrow.STAYS, is_told),
        "moves": (OFFSET_MOVES, arrow.MOVES, is_new),
        "commits": (decoded_table(_COMMITS), arrow.COMMITS, decoded),
    }
    selections = {}
    for name, of_table in wanted.items():
        selection = lakehouse.selection(*of_table)
        if selection is None:
            return None
        selections[name] = selection
    # Read only if groups are shared out.
    partitions = lakehouse.selection(GROUP_HEADS, ("group_id", PARTITION))
    if partitions is None:
        return None
    heads = lakehouse.rows(ANOMALY_HEADS, ("group_id", "state"))
    is_kept = pc.and_(
        pc.is_valid(heads["group_id"]),
        pc.invert(pc.is_in(heads["group_id"], pa.array(news.replayed, pa.string()))),
    )
    newest = lakehouse.last_write(LAG, "lag")
    lags = lakehouse.rows(LAG, ("group_id", "sampled_at", "lag"), [[("lag_run", "==", newest)]])
    by_group = in_millis(lags).group_by(["group_id"])
    of_group = by_group.aggregate([("sampled_at", "max"), ("lag", "sum")])
    return watch_files.Source(
        selections,
        lags=of_group.rename_columns(["group_id", "at", "lag"]),
        heads=heads.slice(0, 0) if plan.is_anew else heads.filter(is_kept),
        partitions=partitions,
    )


def _write(lakehouse: Lakehouse, plan: Plan, news: News, found: pa.Table, of_log: _OfLog) -> None:
    """Write what was found, and the heads among it."""
    columns = ANOMALIES.of_cluster
    names = [c.name for c in columns]
    is_head = pc.is_null(found["anomaly_id"])
    of_the_log = pa.Table.from_batches([batch_of(of_log.rows, columns)])
    rows = pa.concat_tables([found.filter(pc.invert(is_head)).select(names), of_the_log])
    where = _replaced(plan, news)
    if not where and not plan.is_anew:
        rest = lakehouse.rows(ANOMALIES, names, [[("is_settled", "==", True)]])
        is_other = pc.invert(pc.is_in(rest["group_id"], pa.array(news.replayed, pa.string())))
        rows = pa.concat_tables([rows, rest.filter(is_other)])
    lakehouse.replace_rows(ANOMALIES, rows, where, _APPLICATION, plan.number)
    schema = arrow_schema(ANOMALY_HEADS.of_cluster)
    own = {"group_id": None, "state": of_log.head}
    heads = [*found.filter(is_head).select(["group_id", "state"]).to_pylist(), own]
    numbered = [head | {"anomalies_run": plan.number} for head in heads]
    told = pa.Table.from_pylist(numbered, schema)
    lakehouse.replace_rows(ANOMALY_HEADS, told, EVERY_ROW, _APPLICATION, plan.number)


def _watch_by_spark(
    lakehouse: Lakehouse, plan: Plan, news: News, limits: Thresholds, of_log: _OfLog
) -> None:
    of_groups = lakehouse.read(ANOMALY_HEADS).drop("cluster").where(F.col("group_id").isNotNull())
    if plan.is_anew:
        of_groups = of_groups.limit(0)
    if news.replayed:
        of_groups = of_groups.where(~F.col("group_id").isin(news.replayed))
    of_runs = for_spark(_of_runs("decode_run", *news.decode_runs, news.replayed))
    minutes = commit_minutes(lakehouse.read(decoded_table(_COMMITS)).where(of_runs))
    ordered = events(_sources(lakehouse, plan, news, minutes, of_groups))
    schema = spark_schema(OUTPUT)
    found = watch(
        ordered,
        thresholds=limits,
        cluster=lakehouse.cluster,
        now=plan.as_of,
        schema=schema,
        tasks=max(lakehouse.spark.sparkContext.defaultParallelism, news.tasks),
    ).persist(StorageLevel.MEMORY_AND_DISK)
    is_head = F.col("anomaly_id").isNull()
    names = [c.name for c in ANOMALIES.of_cluster]
    rows = found.where(~is_head).select(*names)
    if of_log.rows:
        batch = batch_of(of_log.rows, ANOMALIES.of_cluster)
        of_the_log = pa.Table.from_batches([batch])
        in_spark = lakehouse.spark.createDataFrame(of_the_log, spark_schema(ANOMALIES.of_cluster))
        rows = rows.unionByName(in_spark)
    where = _replaced(plan, news)
    if not where and not plan.is_anew:
        rest = lakehouse.read(ANOMALIES).where(F.col("is_settled"))
        is_other = F.col("group_id").isNull() | ~F.col("group_id").isin(news.replayed)
        rows = rows.unionByName(rest.where(is_other).select(*names))
    lakehouse.replace(ANOMALIES, rows, where, _APPLICATION, plan.number)
    number = F.lit(plan.number).cast("bigint").alias("anomalies_run")
    head_rows = found.where(is_head).select("group_id", "state", number)
    own = lakehouse.spark.createDataFrame([(None, of_log.head)], "group_id string, state string")
    head_rows = head_rows.unionByName(own.select("group_id", "state", number))
    lakehouse.replace(ANOMALY_HEADS, head_rows, EVERY_ROW, _APPLICATION, plan.number)
    found.unpersist()


def _replaced(plan: Plan, news: News) -> Where:
    if plan.is_anew or len(news.replayed) > _REPLAYED_BY_NAME:
        return EVERY_ROW
    return open_rows_and_of(news.replayed)


def _sources(
    lakehouse: Lakehouse, plan: Plan, news: News, minutes: DataFrame, heads: DataFrame
) -> Sources:
    is_new = _of_runs("history_run", plan.after, plan.to, news.replayed)
    is_told = for_spark([*OPEN_ROWS, *is_new])
    return Sources(
        generations=lakehouse.read(GROUP_GENERATIONS).where(is_told),
        states=_states_now(lakehouse),
        stays=lakehouse.read(MEMBER_SESSIONS).where(F.col("left_at").isNotNull() & is_told),
        moves=lakehouse.read(OFFSET_MOVES).where(for_spark(is_new)),
        minutes=minutes,
        lags=_lag_now(lakehouse)
        .groupBy("group_id")
        .agg(F.max(F.unix_millis("sampled_at")).alias("at"), F.sum("lag").alias("lag")),
        heads=heads,
    )


def _states_now(lakehouse: Lakehouse) -> DataFrame:
    return lakehouse.read(GROUP_STATES).where(for_spark(_NEWEST))


def _lag_now(lakehouse: Lakehouse) -> DataFrame:
    newest = lakehouse.last_write(LAG, "lag")
    return lakehouse.read(LAG).where(F.col("lag_run") == newest)


def _write_health(lakehouse: Lakehouse, plan: Plan, limits: Thresholds) -> None:
    asked = sums_by_group(plan.as_of, lakehouse.last_write(LAG, "lag"))
    (sums,) = answers(lakehouse, [asked])
    rows = list(group_health(sums, limits, _time(plan.as_of)))
    health = pa.Table.from_pylist(rows, arrow_schema(GROUP_HEALTH.of_cluster))
    lakehouse.replace_rows(GROUP_HEALTH, health, EVERY_ROW, _APPLICATION, plan.number)


def _by_kind(lakehouse: Lakehouse) -> dict[str, int]:
    """Count the anomalies that are known, by kind."""
    counts = lakehouse.rows(ANOMALIES, ("kind",))["kind"].value_counts().to_pylist()
    return {row["values"]: row["counts"] for row in sorted(counts, key=itemgetter("values"))}


# -- what is new -----------------------------------------------------------------------------------


def _news(lakehouse: Lakehouse, plan: Plan) -> News:
    of_plan = [in_range("history_run", plan.after, plan.to)]
    planned = lakehouse.rows(HISTORY_RUNS, ("after_decode_run", "to_decode_run"), of_plan)
    after = pc.min(planned["after_decode_run"]).as_py()
    to = pc.max(planned["to_decode_run"]).as_py()
    if after is None:
        after, to = -1, -1
    columns = ("step", "decoded_by_table", "after_ingest_run", "to_ingest_run")
    runs = lakehouse.rows(DECODE_RUNS, columns, [in_range("decode_run", after, to)]).to_pylist()
    done = [r for r in runs if r["step"] == "done"]
    tables: dict[str, int] = {}
    for part in (part for row in done for part in row["decoded_by_table"] or ()):
        if part["records"]:
            tables[part["table_name"]] = tables.get(part["table_name"], 0) + part["records"]
    replayed: list[str] = []
    if plan.after >= 0:
        of_told = [in_range("told_since", plan.after, plan.to)]
        anew = lakehouse.rows(GROUP_HEADS, ("group_id",), of_told)["group_id"].to_pylist()
        known = lakehouse.rows(ANOMALY_HEADS, ("group_id",))["group_id"].to_pylist()
        replayed = sorted({*anew} & {*known})
    ingested = (
        min((r["after_ingest_run"] for r in runs), default=-1),
        max((r["to_ingest_run"] for r in runs), default=-1),
    )
    return News((after, to), ingested, tables, replayed)


def _of_runs(column: str, after: int, to: int, replayed: list[str]) -> Where:
    """Give the condition for rows of the runs behind one, and for all of groups told anew."""
    is_new = in_range(column, after, to)
    return [is_new, [("group_id", "in", replayed), (column, "<=", to)]] if replayed else [is_new]


_GROUP = "="


def _key(group: str | None) -> str:
    """Name what findings are kept under; an empty text is a group's id, too."""
    return "" if group is None else f"{_GROUP}{group}"


class _OfLog(NamedTuple):
    rows: list[Row]
    head: str


def _log_head(lakehouse: Lakehouse, plan: Plan) -> dict[str, list[Row]]:
    if plan.is_anew:
        return {}
    own = lakehouse.rows(ANOMALY_HEADS, ("state",), [[("group_id", "is null", None)]])
    kept: dict[str, list[Row]] = orjson.loads(own["state"][0].as_py()) if own.num_rows else {}
    return kept


def _watch_log(
    lakehouse: Lakehouse, plan: Plan, news: News, limits: Thresholds, places: list[Place]
) -> _OfLog:
    """Look at the log as a whole; the findings of each group, and of the log, are kept apart."""
    by_key = {key: Findings(kept) for key, kept in _log_head(lakehouse, plan).items()}
    rows: list[Row] = []

    def told(key: str, findings: Findings) -> Iterator[Row]:
        group = key.removeprefix(_GROUP) if key else None
        of_group = limits.values if group is None else limits.of(group)
        settled, still_open = findings.settle(plan.as_of), findings.open()
        yield from rows_of(settled, still_open, lakehouse.cluster, group, of_group, now=plan.as_of)

    for group, hit in _log_findings(lakehouse, plan, news, limits, places):
        if group is not None and limits.ignores(group):
            continue
        if hit.kind in log.PASSING:
            passing = Findings()
            passing.hit(hit)
            rows += told(_key(group), passing)
        else:
            by_key.setdefault(_key(group), Findings()).hit(hit)
    for key, findings in by_key.items():
        rows += told(key, findings)
    kept = {key: findings.to_json() for key, findings in by_key.items() if findings.current}
    return _OfLog(rows, orjson.dumps(kept).decode())


def _log_findings(
    lakehouse: Lakehouse, plan: Plan, news: News, limits: Thresholds, places: list[Place]
) -> list[Finding]:
    questions = _questions(plan, news, limits)
    told = answers(lakehouse, [question.sql for question in questions])
    found = [
        f for question, rows in zip(questions, told, strict=True) for f in question.found(rows)
    ]
    placed = ((p.group_id, p.partition, p.records, p.at) for p in places if p.at is not None)
    return [*found, *log.misplaced(placed)]


def _questions(plan: Plan, news: News, limits: Thresholds) -> list[log.Question]:
    after, to = news.ingest_runs
    ingested = f"ingest_run > {after} AND ingest_run <= {to}"
    after, to = news.decode_runs
    decoded = f"decode_run > {after} AND decode_run <= {to}"
    hours = log.hours_of(decoded)
    return [
        log.coverage_gaps(ingested),
        log.undecodable(decoded),
        log.oversized(decoded, limits),
        log.cleaner_stalled(decoded, limits.values, plan.as_of),
        log.hot_partitions(hours, limits.values),
        log.no_progress(hours, limits),
        log.stale_groups(limits, plan.as_of),
    ]


def _places(lakehouse: Lakehouse, news: News) -> list[Place]:
    """Tell which groups have new records in which partitions."""
    of_runs = _of_runs("decode_run", *news.decode_runs, [])
    specs = [decoded_table(name) for name in news.tables]
    specs = [spec for spec in specs if any(c.name == "group_id" for c in spec.columns)]
    columns = ("group_id", PARTITION, "record_timestamp")
    selections = [lakehouse.selection(spec, columns, of_runs) for spec in specs]
    here = [selection for selection in selections if selection is not None]
    if len(here) == len(specs):
        return watch_files.places(here)
    at = F.unix_millis("record_timestamp").alias("at")
    parts = [
        lakehouse.read(spec).where(for_spark(of_runs)).select(*columns[:2], at) for spec in specs
    ]
    by_pair = reduce(DataFrame.unionByName, parts).groupBy(*columns[:2])
    counted = by_pair.agg(F.count("*").alias("records"), F.max("at").alias("at"))
    return [Place(*row) for row in counted.where("group_id IS NOT NULL").collect()]

"""Reads from the tables the rows that the report shows, a bounded number of each."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import reduce
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.queries import on_views, show, tables_of, view_of, with_values
from reporting.model import (
    DAY_MS,
    DAY_PARTS,
    EVERYTHING,
    GROUP_ANOMALIES,
    LATE_ANOMALIES,
    LISTED_ANOMALIES,
    LISTED_FINDINGS,
    LISTED_GROUPS,
    LISTED_INCIDENTS,
    NO_ROWS,
    OLDER_STEPS,
    PANELS,
    SHOWN_GROUPS,
    SUMMED_UP_GROUPS,
    WINDOW_MS,
    Facts,
    For,
    Group,
    Quality,
    Selection,
    day_of,
)
from reporting.remedies import remedies
from schemas.columns import in_millis
from schemas.gold import INFO, SEVERITIES, STATUSES
from schemas.ledger import Detail, Stage
from schemas.tables import (
    ANOMALIES,
    COVERAGE,
    GROUP_GENERATIONS,
    GROUP_HEALTH,
    GROUP_STATES,
    HOLE_REASONS,
    INCIDENTS,
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
    from reporting.model import Row
    from reporting.one_group import Ask
    from schemas.tables import TableSpec

_BARS = 170  # a week has 168 hours
_STEPS_MS = (1, 2, 5, 10, 30, 60, 300, 900, 3_600, 10_800, 21_600, 86_400)
_QUARANTINE_REASONS = 5
_NAMED_MEMBERS = 8
_MEASURED = {"causes", "lag_seconds", "partition_lag"}
_MOST_TEXT = 4_000
"""Characters of a text: what members send may be large, and the page has many rows."""


def read_facts(
    lakehouse: Lakehouse,
    made_at: int,
    chosen: Selection = EVERYTHING,
    readers: For = For.PAGE,
    kinds: tuple[str, ...] = (),
) -> Facts:
    """Read what the readers tell, each table once; `kinds` are in the order of importance.

    How many rows that is does not grow with the number of groups, unless metrics have all of them.
    """
    facts = Facts(lakehouse.cluster, lakehouse.root, made_at, chosen, kinds=kinds)
    last = lakehouse.runs.last(Stage.ANOMALIES)
    as_of = None if last is None else last.details[Detail.AS_OF]
    late_from = None if as_of is None else as_of - DAY_MS

    def of_late() -> dict[str, DataFrame]:
        late, others = Selection(since=late_from), readers & ~For.PAGE
        return {"anomalies": _anomalies(lakehouse, facts, late, late_from, others)}

    is_page = For.PAGE in readers
    most = LISTED_GROUPS if is_page else SUMMED_UP_GROUPS
    every_group = worst_groups(lakehouse, None if For.METRICS in readers else most, chosen)
    questions = {"groups": every_group, **({} if is_page else of_late())}
    if readers & (For.PAGE | For.SUMMARY):
        questions |= _quality_asked(lakehouse, is_page=is_page)
    if is_page:
        questions["findings"] = _failed(lakehouse, made_at - WINDOW_MS)
    questions |= _incidents(lakehouse, chosen, as_of, is_page=is_page)
    if For.METRICS in readers and late_from is not None:
        questions |= _measured(lakehouse, late_from, by_partition=For.PARTITIONS in readers)
    found = ask(questions)
    incidents = found.get("incidents")
    facts.incidents = [] if incidents is None else _counted(incidents)[0].to_pylist()
    groups, facts.group_count = _counted(found["groups"])
    facts.groups = groups.slice(0, most)
    if facts.group_count:
        facts.as_of = groups["as_of"][0].as_py()
    if For.METRICS in readers:
        facts.every_group = groups.to_pylist()
        _tell_measured(facts, found)
    if readers & (For.PAGE | For.SUMMARY):
        facts.quality = _quality(lakehouse, found)
    if is_page and facts.group_count:
        _read_window(lakehouse, facts, late_from, readers)
    elif readers != For.PAGE:
        _tell_anomalies(facts, (ask(of_late()) if is_page else found)["anomalies"])
    return facts


def _tell_measured(facts: Facts, found: Mapping[str, pa.Table]) -> None:
    """Put what metrics have beside health to where it belongs."""
    rows = {name: table.to_pylist() for name, table in found.items() if name in _MEASURED}
    facts.causes = sorted(rows.get("causes", []), key=itemgetter("group_id", "cause"))
    seconds = rows.get("lag_seconds", [])
    facts.lag_seconds = {row["group_id"]: row["lag_seconds"] for row in seconds}
    facts.partition_lag = sorted(
        rows.get("partition_lag", []),
        key=lambda row: (row["group_id"], row["topic"], row["topic_partition"]),
    )


def _read_window(lakehouse: Lakehouse, facts: Facts, late_from: int | None, readers: For) -> None:
    names = facts.groups["group_id"][:SHOWN_GROUPS].to_pylist()
    facts.shown = [Group(name) for name in names]
    if facts.chosen.since is None:
        until = facts.as_of if facts.chosen.until is None else facts.chosen.until
        facts.chosen = replace(facts.chosen, since=(until or 0) - WINDOW_MS)
    chosen = facts.chosen
    found = ask(
        {
            "anomalies": _anomalies(lakehouse, facts, chosen, late_from, readers),
            "rebalances": _rebalances(lakehouse, names, chosen),
            "days": _days(lakehouse, facts, end := chosen.until or facts.as_of or 0),
            **{panel: _panel(lakehouse, panel, names, chosen) for panel in PANELS},
        }
    )
    _tell_anomalies(facts, found["anomalies"])
    _tell_days(facts, found["days"], end - DAY_MS)
    bars = found["rebalances"]
    if bars.num_rows:
        facts.step_ms = bars["step_ms"][0].as_py()
        order = [("at", "ascending"), ("group_id", "ascending")]
        facts.rebalances = bars.drop_columns(["step_ms"]).sort_by(order)
    groups = {group.group_id: group for group in facts.shown}
    for panel in PANELS:
        rows = found[panel]
        rows = rows.sort_by([("group_id", "ascending"), ("rank", "descending")])
        is_held = pc.less_equal(rows["rank"], PANELS[panel].most)
        steps = ("group_id", "rank", "row_count", "older_at")
        left_out = rows.filter(pc.invert(is_held)).select(steps).to_pylist()
        for name, of_group in groupby(left_out, itemgetter("group_id")):
            older, behind = groups[name].older.setdefault(panel, []), None
            for old in of_group:  # the oldest first
                behind = old["row_count"] + 1 if behind is None else behind
                older.append((old["older_at"], behind - old["rank"]))
                behind = old["rank"]
        rows = rows.filter(is_held).drop_columns(["older_at"])
        start = 0
        for of_group in pc.value_counts(rows["group_id"]).to_pylist():
            group, held = groups[of_group["values"]], of_group["counts"]
            group.counts[panel] = rows["row_count"][start].as_py()
            group.rows[panel] = rows.slice(start, held).drop_columns(["rank", "row_count"])
            start += held
    for group in facts.shown:
        _count_remedies(group)


def _tell_days(facts: Facts, stays: pa.Table, since: int) -> None:
    """Put how groups were in the last day beside their health."""
    of_groups: dict[str, list[Row]] = {}
    for stay in stays.to_pylist():
        of_groups.setdefault(stay["group_id"], []).append(stay)
    days = [day_of(of_groups.get(name, ()), since) for name in facts.groups["group_id"].to_pylist()]
    facts.groups = facts.groups.append_column("day", pa.array(days, pa.string()))


def _count_remedies(group: Group) -> None:
    rows = {name: group.rows.get(name, NO_ROWS) for name in ("generations", "members")}
    is_whole = group.counts.get("members", 0) == rows["members"].num_rows
    sessions = rows["members"].to_pylist() if is_whole else None
    group.remedies = remedies(rows["generations"].to_pylist(), sessions).sentences


def _tell_anomalies(facts: Facts, rows: pa.Table) -> None:
    """Put anomalies, and how many there are, to where each belongs."""
    groups = {group.group_id: group.counts for group in facts.shown}
    late, not_ended = Counter[str](), Counter[tuple[str, str]]()
    for cell in rows.filter(pc.equal(rows["place"], 1)).to_pylist():
        number, severity = cell["in_cell"], cell["severity"]
        facts.anomaly_count += number
        if cell["named"] is not None:
            counts = groups[cell["named"]]
            counts["anomalies"] = counts.get("anomalies", 0) + number
        facts.fold_count += cell["folds"]
        late[severity] += number if cell["is_late"] else 0
        not_ended[cell["kind"], severity] += number if cell["is_open"] else 0
    facts.late_counts, facts.open_counts = dict(+late), dict(sorted((+not_ended).items()))
    facts.late = rows.filter(rows["is_told"]).to_pylist()
    facts.late.sort(key=lambda row: (-SEVERITIES.index(row["severity"]), row["late_rank"]))
    if facts.shown:
        listed = rows.filter(rows["is_listed"]).sort_by("rank")
        facts.anomalies = listed.select([*_ANOMALY, "kind_rank", "kind_count", "kind_open"])


# -- asking ----------------------------------------------------------------------------------------


def ask(questions: Mapping[str, DataFrame]) -> dict[str, pa.Table]:
    """Have Spark answer questions of few rows each in one job, whose stages run side by side.

    Times become epoch milliseconds; texts that are longer than the page can show are cut.
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


def by_spark(lakehouse: Lakehouse) -> Ask:
    """Return what has Spark answer queries over the tables."""

    def answers(queries: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, pa.Table]:
        show(lakehouse, tables_of(*queries.values()), {})
        sql = {n: with_values(on_views(query, view_of), values) for n, query in queries.items()}
        return ask({name: lakehouse.spark.sql(query) for name, query in sql.items()})

    return answers


def _row(rows: DataFrame) -> Column:
    """Return a row as a struct, which is null beside the rows of another question."""

    def cut(field: T.StructField) -> str:
        if isinstance(field.dataType, T.StringType) and field.name != "group_id":
            return f"substring(`{field.name}`, 1, {_MOST_TEXT}) AS `{field.name}`"
        return f"`{field.name}`"

    kind = T.StructType([T.StructField(field.name, field.dataType) for field in rows.schema])
    return F.expr(f"struct({', '.join(map(cut, kind))})").cast(kind)


def _rows(structs: pa.ChunkedArray) -> pa.Table:
    held = structs.combine_chunks()
    return pa.Table.from_arrays(held.flatten(), names=[field.name for field in held.type])


def _counted(rows: pa.Table) -> tuple[pa.Table, int]:
    """Return rows in their order, without what it is made of; and how many there are of all."""
    count = rows["row_count"][0].as_py() if rows.num_rows else 0
    return rows.sort_by("rank").drop_columns(["rank", "row_count"]), count


def _first(rows: DataFrame, order: Sequence[Column], most: int | None) -> DataFrame:
    """Take the first rows in an order, or all; `row_count` tells how many there are of all."""
    placed = _placed(rows, Window.orderBy(*order))
    return placed if most is None else placed.where(F.col("rank") <= most)


def _placed(rows: DataFrame, window: WindowSpec) -> DataFrame:
    return rows.withColumns(
        {"rank": F.row_number().over(window), "row_count": F.count("*").over(_whole(window))}
    )


def _whole(window: WindowSpec) -> WindowSpec:
    """Return a window over all rows of a partition: in the order of another, it costs no sort."""
    return window.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)


def _index_among(column: str, values: Sequence[str]) -> Column:
    """Return the index of a text in some, from 1; 0 if it is none of them."""
    index = F.array_position(F.array(*map(F.lit, values)), F.col(column))
    return F.coalesce(index, F.lit(0))


def time_at(millis: int) -> Column:
    """Return a time in epoch milliseconds as a timestamp."""
    return F.timestamp_millis(F.lit(millis))


# -- the log, and what was expected of it ----------------------------------------------------------


def _quality_asked(lakehouse: Lakehouse, *, is_page: bool) -> dict[str, DataFrame]:
    """Return the questions that `_quality` has to have answered, but for what the ledger notes."""
    decode = lakehouse.runs.last(Stage.DECODE)
    is_whole = decode is not None and not decode.details[Detail.IN_QUARANTINE]
    questions = {} if is_whole else {"quarantine": _refused(lakehouse)}
    if is_page or _state(lakehouse) is None:
        questions["log"] = _log(lakehouse)
    return questions


def _state(lakehouse: Lakehouse) -> dict[str, Any] | None:
    """Return how far the log was read, as the ledger has it; None if it does not say."""
    read = lakehouse.runs.last(Stage.INGEST)
    return None if read is None else read.details.get(Detail.STATE)


def _log(lakehouse: Lakehouse) -> DataFrame:
    missing = {
        reason: F.expr(
            f"aggregate(filter(holes, hole -> hole.reason = '{reason}'), 0L,"
            " (sum, hole) -> sum + hole.end_offset - hole.start_offset + 1)"
        )
        for reason in HOLE_REASONS
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
    return ends.agg(
        F.sum("offsets").alias("offsets"),
        F.sum("records").alias("records"),
        F.count_if(F.col("records") > 0).alias("partitions"),
        F.max("observed_at").alias("last_ingest_at"),
        *(F.sum(reason).alias(reason) for reason in missing),
    )


def _refused(lakehouse: Lakehouse) -> DataFrame:
    refused = lakehouse.read(QUARANTINE).groupBy("error").agg(F.count("*").alias("records"))
    all_refused = refused.withColumn("quarantined", F.sum("records").over(Window.partitionBy()))
    often = (F.desc("records"), F.asc("error"))
    return all_refused.orderBy(*often).limit(_QUARANTINE_REASONS)


def _quality(lakehouse: Lakehouse, found: Mapping[str, pa.Table]) -> Quality:
    """Return what the data cover, and what validate found."""
    validated, state = lakehouse.runs.last(Stage.VALIDATE), _state(lakehouse)
    if "log" in found or state is None:
        (log,) = found["log"].to_pylist()
    else:  # for a summary, which tells of no more
        log = dict.fromkeys((*HOLE_REASONS, "last_ingest_at")) | {"partitions": 0}
        log |= {"offsets": sum(state["positions"].values()), "records": state["records"]}
    refused = []
    if "quarantine" in found:
        order = [("records", "descending"), ("error", "ascending")]
        refused = found["quarantine"].sort_by(order).to_pylist()
    failed = found["findings"].drop_columns(["rank"]).to_pylist() if "findings" in found else []
    return Quality(
        records=log["records"] or 0,
        offsets=log["offsets"] or 0,
        partitions=log["partitions"],
        holes={reason: log[reason] for reason in HOLE_REASONS if log[reason]},
        quarantined=refused[0]["quarantined"] if refused else 0,
        quarantine={row["error"]: row["records"] for row in refused},
        last_ingest_at=log["last_ingest_at"],
        last_validation_at=None if validated is None else int(validated.at.timestamp() * 1000),
        findings=failed,
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
    lakehouse: Lakehouse, most: int | None, chosen: Selection = EVERYTHING
) -> DataFrame:
    """Ask how groups are; `rank` is the order, the worst first, `row_count` how many there are."""
    columns = [column.name for column in GROUP_HEALTH.of_cluster]
    worst = (F.desc(_index_among("health", SEVERITIES)), F.desc("rebalances_24h"))
    order = (*worst, F.desc("rebalances_7d"), F.asc("group_id"))
    return _first(_of(lakehouse, GROUP_HEALTH, chosen).select(*columns), order, most)


def _measured(lakehouse: Lakehouse, since: int, *, by_partition: bool) -> dict[str, DataFrame]:
    """Ask of each group for its rebalances by cause, and the age of what it reads next.

    And for the lag of each of its partitions, if that is asked for: certain, at the last sample.
    """
    began = lakehouse.read(GROUP_GENERATIONS).where("join_started_at IS NOT NULL")
    by_cause = (
        F.count_if(F.col("join_started_at") >= time_at(since)).alias("rebalances"),
        F.count("*").alias("every_rebalance"),
        F.sum("cost_member_ms").alias("cost_member_ms"),
    )
    cause = F.coalesce("cause", F.lit("unknown")).alias("cause")
    samples = lakehouse.read(LAG).where(F.col("sampled_at") >= time_at(since))
    worst = samples.groupBy("group_id", "sampled_at").agg(F.max("lag_seconds").alias("seconds"))
    last = F.max_by("seconds", "sampled_at").alias("lag_seconds")
    partitions = {}
    if by_partition:
        exact = F.when(~F.col("lag_is_bound"), F.col("lag"))
        partition = samples.groupBy("group_id", "topic", "topic_partition")
        newest = partition.agg(F.max_by(exact, "sampled_at").alias("lag"))
        partitions["partition_lag"] = newest.where("lag IS NOT NULL")
    return {
        **partitions,
        "causes": began.groupBy("group_id", cause).agg(*by_cause),
        "lag_seconds": worst.groupBy("group_id").agg(last).where("lag_seconds IS NOT NULL"),
    }


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


_ANOMALY = [
    *("anomaly_id", "kind", "severity", "group_id", "subject", "started_at", "ended_at"),
    *("is_open", "label", "summary", "evidence", "thresholds"),
    *("first_record_partition", "first_record_offset"),
    *("last_record_partition", "last_record_offset"),
]
_INCIDENT = [
    *("incident_id", "cause", "severity", "subject", "started_at", "ended_at", "is_open"),
    *("group_count", "anomaly_ids", "anomaly_count", "summary"),
]
# What anomalies are counted by.
_CELL = ("named", "kind", "severity", "is_open", "is_late")


def _anomalies(
    lakehouse: Lakehouse,
    facts: Facts,
    chosen: Selection,
    late_from: int | None,
    readers: For,
) -> DataFrame:
    """Ask for the anomalies to list, for those of late, and how many there are, all in one pass."""
    is_late = F.lit(False)  # noqa: FBT003 - a column's value
    if late_from is not None:
        is_late = F.col("is_open") | (F.col("ended_at") >= time_at(late_from))
    names = [group.group_id for group in facts.shown]
    named = F.when(F.col("group_id").isin(*names), F.col("group_id"))
    found = anomalies_of(lakehouse, chosen).select(
        *_ANOMALY, named.alias("named"), is_late.alias("is_late")
    )
    severity = F.desc(_index_among("severity", SEVERITIES))
    kind = F.asc(_index_among("kind", facts.kinds)) if facts.kinds else F.asc("kind")
    by = (F.desc("is_open"), severity, kind, F.desc("started_at"), F.asc("anomaly_id"))
    of_kind = Window.partitionBy("group_id", "kind").orderBy(*by)
    of_group = Window.partitionBy("group_id").orderBy(*by)
    is_first = F.col("kind_rank") == 1
    newest = Window.partitionBy("severity", "is_late").orderBy(
        F.desc(F.col("group_rank") == 1), F.desc("ended_at"), "anomaly_id"
    )
    is_told_of = F.col("is_late") & (F.col("severity") != INFO)
    # A row whose `place` is 1 stands for all that are counted with it.
    cell = Window.partitionBy(*_CELL).orderBy("anomaly_id")
    # The windows are of different rows: in a single partition none has them exchanged again.
    placed = (
        found.repartition(1)
        .withColumns(
            {
                "kind_rank": F.row_number().over(of_kind),
                "kind_count": F.count("*").over(_whole(of_kind)),
                "kind_open": F.count_if("is_open").over(_whole(of_kind)),
                "group_rank": F.row_number().over(of_group),
                "group_late": F.count_if(is_told_of).over(_whole(of_group)),
                "place": F.row_number().over(cell),
                "in_cell": F.count("*").over(_whole(cell)),
            }
        )
        .withColumns(
            {
                "late_rank": F.row_number().over(newest),
                "folds": F.count_if(is_first).over(_whole(cell)),
                # The first of each group and kind stand before all others.
                "rank": F.row_number().over(Window.orderBy(F.desc(is_first), *by)),
            }
        )
    )
    is_few = (F.col("severity") != INFO) & (F.col("late_rank") <= LATE_ANOMALIES)
    is_told = F.col("is_late") & is_few & F.lit(readers != For.PAGE)
    is_named = F.col("named").isNotNull()
    is_in_detail = is_named & (F.col("group_rank") <= GROUP_ANOMALIES)
    is_row = is_first & (F.col("rank") <= LISTED_ANOMALIES)
    is_listed = (is_in_detail | is_row) & F.lit(For.PAGE in readers)
    told = placed.withColumns({"is_told": is_told, "is_listed": is_listed})
    # What proves an anomaly is shown with its group.
    proof = {name: F.when(is_named, F.col(name)) for name in ("evidence", "thresholds")}
    return told.where(is_listed | is_told | (F.col("place") == 1)).withColumns(proof)


def _incidents(
    lakehouse: Lakehouse, chosen: Selection, as_of: int | None, *, is_page: bool
) -> dict[str, DataFrame]:
    """Ask for the worst incidents of the page's time, or of late, of any of the chosen groups."""
    if as_of is None or not lakehouse.exists(INCIDENTS):
        return {}
    since, end = as_of - DAY_MS, F.when(~F.col("is_open"), F.col("ended_at"))
    if is_page:
        since = chosen.since or (chosen.until or as_of) - WINDOW_MS
    of_time = replace(chosen, since=since)
    found = touching(lakehouse.read(INCIDENTS), "started_at", end, of_time)
    if (pattern := chosen.pattern) is not None:
        found = found.where(F.exists("groups", lambda group: group.rlike(pattern)))
    severity = F.desc(_index_among("severity", SEVERITIES))
    worst = (F.desc("is_open"), severity, F.desc("started_at"), F.asc("incident_id"))
    return {"incidents": _first(found.select(*_INCIDENT), worst, LISTED_INCIDENTS)}


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
    span = F.max("last").over(Window.partitionBy()) - F.min("first").over(Window.partitionBy())
    fits = [F.when(span <= step * 1000 * _BARS, step * 1000) for step in _STEPS_MS]
    stepped = seconds.withColumn("step_ms", F.coalesce(*fits, F.lit(DAY_MS)))
    bar = F.expr("second * 1000 div step_ms * step_ms").alias("at")
    return stepped.groupBy("group_id", bar, "step_ms").agg(F.sum("count").alias("count"))


def _days(lakehouse: Lakehouse, facts: Facts, end: int) -> DataFrame:
    """Ask how groups were in a day: intervals within one part of it that have one state are one."""
    since = end - DAY_MS
    day = Selection(since=since, until=end)
    held = _of(lakehouse, GROUP_STATES, facts.chosen)
    if facts.group_count > LISTED_GROUPS:
        held = held.where(F.col("group_id").isin(*facts.groups["group_id"].to_pylist()))
    rows = touching(held, "started_at", F.col("ended_at"), day)
    begin, last = F.unix_millis("started_at"), F.unix_millis("ended_at")
    of_day = rows.select(
        "group_id",
        "state",
        F.greatest(F.coalesce(begin, F.lit(since)), F.lit(since)).alias("begin"),
        F.least(F.coalesce(last, F.lit(end)), F.lit(end)).alias("end"),
    ).where("begin < end")
    step = DAY_MS // DAY_PARTS
    parts = [F.expr(f"({at} - {since}L) div {step}") for at in ("begin", "(end - 1)")]
    return (
        of_day.groupBy("group_id", "state", *parts)
        .agg(
            F.min("begin").alias("begin"),
            F.max("end").alias("end"),
            F.expr("sum(end - begin)").alias("ms"),
        )
        .select("group_id", "state", "begin", "end", "ms")
    )


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
# What remedies are counted from, beside what the page shows: of a rebalance in which more members
# changed, who they were is not read, so that it is not counted.
_CHANGED_MEMBERS = 50
_COUNTED = {
    "generations": (
        *("group_type", "protocol_type", "rebalance_protocol", "previous_generation", "join_ms"),
        *("rebalance_timeout_ms", "subscriptions", "subscribed_topics", "assigned_partitions"),
        *("stickiness", "aborted_evidence"),
        *(
            f"CASE WHEN size(members_{what}) <= {_CHANGED_MEMBERS} THEN members_{what} END"
            f" AS members_{what}"
            for what in ("joined", "left", "replaced")
        ),
    )
}


def _panel(lakehouse: Lakehouse, panel: str, names: Sequence[str], chosen: Selection) -> DataFrame:
    """Ask for the newest rows of groups, and how many there are of each group."""
    spec, begin, end = _SOURCES[panel]
    of_groups = lakehouse.read(spec).where(F.col("group_id").isin(*names))
    held = touching(of_groups, begin, F.col(end), chosen)
    if panel == "lag":
        held = _samples(held)
    made_of = _MADE_OF.get(panel, {})
    columns = [f"{made_of.get(name, name)} AS {name}" for name in PANELS[panel].columns]
    rows = held.selectExpr("group_id", *columns, *_COUNTED.get(panel, ()))
    # Rows that began at once are ordered by all else.
    by_time = sorted(rows.schema, key=lambda f: f.dataType != T.TimestampType())
    at = F.coalesce(F.unix_millis(begin), F.lit(-1))
    order = (F.desc(at), *(F.desc_nulls_first(field.name) for field in by_time))
    newest_first = Window.partitionBy("group_id").orderBy(*order)
    since = chosen.since or 0
    step = F.lit(max(1, ((chosen.until or since + WINDOW_MS) - since) // OLDER_STEPS))
    started = F.floor((F.unix_millis(begin) - since) / step) * step + since
    # A row stands for all that is left out and began in its step of time.
    placed = _placed(rows.withColumn("older_at", started), newest_first).withColumn(
        "is_next", ~F.col("older_at").eqNullSafe(F.lag("older_at").over(newest_first))
    )
    most = PANELS[panel].most
    kept = placed.where((F.col("rank") <= most + 1) | F.col("is_next"))
    return kept.drop("is_next")


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

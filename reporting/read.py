"""Reads from the tables the rows that the report shows, a bounded number of each.

The questions are SQL that Spark and DuckDB both know, see `storage.queries.Ask`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

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
    Row,
    Selection,
    day_of,
)
from reporting.remedies import remedies
from schemas.columns import Primitive
from schemas.gold import INFO, SEVERITIES, STATUSES
from schemas.ledger import Detail, Stage
from schemas.tables import (
    GROUP_GENERATIONS,
    GROUP_HEALTH,
    GROUP_STATES,
    HOLE_REASONS,
    LAG,
    MEMBER_SESSIONS,
    OFFSET_PROGRESS,
    PARTITION_OWNERS,
    TableSpec,
)
from storage.queries import Ask
from storage.runs import LastRuns

_BARS = 170  # a week has 168 hours
_STEPS_MS = (1, 2, 5, 10, 30, 60, 300, 900, 3_600, 10_800, 21_600, 86_400)
_QUARANTINE_REASONS = 5
_NEWEST_ANOMALIES = 500
_NAMED_MEMBERS = 8
_NEVER = -1  # for the begin of what has none
_MOST_TEXT = 4_000
"""Characters of a text: what members send may be large, and the page has many rows."""


def read_facts(facts: Facts, ask: Ask, runs: LastRuns, readers: For = For.PAGE) -> Facts:
    """Read what the readers tell, and add it to facts that have their selection and kinds.

    How many rows that is does not grow with the number of groups, unless metrics have all of them.
    """
    last = runs.last(Stage.ANOMALIES)
    as_of = None if last is None else last.details[Detail.AS_OF]
    late_from = None if as_of is None else as_of - DAY_MS

    def of_late() -> dict[str, str]:
        late, others = Selection(since=late_from), readers & ~For.PAGE
        return {"anomalies": _anomalies(facts, late, late_from, others)}

    is_page = For.PAGE in readers
    most = LISTED_GROUPS if is_page else SUMMED_UP_GROUPS
    questions = _asked_first(facts, runs, readers, as_of) | ({} if is_page else of_late())
    found = _cut(ask(questions, values_of(facts.chosen)))
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
        facts.quality = _quality(runs, found)
    if is_page and facts.group_count:
        _read_window(facts, ask, late_from, readers)
    elif readers != For.PAGE:
        _tell_anomalies(facts, (_cut(ask(of_late(), {})) if is_page else found)["anomalies"])
    return facts


def _asked_first(facts: Facts, runs: LastRuns, readers: For, as_of: int | None) -> dict[str, str]:
    """Return the questions whose answers say what else to ask, and those that need none before."""
    is_page, chosen = For.PAGE in readers, facts.chosen
    most = LISTED_GROUPS if is_page else SUMMED_UP_GROUPS
    questions = {"groups": worst_groups(None if For.METRICS in readers else most, chosen)}
    if readers & (For.PAGE | For.SUMMARY):
        questions |= _quality_asked(runs, is_page=is_page)
    if is_page:
        questions["findings"] = _failed(facts.made_at - WINDOW_MS)
    if as_of is not None:
        questions["incidents"] = _incidents(chosen, as_of, is_page=is_page)
        if For.METRICS in readers:
            questions |= measured(as_of - DAY_MS, by_partition=For.PARTITIONS in readers)
    return questions


def _tell_measured(facts: Facts, found: Mapping[str, pa.Table]) -> None:
    """Put what metrics have beside health to where it belongs."""

    def rows(name: str, *order: str) -> list[Row]:
        return sorted(found[name].to_pylist() if name in found else [], key=itemgetter(*order))

    facts.causes = rows("causes", "group_id", "cause")
    facts.lag_seconds = {r["group_id"]: r["lag_seconds"] for r in rows("lag_seconds", "group_id")}
    facts.partition_lag = rows("partition_lag", "group_id", "topic", "topic_partition")


def _read_window(facts: Facts, ask: Ask, late_from: int | None, readers: For) -> None:
    names = facts.groups["group_id"][:SHOWN_GROUPS].to_pylist()
    facts.shown = [Group(name) for name in names]
    if facts.chosen.since is None:
        until = facts.as_of if facts.chosen.until is None else facts.chosen.until
        facts.chosen = replace(facts.chosen, since=(until or 0) - WINDOW_MS)
    chosen = facts.chosen
    values = values_of(chosen) | {"names": names, "listed": facts.groups["group_id"].to_pylist()}
    questions = {
        "anomalies": _anomalies(facts, chosen, late_from, readers),
        "rebalances": _rebalances(chosen),
        "days": _days(facts, end := chosen.until or facts.as_of or 0),
    }
    found = _cut(ask(questions | {panel: _steps(panel, chosen) for panel in PANELS}, values))
    _tell_anomalies(facts, found["anomalies"])
    _tell_days(facts, found["days"], end - DAY_MS)
    bars = found["rebalances"]
    if bars.num_rows:
        facts.step_ms = bars["step_ms"][0].as_py()
        order = [("at", "ascending"), ("group_id", "ascending")]
        facts.rebalances = bars.drop_columns(["step_ms"]).sort_by(order)
    groups = {group.group_id: group for group in facts.shown}
    told_from = {panel: _count_rows(groups, panel, found[panel]) for panel in PANELS}
    newest = {
        panel: _newest(panel, chosen, {names.index(name): at for name, at in since_of.items()})
        for panel, since_of in told_from.items()
        if since_of
    }
    numbered = {f"name{number}": name for number, name in enumerate(names)}
    for panel, rows in _cut(ask(newest, values | numbered)).items():
        named = _with_names(rows) if panel == "generations" else rows
        ordered = named.sort_by([("group_id", "ascending"), ("rank", "descending")])
        start = 0
        for of_group in pc.value_counts(ordered["group_id"]).to_pylist():
            held = ordered.slice(start, of_group["counts"])
            groups[of_group["values"]].rows[panel] = held.drop_columns(["rank"])
            start += of_group["counts"]
    for group in facts.shown:
        _count_remedies(group)


def _count_rows(groups: Mapping[str, Group], panel: str, steps: pa.Table) -> dict[str, int]:
    """Count the rows of groups, and those that are left out, by step of time, the oldest first.

    Return the time from which rows are told, by group; a step that is told in part is all read.
    """
    most, since_of = PANELS[panel].most, dict[str, int]()
    for step in steps.sort_by([("older_at", "descending")]).to_pylist():  # null, the oldest, last
        group = groups[step["group_id"]]
        newer = group.counts.get(panel, 0)
        group.counts[panel] = count = newer + step["number"]
        if newer < most:
            since_of[group.group_id] = _NEVER if step["older_at"] is None else step["older_at"]
        if count > most:
            left_out = (step["older_at"], count - max(newer, most))
            group.older.setdefault(panel, []).insert(0, left_out)
    return since_of


def _with_names(generations: pa.Table) -> pa.Table:
    """Return generations with the first names of the members that came, went and were replaced."""
    for what in _CHANGES:
        names = [_names(members) for members in generations[f"first_{what}"].to_pylist()]
        generations = generations.append_column(what, pa.array(names, pa.string()))
        generations = generations.drop_columns([f"first_{what}"])
    return generations


def _names(members: Sequence[Row] | None) -> str | None:
    if members is None:
        return None
    known = ("group_instance_id", "client_id", "member_id")
    names = (next((m[name] for name in known if m[name] is not None), None) for m in members)
    return ", ".join(name for name in names if name is not None)[:_MOST_TEXT]


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
        facts.anomalies = listed.select(
            [*_ANOMALY, *_PROOF, "kind_rank", "kind_count", "kind_open"]
        )


# -- asking ----------------------------------------------------------------------------------------


def values_of(chosen: Selection) -> dict[str, Any]:
    """Return what queries of a selection need."""
    return {"pattern": chosen.pattern}


def _cut(answers: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Return answers whose texts are not too long; ids of groups are whole."""
    cut = dict(answers)
    for name, rows in answers.items():
        for at, field in enumerate(rows.schema):
            if pa.types.is_string(field.type) and field.name != "group_id":
                texts = pc.utf8_slice_codeunits(rows[field.name], 0, _MOST_TEXT)
                cut[name] = cut[name].set_column(at, field.name, texts)
    return cut


def _counted(rows: pa.Table) -> tuple[pa.Table, int]:
    """Return rows in their order, without what it is made of; and how many there are of all."""
    count = rows["row_count"][0].as_py() if rows.num_rows else 0
    return rows.sort_by("rank").drop_columns(["rank", "row_count"]), count


def _first(rows: str, order: Sequence[str], most: int | None) -> str:
    """Take the first rows in an order, or all; `row_count` tells how many there are of all."""
    placed = (
        f"SELECT *, row_number() OVER (ORDER BY {', '.join(order)}) AS rank,"
        f" count(*) OVER () AS row_count FROM ({rows})"
    )
    return placed if most is None else f"SELECT * FROM ({placed}) WHERE rank <= {most}"


def _index_among(column: str, values: Sequence[str]) -> str:
    """Return the index of a text in some, from 1; 0 if it is none of them."""
    return f"CASE {column}{_cases(values, range(1, len(values) + 1))} ELSE 0 END"


def _cases(keys: Iterable[object], values: Iterable[object]) -> str:
    return "".join(
        f" WHEN {_word(key)} THEN {_word(value)}" for key, value in zip(keys, values, strict=True)
    )


def _word(value: object) -> str:
    """Return a number, or a word of ours, in SQL."""
    return f"'{value}'" if isinstance(value, str) else str(value)


def time_at(millis: int) -> str:
    """Return a time in epoch milliseconds as a timestamp."""
    return f"timestamp_millis({millis})"


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _of(chosen: Selection) -> list[str]:
    """Return the conditions of rows of the groups of a selection."""
    return [] if chosen.pattern is None else ["regexp_like(group_id, :pattern)"]


def touching(begin: str, end: str, chosen: Selection) -> list[str]:
    """Return the conditions of rows whose time, between columns or open, is of a selection."""
    found = []
    if chosen.since is not None:
        found.append(f"({end} IS NULL OR {end} >= {time_at(chosen.since)})")
    if chosen.until is not None:
        found.append(f"({begin} IS NULL OR {begin} < {time_at(chosen.until)})")
    return found


# -- the log, and what was expected of it ----------------------------------------------------------

_LOG = (
    "SELECT sum(offsets) AS offsets, sum(records) AS records,"
    " count_if(records > 0) AS partitions, max(observed_at) AS last_ingest_at"
    " FROM (SELECT max(next_offset) AS offsets, sum(record_count) AS records,"
    " max(observed_at) AS observed_at FROM bronze.coverage GROUP BY topic, record_partition)"
)
_HOLES = (
    "SELECT reason, sum(offsets) AS offsets FROM (SELECT hole.reason AS reason,"
    " hole.end_offset - hole.start_offset + 1 AS offsets"
    " FROM (SELECT explode(holes) AS hole FROM bronze.coverage)) GROUP BY reason"
)
_REFUSED = (
    "SELECT error, records, sum(records) OVER () AS quarantined"
    " FROM (SELECT error, count(*) AS records FROM silver.quarantine GROUP BY error)"
    f" ORDER BY records DESC, error LIMIT {_QUARANTINE_REASONS}"
)


def _quality_asked(runs: LastRuns, *, is_page: bool) -> dict[str, str]:
    """Return the questions that `_quality` has to have answered, but for what the ledger notes."""
    decode = runs.last(Stage.DECODE)
    is_whole = decode is not None and not decode.details[Detail.IN_QUARANTINE]
    questions = {} if is_whole else {"quarantine": _REFUSED}
    if is_page or _state(runs) is None:
        questions |= {"log": _LOG, "holes": _HOLES}
    return questions


def _state(runs: LastRuns) -> dict[str, Any] | None:
    """Return how far the log was read, as the ledger has it; None if it does not say."""
    read = runs.last(Stage.INGEST)
    return None if read is None else read.details.get(Detail.STATE)


def _quality(runs: LastRuns, found: Mapping[str, pa.Table]) -> Quality:
    """Return what the data cover, and what validate found."""
    validated, state = runs.last(Stage.VALIDATE), _state(runs)
    holes: dict[str, int] = {}
    if "log" in found or state is None:
        (log,) = found["log"].to_pylist()
        holes = {row["reason"]: row["offsets"] for row in found["holes"].to_pylist()}
    else:  # for a summary, which tells of no more
        log = {"last_ingest_at": None, "partitions": 0, "records": state["records"]}
        log["offsets"] = sum(state["positions"].values())
    refused = []
    if "quarantine" in found:
        order = [("records", "descending"), ("error", "ascending")]
        refused = found["quarantine"].sort_by(order).to_pylist()
    failed = _counted(found["findings"])[0].to_pylist() if "findings" in found else []
    return Quality(
        records=log["records"] or 0,
        offsets=log["offsets"] or 0,
        partitions=log["partitions"],
        holes={reason: holes[reason] for reason in HOLE_REASONS if reason in holes},
        quarantined=refused[0]["quarantined"] if refused else 0,
        quarantine={row["error"]: row["records"] for row in refused},
        last_ingest_at=log["last_ingest_at"],
        last_validation_at=None if validated is None else int(validated.at.timestamp() * 1000),
        findings=failed,
    )


def _failed(since: int) -> str:
    """Ask for the expectations that did not hold, each as it failed last; the worst first."""
    columns = "table_name, expectation, meaning, severity, rows_unexpected, validation_run"
    newest = (
        f"SELECT {columns}, failed_at FROM (SELECT {columns}, results.at AS failed_at, row_number()"
        " OVER (PARTITION BY table_name, expectation ORDER BY validation_run DESC) AS age"
        f" FROM dq.results AS results WHERE NOT success AND results.at >= {time_at(since)})"
        " WHERE age = 1"
    )
    severity = _index_among("severity", SEVERITIES)
    order = (f"{severity} DESC", "failed_at DESC", "table_name", "expectation")
    return _first(newest, order, LISTED_FINDINGS)


# -- the front page --------------------------------------------------------------------------------


def worst_groups(most: int | None, chosen: Selection = EVERYTHING) -> str:
    """Ask how groups are; `rank` is the order, the worst first, `row_count` how many there are."""
    columns = ", ".join(column.name for column in GROUP_HEALTH.of_cluster)
    rows = f"SELECT {columns} FROM gold.group_health{_where(_of(chosen))}"
    health = _index_among("health", SEVERITIES)
    order = (f"{health} DESC", "rebalances_24h DESC", "rebalances_7d DESC", "group_id")
    return _first(rows, order, most)


def measured(since: int, *, by_partition: bool) -> dict[str, str]:
    """Ask of each group for its rebalances by cause, and the age of what it reads next.

    And for the lag of each of its partitions, if that is asked for: certain, at the last sample.
    """
    late = time_at(since)
    partitions = {
        "partition_lag": (
            "SELECT group_id, topic, topic_partition, lag FROM (SELECT group_id, topic,"
            " topic_partition, CASE WHEN NOT lag_is_bound THEN lag END AS lag, row_number() OVER"
            " (PARTITION BY group_id, topic, topic_partition ORDER BY sampled_at DESC) AS age"
            f" FROM gold.lag WHERE sampled_at >= {late}) WHERE age = 1 AND lag IS NOT NULL"
        )
    }
    return {
        **(partitions if by_partition else {}),
        "causes": (
            "SELECT group_id, coalesce(cause, 'unknown') AS cause,"
            f" count_if(join_started_at >= {late}) AS rebalances, count(*) AS every_rebalance,"
            " sum(cost_member_ms) AS cost_member_ms FROM gold.group_generations"
            " WHERE join_started_at IS NOT NULL GROUP BY group_id, coalesce(cause, 'unknown')"
        ),
        "lag_seconds": (
            "SELECT group_id, lag_seconds FROM (SELECT group_id, lag_seconds, row_number() OVER"
            " (PARTITION BY group_id ORDER BY sampled_at DESC) AS age"
            " FROM (SELECT group_id, sampled_at, max(lag_seconds) AS lag_seconds FROM gold.lag"
            f" WHERE sampled_at >= {late} GROUP BY group_id, sampled_at))"
            " WHERE age = 1 AND lag_seconds IS NOT NULL"
        ),
    }


_END = "(CASE WHEN NOT is_open THEN ended_at END)"  # one that is open has none


def newest_anomalies(chosen: Selection) -> str:
    """Ask for the newest anomalies of a selection, for a terminal, and how many there are."""
    return (
        "SELECT kind, severity, group_id, started_at, summary, count(*) OVER () AS row_count"
        f" FROM gold.anomalies{_anomalous(chosen)}"
        f" ORDER BY started_at DESC, group_id, kind LIMIT {_NEWEST_ANOMALIES}"
    )


def _anomalous(chosen: Selection) -> str:
    return _where([*_of(chosen), *touching("started_at", _END, chosen)])


_ANOMALY = [
    *("anomaly_id", "kind", "severity", "group_id", "subject", "started_at", "ended_at"),
    *("is_open", "label", "summary"),
    *("first_record_partition", "first_record_offset"),
    *("last_record_partition", "last_record_offset"),
]
_INCIDENT = [
    *("incident_id", "cause", "severity", "subject", "started_at", "ended_at", "is_open"),
    *("group_count", "anomaly_ids", "anomaly_count", "summary"),
]
# What says which anomalies are listed, and which of them first.
_RANKED = ("anomaly_id", "kind", "severity", "group_id", "started_at", "ended_at", "is_open")
# What proves an anomaly is shown with its group.
_PROOF = ("evidence", "thresholds")


def _anomalies(facts: Facts, chosen: Selection, late_from: int | None, readers: For) -> str:
    """Ask for the anomalies to list, for those of late, and how many there are, all in one pass."""
    is_late = "false"
    if late_from is not None:
        is_late = f"(is_open OR ended_at >= {time_at(late_from)})"
    is_shown = "group_id IN (:names)" if facts.shown else "false"
    severity = f"{_index_among('severity', SEVERITIES)} DESC"
    kind = _index_among("kind", facts.kinds) if facts.kinds else "kind"
    by = f"is_open DESC, {severity}, {kind}, started_at DESC, anomaly_id"
    of_kind, of_group = "PARTITION BY group_id, kind", "PARTITION BY group_id"
    # A row whose `place` is 1 stands for all that are counted with it.
    cell = "PARTITION BY named, kind, severity, is_open, is_late"
    newest = "group_rank = 1 DESC, ended_at DESC, anomaly_id"
    is_few = f"is_late AND severity <> '{INFO}' AND late_rank <= {LATE_ANOMALIES}"
    is_told = is_few if readers != For.PAGE else "false"
    is_in_detail = f"named IS NOT NULL AND group_rank <= {GROUP_ANOMALIES}"
    is_row = f"kind_rank = 1 AND rank <= {LISTED_ANOMALIES}"
    is_listed = f"({is_in_detail} OR {is_row})" if For.PAGE in readers else "false"
    of_shown = ", ".join(f"CASE WHEN named IS NOT NULL THEN {n} END AS {n}" for n in _PROOF)
    texts = ", ".join(name for name in _ANOMALY if name not in _RANKED)
    # The windows are of different rows: in a single partition none has them exchanged again. Each
    # sorts all rows, so what is only shown joins those that are left.
    return f"""
WITH found AS (
    SELECT /*+ REPARTITION(1) */ {", ".join(_RANKED)},
        CASE WHEN {is_shown} THEN group_id END AS named, {is_late} AS is_late
    FROM gold.anomalies{_anomalous(chosen)}
), ranked AS (
    SELECT *,
        row_number() OVER ({of_kind} ORDER BY {by}) AS kind_rank,
        {_over("count(*)", of_kind, by)} AS kind_count,
        {_over("count_if(is_open)", of_kind, by)} AS kind_open,
        row_number() OVER ({of_group} ORDER BY {by}) AS group_rank,
        {_over(f"count_if(is_late AND severity <> '{INFO}')", of_group, by)} AS group_late,
        row_number() OVER ({cell} ORDER BY anomaly_id) AS place,
        {_over("count(*)", cell, "anomaly_id")} AS in_cell
    FROM found
), placed AS (
    SELECT *,
        row_number() OVER (PARTITION BY severity, is_late ORDER BY {newest}) AS late_rank,
        {_over("count_if(kind_rank = 1)", cell, "anomaly_id")} AS folds,
        row_number() OVER (ORDER BY kind_rank = 1 DESC, {by}) AS rank
    FROM ranked
), told AS (SELECT *, {is_told} AS is_told, {is_listed} AS is_listed FROM placed)
SELECT told.*, {texts}, {of_shown}
FROM told JOIN (SELECT anomaly_id AS id, {texts}, {", ".join(_PROOF)} FROM gold.anomalies)
    ON id = anomaly_id
WHERE is_listed OR is_told OR place = 1"""


def _over(what: str, partition: str, order: str) -> str:
    """Return a figure of all rows of a partition: in the order of another, it costs no sort."""
    return (
        f"{what} OVER ({partition} ORDER BY {order}"
        " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)"
    )


def _incidents(chosen: Selection, as_of: int, *, is_page: bool) -> str:
    """Ask for the worst incidents of the page's time, or of late, of any of the chosen groups."""
    since = as_of - DAY_MS
    if is_page:
        since = chosen.since or (chosen.until or as_of) - WINDOW_MS
    conditions = touching("started_at", _END, replace(chosen, since=since))
    if chosen.pattern is not None:
        conditions.append(
            "incident_id IN (SELECT incident_id FROM (SELECT incident_id, explode(groups) AS one"
            " FROM gold.incidents) WHERE regexp_like(one, :pattern))"
        )
    rows = f"SELECT {', '.join(_INCIDENT)} FROM gold.incidents{_where(conditions)}"
    severity = _index_among("severity", SEVERITIES)
    worst = ("is_open DESC", f"{severity} DESC", "started_at DESC", "incident_id")
    return _first(rows, worst, LISTED_INCIDENTS)


def _rebalances(chosen: Selection) -> str:
    """Ask how many rebalances began in each step of time; all steps are of one length."""
    begun = "join_started_at"
    conditions = [f"{begun} IS NOT NULL", *_of(chosen), *touching(begun, begun, chosen)]
    steps = "".join(f" WHEN span <= {s * 1000 * _BARS} THEN {s * 1000}" for s in _STEPS_MS)
    # The groups that are not shown are one without a name.
    return f"""
WITH found AS (
    SELECT CASE WHEN group_id IN (:names) THEN group_id END AS group_id,
        unix_millis({begun}) AS began
    FROM gold.group_generations{_where(conditions)}
), seconds AS (
    SELECT group_id, began - began % 1000 AS second, count(*) AS number,
        min(began) AS earliest, max(began) AS latest
    FROM found GROUP BY group_id, began - began % 1000
), spanned AS (
    SELECT *, max(latest) OVER () - min(earliest) OVER () AS span FROM seconds
), stepped AS (
    SELECT *, CASE{steps} ELSE {DAY_MS} END AS step_ms FROM spanned
)
SELECT group_id, second - second % step_ms AS at, step_ms, sum(number) AS count
FROM stepped GROUP BY group_id, second - second % step_ms, step_ms"""


def _days(facts: Facts, end: int) -> str:
    """Ask how groups were in a day: intervals within one part of it that have one state are one."""
    since, step = end - DAY_MS, DAY_MS // DAY_PARTS
    conditions = _of(facts.chosen)
    if facts.group_count > LISTED_GROUPS:
        conditions.append("group_id IN (:listed)")
    conditions += touching("started_at", "ended_at", Selection(since=since, until=end))
    first = f"greatest(coalesce(unix_millis(started_at), {since}), {since})"
    last = f"least(coalesce(unix_millis(coalesce(known_until, ended_at)), {end}), {end})"
    parts = [f"({at}) - ({at} - {since}) % {step}" for at in ("began", "ended - 1")]
    return f"""
SELECT group_id, state, min(began) AS began, max(ended) AS ended, sum(ended - began) AS ms
FROM (
    SELECT group_id, state, {first} AS began, {last} AS ended
    FROM gold.group_states{_where(conditions)}
) WHERE began < ended
GROUP BY group_id, state, {", ".join(parts)}"""


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
# What remedies are counted from, beside what the page shows: of a rebalance in which more members
# changed, who they were is not read, so that it is not counted.
_CHANGED_MEMBERS = 50
_CHANGES = ("joined", "left", "replaced")
# Columns that are not there by their names.
_MADE_OF = {
    "owners": {
        "topic": "coalesce(topic, topic_id) AS topic",
        "client_id": "coalesce(client_id, member_id) AS client_id",
    },
    "generations": {
        what: f"slice(members_{what}, 1, {_NAMED_MEMBERS}) AS first_{what}" for what in _CHANGES
    },
}
_COUNTED = {
    "generations": (
        *("group_type", "protocol_type", "rebalance_protocol", "previous_generation", "join_ms"),
        *("rebalance_timeout_ms", "subscriptions", "subscribed_topics", "assigned_partitions"),
        *("stickiness", "aborted_evidence"),
        *(
            f"CASE WHEN size(members_{what}) <= {_CHANGED_MEMBERS} THEN members_{what} END"
            f" AS members_{what}"
            for what in _CHANGES
        ),
    )
}


def _held(panel: str, chosen: Selection) -> str:
    """Return what the rows of groups are read from."""
    spec, begin, end = _SOURCES[panel]
    held = spec.name + _where(["group_id IN (:names)", *touching(begin, end, chosen)])
    return f"({_samples(held)})" if panel == "lag" else held


def _steps(panel: str, chosen: Selection) -> str:
    """Ask how many rows of groups began in each step of time.

    A step stands for all of it that is left out. To count them takes two columns of all rows, and
    only the rows from the last steps are read as a whole and sorted.
    """
    begin, since = _SOURCES[panel][1], chosen.since or 0
    step = max(1, ((chosen.until or since + WINDOW_MS) - since) // OLDER_STEPS)
    started = f"CAST(floor((unix_millis({begin}) - {since}) / {step}) AS BIGINT) * {step} + {since}"
    held = _held(panel, chosen)
    return f"SELECT group_id, {started} AS older_at, count(*) AS number FROM {held} GROUP BY 1, 2"


def _newest(panel: str, chosen: Selection, since_of: Mapping[int, int]) -> str:
    """Ask for the newest rows of groups, by the number of each the time from which it has some."""
    spec, begin, _ = _SOURCES[panel]
    made_of = _MADE_OF.get(panel, {})
    columns = [made_of.get(name, name) for name in PANELS[panel].columns]
    columns += _COUNTED.get(panel, ())
    # Rows that began at once are ordered by all else.
    times = {column.name for column in spec.columns if column.type == Primitive("timestamp")}
    names = sorted((c.rpartition(" ")[2] for c in columns), key=lambda name: name not in times)
    order = ", ".join(f"{name} DESC NULLS FIRST" for name in names)
    cases = " ".join(f"WHEN :name{number} THEN {since}" for number, since in since_of.items())
    begun = f"coalesce(unix_millis({begin}), {_NEVER})"
    told = [f"{begun} >= CASE group_id {cases} END"]
    if (earliest := min(since_of.values())) != _NEVER:  # so files tell what need not be read
        told.append(f"{begin} >= {time_at(earliest)}")
    rank = f"row_number() OVER (PARTITION BY group_id ORDER BY begun DESC, {order})"
    return f"""
SELECT group_id, {", ".join(names)}, rank FROM (
    SELECT *, {rank} AS rank FROM (
        SELECT group_id, {", ".join(columns)}, {begun} AS begun
        FROM (SELECT * FROM {_held(panel, chosen)}){_where(told)}
    )
) WHERE rank <= {PANELS[panel].most}"""


def _samples(lag: str) -> str:
    """Sum the lag of each group's partitions up, by sample."""
    worst = f"max({_index_among('status', STATUSES)})"
    return (
        "SELECT group_id, sampled_at, sum(lag) AS lag, bool_or(lag_is_bound) AS is_bound,"
        " max(lag_seconds) AS lag_seconds, count(*) AS partitions,"
        f" CASE {worst}{_cases(range(1, len(STATUSES) + 1), STATUSES)} END AS status"
        f" FROM {lag} GROUP BY group_id, sampled_at"
    )

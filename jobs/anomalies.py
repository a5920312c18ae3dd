"""Gold and silver to gold.anomalies, incidents and group_health: detects anomalies in new history.

A run that was killed is done again with the same range and the same time of the log. Each table is
written once a run; the checkpoints, from which the next run resumes, come after the anomalies.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from operator import itemgetter
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from detectors import health, log
from detectors.clock import known_until, time_of_log
from detectors.detection import OUTPUT, batch_of
from detectors.health import GROUPS_NOW, group_health
from detectors.log import Finding
from detectors.model import HOUR_MS, Row
from detectors.thresholds import Thresholds, read_thresholds
from detectors.transform import Sources, detect
from jobs.runtime.incidents import tell_incidents
from jobs.runtime.notify import notify
from jobs.runtime.run import Run
from jobs.runtime.runner import run_job
from jobs.runtime.session import configured
from jobs.runtime.state import state_of
from jobs.runtime.summary import show_anomalies
from lakehouse.history import with_open
from lakehouse.lakehouse import Lakehouse
from lakehouse.local import quickest
from lakehouse.queries import Ask, rows_by
from lakehouse.runs import StageRun
from lakehouse.tables import EVERY_ROW, OPEN_ROWS, among, between, spark_schema
from schemas.ledger import PLANNED, Detail, LedgerRow, Stage, taken
from schemas.tables import (
    ANOMALIES,
    ANOMALY_CHECKPOINTS,
    COMMITTED_OFFSETS,
    GROUP_CHECKPOINTS,
    GROUP_GENERATIONS,
    GROUP_HEALTH,
    GROUP_STATES,
    INCIDENTS,
    LAG,
    MEMBER_SESSIONS,
    OFFSET_MOVES,
    PARTITION_OWNERS,
    TableSpec,
    all_tables,
)
from timeline.homes import Second, second_of
from timeline.transform import by_coordinator

COMMITS = all_tables()[log.COMMITS]
_OF_LOG = "SELECT state, anomalies_run FROM gold.anomaly_checkpoints WHERE group_id IS NULL"


class Kept(NamedTuple):
    """State from earlier runs, and the current state of the groups."""

    groups: list[Row]  # what `GROUPS_NOW` gives
    # What the detectors remember of the log as a whole, as JSON; None if there is nothing.
    log: str | None
    checkpoints_run: int  # the run that wrote the checkpoints; -1 without any
    anomalies_run: int  # the last run of which there are anomalies; -1 without any
    observed_at: int | None  # when the log was read last, in epoch milliseconds
    behind: frozenset[int]  # partitions of the log that could not be read to their end
    # Until when no commit was missing at the newest sample of the lag, in epoch milliseconds; None
    # without one.
    sampled_until: int | None

    @property
    def as_of(self) -> int:
        """The time of the log in epoch milliseconds."""
        return time_of_log(self.groups, self.observed_at, self.sampled_until)


class Changes(NamedTuple):
    """What a run looks at."""

    ingest_runs: tuple[int, int]  # exclusive lower and inclusive upper bound of the new ingest runs
    decode_runs: tuple[int, int]  # the same of the decode runs
    rows: Counter[str]  # number of new rows by silver table
    replayed: list[str]  # groups whose history was rebuilt
    misplaced: list[Row]  # records that are not where their group belongs
    second: list[Second]  # the second coordinators of groups that have two
    has_moved: bool  # some groups have records in two partitions of the log
    have_gone_back: bool  # some groups may have gone back to where they had been before
    # The earliest time of a new commit, or the start of its hour, in epoch milliseconds; None if no
    # commit is new, or they have no times.
    since: int | None
    is_backfill: bool  # some of the hours with new commits lie before those that were looked at

    @property
    def hours(self) -> str:
        """Return the condition of rows of gold.offset_progress of the hours to look at."""
        return EVERY_ROW if self.is_backfill or self.since is None else log.hours_since(self.since)


def anomalies(run: Run) -> None:
    """Bring gold.anomalies and gold.group_health up to the history."""
    limits = read_thresholds(run.options.thresholds)
    known = run.lakehouse.runs.last_details(Stage.ANOMALIES).get(Detail.KNOWN, {})
    run.summary |= {"anomalies_run": False, "anomalies": known}
    while _follow(run, limits):
        pass


def _follow(run: Run, limits: Thresholds) -> bool:
    """Do one run; return whether it was one that another had begun, so that more may be left."""
    lakehouse, runs = run.lakehouse, run.lakehouse.runs
    with run.step("looking for new history"):
        last, to = runs.last(Stage.ANOMALIES), runs.last_number(Stage.HISTORY)
        if to < 0 or (last is not None and not _has_work(lakehouse, last, to, limits)):
            return False
        lag_run, ask = runs.last_number(Stage.LAG), quickest(lakehouse)
        kept = _kept(lakehouse, ask, lag_run)
        refresh = _is_refresh(lakehouse, last, to, kept, limits)
    with (
        run.step("detecting anomalies"),
        runs.incremental(
            Stage.ANOMALIES,
            to=to,
            refresh=refresh,
            force=True,  # without new history the lag is newer
            floor=max(kept.checkpoints_run, kept.anomalies_run),
            plan={
                Detail.AS_OF: kept.as_of,
                Detail.THRESHOLDS: limits.fingerprint,
                Detail.LAG_RUN: lag_run,
            },
        ) as stage,
    ):
        if stage is None:
            return False
        _carry_out(lakehouse, ask, stage, kept, limits)
        run.summary |= {"anomalies_run": True, "anomalies": stage.details[Detail.KNOWN]}
    return stage.is_resumed


# -- planning --------------------------------------------------------------------------------------


def _has_work(lakehouse: Lakehouse, last: LedgerRow, to: int, limits: Thresholds) -> bool:
    """Return whether a run is to be resumed, or something is new, or a full refresh is due."""
    planned = lakehouse.runs.last(Stage.ANOMALIES, PLANNED)
    is_pending = planned is not None and planned.run > last.run
    # When nobody commits any more, the history stands still, and the lag grows.
    is_new = to > last.to_run or lakehouse.runs.last_number(Stage.LAG) > last.details.get(
        Detail.LAG_RUN, -1
    )
    return is_pending or is_new or _is_outdated(lakehouse, last, limits)


def _is_outdated(lakehouse: Lakehouse, last: LedgerRow, limits: Thresholds) -> bool:
    """Return whether the last run used other thresholds, or a table is missing."""
    is_there = lakehouse.exists(ANOMALIES) and lakehouse.exists(ANOMALY_CHECKPOINTS)
    return not is_there or last.details[Detail.THRESHOLDS] != limits.fingerprint


def _kept(lakehouse: Lakehouse, ask: Ask, lag_run: int) -> Kept:
    last, read = lakehouse.runs.last(Stage.ANOMALIES), state_of(lakehouse)
    asked = {"groups": GROUPS_NOW, "of_log": _OF_LOG}
    if lag_run >= 0:
        # The log was read to its end where the last of its partitions was.
        asked["sampled"] = health.sampled_until(lag_run)
    is_whole = last is not None and lakehouse.has_all([ANOMALIES], last.versions)
    if not is_whole:
        asked["found"] = "SELECT max(anomalies_run) AS run FROM gold.anomalies"
    rows = rows_by(ask, asked)
    found = last.run if last is not None and is_whole else rows["found"][0]["run"]
    (own,) = rows["of_log"] or [{"state": None, "anomalies_run": -1}]
    return Kept(
        rows["groups"],
        own["state"],
        own["anomalies_run"],
        -1 if found is None else found,
        read.observed_at,
        read.behind,
        rows["sampled"][0]["at"] if lag_run >= 0 else None,
    )


def _is_refresh(
    lakehouse: Lakehouse, last: LedgerRow | None, to: int, kept: Kept, limits: Thresholds
) -> bool:
    """Return whether nothing of earlier runs counts: other thresholds, other tables, other history.

    Somebody may have deleted a table, or the ledger, or put an old copy there.
    """
    if last is None:
        return max(kept.checkpoints_run, kept.anomalies_run) >= 0
    has_anomalies = last.rows.get(ANOMALIES.name, 0) > 0
    return (
        _is_outdated(lakehouse, last, limits)
        or kept.checkpoints_run != last.run
        or (has_anomalies and kept.anomalies_run != last.run)
        or any(row.is_refresh for row in lakehouse.runs.done(Stage.HISTORY, last.to_run, to))
    )


# -- carrying out ----------------------------------------------------------------------------------


def _carry_out(
    lakehouse: Lakehouse, ask: Ask, stage: StageRun, kept: Kept, limits: Thresholds
) -> None:
    if kept.checkpoints_run != stage.id.number:  # of a run that was killed, they may be there
        _detect(lakehouse, ask, stage, kept, limits)
    now, lag_run = stage.plan[Detail.AS_OF], lakehouse.runs.last_number(Stage.LAG)
    asked = {
        "known": health.known_anomalies(now, stage.id.number),
        "rebalances": health.rebalances(now),
    }
    if lag_run >= 0:
        asked |= {"lags": health.lags(lag_run), "former": health.FORMER}
    sums = rows_by(ask, asked)
    rows = list(group_health(kept.groups, sums.values(), limits, now))
    table = pa.Table.from_batches([batch_of(rows, GROUP_HEALTH.of_cluster)])
    lakehouse.replace(GROUP_HEALTH, table, stage.id)
    of_kinds = (row for row in sums["known"] if row["kind"] is not None)
    kinds = sorted(of_kinds, key=itemgetter("kind"))
    written = sum(row["written"] for row in kinds)
    told, noted = tell_incidents(lakehouse, ask, stage, kept.groups, kinds)
    stage.rows = {ANOMALIES.name: written, INCIDENTS.name: told, GROUP_HEALTH.name: len(rows)}
    stage.details = {
        Detail.INCIDENTS: noted,
        Detail.KNOWN: {row["kind"]: row["known"] for row in kinds},
        Detail.VERSIONS: lakehouse.versions([ANOMALIES], stage.former.get(Detail.VERSIONS, {})),
    }


def _detect(
    lakehouse: Lakehouse, ask: Ask, stage: StageRun, kept: Kept, limits: Thresholds
) -> None:
    """Find what is wrong with the log and with each group."""
    changes, now = _changes(lakehouse, stage), stage.plan[Detail.AS_OF]
    with configured(lakehouse.spark, Stage.ANOMALIES, changes.rows.total()):
        former = kept.log if stage.after >= 0 else None
        of_log = log.LogFindings(former, is_backfill=changes.is_backfill)
        for group, hit in _log_findings(ask, kept, changes, limits, now):
            if group is None or not limits.ignores(group):
                of_log.add(group, hit)
        found = detect(
            _sources(lakehouse, stage, changes),
            thresholds=limits,
            cluster=lakehouse.cluster,
            now=now,
            known_until=known_until(kept.groups, kept.behind),
            lost=of_log.lost,
            schema=spark_schema(OUTPUT),
        )
        _write(lakehouse, stage, changes, list(of_log.rows(lakehouse.cluster, limits, now)), found)


def _write(
    lakehouse: Lakehouse, stage: StageRun, changes: Changes, of_log: list[Row], found: DataFrame
) -> None:
    """Write what was found in the log and in each group, columns `OUTPUT`."""
    table = pa.Table.from_batches([batch_of(of_log, OUTPUT)])
    found = found.unionByName(lakehouse.spark.createDataFrame(table, found.schema).coalesce(1))
    # A frame that is persisted would be computed again from the checkpoints that it has replaced.
    number = F.lit(stage.id.number).cast("bigint")
    found = found.withColumn("anomalies_run", number).localCheckpoint(eager=False)
    rows, where = found.where("anomaly_id IS NOT NULL"), OPEN_ROWS
    if stage.after < 0:
        where = EVERY_ROW
    else:
        # Findings of the log may be settled, and be found again: they are replaced.
        found_again = [
            r for r in of_log if "anomaly_id" in r and r["kind"] not in log.MOMENTARY_KINDS
        ]
        ids = [row["anomaly_id"] for row in found_again]
        where = f"{where} OR {among('anomaly_id', ids)}" if ids else where
        if changes.is_backfill:
            where = f"{where} OR {among('kind', log.HOURLY_KINDS)}"
        if changes.replayed:
            kinds = among("kind", log.KINDS)
            where = f"{where} OR {among('group_id', changes.replayed)} AND NOT {kinds}"
    lakehouse.replace(ANOMALIES, rows, stage.id, where)
    # Behind the anomalies, since the next run goes on from them.
    checkpoints = found.where("anomaly_id IS NULL")
    lakehouse.replace(ANOMALY_CHECKPOINTS, checkpoints, stage.id)


def _sources(lakehouse: Lakehouse, stage: StageRun, changes: Changes) -> Sources:
    commits, lag, checkpoints = None, None, None
    if changes.rows[log.COMMITS] or changes.replayed:
        commits = _of_runs(lakehouse, COMMITS, changes.decode_runs, changes.replayed)
        commits = by_coordinator(commits, changes.second)
    if (lag_run := lakehouse.runs.last_number(Stage.LAG)) >= 0:
        seen = min(stage.former.get(Detail.LAG_RUN, lag_run), lag_run - 1)
        of_runs = _of_runs(lakehouse, LAG, (seen, lag_run), changes.replayed)
        lag = lakehouse.read(LAG) if stage.after < 0 else of_runs
    if stage.after >= 0:
        is_known = "group_id IS NOT NULL"
        if changes.replayed:
            is_known += f" AND NOT {among('group_id', changes.replayed)}"
        checkpoints = lakehouse.read(ANOMALY_CHECKPOINTS).where(is_known)
    new = (stage.after, stage.to)
    states = with_open(lakehouse, GROUP_STATES, *new)
    return Sources(
        generations=with_open(lakehouse, GROUP_GENERATIONS, *new),
        states=states.where(f"{OPEN_ROWS} AND ended_at IS NULL"),
        sessions=with_open(lakehouse, MEMBER_SESSIONS, *new),
        moves=lakehouse.of_runs(OFFSET_MOVES, *new),
        owners=with_open(lakehouse, PARTITION_OWNERS, *new),
        former_owners=lakehouse.read(PARTITION_OWNERS) if changes.have_gone_back else None,
        committed=lakehouse.read(COMMITTED_OFFSETS),
        commits=commits,
        lag=lag,
        checkpoints=checkpoints,
        homes=lakehouse.read(GROUP_CHECKPOINTS) if changes.has_moved else None,
    )


def _of_runs(
    lakehouse: Lakehouse, spec: TableSpec, runs: tuple[int, int], groups: list[str]
) -> DataFrame:
    """Return the rows of the runs behind one, up to another; of some groups, of all before, too."""
    if not groups:
        return lakehouse.of_runs(spec, *runs)
    of_groups_before = f"{spec.run_column} <= {runs[1]} AND {among('group_id', groups)}"
    is_new = between(str(spec.run_column), *runs)
    return lakehouse.read(spec).where(f"{is_new} OR {of_groups_before}")


# -- what is new -----------------------------------------------------------------------------------


def _changes(lakehouse: Lakehouse, stage: StageRun) -> Changes:
    runs = lakehouse.runs
    history = runs.done(Stage.HISTORY, stage.after, stage.to)
    decodes = taken(history)
    # A full refresh of the history wrote all groups again.
    current = history[max((n for n, run in enumerate(history) if run.is_refresh), default=0) :]
    decode = runs.done(Stage.DECODE, *decodes)
    replayed: list[str] = []
    if stage.after >= 0 and any(row.details.get(Detail.REPLAYED, True) for row in history):
        rebuilt = lakehouse.read(GROUP_CHECKPOINTS).where(
            between("rebuilt_run", stage.after, stage.to)
        )
        known = lakehouse.read(ANOMALY_CHECKPOINTS).select("group_id")
        replayed = [
            row.group_id for row in rebuilt.join(known, "group_id", how="left_semi").collect()
        ]
    since, before = _since(lakehouse, history, decodes), stage.former.get(Detail.AS_OF)
    is_backfill = since is not None and before is not None and since < before - HOUR_MS
    return Changes(
        ingest_runs=taken(decode),
        decode_runs=decodes,
        rows=sum((Counter(row.rows) for row in decode), Counter()),
        replayed=replayed,
        misplaced=[row for run in current for row in run.details.get(Detail.MISPLACED, ())],
        second=second_of(history[-1].details) if history else [],
        has_moved=any(run.details.get(Detail.HAS_MOVED) for run in current),
        have_gone_back=any(run.details.get(Detail.WENT_BACK, True) for run in history),
        since=since,
        is_backfill=is_backfill,
    )


def _since(lakehouse: Lakehouse, history: list[LedgerRow], decodes: tuple[int, int]) -> int | None:
    """Return the time of the earliest new commit, see `Changes.since`."""
    # Where groups are rebuilt, the history names the first hour of all of their commits.
    if all(
        Detail.FIRST_HOUR in run.details and not run.details[Detail.REPLAYED] for run in history
    ):
        hours = [run.details[Detail.FIRST_HOUR] for run in history]
        return min((hour for hour in hours if hour is not None), default=None)
    commits = lakehouse.of_runs(COMMITS, *decodes)
    at = F.unix_millis(F.min(F.coalesce("record_timestamp", "commit_timestamp")))
    row = commits.agg(at.alias("at")).first()
    return None if row is None else row["at"]


# -- the log as a whole ----------------------------------------------------------------------------


def _log_findings(
    ask: Ask, kept: Kept, changes: Changes, limits: Thresholds, now: int
) -> Iterator[Finding]:
    """Find what is wrong with the log as a whole, and with groups whose own records do not tell."""
    is_read = between("ingest_run", *changes.ingest_runs)
    is_decoded = between("decode_run", *changes.decode_runs)
    new = log.Asked(is_read, is_decoded, changes.rows, changes.since, changes.hours)
    questions = {str(n): each for n, each in enumerate(log.questions(new, limits, now))}
    asked = {name: question.sql for name, question in questions.items()}
    stuck = None if changes.since is None else log.unchanged(changes.hours, limits)
    if stuck is not None:
        asked["stuck"] = stuck
    rows = rows_by(ask, asked)
    for name, question in questions.items():
        yield from question.found(rows[name])
    if stuck is not None and rows["stuck"]:
        question = log.overtaken(stuck, rows["stuck"], limits)
        yield from question.found(rows_by(ask, {"overtaken": question.sql})["overtaken"])
    yield from log.misplaced(changes.misplaced)
    stale = list(log.stale_groups(kept.groups, limits, now))
    names = log.alike(stale)
    members = rows_by(ask, {"of": log.SESSIONS}, names=names)["of"] if names else []
    yield from log.with_clients(stale, members)


def find_and_tell(run: Run) -> None:
    """Find the anomalies, print them, and post those that are new."""
    anomalies(run)
    notify(run)
    show_anomalies(run)


if __name__ == "__main__":
    sys.exit(run_job(find_and_tell, ["anomalies", *sys.argv[1:]]))

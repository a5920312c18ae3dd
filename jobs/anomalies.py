"""Gold and silver to gold.anomalies, incidents and group_health: detects anomalies in new history.

A run that was killed is done again with the same range and the same time of the log. Each table is
written once a run; the checkpoints, from which the next run resumes, come after the anomalies.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from operator import itemgetter
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from detectors import health, log
from detectors.changes import Changes, changes, earliest
from detectors.clock import known_until, time_of_log
from detectors.detection import OUTPUT, batch_of
from detectors.health import GROUPS_NOW, group_health
from detectors.incidents import told
from detectors.model import Row
from detectors.thresholds import Thresholds, read_thresholds
from detectors.transform import Sources, detect
from jobs.runtime.notify import notify
from jobs.runtime.run import Run
from jobs.runtime.runner import run_job
from jobs.runtime.session import configured
from jobs.runtime.summary import show_anomalies
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
from sources.accounted import state_of
from storage.history import with_open
from storage.lakehouse import Lakehouse
from storage.local import quickest
from storage.queries import Ask, rows_by
from storage.runs import StageRun
from storage.tables import EVERY_ROW, OPEN_ROWS, among, between, spark_schema
from timeline.homes import second_of
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
    as_of: int  # the time of the log in epoch milliseconds
    behind: frozenset[int]  # partitions of the log that could not be read to their end


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
    sampled_until = rows["sampled"][0]["at"] if lag_run >= 0 else None
    return Kept(
        rows["groups"],
        own["state"],
        own["anomalies_run"],
        -1 if found is None else found,
        time_of_log(rows["groups"], read.observed_at, sampled_until),
        read.behind,
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
    incidents, noted = tell_incidents(lakehouse, ask, stage, kept.groups, kinds)
    stage.rows = {ANOMALIES.name: written, INCIDENTS.name: incidents, GROUP_HEALTH.name: len(rows)}
    stage.details = {
        Detail.INCIDENTS: noted,
        Detail.KNOWN: {row["kind"]: row["known"] for row in kinds},
        Detail.VERSIONS: lakehouse.versions([ANOMALIES], stage.former.get(Detail.VERSIONS, {})),
    }


def tell_incidents(
    lakehouse: Lakehouse, ask: Ask, stage: StageRun, groups: Iterable[Row], kinds: Iterable[Row]
) -> tuple[int, Row]:
    """Bring gold.incidents up to the anomalies of a run; return how many rows, and what to note."""
    is_made = lakehouse.exists(INCIDENTS)
    # Dashboards ask for incidents, also where there are none.
    lakehouse.create(INCIDENTS)
    before = {} if stage.is_refresh or not is_made else stage.former.get(Detail.INCIDENTS, {})
    asking = partial(rows_by, ask)
    now = told(asking, before, kinds, groups, cluster=lakehouse.cluster, is_made=is_made)
    if now.rows is None:
        return 0, now.noted
    rows = [{**row, INCIDENTS.run_column: stage.id.number} for row in now.rows]
    table = pa.Table.from_batches([batch_of(rows, INCIDENTS.of_cluster)])
    ids = among("incident_id", [row["incident_id"] for row in rows])
    begun = f"started_at >= timestamp_millis({now.since}) OR {ids}"
    lakehouse.replace(INCIDENTS, table, stage.id, EVERY_ROW if now.since is None else begun)
    return len(rows), now.noted


def _detect(
    lakehouse: Lakehouse, ask: Ask, stage: StageRun, kept: Kept, limits: Thresholds
) -> None:
    """Find what is wrong with the log and with each group."""
    new, now = _changes(lakehouse, stage), stage.plan[Detail.AS_OF]
    is_read = between("ingest_run", *new.ingest_runs)
    is_decoded = between("decode_run", *new.decode_runs)
    asked = log.Asked(is_read, is_decoded, new.rows, new.since, new.hours, new.misplaced)
    with configured(lakehouse.spark, Stage.ANOMALIES, new.rows.total()):
        former = kept.log if stage.after >= 0 else None
        of_log = log.LogFindings(former, is_backfill=new.is_backfill)
        asking = partial(rows_by, ask)
        for group, hit in log.findings(asking, asked, kept.groups, limits, now):
            if group is None or not limits.ignores(group):
                of_log.add(group, hit)
        found = detect(
            _sources(lakehouse, stage, new),
            thresholds=limits,
            cluster=lakehouse.cluster,
            now=now,
            known_until=known_until(kept.groups, kept.behind),
            lost=of_log.lost,
            schema=spark_schema(OUTPUT),
        )
        _write(lakehouse, stage, new, list(of_log.rows(lakehouse.cluster, limits, now)), found)


def _write(
    lakehouse: Lakehouse, stage: StageRun, new: Changes, of_log: list[Row], found: DataFrame
) -> None:
    """Write what was found in the log and in each group, columns `OUTPUT`."""
    table = pa.Table.from_batches([batch_of(of_log, OUTPUT)])
    found = found.unionByName(lakehouse.spark.createDataFrame(table, found.schema).coalesce(1))
    # A frame that is persisted would be computed again from the checkpoints that it has replaced.
    number = F.lit(stage.id.number).cast("bigint")
    found = found.withColumn("anomalies_run", number).localCheckpoint(eager=False)
    where = [OPEN_ROWS]
    # Findings of the log may be settled, and be found again: they are replaced.
    named = [r for r in of_log if "anomaly_id" in r and r["kind"] not in log.MOMENTARY_KINDS]
    if named:
        where.append(among("anomaly_id", [row["anomaly_id"] for row in named]))
    if new.is_backfill:
        where.append(among("kind", log.HOURLY_KINDS))
    if new.replayed:
        where.append(f"{among('group_id', new.replayed)} AND NOT {among('kind', log.KINDS)}")
    replaced = EVERY_ROW if stage.after < 0 else " OR ".join(where)
    lakehouse.replace(ANOMALIES, found.where("anomaly_id IS NOT NULL"), stage.id, replaced)
    # Behind the anomalies, since the next run goes on from them.
    lakehouse.replace(ANOMALY_CHECKPOINTS, found.where("anomaly_id IS NULL"), stage.id)


def _sources(lakehouse: Lakehouse, stage: StageRun, new: Changes) -> Sources:
    commits, lag, checkpoints = None, None, None
    if new.rows[log.COMMITS] or new.replayed:
        commits = _of_runs(lakehouse, COMMITS, new.decode_runs, new.replayed)
        commits = by_coordinator(commits, new.second)
    if (lag_run := lakehouse.runs.last_number(Stage.LAG)) >= 0:
        seen = min(stage.former.get(Detail.LAG_RUN, lag_run), lag_run - 1)
        of_runs = _of_runs(lakehouse, LAG, (seen, lag_run), new.replayed)
        lag = lakehouse.read(LAG) if stage.after < 0 else of_runs
    if stage.after >= 0:
        is_known = "group_id IS NOT NULL"
        if new.replayed:
            is_known += f" AND NOT {among('group_id', new.replayed)}"
        checkpoints = lakehouse.read(ANOMALY_CHECKPOINTS).where(is_known)
    runs = (stage.after, stage.to)
    states = with_open(lakehouse, GROUP_STATES, *runs)
    return Sources(
        generations=with_open(lakehouse, GROUP_GENERATIONS, *runs),
        states=states.where(f"{OPEN_ROWS} AND ended_at IS NULL"),
        sessions=with_open(lakehouse, MEMBER_SESSIONS, *runs),
        moves=lakehouse.of_runs(OFFSET_MOVES, *runs),
        owners=with_open(lakehouse, PARTITION_OWNERS, *runs),
        former_owners=lakehouse.read(PARTITION_OWNERS) if new.have_gone_back else None,
        committed=lakehouse.read(COMMITTED_OFFSETS),
        commits=commits,
        lag=lag,
        checkpoints=checkpoints,
        homes=lakehouse.read(GROUP_CHECKPOINTS) if new.has_moved else None,
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


def _changes(lakehouse: Lakehouse, stage: StageRun) -> Changes:
    history = lakehouse.runs.done(Stage.HISTORY, stage.after, stage.to)
    decode = lakehouse.runs.done(Stage.DECODE, *taken(history))
    replayed: list[str] = []
    if stage.after >= 0 and any(row.details.get(Detail.REPLAYED, True) for row in history):
        rebuilt = lakehouse.read(GROUP_CHECKPOINTS).where(
            between("rebuilt_run", stage.after, stage.to)
        )
        known = lakehouse.read(ANOMALY_CHECKPOINTS).select("group_id")
        found = rebuilt.join(known, "group_id", how="left_semi").collect()
        replayed = [row.group_id for row in found]

    def first_commit() -> int | None:
        at = F.unix_millis(F.min(F.coalesce("record_timestamp", "commit_timestamp")))
        ((first,),) = lakehouse.of_runs(COMMITS, *taken(history)).agg(at).collect()
        return None if first is None else int(first)

    return changes(
        history,
        decode,
        replayed=replayed,
        second=second_of(history[-1].details) if history else [],
        since=earliest(history, first_commit),
        before=stage.former.get(Detail.AS_OF),
    )


def find_and_tell(run: Run) -> None:
    """Find the anomalies, print them, and post those that are new."""
    anomalies(run)
    notify(run)
    show_anomalies(run)


if __name__ == "__main__":
    sys.exit(run_job(find_and_tell, ["anomalies", *sys.argv[1:]]))

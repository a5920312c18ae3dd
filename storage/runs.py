"""The ledger: which runs of each stage were planned and done, over which range of the runs before.

A stage that reads what another one wrote goes by the numbers of that one's runs. Its range is
written down before it begins, so that a run that was killed is done again with the same range,
whatever has come since. That it is done is written with the plan of the next stage, or last: a run
that was killed before is done again, and writes nothing twice.
"""

from __future__ import annotations

import datetime as dt
import json
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Row
from pyspark.sql import functions as F

from schemas.errors import LakehouseError
from schemas.ledger import DONE, PLANNED, LedgerRow, RunId
from schemas.tables import FORMAT_VERSION, RECORDS, RUNS
from storage.queries import Ask, rows_by
from storage.tables import Tables

_NEWEST = """
SELECT * FROM (
  SELECT *, max(format_version) OVER () AS newest_format,
    row_number() OVER (PARTITION BY stage, state ORDER BY run DESC, runs.at DESC) AS age
  FROM bronze.runs AS runs
) WHERE age = 1"""


@dataclass
class StageRun:
    """A run of a stage while it works."""

    id: RunId  # its stage and number
    after: int  # exclusive lower bound of the runs of the upstream stage that it processes
    to: int  # inclusive upper bound of them
    is_refresh: bool  # a full refresh: it reads everything, and replaces what earlier runs wrote
    is_resumed: bool  # it resumes a run that was planned, and was not completed
    plan: dict[str, Any]  # details of the plan; of a run that is resumed, those of then
    former: dict[str, Any]  # details of the last run that is done; empty if there is none
    # The rows that it writes, by the name of the table, for the ledger.
    rows: dict[str, int] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)  # what the stage notes when it is done


class LastRuns:
    """The last runs of one cluster, by stage."""

    def __init__(self, root: str, ask: Ask) -> None:
        self._root, self._ask = root, ask
        self._last: dict[tuple[str, str], LedgerRow] | None = None

    def last(self, stage: str, state: str = DONE) -> LedgerRow | None:
        """Return the last run of a stage that is done, or planned; None without any."""
        if self._last is None:
            self._last = {(row.stage, row.state): row for row in self._read()}
        return self._last.get((stage, state))

    def last_number(self, stage: str) -> int:
        """Return the number of the last run of a stage that is done; -1 without any."""
        last = self.last(stage)
        return -1 if last is None else last.run

    def last_details(self, stage: str) -> dict[str, Any]:
        """Return what the last run of a stage that is done has noted; nothing without any."""
        last = self.last(stage)
        return {} if last is None else last.details

    def _read(self) -> list[LedgerRow]:
        return newest(self._root, self._ask)


class Runs(LastRuns):
    """The ledger of one cluster's runs."""

    def __init__(self, tables: Tables, ask: Ask) -> None:
        super().__init__(tables.root, ask)
        self._tables = tables
        self._unwritten: list[LedgerRow] = []

    def done(self, stage: str, after: int, to: int) -> list[LedgerRow]:
        """Return the completed runs of a stage with ``after < run <= to``."""
        last = self.last(stage)
        if last is None or after >= to:
            return []
        if last.run == to and after == to - 1:
            return [last]
        self.write()
        is_in = (F.col("run") > after) & (F.col("run") <= to)
        is_of_stage = (F.col("stage") == stage) & (F.col("state") == DONE)
        rows = self._tables.read(RUNS).where(is_of_stage & is_in)
        # Two runs that did the same work at the same time may both have said so.
        by_number = {row.run: row for row in map(_ledger_row, rows.collect())}
        return [by_number[number] for number in sorted(by_number)]

    @contextmanager
    def incremental(
        self,
        stage: str,
        *,
        to: int,  # the last completed run of the upstream stage
        refresh: bool = False,  # read everything, and replace what earlier runs wrote
        force: bool = False,  # run even if nothing is new
        # The greatest number of a run of the stage that its tables have, if the ledger has none of
        # it since it was lost.
        floor: int = -1,
        plan: dict[str, Any] | None = None,  # details to note with the plan
        # All that the stage writes is one commit, and needs no plan: a run that was killed has
        # written all of it or nothing, and this one may have its number.
        is_one_commit: bool = False,
    ) -> Iterator[StageRun | None]:
        """Let a stage take what is new since its last run, if anything; its body does the work.

        A run that was planned and is not done is resumed, with its range and plan. The run counts
        as done when the body ends without an error; `write` says so in the ledger.
        """
        run = None if is_one_commit else self._unfinished(stage)
        while run is None:
            done = self.last(stage)
            after = -1 if done is None or refresh else done.to_run
            if to <= after and not force:
                yield None
                return
            number = floor + 1 if done is None else done.run + 1
            if done is None and floor >= 0:
                number += 1  # a run that added no row left its number in the tables' logs alone
            planned = LedgerRow(
                stage,
                number,
                PLANNED,
                after_run=after,
                to_run=to,
                is_refresh=refresh,
                details=plan or {},
            )
            if is_one_commit or self._plan(planned):
                run = _stage_run(planned, done, is_resumed=False)
            else:  # another run has planned this number first, and then its plan holds
                run = self._unfinished(stage)
        started = time.monotonic()
        yield run
        self.note(
            LedgerRow(
                *run.id,
                after_run=run.after,
                to_run=run.to,
                is_refresh=run.is_refresh,
                seconds=time.monotonic() - started,
                rows=run.rows,
                details={**run.plan, **run.details},
            )
        )

    def restore(self, rows: list[LedgerRow]) -> None:
        """Write rows of runs that the ledger has lost."""
        self._write(rows)
        self._last = None

    def write(self) -> None:
        """Write what was noted since the last plan."""
        if self._unwritten:
            rows, self._unwritten = self._unwritten, []
            self._write(rows)

    def note(self, row: LedgerRow) -> None:
        """Note a run as done; `write` says so in the ledger, or the next plan does."""
        self._unwritten.append(row)
        if self._last is not None:
            self._last[row.stage, row.state] = row

    def _unfinished(self, stage: str) -> StageRun | None:
        """Return the run that was planned and is not done."""
        done, planned = self.last(stage), self.last(stage, PLANNED)
        if planned is None or (done is not None and done.run >= planned.run):
            return None
        return _stage_run(planned, done, is_resumed=True)

    def _plan(self, row: LedgerRow) -> bool:
        """Write a plan, with what was noted before; return whether nobody has been faster."""
        # There is one plan of a number, for which Delta looks at its log first.
        noted, self._unwritten = self._unwritten, []
        if self._write([*noted, row], RunId(f"{row.stage} plan", row.run)) is None:
            self._unwritten = noted
            self.write()
            self._last = None
            self._tables.let_go()
            return False
        if self._last is not None:
            self._last[row.stage, row.state] = row
        return True

    def _write(self, rows: list[LedgerRow], run: RunId | None = None) -> int | None:
        return self._tables.append(RUNS, [_row_of(row) for row in rows], run)

    def _read(self) -> list[LedgerRow]:
        return [*(super()._read() if self._tables.exists(RUNS) else ()), *self._unwritten]


def newest(root: str, ask: Ask) -> list[LedgerRow]:
    """Return the newest row of each stage and state in the ledger of a lakehouse."""
    rows = rows_by(ask, {"runs": _NEWEST})["runs"]
    version = max((row["newest_format"] for row in rows), default=FORMAT_VERSION)
    if version > FORMAT_VERSION:
        raise LakehouseError(
            f"{root} has lakehouse format {version}, this release of groupledger knows format "
            f"{FORMAT_VERSION}: use the release that wrote it, or another --lakehouse"
        )
    times = (dt.datetime.fromtimestamp(row["at"] / 1000, dt.timezone.utc) for row in rows)
    return [_ledger_row(row | {"at": at}) for row, at in zip(rows, times, strict=True)]


def formats(tables: Tables) -> tuple[int | None, list[str]]:
    """Return the newest format that a lakehouse was written in, and the clusters that it holds.

    Without a ledger the format is None.
    """
    if not tables.exists(RUNS):
        return None, tables.clusters(RECORDS)
    every = tables.spark.read.format("delta").load(tables.path(RUNS))
    (row,) = every.agg(
        F.max("format_version").alias("version"), F.collect_set("cluster").alias("clusters")
    ).collect()
    return row.version, sorted(row.clusters)


def _row_of(row: LedgerRow) -> dict[str, object]:
    """Return a row as the table has it."""
    written = [{"table_name": name, "rows": count} for name, count in sorted(row.rows.items())]
    return {
        **vars(row),
        "seconds": None if row.seconds is None else round(row.seconds, 3),
        "rows": None if row.state == PLANNED else written,
        "details": json.dumps(row.details, ensure_ascii=False),
        "token": uuid.uuid4().hex,
        "format_version": FORMAT_VERSION,
    }


def _ledger_row(row: Row | Mapping[str, Any]) -> LedgerRow:
    return LedgerRow(
        stage=row["stage"],
        run=row["run"],
        state=row["state"],
        at=row["at"],
        after_run=row["after_run"],
        to_run=row["to_run"],
        is_refresh=bool(row["is_refresh"]),
        seconds=row["seconds"],
        rows={part["table_name"]: part["rows"] for part in row["rows"] or ()},
        details=json.loads(row["details"] or "{}"),
    )


def _stage_run(planned: LedgerRow, done: LedgerRow | None, *, is_resumed: bool) -> StageRun:
    return StageRun(
        RunId(planned.stage, planned.run),
        planned.after_run,
        planned.to_run,
        planned.is_refresh,
        is_resumed,
        planned.details,
        {} if done is None else done.details,
    )

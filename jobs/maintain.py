"""Keeps the tables quick and their folders small: OPTIMIZE, VACUUM, and retention where asked for.

Nothing is deleted from bronze and silver: a full refresh of the history rests on all of silver, a
decoder that knows more on bronze, and bronze shows which files were ingested before.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from rich.table import Table

from jobs.runtime.run import Run
from jobs.runtime.runner import run_job
from reporting.screen import titled
from schemas.ledger import Detail, LedgerRow, Stage
from schemas.tables import LAG, RESULTS, TableSpec, all_tables
from storage import upkeep
from storage.upkeep import Stored

_AT_ONCE = 3
_HOUR_MS = 3_600_000
_MIB = 2**20


class Kept(NamedTuple):
    """What became of a table."""

    spec: TableSpec
    before: Stored
    after: Stored
    is_vacuumed: bool
    note: str


def maintain(run: Run) -> None:
    """Compact what is in many small files, and delete what no reader needs any more."""
    lakehouse, is_dry = run.lakehouse, run.options.dry_run
    made = [spec for spec in all_tables().values() if lakehouse.exists(spec)]
    upkeep.prepare(lakehouse)
    deleted = 0
    if not is_dry:
        with run.step("deleting old rows"):
            deleted = _forget(run)
    # By table: files that no version has had since then are deleted.
    noted = lakehouse.runs.last_details(Stage.MAINTAIN)
    vacuumed: dict[str, int] = noted.get(Detail.VACUUMED, {})
    before_ms = int(time.time() * 1000) - run.options.vacuum_hours * _HOUR_MS
    step = "looking at the tables" if is_dry else "compacting and vacuuming"
    with run.step(step), ThreadPoolExecutor(_AT_ONCE) as pool:
        kept = list(pool.map(lambda s: _keep(run, s, before_ms, vacuumed.get(s.name)), made))
    if changed := [k for k in kept if k.note]:
        run.out.print(_table(changed))
    else:
        run.say("nothing to do: no table has many small files, or files that nothing needs")
    run.summary |= {
        "tables": len(kept),
        "rows_deleted": deleted,
        "files_before": sum(k.before.files for k in kept),
        "files_after": sum(k.after.files for k in kept),
        "bytes_before": sum(k.before.bytes for k in kept),
        "bytes_after": sum(k.after.bytes for k in kept),
    }
    if is_dry:
        run.say("nothing was changed (--dry-run)")
    elif new := {k.spec.name: before_ms for k in kept if k.is_vacuumed}:
        number = lakehouse.runs.last_number(Stage.MAINTAIN) + 1
        details = {Detail.VACUUMED: vacuumed | new}
        lakehouse.runs.note(LedgerRow(Stage.MAINTAIN, number, details=details))


def _forget(run: Run) -> int:
    """Delete old rows of tables on whose old rows nothing rests."""
    options, deleted = run.options, 0
    for spec, days, stage, at in (
        (LAG, options.retain_lag, Stage.LAG, "sampled_at"),
        (RESULTS, options.retain_results, Stage.VALIDATE, "at"),
    ):
        if days is not None and (last := run.lakehouse.runs.last(stage)) is not None:
            # What is newest is shown, whatever its age.
            is_old = (
                f"{at} < current_timestamp() - INTERVAL {days} DAYS"
                f" AND {spec.run_column} < {last.run}"
            )
            deleted += upkeep.forget(run.lakehouse, spec, is_old)
    return deleted


def _keep(run: Run, spec: TableSpec, before_ms: int, vacuumed_ms: int | None) -> Kept:
    lakehouse, options = run.lakehouse, run.options
    before = after = upkeep.stored(lakehouse, spec)
    notes = []
    if before.is_crowded and options.dry_run:
        notes.append("small files to compact, perhaps")
    elif before.is_crowded:
        is_compacted = upkeep.compact(lakehouse, spec)
        after = upkeep.stored(lakehouse, spec)
        if not is_compacted:
            notes.append("written to meanwhile: left to the next time")
        elif after != before:
            notes.append("compacted")
    is_vacuumed = before.may_vacuum(before_ms, vacuumed_ms)
    if is_vacuumed and (files := upkeep.removable(lakehouse, spec, options.vacuum_hours)):
        if not options.dry_run:  # Delta prints a line about it on the JVM's stdout
            upkeep.vacuum(lakehouse, spec, options.vacuum_hours)
        notes.append(f"{files:,} old files {'to delete' if options.dry_run else 'deleted'}")
    return Kept(spec, before, after, is_vacuumed, ", ".join(notes))


def _table(kept: list[Kept]) -> Table:
    table = titled("Files of the newest version")
    table.add_column("table", no_wrap=True)
    for name in ("files", "after", "MiB", "after"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for spec, before, after, _, note in kept:
        numbers = (before.files, after.files)
        sizes = (before.bytes / _MIB, after.bytes / _MIB)
        table.add_row(spec.name, *(f"{n:,}" for n in numbers), *(f"{s:,.1f}" for s in sizes), note)
    return table


if __name__ == "__main__":
    sys.exit(run_job(maintain, ["maintain", *sys.argv[1:]]))

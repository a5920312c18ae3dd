"""Keeps the tables quick and their folders small: OPTIMIZE, VACUUM, and retention where asked for.

Nothing is deleted from bronze and silver: a history that is told anew rests on all of silver, a
decoder that knows more on bronze, and files that are ingested again are told by what bronze holds.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from rich import box
from rich.table import Table

from schemas.tables import LAG, RESULTS, all_tables
from storage import upkeep

if TYPE_CHECKING:
    from jobs.runtime.runner import Run
    from schemas.tables import TableSpec
    from storage.upkeep import Stored

_AT_ONCE = 3
_MIB = 2**20


class Kept(NamedTuple):
    """What became of a table."""

    spec: TableSpec
    before: Stored
    after: Stored
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
    step = "looking at the tables" if is_dry else "compacting and vacuuming"
    with run.step(step), ThreadPoolExecutor(_AT_ONCE) as pool:
        kept = list(pool.map(lambda spec: _keep(run, spec), made))
    told = [k for k in kept if k.note or k.before != k.after]
    if told:
        run.out.print(_table(told))
    else:
        run.say("nothing to do: no table has many small files, or files that nothing needs")
    run.summary |= {
        "tables": len(kept),
        "rows_deleted": deleted,
        "files_before": sum(k.before.files for k in kept),
        "files_after": sum(k.after.files for k in kept),
        "bytes_before": sum(k.before.stored_bytes for k in kept),
        "bytes_after": sum(k.after.stored_bytes for k in kept),
    }
    if is_dry:
        run.say("nothing was changed (--dry-run)")


def _forget(run: Run) -> int:
    """Delete old rows of tables on whose old rows nothing rests."""
    options, deleted = run.options, 0
    for lakehouse in (*run.former, run.lakehouse):
        for spec, days, run_number, at in (
            (LAG, options.retain_lag, "lag_run", "sampled_at"),
            (RESULTS, options.retain_results, "validation_run", "at"),
        ):
            last = lakehouse.last_write(spec, "lag" if spec is LAG else "validate")
            if days is not None and last >= 0:
                # What is newest is shown, whatever its age.
                is_old = (
                    f"{at} < current_timestamp() - INTERVAL {days} DAYS AND {run_number} < {last}"
                )
                deleted += upkeep.forget(lakehouse, spec, is_old)
    return deleted


def _keep(run: Run, spec: TableSpec) -> Kept:
    lakehouse, hours = run.lakehouse, run.options.vacuum_hours
    before = upkeep.stored(lakehouse, spec)
    if run.options.dry_run:
        files = upkeep.removable(lakehouse, spec, hours)
        notes = [f"{before.crowded} small files to compact"] if before.crowded else []
        notes += [f"{files} old files to delete"] if files else []
        return Kept(spec, before, before, ", ".join(notes))
    note = ""
    if before.crowded and not upkeep.compact(lakehouse, spec):
        note = "written to meanwhile: left to the next time"
    upkeep.vacuum(lakehouse, spec, hours)
    return Kept(spec, before, upkeep.stored(lakehouse, spec), note)


def _table(kept: list[Kept]) -> Table:
    table = Table(
        title="Files of the newest version, and all that is stored",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("table", no_wrap=True)
    for name in ("files", "after", "MiB stored", "after"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for spec, before, after, note in kept:
        numbers = (before.files, after.files)
        sizes = (before.stored_bytes / _MIB, after.stored_bytes / _MIB)
        table.add_row(spec.name, *(f"{n:,}" for n in numbers), *(f"{s:,.1f}" for s in sizes), note)
    return table

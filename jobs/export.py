"""Copies what people ask of to files: a DuckDB file, Parquet, offsets, a script to clean up."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from pyspark.sql import DataFrame

from detectors.log import pattern_of
from jobs.runtime.run import Run
from jobs.runtime.runner import run_job
from launch.options import EVERY_CLUSTER, EVERY_TOPIC
from launch.times import zone
from reporting.cleanup import (
    Row,
    by_pattern,
    command,
    commits_known_until,
    groups_of,
    offsets_at,
    plan,
    script,
    unused_groups,
)
from reporting.files import write_whole
from reporting.model import Log
from reporting.one_group import known_log, pattern_in
from reporting.story import near_names
from reporting.text import printable, to_second
from schemas.errors import GroupledgerError, UsageError
from schemas.tables import ANOMALY_CHECKPOINTS, COVERAGE, GROUP_CHECKPOINTS, RESULTS, all_tables
from schemas.words import count
from storage.catalog import register, view_texts
from storage.copies import load, replaced
from storage.lakehouse import Lakehouse
from storage.local import quickest

# What the jobs keep for themselves.
_STATE = {GROUP_CHECKPOINTS.name, ANOMALY_CHECKPOINTS.name}
_OTHERS = {COVERAGE.name, RESULTS.name}


def export(run: Run) -> None:
    """Write tables and views to a DuckDB file or a folder of Parquet; they replace the last one."""
    if not (run.spark.conf.get("spark.master") or "local").startswith("local"):
        raise GroupledgerError("export: the files are of this machine, so leave --master out")
    if run.options.moment is not None:
        _export_offsets(run, run.options.moment)
        return
    if run.options.unused_moment is not None:
        _export_unused(run, run.options.unused_moment)
        return
    copied = exported(run)
    is_file = run.options.duckdb is not None
    target = Path(run.options.duckdb or run.options.parquet or "").absolute()
    with replaced(target, copied, is_file=is_file) as part:
        for name, rows in copied.items():
            with run.step(f"exporting {name}"):
                rows.write.parquet(str(part / name))
        if is_file:
            with run.step("writing the DuckDB file"):
                load(part, {name: rows.schema for name, rows in copied.items()})
    run.summary |= {"export": str(target), "tables": len(copied)}
    run.tell(f"{len(copied)} tables and views are in {target}")


def _export_offsets(run: Run, at: int) -> None:
    """Write the offsets that groups had committed by a time, and say what sets them."""
    rows = _known_offsets(run, at)
    target, groups = Path(run.options.offsets or "offsets.csv").absolute(), groups_of(rows)
    run.summary["offsets"] = len(rows)
    lines = [
        f"{count(len(rows), 'offset')} of {count(len(groups), 'group')}: {target}",
        "Stop the members first; then, and with --execute for --dry-run when it is right:",
        command(groups, str(target)),
    ]
    _write_file(run, target, plan(rows), lines)


def _export_unused(run: Run, since: int) -> None:
    """Write a script that deletes groups nobody has used since a time, and say which they are."""
    rows, until = _unused(run, since)
    target = Path(run.options.script or "unused-groups.sh").absolute()
    run.summary["groups"] = len(rows)
    told = f"{count(len(rows), 'group')} that nobody has used: {target}"
    how = f"Read it, then let who may delete groups run it: BOOTSTRAP_SERVERS=HOST:PORT sh {target}"
    _write_file(run, target, script(rows, since, until), [told, *by_pattern(rows, pattern_of), how])


def _known_offsets(run: Run, at: int) -> list[Row]:
    """Return the offsets of the groups that were asked for, and say what lacks."""
    chosen, where = run.options, zone(run.options.timezone)
    lakehouse, log, until = _of_one_cluster(run)
    group = chosen.group or ""
    time = f"{to_second(at, where)} ({chosen.timezone})"
    if at > until:
        raise UsageError(
            f"--offsets-at {time}: the lakehouse knows offsets until {to_second(until, where)}"
        )
    topic = None if chosen.topic == EVERY_TOPIC else chosen.topic
    with run.step("reading the offsets"):
        rows = offsets_at(lakehouse, at, pattern_in(log, group), topic)
    if not rows:
        of_topic = "" if topic is None else f" with offsets of {topic}"
        raise UsageError(
            f"--group {printable(group)}: there is no such group{of_topic}{near_names(log, group)}"
        )
    missing = Counter(row["missing"] for row in rows if row["missing"] is not None)
    reasons = ", ".join(f"{number:,} ({reason})" for reason, number in missing.items())
    if missing.total() == len(rows):
        raise UsageError(
            f"--offsets-at {time}: no offset is known of {reasons}; nothing is written"
        )
    if missing:
        run.say(f"partitions without a known offset at {time}, which are left out: {reasons}")
    run.summary["offsets_missing"] = dict(missing)
    return [row for row in rows if row["missing"] is None]


def _unused(run: Run, since: int) -> tuple[list[Row], int]:
    """Return the groups that nobody has used since a time, and until when the log is known."""
    lakehouse, log, until = _of_one_cluster(run)
    time = f"{to_second(since)} UTC"
    if since > until:
        raise UsageError(
            f"--unused-since {time}: the lakehouse knows groups until {to_second(until)} UTC"
        )
    group = run.options.group
    with run.step("looking for groups that nobody uses"):
        rows = unused_groups(lakehouse, since, None if group is None else pattern_in(log, group))
    return rows, until


def _of_one_cluster(run: Run) -> tuple[Lakehouse, Log, int]:
    """Return the tables of the one cluster that was named, or that there is, and what it knows.

    That is which groups it has, and until when commits are known, in epoch milliseconds.
    """
    name = run.options.cluster
    if name == EVERY_CLUSTER:
        held = run.lakehouse.clusters(COVERAGE)
        if len(held) > 1:
            raise UsageError(f"--cluster: name one of the clusters {', '.join(held)}")
        (name,) = held
    lakehouse = Lakehouse(run.spark, run.lakehouse.root, name)
    log = known_log(quickest(lakehouse), name)
    return lakehouse, log, commits_known_until(lakehouse, log.known_until)


def _write_file(run: Run, target: Path, text: str, lines: list[str]) -> None:
    try:
        write_whole(target, text)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise GroupledgerError(f"export: {target} cannot be written: {reason}") from error
    run.summary["export"] = str(target)
    for line in lines:
        run.tell(line)


def exported(run: Run) -> dict[str, DataFrame]:
    """Return the tables and views that are copied; a table that was never made has no rows."""
    register(run.lakehouse, clusters=run.options.clusters)
    tables = {name for name in all_tables() if name.startswith("gold.")} - _STATE | _OTHERS
    found = {}
    for name in sorted(tables | view_texts().keys()):
        if run.spark.catalog.tableExists(name):
            found[name] = run.spark.table(name)
        elif name in tables:
            found[name] = run.lakehouse.read(all_tables()[name])
    return found


if __name__ == "__main__":
    sys.exit(run_job(export, ["export", *sys.argv[1:]]))

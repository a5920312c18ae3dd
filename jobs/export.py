"""Copies what people ask of to files: a DuckDB file, Parquet, offsets, a script to clean up."""

from __future__ import annotations

import os
import re
import shutil
import sys
from contextlib import closing
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from detectors.log import pattern_of
from jobs.runtime.reset import known_offsets, unused_groups
from jobs.runtime.run import Run
from jobs.runtime.runner import run_job
from lakehouse.catalog import description, duckdb_texts, register, view_texts
from lakehouse.local import in_quotes
from reporting.cleanup import by_pattern, command, groups_of, plan, script
from reporting.files import write_whole
from reporting.text import count
from schemas.errors import GroupledgerError
from schemas.tables import ANOMALY_CHECKPOINTS, COVERAGE, GROUP_CHECKPOINTS, RESULTS, all_tables

# What the jobs keep for themselves.
_STATE = {GROUP_CHECKPOINTS.name, ANOMALY_CHECKPOINTS.name}
_OTHERS = {COVERAGE.name, RESULTS.name}
_DATABASE = "groupledger.duckdb"


def export(run: Run) -> None:
    """Write tables and views to a DuckDB file or a folder of Parquet, which replaces the last one.

    Raises:
        GroupledgerError: The target holds something else, or cannot be written.
    """
    if not (run.spark.conf.get("spark.master") or "local").startswith("local"):
        raise GroupledgerError("export: the files are of this machine, so leave --master out")
    if run.options.moment is not None:
        _export_offsets(run, run.options.moment)
        return
    if run.options.unused_moment is not None:
        _export_unused(run, run.options.unused_moment)
        return
    copied = exported(run)
    target = Path(run.options.duckdb or run.options.parquet or "").absolute()
    _check(target, set(copied), is_file=run.options.duckdb is not None)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target)
        for name, rows in copied.items():
            with run.step(f"exporting {name}"):
                rows.write.parquet(str(part / name))
        if run.options.duckdb is None:
            _replace_folder(part, target)
        else:
            with run.step("writing the DuckDB file"):
                _load(part, {name: rows.schema for name, rows in copied.items()})
            (part / _DATABASE).replace(target)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise GroupledgerError(f"export: {target} cannot be written: {reason}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    run.summary |= {"export": str(target), "tables": len(copied)}
    text = f"{len(copied)} tables and views are in {target}"
    run.out.print(text, markup=False, highlight=False, soft_wrap=True)


def _export_offsets(run: Run, at: int) -> None:
    """Write the offsets that groups had committed by a time, and say what sets them."""
    rows = known_offsets(run, at)
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
    rows, until = unused_groups(run, since)
    target = Path(run.options.script or "unused-groups.sh").absolute()
    run.summary["groups"] = len(rows)
    told = f"{count(len(rows), 'group')} that nobody has used: {target}"
    how = f"Read it, then let who may delete groups run it: BOOTSTRAP_SERVERS=HOST:PORT sh {target}"
    _write_file(run, target, script(rows, since, until), [told, *by_pattern(rows, pattern_of), how])


def _write_file(run: Run, target: Path, text: str, lines: list[str]) -> None:
    try:
        write_whole(target, text)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise GroupledgerError(f"export: {target} cannot be written: {reason}") from error
    run.summary["export"] = str(target)
    for line in lines:
        run.out.print(line, markup=False, highlight=False, soft_wrap=True)


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


def _load(part: Path, schemas: dict[str, StructType]) -> None:
    """Make a database of Parquet files: tables with their comments, views on them, a macro."""
    import duckdb  # noqa: PLC0415 - no other job needs it
    from pyarrow import dataset  # noqa: PLC0415

    with closing(duckdb.connect(str(part / _DATABASE))) as database:
        for layer in sorted({name.partition(".")[0] for name in schemas}):
            database.execute(f"CREATE SCHEMA {layer}")
        for name, schema in schemas.items():
            rows = dataset.dataset(part / name, format="parquet")
            database.register("rows_of_one", rows)
            database.execute(f"CREATE TABLE {name} AS SELECT * FROM rows_of_one")  # noqa: S608
            database.unregister("rows_of_one")
            table = all_tables().get(name)
            about = description(view_texts()[name]) if table is None else table.grain
            database.execute(f"COMMENT ON TABLE {name} IS {in_quotes(about)}")
            for field in schema.fields:
                comment = field.metadata.get("comment")
                if comment:
                    column = f'{name}."{field.name}"'
                    database.execute(f"COMMENT ON COLUMN {column} IS {in_quotes(comment)}")
        for name, text in duckdb_texts().items():
            database.execute(text)
            kind = "MACRO TABLE" if "CREATE MACRO" in text else "VIEW"
            database.execute(f"COMMENT ON {kind} {name} IS {in_quotes(description(text))}")


def _check(target: Path, names: set[str], *, is_file: bool) -> None:
    """Refuse to replace what no export has made."""
    if not target.exists():
        return
    if is_file:
        held = _tables(target) if target.is_file() else None
    else:
        held = {entry.name for entry in target.iterdir()} if target.is_dir() else None
    if held is None or not held <= names:
        raise GroupledgerError(
            f"export: {target} is there and is no export: name a file or folder that is not there"
        )


def _tables(file: Path) -> set[str] | None:
    """Return the names of a DuckDB file's tables; None if it is no such file."""
    import duckdb  # noqa: PLC0415 - no other job needs it

    try:
        with closing(duckdb.connect(str(file), read_only=True)) as database:
            text = "SELECT schema_name || '.' || table_name FROM duckdb_tables()"
            return {name for (name,) in database.execute(text).fetchall()}
    except duckdb.Error:  # it says which of many things the file is not
        return None


def _sweep(target: Path) -> None:
    """Delete what exports that were killed have left beside the target."""
    pattern = re.compile(rf"\.{re.escape(target.name)}\.(\d+)\.(part|former)")
    for entry in target.parent.iterdir():
        found = pattern.fullmatch(entry.name)
        if found is None or _is_running(int(found[1])):
            continue
        if found[2] == "former" and not target.exists():  # killed between two names
            entry.rename(target)
        else:
            shutil.rmtree(entry)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        return True
    return True


def _replace_folder(part: Path, target: Path) -> None:
    former = part.with_suffix(".former")
    if target.exists():
        target.rename(former)
    part.rename(target)
    shutil.rmtree(former, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(run_job(export, ["export", *sys.argv[1:]]))

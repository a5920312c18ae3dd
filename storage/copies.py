"""Tables as files of this machine, Parquet or a DuckDB file: there as a whole or not at all."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from pyspark.sql.types import StructType

from schemas.errors import GroupledgerError
from schemas.tables import all_tables
from storage.catalog import description, duckdb_texts, view_texts
from storage.local import in_quotes

DATABASE = "groupledger.duckdb"
"""The file that `load` makes."""


@contextmanager
def replaced(target: Path, names: Collection[str], *, is_file: bool) -> Iterator[Path]:
    """Give a folder for copies of tables; what is in it then replaces the target.

    The target is a DuckDB file, or a folder of Parquet files, of no other tables than these.
    """
    _check(target, set(names), is_file=is_file)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target)
        yield part
        if is_file:
            (part / DATABASE).replace(target)
        else:
            _replace_folder(part, target)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise GroupledgerError(f"export: {target} cannot be written: {reason}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def load(part: Path, schemas: Mapping[str, StructType]) -> None:
    """Make a database of Parquet files: tables with their comments, views on them, a macro."""
    import duckdb  # noqa: PLC0415 - no other job needs it
    from pyarrow import dataset  # noqa: PLC0415

    with closing(duckdb.connect(str(part / DATABASE))) as database:
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

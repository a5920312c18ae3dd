"""What would end a job, seen before Spark starts: no tables, no right to write, closed ports."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from launch.options import Options, local_path, report_path
from schemas.errors import GroupledgerError, LakehouseError
from schemas.tables import RECORDS
from sources.listeners import refuse_closed_ports


def look_ahead(chosen: Options) -> None:
    """Refuse to begin what is bound to fail at its end, or after a long wait."""
    root = local_path(chosen.lakehouse)
    if root is not None and chosen.like.needs_tables:
        records = Path(root, *RECORDS.name.split("."))
        if not (records / "_delta_log").is_dir():
            raise no_tables(chosen)
    for option, path, folder in _targets(chosen):
        reason = why_not(folder)
        if reason is not None:
            raise GroupledgerError(f"--{option} {path}: cannot be written: {reason}")
    # A later run of --every may find a broker; it asks by itself.
    if chosen.bootstrap_servers is not None and _does(chosen, "ingest") and chosen.every is None:
        refuse_closed_ports(chosen.bootstrap_servers)


def no_tables(chosen: Options) -> LakehouseError:
    """Return what to say of a lakehouse in which nothing was ever read."""
    return LakehouseError(
        f"there are no tables in {chosen.lakehouse}: name the right folder with --lakehouse (the"
        " demo's is ./demo-lakehouse)"
    )


def why_not(folder: Path) -> str | None:
    """Return why no file can be made in a folder, which need not be there yet; None if it can.

    Only a file tells: root may do what a mode forbids, and a read-only mount forbids what a mode
    allows. This one has no name, where the file system allows it, and is gone at once.
    """
    there = nearest(folder.absolute())
    if not there.is_dir():
        return f"{there} is a file"
    try:
        with tempfile.TemporaryFile(dir=there):
            return None
    except OSError as error:
        return f"{error.strerror or type(error).__name__} ({there})"


def nearest(folder: Path) -> Path:
    """Return the folder, or what is there of the path to it."""
    return next(path for path in (folder, *folder.parents) if os.path.lexists(path))


def _does(chosen: Options, step: str) -> bool:
    return chosen.job == step or (chosen.job == "pipeline" and step in chosen.steps)


def _targets(chosen: Options) -> Iterator[tuple[str, str, Path]]:
    """Return what a job writes on this machine: the option, its path, and the folder."""
    if chosen.dry_run:
        return
    root = local_path(chosen.lakehouse)
    if root is not None and not chosen.like.is_reader:
        yield "lakehouse", root, Path(root)
    is_reported = chosen.job == "demo" or _does(chosen, "report")
    files = {
        "output": report_path(chosen) if is_reported else None,
        "metrics": chosen.metrics,
        "html": chosen.html,
        "duckdb": chosen.duckdb,
        "parquet": chosen.parquet,
        "offsets": chosen.offsets,
        "docs": chosen.docs,
    }
    for option, named in files.items():
        path = None if named is None else local_path(named)
        if path is not None:
            yield option, path, Path(path) if option == "docs" else Path(path).parent

"""Paths of this machine."""

from __future__ import annotations

import os
from pathlib import Path

CHECKOUT = Path(os.environ.get("GROUPLEDGER_HOME", Path(__file__).resolve().parents[2]))
"""The checkout; the launcher names it, since the code may run from a zip.

Files that are not shipped with the code, `examples/`, are there."""


def nearest(folder: Path) -> Path:
    """Return the folder, or what is there of the path to it."""
    return next(path for path in (folder, *folder.parents) if os.path.lexists(path))


def write_whole(path: Path, text: str) -> None:
    """Write a file as a whole, or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)

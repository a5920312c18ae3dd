"""Texts as files of this machine: there as a whole or not at all, and told from others."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file as a whole, or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def digest(text: str) -> str:
    """Return what tells a text from others."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]

"""Finds the application: its packages (`jobs`, `lakehouse`, …), conf/ and the demo's recording.

A wheel has them below this package, so that their names meet no others in site-packages; in a
checkout they lie beside it. In both they import each other by the same names.
"""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def home() -> Path:
    """Return the folder of the application."""
    installed = _HERE / "app"
    return installed if installed.is_dir() else _HERE.parent


def put_on_path() -> None:
    """Let this process import the application, before other modules of the same names."""
    folder = str(home())
    if folder not in sys.path:
        sys.path.insert(0, folder)

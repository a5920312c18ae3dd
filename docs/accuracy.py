"""Writes how far the history may be trusted, on recordings that came with their broker's log.

Prints the table of docs/states.md: PYTHONPATH=. .venv-dev/bin/python docs/accuracy.py
"""

from __future__ import annotations

import sys

from benchmarks.truth import HEADER, PAGE, ROOT, logged, row

__all__ = ["PAGE", "ROOT", "table"]


def table() -> str:
    """Return the table as Markdown, a row for each recording."""
    return "\n".join([HEADER, "|---|---|---|---|---|---|---|", *map(row, logged())])


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")

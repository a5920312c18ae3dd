"""Prints the rows of a query: as a table for people, as JSON, CSV or Markdown for programs."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import sys
from collections.abc import Callable, Iterable

from pyspark.sql import Row
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reporting.text import cut, printable

_WIDE = 1_000_000
_WIDEST_CELL = 500


def _write_table(out: Console, names: list[str], rows: Iterable[Row]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in names:
        table.add_column(escape(name))
    for row in rows:
        table.add_row(*(escape(_cell(value)) for value in row))
    _show(out, table)


def _write_json(_: Console, __: list[str], rows: Iterable[Row]) -> None:
    for row in rows:
        print(json.dumps(row.asDict(recursive=True), default=str, ensure_ascii=False))


def _write_csv(_: Console, names: list[str], rows: Iterable[Row]) -> None:
    """Write by RFC 4180: nested values as JSON, bytes in hexadecimal, null as nothing."""
    writer = csv.writer(sys.stdout)
    writer.writerow(names)
    for row in rows:
        writer.writerow([_text(value) for value in row])


def _text(value: object) -> object:
    """Return a nested value as JSON, a time by ISO 8601, any other as it is."""
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(_plain(value), default=str, ensure_ascii=False)
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    return value.isoformat(" ") if isinstance(value, dt.datetime) else value


def _plain(value: object) -> object:
    if isinstance(value, Row):
        return {name: _plain(part) for name, part in zip(value.__fields__, value, strict=True)}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    return value.hex() if isinstance(value, (bytes, bytearray)) else value


def _write_markdown(_: Console, names: list[str], rows: Iterable[Row]) -> None:
    lines = ["| " + " | ".join(map(_in_markdown, names)) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(_in_markdown(_cell(v)) for v in row) + " |" for row in rows]
    print("\n".join(lines))


def _in_markdown(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|")


def _show(out: Console, table: Table) -> None:
    """Print a table: on a terminal so that it fits, elsewhere without a break in its lines."""
    if out.is_terminal:
        out.print(table)
        return
    whole = Console(file=io.StringIO(), width=_WIDE)
    with whole.capture() as captured:
        whole.print(table)
    lines = (line.rstrip() for line in captured.get().splitlines())
    out.print("\n".join(lines), soft_wrap=True, markup=False, highlight=False, emoji=False)


def _cell(value: object) -> str:
    """Return a value as a cell: not long, and control characters of other people's text visible."""
    if value is None:
        return ""
    text = str(_text(value)) if isinstance(value, (dict, list, tuple)) else str(value)
    if isinstance(value, dt.datetime):
        text = value.isoformat(" ", "milliseconds")
    return cut(printable(text), _WIDEST_CELL)


WRITERS: dict[str, Callable[[Console, list[str], Iterable[Row]], None]] = {
    "table": _write_table,
    "json": _write_json,
    "csv": _write_csv,
    "markdown": _write_markdown,
}
"""What prints rows of some columns, by the name of the format."""

"""Writes docs/tables.md, the page of all tables, from their declarations."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from docs.markdown import item, paragraph
from schemas.columns import ArrayOf, Column, ColumnType, StructOf
from schemas.messages import Message, RecordType, Struct, snake_case
from schemas.silver import silver_tables
from schemas.tables import TableSpec, all_tables, decoded_table

PAGE = Path(__file__).with_suffix(".md")

_INTRODUCTION = """\
# Tables

Written by `docs/tables.py` from the declarations in `schemas/`; `tests/unit/test_docs.py` keeps it
up to date.

All tables are Delta tables, at `LAKEHOUSE/<layer>/<table>`, and partitioned by `cluster`. Times are
UTC. The comments below are also the comments in the Delta schemas. A column of a struct is shown by
its path; `[]` stands for each element of an array.
"""
_SHARED = """\
## Columns of every decoded table

The silver tables that records decode into, all but `silver.quarantine`, have these columns.
Their own columns stand between `is_tombstone` and `decode_notes`, but for `key_version`, which
precedes `value_version`; a column that a later release added to a table stands last.

Key: {key}. CHECK constraints hold that it is not null.
A tombstone has its key's columns; its value's are null. A field that the value's version or layout
lacks is null.
"""


def page() -> str:
    """Return the text of docs/tables.md."""
    decoded = [decoded_table(name) for name in silver_tables()]
    shared = [c for c in decoded[0].columns if all(c in spec.columns for spec in decoded)]
    types = {decoded_table(name).name: types for name, types in silver_tables().items()}
    sections = [_INTRODUCTION, _overview(all_tables().values())]
    for spec in all_tables().values():
        if spec == decoded[0]:
            sections.append(_SHARED.format(key=_names(spec.key)) + "\n" + _columns(shared))
        if spec in decoded:
            own = [c for c in spec.columns if c not in shared]
            sections.append(_decoded_section(spec, own, types[spec.name]))
        else:
            sections.append(_section(spec))
    return "\n".join(sections)


def _overview(specs: Iterable[TableSpec]) -> str:
    lines = [item(f"`{s.name}` ([columns](#{s.name.replace('.', '')})): {s.grain}") for s in specs]
    return "\n".join([*lines, ""])


def _section(spec: TableSpec) -> str:
    held = "; ".join(f"`{condition}`" for _, condition in spec.constraints)
    constraints = f" CHECK constraints: {held}." if held else ""
    about = paragraph(f"{spec.grain} Key: {_names(spec.key)}.{constraints}")
    return f"## {spec.name}\n\n{about}\n\n" + _columns(spec.columns)


def _decoded_section(spec: TableSpec, own: list[Column], types: tuple[RecordType, ...]) -> str:
    lines = [item(line) for record_type in types for line in _record_type(record_type)]
    about = "\n".join([f"## {spec.name}", "", paragraph(spec.grain), "", *lines])
    return f"{about}\n\nIts own columns:\n\n{_columns(own)}"


def _record_type(record_type: RecordType) -> Iterator[str]:
    versions = f"value {_versions(record_type.value)}"
    yield f"Record type {record_type.id}, {record_type.name}, {versions}: {record_type.about}"
    former = ", ".join(f"`{m.layout}`" for m in record_type.former_values)
    if former:
        yield f"What does not fit is tried by the former layout {former}."
    for variant in record_type.variants:
        yield (
            f"What does not fit a value of version {variant.valid} is tried as "
            f"{variant.layout} writes it."
        )
    for path, message, condition in _embedded(record_type.value.root, ""):
        yield f"`{path}` is read as {message.name}, {_versions(message)}{condition}."


def _versions(message: Message) -> str:
    noun = "version" if message.valid.low == message.valid.high else "versions"
    return f"{noun} {message.valid}"


def _embedded(struct: Struct, prefix: str) -> Iterator[tuple[str, Message, str]]:
    """List what bytes fields hold: the column of the bytes, the message, and when it is there."""
    for field in struct.fields:
        path = prefix + field.column
        for embed in field.embeds:
            when = "" if embed.when is None else f", where {_condition(*embed.when)}"
            yield path, embed.message, when
            yield from _embedded(embed.message.root, f"{prefix}{embed.column}.")
        if field.struct is not None:
            yield from _embedded(field.struct, f"{path}{'[]' if field.is_array else ''}.")


def _condition(field: str, value: str) -> str:
    return f"`{snake_case(field)}` is `{value}`"


def _columns(columns: Iterable[Column]) -> str:
    lines = [
        item(f"`{path}` {_type(column.type)}: {_plain(column.comment)}")
        for path, column in _nested(columns, "")
    ]
    return "\n".join([*lines, ""])


def _nested(columns: Iterable[Column], prefix: str) -> Iterator[tuple[str, Column]]:
    for column in columns:
        path = prefix + column.name
        yield path, column
        inner, mark = column.type, ""
        while isinstance(inner, ArrayOf):
            inner, mark = inner.element, f"{mark}[]"
        if isinstance(inner, StructOf):
            yield from _nested(inner.columns, f"{path}{mark}.")


def _type(declared: ColumnType) -> str:
    """Return the type as SQL writes it, without the columns of structs: they have lines below."""
    if isinstance(declared, ArrayOf):
        return f"ARRAY&lt;{_type(declared.element)}&gt;"
    return "STRUCT" if isinstance(declared, StructOf) else declared.sql()


def _names(columns: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in columns)


def _plain(text: str) -> str:
    return text.replace("<", "&lt;")


def main() -> int:
    """Write the page, or with --check say by the exit status whether it is current."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if it differs")
    if not parser.parse_args().check:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page():
        return 0
    sys.stderr.write(f"{PAGE.name} differs from the declarations: run docs/tables.py\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())

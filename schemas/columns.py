"""Columns and their types, declared once and turned into Arrow or Spark types where needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import pyarrow as pa

from schemas.messages import Field, RecordType, Struct

LAST_MS = 253_402_300_799_999
"""The end of the year 9999 in epoch milliseconds: few tools know a time behind it."""

# Spark's names of the types that our columns have, and Arrow's types for them.
_ARROW = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", "UTC"),
}
_MILLIS = pa.timestamp("ms", "UTC")
# What Kafka's types become; Spark has no unsigned numbers, so a uint16 takes an INT.
_KAFKA = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "uint16": "int",
    "int32": "int",
    "int64": "bigint",
    "string": "string",
    "bytes": "binary",
    "uuid": "string",
}


@dataclass(frozen=True)
class Primitive:
    """A type by Spark's name: ``bigint``."""

    name: str

    def arrow(self) -> pa.DataType:
        """Return Arrow's type."""
        return _ARROW[self.name]

    def sql(self) -> str:
        """Return the type as SQL writes it."""
        return self.name.upper()


@dataclass(frozen=True)
class ArrayOf:
    """An array of `element`."""

    element: ColumnType

    def arrow(self) -> pa.DataType:
        """Return Arrow's type."""
        return pa.list_(self.element.arrow())

    def sql(self) -> str:
        """Return the type as SQL writes it."""
        return f"ARRAY<{self.element.sql()}>"


@dataclass(frozen=True)
class StructOf:
    """A struct of `columns`."""

    columns: tuple[Column, ...]

    def arrow(self) -> pa.DataType:
        """Return Arrow's type."""
        return pa.struct([pa.field(c.name, c.type.arrow()) for c in self.columns])

    def sql(self) -> str:
        """Return the type as SQL writes it."""
        return "STRUCT<" + ", ".join(f"{c.name}: {c.type.sql()}" for c in self.columns) + ">"


ColumnType: TypeAlias = "Primitive | ArrayOf | StructOf"


@dataclass(frozen=True)
class Column:
    """A column of a table or of a struct; `comment` says what it means."""

    name: str
    type: ColumnType
    comment: str


def column(name: str, type_name: str, comment: str) -> Column:
    """Declare a column of a primitive type, by Spark's name of it."""
    return Column(name, Primitive(type_name), comment)


def scalar_type(field: Field) -> Primitive:
    """Return the type that one value of a field, not a struct, is kept in."""
    if field.unit == "epoch_ms":
        return Primitive("timestamp")
    if field.column.endswith("_ms"):
        return Primitive("bigint")
    return Primitive(_KAFKA[field.kind])


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """Return the Arrow schema of a table with `columns`."""
    return pa.schema([pa.field(c.name, c.type.arrow()) for c in columns])


def array_of_millis(values: Sequence[object], kind: ColumnType) -> pa.Array:
    """Make an array of plain values of a column, whose times are epoch milliseconds."""
    if isinstance(kind, Primitive) and kind.name == "timestamp":
        return pa.array(values, _MILLIS)
    return pa.array(values, kind.arrow())


def millis_of(times: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return times as epoch milliseconds, which no zone can bend."""
    return times.cast(_MILLIS, safe=False).cast(pa.int64())


def in_millis(rows: pa.Table) -> pa.Table:
    """Return rows whose times, but for those within structs, are epoch milliseconds."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            rows = rows.set_column(at, field.name, millis_of(rows[field.name]))
    return rows


@cache
def field_columns(field: Field) -> tuple[Column, ...]:
    """Return the columns that a field of a message becomes: more than one if it embeds messages."""
    own: ColumnType = (
        scalar_type(field) if field.struct is None else StructOf(struct_columns(field.struct))
    )
    columns = [
        Column(
            embed.column, StructOf(struct_columns(embed.message.root, version=True)), embed.about
        )
        for embed in field.embeds
    ]
    columns.append(Column(field.column, ArrayOf(own) if field.is_array else own, field.about))
    if field.error_column is not None:
        columns.append(column(field.error_column, "string", field.error_about or ""))
    return tuple(columns)


@cache
def struct_columns(struct: Struct, *, version: bool = False) -> tuple[Column, ...]:
    """Return the columns of a struct, in the declared order; `version` adds that of a header."""
    header = [column("version", "smallint", "Version that the bytes start with.")]
    columns = [c for field in struct.fields for c in field_columns(field)]
    return _ordered((header if version else []) + columns, struct.column_order)


@cache
def value_columns(record_type: RecordType) -> tuple[Column, ...]:
    """Return the columns of a record type's value: the fields of today's and of former layouts."""
    columns: tuple[Column, ...] = ()
    for message in record_type.value_layouts:
        columns = _merged(columns, struct_columns(message.root))
    return columns


def _ordered(columns: list[Column], order: tuple[str, ...]) -> tuple[Column, ...]:
    by_name = {c.name: c for c in columns}
    if order and set(order) != by_name.keys():
        msg = f"columnOrder {sorted(order)} does not name the columns {sorted(by_name)}"
        raise ValueError(msg)
    return tuple(by_name[name] for name in order or by_name)


def _merged(first: tuple[Column, ...], second: tuple[Column, ...]) -> tuple[Column, ...]:
    by_name = {c.name: c for c in first}
    for c in second:
        known = by_name.get(c.name)
        by_name[c.name] = c if known is None else Column(c.name, _merge(known, c), known.comment)
    return tuple(by_name.values())


def _merge(first: Column, second: Column) -> ColumnType:
    match first.type, second.type:
        case ArrayOf(StructOf(a)), ArrayOf(StructOf(b)):
            return ArrayOf(StructOf(_merged(a, b)))
        case StructOf(a), StructOf(b):
            return StructOf(_merged(a, b))
        case a, b if a == b:
            return a
    msg = f"two layouts give column {first.name} the types {first.type} and {second.type}"
    raise ValueError(msg)

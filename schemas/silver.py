"""The columns of the silver tables: what the decoder fills, from the declared messages."""

from __future__ import annotations

from functools import cache

from schemas.columns import ArrayOf, Column, Primitive, column, struct_columns, value_columns
from schemas.messages import RecordType, record_types

_POSITION = (
    column("record_partition", "int", "Partition of __consumer_offsets that holds the record."),
    column("record_offset", "bigint", "Offset of the record in its partition."),
    column(
        "record_timestamp",
        "timestamp",
        "Time the broker gave the record; null in records of brokers before 0.10, and where a copy"
        " of the topic has times of its own.",
    ),
)
_KEY_VERSION = column("key_version", "smallint", "Record type in the key: 0 (legacy) or 1.")
_VALUE_VERSION = column("value_version", "smallint", "Version of the value; null for a tombstone.")
_IS_TOMBSTONE = column("is_tombstone", "boolean", "The record deletes its key: its value is null.")
_NOTES = Column(
    "decode_notes",
    ArrayOf(Primitive("string")),
    "Remarks of the decoder: former layout used, text that is not UTF-8, unknown tagged fields,"
    " bytes behind the key or the value; null without any.",
)


@cache
def silver_tables() -> dict[str, tuple[RecordType, ...]]:
    """The tables that records decode into, and the record types each takes."""
    tables: dict[str, tuple[RecordType, ...]] = {}
    for record_type in record_types().values():
        tables[record_type.table] = (*tables.get(record_type.table, ()), record_type)
    return tables


@cache
def decoded_columns(table: str) -> tuple[Column, ...]:
    """Return the columns that the decoder fills in the silver table `table`."""
    types = silver_tables()[table]
    names = {c.name: c for t in types for c in (*struct_columns(t.key.root), *value_columns(t))}
    keys = [c.name for c in struct_columns(types[-1].key.root)]
    values = [c.name for c in value_columns(types[-1])]
    if names.keys() != {*keys, *values}:
        msg = f"the last record type of {table} has to declare every column of the table"
        raise ValueError(msg)
    return (
        *_POSITION,
        *((_KEY_VERSION,) if len(types) > 1 else ()),
        _VALUE_VERSION,
        _IS_TOMBSTONE,
        *(names[name] for name in (*keys, *values)),
        _NOTES,
    )


@cache
def quarantine_columns() -> tuple[Column, ...]:
    """Return the columns that the decoder fills in silver.quarantine."""
    return (
        *_POSITION,
        column("record_type", "smallint", "Record type in the key; null where it has none."),
        column("value_version", "smallint", "Version of the value; null where it has none."),
        column("key", "binary", "The key's bytes."),
        column("value", "binary", "The value's bytes."),
        column("error", "string", "Why the record could not be decoded: which field, which byte."),
    )

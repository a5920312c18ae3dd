"""Records for tests: built through the encoder, or generated for any declared message."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from benchmarks.row_decoder import DecodedRow, Rejected, decode_record
from decoders.records import decode
from schemas.messages import (
    Embed,
    Field,
    Message,
    RecordType,
    Struct,
    embedded_messages,
    record_types,
)
from tests.support.encoder import encode_key, encode_message, encode_value

Pair = tuple[bytes | None, bytes | None]
Encoded = tuple[bytes, bytes]

OFFSET_COMMIT = 1
GROUP_METADATA = 2
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
FIRST_MS = -62_135_596_800_000
LAST_MS = 253_402_300_799_999
NIL_UUID = "AAAAAAAAAAAAAAAAAAAAAA"
TOPIC_ID = "AQIDBAUGBwgJCgsMDQ4PEA"

RECORDS = pa.schema(
    [
        ("record_partition", pa.int32()),
        ("record_offset", pa.int64()),
        ("record_timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)


# -- batches ----------------------------------------------------------------------------------


@dataclass
class Records:
    """Builds a batch of records, whose offsets are their indices in it."""

    pairs: list[Pair] = field(default_factory=list)

    def add(self, key: bytes | None, value: bytes | None = None) -> Records:
        """Add a record as bytes; without a value it is a tombstone."""
        self.pairs.append((key, value))
        return self

    def batch(self) -> pa.RecordBatch:
        """Make the batch."""
        return record_batch(self.pairs)


def record_batch(pairs: Sequence[Pair]) -> pa.RecordBatch:
    """Make a batch of records out of keys and values."""
    count = len(pairs)
    times = [EPOCH + timedelta(seconds=i) for i in range(count)]
    columns = [[7] * count, range(count), times, [k for k, _ in pairs], [v for _, v in pairs]]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, RECORDS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORDS)


def offset_commit(
    version: int = 3, *, key: Mapping[str, object] | None = None, **changes: object
) -> Encoded:
    """Make an offset commit of group ``billing`` for ``orders`` 5, with some fields changed."""
    values: dict[str, object] = {
        "offset": 42,
        "metadata": "",
        "commitTimestamp": 1_700_000_000_000,
        **({"leaderEpoch": 9} if version >= 3 else {}),
        **changes,
    }
    keys = {"group": "billing", "topic": "orders", "partition": 5, **(key or {})}
    return encode_key(OFFSET_COMMIT, keys), encode_value(OFFSET_COMMIT, version, values)


def member(version: int = 3, **changes: object) -> dict[str, object]:
    """Make a member of a classic group, without subscription and assignment."""
    return {
        "memberId": "consumer-1-aaaa",
        "clientId": "consumer-1",
        "clientHost": "/10.0.0.1",
        "sessionTimeout": 45_000,
        "subscription": b"",
        "assignment": b"",
        **({"rebalanceTimeout": 300_000} if version >= 1 else {}),
        **changes,
    }


def group_metadata(
    *members: Mapping[str, object],
    version: int = 3,
    group: str | bytes = "billing",
    **changes: object,
) -> Encoded:
    """Make the metadata of a classic group of consumers in generation 4."""
    values: dict[str, object] = {
        "protocolType": "consumer",
        "generation": 4,
        "protocol": "range",
        "leader": members[0]["memberId"] if members else None,
        "members": list(members),
        **({"currentStateTimestamp": 1_700_000_000_000} if version >= 2 else {}),
        **changes,
    }
    return encode_key(GROUP_METADATA, {"group": group}), encode_value(
        GROUP_METADATA, version, values
    )


def subscription(version: int = 3, **values: object) -> bytes:
    """Make the bytes of a consumer's subscription to ``orders``."""
    message = embedded_messages()["ConsumerProtocolSubscription"]
    fields = {"Topics": ["orders"], **({"OwnedPartitions": []} if version >= 1 else {}), **values}
    return encode_message(message, version, fields)


def assignment(version: int = 3, **values: object) -> bytes:
    """Make the bytes of a consumer's assignment: ``orders`` 0 and 1."""
    message = embedded_messages()["ConsumerProtocolAssignment"]
    partitions = [{"Topic": "orders", "Partitions": [0, 1]}]
    return encode_message(message, version, {"AssignedPartitions": partitions, **values})


def modern(
    record_type: int,
    values: Mapping[str, object],
    *,
    layout: str | None = None,
    group: str = "billing",
    member: str = "m-1",
) -> Encoded:
    """Make a record of a type with string keys: a group's, or one of its members'."""
    fields = record_types()[record_type].key.root.fields
    key = {f.name: group if f.name == "GroupId" else member for f in fields}
    return encode_key(record_type, key), encode_value(record_type, 0, values, layout=layout)


# -- what decoders make of them -----------------------------------------------------------------


def decode_all(batch: pa.RecordBatch) -> list[DecodedRow | Rejected]:
    """Decode a batch, as rows in the order of its records.

    Every record has to come out once, in a table or in the quarantine, with its position, and
    out of the quarantine with its bytes.
    """
    decoded = decode(batch)
    rows: dict[int, DecodedRow | Rejected] = {}
    found: dict[int, tuple[object, ...]] = {}
    position = RECORDS.names[:3]
    for table, batches in decoded.tables.items():
        for row in (row for part in batches for row in part.to_pylist()):
            offset = row["record_offset"]
            assert offset not in found
            found[offset] = tuple(row.pop(name) for name in position)
            rows[offset] = DecodedRow(table, row)
    given = {row["record_offset"]: row for row in batch.to_pylist()}
    for row in (row for part in decoded.quarantined for row in part.to_pylist()):
        offset = row["record_offset"]
        assert offset not in found
        found[offset] = tuple(row[name] for name in position)
        assert (row["key"], row["value"]) == (given[offset]["key"], given[offset]["value"])
        rows[offset] = Rejected(row["record_type"], row["value_version"], row["error"])
    assert found == {o: tuple(row[n] for n in position) for o, row in given.items()}
    return [rows[offset] for offset in given]


def assert_agrees_with_row_decoder(batch: pa.RecordBatch) -> list[DecodedRow | Rejected]:
    """Decode a batch by both decoders: tables, values, remarks and reasons have to be the same."""
    rows = decode_all(batch)
    keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
    for row, key, value in zip(rows, keys, values, strict=True):
        expected = decode_record(key, value)
        if not same(row, expected):
            shown = f"key={key!r} value={value!r}"
            assert _in_order(row) == _in_order(expected), shown
    return rows


def same(row: DecodedRow | Rejected, other: DecodedRow | Rejected) -> bool:
    """Return whether two decoders agree; the order of remarks is no part of either's promise."""
    return row == other or _in_order(row) == _in_order(other)


def decode_one(pair: Pair) -> dict[str, Any]:
    """Decode a record that has to be good, and give its columns."""
    [row] = assert_agrees_with_row_decoder(record_batch([pair]))
    assert isinstance(row, DecodedRow), row
    return row.columns


def reject_one(pair: Pair) -> Rejected:
    """Decode a record that has to be refused, and give the reason."""
    [row] = assert_agrees_with_row_decoder(record_batch([pair]))
    assert isinstance(row, Rejected), row
    return row


def _in_order(row: DecodedRow | Rejected) -> DecodedRow | Rejected:
    if isinstance(row, Rejected) or row.columns["decode_notes"] is None:
        return row
    notes = row.columns["decode_notes"]
    assert isinstance(notes, list)
    return DecodedRow(row.table, {**row.columns, "decode_notes": sorted(notes)})


# -- generated values ---------------------------------------------------------------------------


class EmbeddedBytes(bytes):
    """The bytes of an embedded message that remember what they were made of."""

    message: Message
    version: int
    values: dict[str, object]

    @classmethod
    def of(cls, message: Message, version: int, values: dict[str, object]) -> EmbeddedBytes:
        """Encode a message."""
        made = cls(encode_message(message, version, values))
        made.message, made.version, made.values = message, version, values
        return made


def layouts() -> list[tuple[RecordType, Message, int]]:
    """List every way to write a value: record type, layout, version."""
    return [
        (record_type, message, version)
        for record_type in record_types().values()
        for message in record_type.value_layouts
        for version in range(message.valid.low, message.valid.high + 1)
    ]


def layout_id(case: tuple[RecordType, Message, int]) -> str:
    """Name a way to write a value, for a reader of test results."""
    record_type, message, version = case
    former = f" ({message.layout})" if message.layout else ""
    return f"{record_type.id} {record_type.name} v{version}{former}"


def message_values(message: Message, version: int) -> SearchStrategy[dict[str, object]]:
    """Generate values that a message can hold in a version, by Kafka's names of the fields.

    A bytes field that embeds a message gets one that the values around it call for, or no bytes.
    """
    conditions = _conditions(message.root)
    if not conditions:
        return _struct_values(message.root, version, {})
    ((name, wanted),) = conditions.items()
    return st.one_of(st.sampled_from(sorted(wanted)), _TEXT).flatmap(
        lambda text: _struct_values(message.root, version, {name: text})
    )


def expected_columns(
    struct: Struct, version: int, values: Mapping[str, object], notes: list[str], *, flexible: bool
) -> dict[str, object]:
    """Say what columns generated values have to become.

    Args:
        struct: what the values were generated for.
        version: the version they were written in.
        values: by Kafka's names of the fields.
        notes: takes the remarks that the decoder has to make.
        flexible: whether the version has tagged fields.
    """
    columns: dict[str, object] = {}
    for each in struct.fields:
        value = values.get(each.name)
        columns[each.column] = _expected(each, version, value, notes, flexible=flexible)
        columns.update((embed.column, _expected_embedded(embed, value)) for embed in each.embeds)
        if each.error_column is not None:
            columns[each.error_column] = None
    return columns


def _expected(
    field: Field, version: int, value: object, notes: list[str], *, flexible: bool
) -> object:
    if value is None or version not in field.versions:
        return None
    if field.tag is not None and flexible and value == field.default:
        return None  # Kafka does not write it, so it cannot be distinguished from an absent one
    if isinstance(value, list):
        return [_expected_element(field, version, v, notes, flexible=flexible) for v in value]
    return _expected_element(field, version, value, notes, flexible=flexible)


def _expected_element(
    field: Field, version: int, value: object, notes: list[str], *, flexible: bool
) -> object:
    if field.struct is not None:
        assert isinstance(value, dict)
        return expected_columns(field.struct, version, value, notes, flexible=flexible)
    if value == field.none:
        return None
    if field.unit == "epoch_ms":
        assert isinstance(value, int)
        if FIRST_MS <= value <= LAST_MS:
            return EPOCH + timedelta(milliseconds=value)
        notes.append(f"{field.path}: {value} ms is no time between the years 1 and 9999")
        return None
    return bytes(value) if isinstance(value, EmbeddedBytes) else value


def _expected_embedded(embed: Embed, value: object) -> dict[str, object] | None:
    if not isinstance(value, EmbeddedBytes) or value.message.name != embed.message.name:
        return None
    columns = expected_columns(value.message.root, value.version, value.values, [], flexible=False)
    return {"version": value.version, **columns}


def _conditions(struct: Struct) -> dict[str, set[str]]:
    """Find the fields of the root that decide what bytes embed, and the values that matter."""
    found: dict[str, set[str]] = {}
    for each in struct.fields:
        for name, value in (e.when for e in each.embeds if e.when is not None):
            found.setdefault(name, set()).add(value)
        if each.struct is not None:
            for name, values in _conditions(each.struct).items():
                found.setdefault(name, set()).update(values)
    return found


def _struct_values(
    struct: Struct, version: int, context: Mapping[str, str]
) -> SearchStrategy[dict[str, object]]:
    due = [f for f in struct.fields if version in f.versions]
    always = {f.name: _field_values(f, version, context) for f in due if f.tag is None}
    tagged = {f.name: _field_values(f, version, context) for f in due if f.tag is not None}
    return st.fixed_dictionaries(
        {**always, **{name: st.just(text) for name, text in context.items() if name in always}},
        optional=tagged,
    )


def _field_values(field: Field, version: int, context: Mapping[str, str]) -> SearchStrategy[object]:
    values = _element_values(field, version, context)
    if field.is_array:
        values = st.lists(values, max_size=3)
    return st.none() | values if version in field.nullable else values


def _element_values(
    field: Field, version: int, context: Mapping[str, str]
) -> SearchStrategy[object]:
    if field.struct is not None:
        return _struct_values(field.struct, version, context)
    if field.embeds:
        return _embedded_bytes(field.embeds, context)
    if field.unit == "epoch_ms":
        return _EPOCH_MS
    return _SCALARS[field.kind]


def _embedded_bytes(embeds: Iterable[Embed], context: Mapping[str, str]) -> SearchStrategy[object]:
    due = [e.message for e in embeds if e.when is None or context[e.when[0]] == e.when[1]]
    if not due:
        return st.binary(max_size=20)
    choices = [
        message_values(message, version).map(partial(EmbeddedBytes.of, message, version))
        for message in due
        for version in range(message.valid.low, message.valid.high + 1)
    ]
    return st.one_of(st.just(b""), *choices)


def _integers(low: int, high: int) -> SearchStrategy[int]:
    return st.sampled_from(sorted({low, high, -1, 0, 1} if low else {0, 1, high})) | st.integers(
        low, high
    )


_TEXT = st.sampled_from(["", "orders", "über-größe", "🙂🙃", "\x00", "…" * 400]) | st.text(
    max_size=12
)
_EPOCH_MS = st.one_of(
    st.integers(FIRST_MS, LAST_MS),
    st.integers(1_500_000_000_000, 2_000_000_000_000),
    st.sampled_from([-(2**63), FIRST_MS - 1, FIRST_MS, -1, 0, LAST_MS, LAST_MS + 1, 2**63 - 1]),
)
_SCALARS: dict[str, SearchStrategy[object]] = {
    "bool": st.booleans(),
    "int8": _integers(-(2**7), 2**7 - 1),
    "int16": _integers(-(2**15), 2**15 - 1),
    "uint16": _integers(0, 2**16 - 1),
    "int32": _integers(-(2**31), 2**31 - 1),
    "int64": _integers(-(2**63), 2**63 - 1),
    "string": _TEXT,
    "bytes": st.binary(max_size=20),
    "uuid": st.binary(min_size=16, max_size=16).map(
        lambda octets: base64.urlsafe_b64encode(octets).decode().rstrip("=")
    )
    | st.just(NIL_UUID),
}

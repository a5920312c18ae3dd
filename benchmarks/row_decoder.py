"""Decodes one record at a time, field by field, with nothing but `struct`.

The plain way to read the same declarations: what the vectorised decoder is measured against, and
compared with in the tests, record by record. It shares the declarations with it and no code.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cache

from schemas.messages import (
    WRAPPED,
    WRAPPED_TYPES,
    Embed,
    Field,
    Message,
    RecordType,
    Struct,
    record_types,
)
from schemas.silver import decoded_columns

_FORMATS = {"bool": ">b", "int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "int64": ">q"}
_WIDTHS = {kind: struct.calcsize(layout) for kind, layout in _FORMATS.items()} | {"uuid": 16}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FIRST_MS = (datetime(1, 1, 1, tzinfo=timezone.utc) - _EPOCH) // timedelta(milliseconds=1)
_LAST_MS = (datetime.max.replace(tzinfo=timezone.utc) - _EPOCH) // timedelta(milliseconds=1)
_MAX_STRING = 0x7FFF
_MAX_VARINT = 5


@dataclass(frozen=True)
class DecodedRow:
    """A record's row in a silver table, without the record's position."""

    table: str
    columns: dict[str, object]


@dataclass(frozen=True)
class Rejected:
    """A record that goes to the quarantine, and why."""

    record_type: int | None
    value_version: int | None
    error: str


def decode_record(
    key: bytes | None, value: bytes | None, types: Mapping[int, RecordType] | None = None
) -> DecodedRow | Rejected:
    """Decode a record; without a value it is a tombstone.

    Args:
        key: its key.
        value: its value.
        types: what is known of record types, if not what is declared.
    """
    if key is None:
        return Rejected(None, None, "key is null")
    number = _leading_int16(key)
    if number is None:
        error = f"key: needs 2 bytes for the record type, has {len(key)}"
        return Rejected(None, None, error)
    types = record_types() if types is None else types
    inner = _wrapped(key, number, types) if value is None else None
    if inner is not None:
        key, number = key[4:], inner
    record_type = types.get(number)
    if record_type is None:
        return Rejected(number, None, f"unknown record type {number}")
    try:
        keys, notes, _ = _read(record_type.key, key, 0)
    except _Refusal as refusal:
        return Rejected(number, None, f"key.{refusal}")
    if inner is not None:
        notes.insert(0, WRAPPED)
    if value is None:
        return _row(record_type, keys, None, notes)
    return _decode_value(record_type, keys, notes, value)


def _wrapped(key: bytes, outer: int, types: Mapping[int, RecordType]) -> int | None:
    """Return the type of a key that stands behind its length, little-endian."""
    if len(key) <= 4 or int.from_bytes(key[:4], "little") != len(key) - 4:  # noqa: PLR2004
        return None
    inner = _leading_int16(key[4:])
    if inner not in WRAPPED_TYPES:
        return None
    return inner if outer not in types or types[outer].table == types[inner].table else None


def _decode_value(
    record_type: RecordType, keys: dict[str, object], notes: list[str], value: bytes
) -> DecodedRow | Rejected:
    version = _leading_int16(value)
    if version is None:
        error = f"value: needs 2 bytes for its version, has {len(value)}"
        return Rejected(record_type.id, None, error)
    if version not in record_type.value.valid:
        known = record_type.value.valid
        error = f"value version {version} of {record_type.name} is not known (known: {known})"
        return Rejected(record_type.id, version, error)
    with_rest: DecodedRow | None = None
    error = ""
    for layout in record_type.value_layouts:
        if version not in layout.valid:
            continue
        is_other = layout.layout is not None
        try:
            values, remarks, left = _read(layout, value, version)
        except _Refusal as refusal:
            error = error if is_other else f"value.{refusal}"
            continue
        if is_other:
            remarks.insert(0, f"layout: {layout.layout}")
        row = _row(record_type, {**keys, **values}, version, notes + remarks)
        if not left:
            return row
        with_rest = with_rest if is_other else row
    return with_rest or Rejected(record_type.id, version, error)


def _row(
    record_type: RecordType, found: dict[str, object], version: int | None, notes: list[str]
) -> DecodedRow:
    found = {
        **found,
        "key_version": record_type.id,
        "value_version": version,
        "is_tombstone": version is None,
        "decode_notes": notes or None,
    }
    return DecodedRow(record_type.table, {n: found.get(n) for n in _names(record_type.table)})


@cache
def _names(table: str) -> tuple[str, ...]:
    position = {"record_partition", "record_offset", "record_timestamp"}
    return tuple(c.name for c in decoded_columns(table) if c.name not in position)


def _leading_int16(octets: bytes) -> int | None:
    width = _WIDTHS["int16"]
    return int.from_bytes(octets[:width], "big", signed=True) if len(octets) >= width else None


def _read(
    message: Message, octets: bytes, version: int
) -> tuple[dict[str, object], list[str], int]:
    """Read a message that stands behind an int16.

    Returns:
        Its columns, the remarks on it, and how many bytes are left behind it.

    Raises:
        _Refusal: the bytes are not this message.
    """
    reading = _Reading(octets, version, flexible=version in message.flexible, pos=2)
    columns = reading.fields(message.root)
    if reading.left:
        reading.note(f"trailing_bytes: {reading.left} after {message.name}")
    return columns, reading.notes, reading.left


class _Refusal(Exception):  # noqa: N818 - not an error: the answer to what the bytes are
    """What is wrong with the bytes, and where."""


@dataclass
class _Reading:
    """Where the reading of one message has got to."""

    octets: bytes
    version: int
    flexible: bool = False
    pos: int = 0
    notes: list[str] = field(default_factory=list)
    texts: dict[str, object] = field(default_factory=dict)  # strings of the message's root

    @property
    def left(self) -> int:
        return len(self.octets) - self.pos

    def refusal(self, path: str, why: str) -> _Refusal:
        return _Refusal(f"{path} at byte {self.pos}: {why}")

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    # -- structs ------------------------------------------------------------------------------

    def fields(self, declared: Struct) -> dict[str, object]:
        columns = _nothing(declared)
        if declared.repeats_version:
            path = f"{declared.name}.version"
            version = self.number("int16", path)
            if version != self.version:
                raise self.refusal(path, f"version {version} is not known")
        for each in declared.fields:
            if self.version not in each.versions or (each.tag is not None and self.flexible):
                continue
            columns |= self.field(each)
            if each.path == each.name and each.kind == "string":
                self.texts[each.name] = columns[each.column]
        if self.flexible:
            columns |= self.tagged_fields(declared)
        return columns

    def field(self, declared: Field) -> dict[str, object]:
        if declared.is_array:
            return {declared.column: self.array(declared)}
        if declared.kind == "bytes":
            content = self.payload(declared, nullable=self.version in declared.nullable)
            return {declared.column: content, **self.embedded(declared, content)}
        return {declared.column: self.single(declared)}

    def single(self, declared: Field) -> object:
        nullable = self.version in declared.nullable
        if declared.struct is None:
            return self.element(declared, nullable=nullable)
        if nullable and self.is_null_struct(declared):
            return None
        return self.fields(declared.struct)

    def is_null_struct(self, declared: Field) -> bool:
        if declared.tag is not None:
            return self.varint(declared.path) <= 0
        return self.number("int8", declared.path) < 0

    def array(self, declared: Field) -> list[object] | None:
        count = self.length("int32", declared.path)
        if count < 0:
            self.refuse_null(declared, nullable=self.version in declared.nullable)
            return None
        if count * _fewest_bytes(declared, self.flexible) > self.left:
            raise self.refusal(
                declared.path, f"an array of {count} elements with {self.left} bytes left"
            )
        noted = len(self.notes)
        try:
            if declared.struct is not None:
                return [self.fields(declared.struct) for _ in range(count)]
            return [self.element(declared, nullable=False) for _ in range(count)]
        except _Refusal:
            # Nothing of an array that ends badly is kept, remarks included.
            del self.notes[noted:]
            raise

    # -- tagged fields --------------------------------------------------------------------------

    def tagged_fields(self, declared: Struct) -> dict[str, object]:
        count = self.varint(declared.name)
        if count * 2 > self.left:
            why = f"an array of {count} elements with {self.left} bytes left"
            raise self.refusal("tagged fields", why)
        known = {f.tag: f for f in declared.fields if self.version in f.tagged}
        found: dict[int, tuple[dict[str, object], list[str]]] = {}
        unknown = 0
        for _ in range(count):
            tag = self.varint("tag")
            size = self.varint("tag size")
            if tag in known:
                noted, self.notes = self.notes, []
                found[tag] = self.field(known[tag]), self.notes
                self.notes = noted
            elif not 0 <= size <= self.left:
                why = f"a tagged field of {size} bytes with {self.left} bytes left"
                raise self.refusal("tagged fields", why)
            else:
                self.pos += size
                unknown += 1
        if unknown:
            self.note(f"{unknown} unknown tagged fields in {declared.name}")
        columns: dict[str, object] = {}
        for values, notes in found.values():
            columns |= values
            for text in notes:
                self.note(text)
        return columns

    # -- single values --------------------------------------------------------------------------

    def element(self, declared: Field, *, nullable: bool) -> object:
        if declared.kind == "string":
            return self.string(declared, nullable=nullable)
        if declared.kind == "bytes":
            return self.payload(declared, nullable=nullable)
        if declared.kind == "uuid":
            text = base64.urlsafe_b64encode(self.take(16, declared.path)).decode().rstrip("=")
            return None if text == declared.none else text
        value = self.number(declared.kind, declared.path)
        if value == declared.none:
            return None
        if declared.unit == "epoch_ms":
            return self.time(value, declared.path)
        return value != 0 if declared.kind == "bool" else value

    def time(self, epoch_ms: int, path: str) -> datetime | None:
        if not _FIRST_MS <= epoch_ms <= _LAST_MS:
            self.note(f"{path}: {epoch_ms} ms is no time between the years 1 and 9999")
            return None
        return _EPOCH + timedelta(milliseconds=epoch_ms)

    def string(self, declared: Field, *, nullable: bool) -> str | None:
        content = self.payload(declared, nullable=nullable)
        if content is None:
            return None
        try:
            return content.decode()
        except UnicodeDecodeError:
            self.note(f"{declared.path} is not valid UTF-8")
            # Java counts a half of a surrogate pair as one fault, Python each of its bytes.
            whole = re.sub(rb"\xed[\xa0-\xbf][\x80-\xbf]?", b"\xff", content)
            return whole.decode(errors="replace")

    def payload(self, declared: Field, *, nullable: bool) -> bytes | None:
        is_string = declared.kind == "string"
        length = self.length("int16" if is_string else "int32", declared.path)
        if length < 0:
            self.refuse_null(declared, nullable=nullable)
            return None
        if is_string and length > _MAX_STRING:
            why = f"a string of {length} bytes, more than the 32767 that Kafka allows"
            raise self.refusal(declared.path, why)
        if length > self.left:
            raise self.refusal(declared.path, f"a length of {length} with {self.left} bytes left")
        return self.take(length, declared.path)

    def refuse_null(self, declared: Field, *, nullable: bool) -> None:
        if not nullable:
            raise self.refusal(declared.path, "is null, which this field cannot be")

    def length(self, kind: str, path: str) -> int:
        if self.flexible:
            return _int32(self.varint(path) - 1)
        return self.number(kind, path)

    def number(self, kind: str, path: str) -> int:
        number: int
        (number,) = struct.unpack(_FORMATS[kind], self.take(_WIDTHS[kind], path))
        return number

    def varint(self, path: str) -> int:
        value = 0
        for index in range(_MAX_VARINT):
            octet = self.take(1, path)[0]
            value |= (octet & 0x7F) << (7 * index)
            if octet < 0x80:  # noqa: PLR2004 - the bit that says another byte follows
                return _int32(value)
        raise self.refusal(path, "a varint longer than 5 bytes")

    def take(self, count: int, path: str) -> bytes:
        if count > self.left:
            raise self.refusal(path, f"needs {count} bytes, {self.left} left")
        self.pos += count
        return self.octets[self.pos - count : self.pos]

    # -- messages in bytes fields ---------------------------------------------------------------

    def embedded(self, declared: Field, content: bytes | None) -> dict[str, object]:
        columns: dict[str, object] = {embed.column: None for embed in declared.embeds}
        errors: list[str] = []
        for embed in declared.embeds:
            if content and self.is_due(embed):
                columns[embed.column] = _embedded_message(embed.message, content, errors)
        if declared.error_column is not None:
            columns[declared.error_column] = "; ".join(errors) or None
        return columns

    def is_due(self, embed: Embed) -> bool:
        return embed.when is None or self.texts[embed.when[0]] == embed.when[1]


def _embedded_message(
    message: Message, content: bytes, errors: list[str]
) -> dict[str, object] | None:
    """Read a message that starts with its version; one that is cut short is read in part."""
    reading = _Reading(content, 0)
    try:
        version = reading.number("int16", "version")
        if version < message.valid.low:
            raise reading.refusal("version", f"version {version} is not known")
        reading.version = version
        columns: dict[str, object] = {"version": version, **_nothing(message.root)}
        for each in message.root.fields:
            if version not in each.versions:
                continue
            if reading.left or message.missing_tail == "refused":
                columns |= reading.field(each)
            elif message.missing_tail == "noted":
                reading.note(f"{each.name} missing: the bytes end at byte {reading.pos}")
    except _Refusal as refusal:
        errors += [*reading.notes, str(refusal)]
        return None
    errors += reading.notes
    if reading.left and version <= message.valid.high:
        why = f"{reading.left} bytes left over after the last field"
        errors.append(f"{message.name} at byte {reading.pos}: {why}")
    return columns


def _nothing(declared: Struct) -> dict[str, object]:
    """Return the columns of a struct, all null."""
    columns: dict[str, object] = {}
    for each in declared.fields:
        columns |= dict.fromkeys((each.column, *(embed.column for embed in each.embeds)))
        if each.error_column is not None:
            columns[each.error_column] = None
    return columns


@cache
def _fewest_bytes(declared: Field, flexible: bool) -> int:  # noqa: FBT001 - cached by position
    """The fewest bytes that an element of an array takes in any version: at least one."""
    lengths = {"string": 2, "bytes": 4, "array": 4}
    if declared.struct is None:
        return _WIDTHS.get(declared.kind) or (1 if flexible else lengths[declared.kind])
    fewest = 1 if flexible else 0
    fewest += _WIDTHS["int16"] if declared.struct.repeats_version else 0
    for each in declared.struct.fields:
        is_certain = each.tag is None and each.versions.holds_all
        if not is_certain or (each.struct is not None and not each.is_array):
            continue
        kind = "array" if each.is_array else each.kind
        fewest += _WIDTHS.get(kind) or (1 if flexible else lengths[kind])
    return max(fewest, 1)


def _int32(number: int) -> int:
    """Wrap a number to what Java's int makes of it."""
    return (number + 2**31) % 2**32 - 2**31

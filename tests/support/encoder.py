"""Writes declared messages as the classes do that Kafka generates from the same declarations.

The counterpart of ``decoders.reader``, one message at a time. Values go by Kafka's
names of the fields (``groupInstanceId``), each as its column holds it: an int, a str, bytes, a
list, a dict for a struct, an id as Kafka prints it. A bytes field takes what it embeds as bytes.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import TypeAlias

from schemas.messages import Field, Message, Struct, record_types

Values: TypeAlias = "Mapping[str, object]"

UNKNOWN_TAGS = "_unknownTaggedFields"
"""Kafka's name for the tagged fields that a declaration lacks: pairs of tag and bytes."""

_MAX_STRING = 32767
_CONTINUED = 0x80  # marks a byte of a varint that another one follows
_NIL_UUID = "A" * 22
_RANGES = {
    "int8": (1, True),
    "int16": (2, True),
    "uint16": (2, False),
    "int32": (4, True),
    "int64": (8, True),
}


def encode_key(record_type: int, values: Values) -> bytes:
    """Write a record key: its type, then its fields.

    Raises:
        ValueError: a value does not fit its field, which the message names.
    """
    key = record_types()[record_type].key
    return _integer(record_type, "int16", "record type") + encode_message(key, 0, values)


def encode_value(
    record_type: int, version: int, values: Values, *, layout: str | None = None
) -> bytes:
    """Write a record value: its version, then its fields.

    Args:
        record_type: the number that the record's key starts with.
        version: a version that the record type declares.
        values: what to write, by Kafka's names of the fields.
        layout: another layout by its name, instead of today's.

    Raises:
        ValueError: a value does not fit its field, which the message names.
    """
    declared = record_types()[record_type]
    layouts = [m for m in declared.value_layouts if m.layout == layout]
    if not layouts:
        names = [m.layout for m in declared.value_layouts[1:]]
        raise ValueError(f"{declared.name} has no layout {layout!r}, only {names}")
    return _integer(version, "int16", "version") + encode_message(layouts[0], version, values)


def encode_message(message: Message, version: int, values: Values) -> bytes:
    """Write a message; an embedded one starts with its version, others do not.

    A field that `values` lacks takes its default, or null where it can be null.

    Raises:
        ValueError: a value does not fit its field, which the message names.
    """
    if version not in message.valid:
        raise ValueError(f"{message.name}: version {version} is not known ({message.valid})")
    header = _integer(version, "int16", "version") if message.has_version_header else b""
    return header + _Writer(version, flexible=version in message.flexible).struct(
        message.root, values, message.name
    )


def unsigned_varint(value: int) -> bytes:
    """Write an UNSIGNED_VARINT: seven bits a byte, the lowest first."""
    octets = bytearray()
    while value >= _CONTINUED:
        octets.append(value % _CONTINUED | _CONTINUED)
        value >>= 7
    octets.append(value)
    return bytes(octets)


class _Writer:
    def __init__(self, version: int, *, flexible: bool) -> None:
        self._version = version
        self._flexible = flexible

    def struct(self, struct: Struct, values: object, path: str) -> bytes:
        if not isinstance(values, Mapping):
            raise _unfit(path, "a dict", values)
        surplus = values.keys() - {f.name for f in struct.fields} - {UNKNOWN_TAGS}
        if surplus:
            raise ValueError(f"{path} has no field {', '.join(sorted(surplus))}")
        out = bytearray(_integer(self._version, "int16", path) if struct.repeats_version else b"")
        tagged: dict[int, bytes] = {}
        for field in struct.fields:
            value = values.get(field.name)
            if self._version not in field.versions:
                if value is not None and value != field.default:
                    raise ValueError(f"{field.path}: version {self._version} lacks this field")
            elif field.tag is not None and self._version in field.tagged:
                if not _is_default(field, value):
                    tagged[field.tag] = self._field(field, value)
            else:
                out += self._field(field, self._value_or_default(field, values))
        if self._flexible:
            out += _tagged_section(tagged, values.get(UNKNOWN_TAGS), path)
        elif UNKNOWN_TAGS in values:
            raise ValueError(f"{path}: version {self._version} has no tagged fields")
        return bytes(out)

    def _value_or_default(self, field: Field, values: Values) -> object:
        if field.name in values:
            return values[field.name]
        if field.default is None and self._version not in field.nullable:
            raise ValueError(f"{field.path}: no value, and no default to take instead")
        return field.default

    def _field(self, field: Field, value: object) -> bytes:
        if value is None and self._version not in field.nullable:
            raise ValueError(f"{field.path} cannot be null")
        if field.is_array:
            if value is None:
                return self._length("int32", None, field.path)
            if not isinstance(value, list):
                raise _unfit(field.path, "a list", value)
            elements = b"".join(self._element(field, element) for element in value)
            return self._length("int32", len(value), field.path) + elements
        if field.struct is not None and self._version in field.nullable:
            return self._mark(field, is_null=value is None) + (
                b"" if value is None else self._element(field, value)
            )
        return self._element(field, value)

    def _mark(self, field: Field, *, is_null: bool) -> bytes:
        """Write what precedes a struct that can be null."""
        if field.tag is not None and self._version in field.tagged:
            return unsigned_varint(0 if is_null else 1)
        return _integer(-1 if is_null else 1, "int8", field.path)

    def _element(self, field: Field, value: object) -> bytes:
        if field.struct is not None:
            return self.struct(field.struct, value, field.path)
        if field.kind == "string":
            return self._string(field, value)
        if field.kind == "bytes":
            return self._bytes(field, value)
        if field.kind == "uuid":
            return _uuid(value, field.path)
        if field.kind == "bool":
            if not isinstance(value, bool):
                raise _unfit(field.path, "a bool", value)
            return bytes([value])
        return _integer(value, field.kind, field.path)

    def _string(self, field: Field, value: object) -> bytes:
        """Write a string; bytes instead of it are written as they are, UTF-8 or not."""
        if value is None and not field.is_array:
            return self._length("int16", None, field.path)
        if isinstance(value, str):
            try:
                value = value.encode()
            except UnicodeEncodeError as error:
                raise ValueError(f"{field.path}: {error}") from error
        if not isinstance(value, bytes):
            raise _unfit(field.path, "a str", value)
        if len(value) > _MAX_STRING:
            raise ValueError(f"{field.path}: {len(value)} bytes, more than Kafka's {_MAX_STRING}")
        return self._length("int16", len(value), field.path) + value

    def _bytes(self, field: Field, value: object) -> bytes:
        if value is None and not field.is_array:
            return self._length("int32", None, field.path)
        if not isinstance(value, bytes):
            raise _unfit(field.path, "bytes", value)
        return self._length("int32", len(value), field.path) + value

    def _length(self, kind: str, length: int | None, path: str) -> bytes:
        if self._flexible:
            return unsigned_varint(0 if length is None else length + 1)
        return _integer(-1 if length is None else length, kind, path)


def _is_default(field: Field, value: object) -> bool:
    """Return whether Kafka leaves a tagged field out: it then means its default, or null."""
    if value is None or value == field.default:
        return True
    return field.kind == "uuid" and not field.is_array and value == _NIL_UUID


def _tagged_section(tagged: dict[int, bytes], unknown: object, path: str) -> bytes:
    fields = dict(tagged)
    for tag, octets in _pairs(unknown, path):
        if tag in fields:
            raise ValueError(f"{path}: tag {tag} is written twice")
        fields[tag] = octets
    out = bytearray(unsigned_varint(len(fields)))
    for tag, octets in sorted(fields.items()):
        out += unsigned_varint(tag) + unsigned_varint(len(octets)) + octets
    return bytes(out)


def _pairs(unknown: object, path: str) -> list[tuple[int, bytes]]:
    pairs: list[tuple[int, bytes]] = []
    for pair in unknown if isinstance(unknown, list) else ():
        match pair:
            case (int(tag), bytes(octets)) if tag >= 0:
                pairs.append((tag, octets))
            case _:
                raise _unfit(path, "a tag and bytes", pair)
    return pairs


def _integer(value: object, kind: str, path: str) -> bytes:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _unfit(path, "an int", value)
    width, signed = _RANGES[kind]
    try:
        return value.to_bytes(width, "big", signed=signed)
    except OverflowError:
        raise ValueError(f"{path}: {value} is out of the range of {kind}") from None


def _uuid(value: object, path: str) -> bytes:
    try:
        octets = base64.b64decode(f"{value}==", altchars=b"-_", validate=True)
    except binascii.Error:
        octets = b""
    if not isinstance(value, str) or len(octets) != 16:
        raise _unfit(path, "an id of 22 characters of base64", value)
    return octets


def _unfit(path: str, expected: str, found: object) -> ValueError:
    return ValueError(f"{path}: expected {expected}, found {found!r}")

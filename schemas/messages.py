"""Kafka's messages as data: loads the declarations in ``schemas/kafka`` into frozen objects.

The files are written in Kafka's own message-definition format (the JSON that Kafka's build turns
into Java classes), one file a record type, with a few attributes of ours: ``column``, ``unit``,
``none``, ``embeds``, ``columnOrder``. Whoever adds a record type or a version edits a file there;
decoder, encoder, tables and documentation follow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TypeAlias, TypeVar

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
JsonObject: TypeAlias = "dict[str, Json]"
_T = TypeVar("_T")

FIXED_WIDTH = {"bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "int64": 8, "uuid": 16}
_PRIMITIVES = {*FIXED_WIDTH, "string", "bytes"}
_MAX_VERSION = 32767


OFFSETS_TOPIC = "__consumer_offsets"
"""What the topic is called; a copy of it may have another name."""
OFFSET_COMMIT, GROUP_METADATA = 1, 2
"""Record types that tell when, and by whom, a topic was written."""
WRAPPED_TYPES = (0, 1, 2)
"""Record types of which Redpanda's older releases wrote a tombstone's key behind its length."""
WRAPPED = "layout: Redpanda, the key behind its length"
"""What is remarked on such a record."""


class DeclarationError(ValueError):
    """A declaration in ``schemas/kafka`` contradicts itself."""


@dataclass(frozen=True)
class Versions:
    """A closed range of message versions; ``low > high`` holds none."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Read Kafka's notation: ``0``, ``0-4``, ``3+`` or ``none``."""
        if text == "none":
            return cls(1, 0)
        if text.endswith("+"):
            return cls(int(text[:-1]), _MAX_VERSION)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))

    def __contains__(self, version: int) -> bool:
        """Return whether `version` lies in the range."""
        return self.low <= version <= self.high

    @property
    def holds_all(self) -> bool:
        """Whether every version is in the range."""
        return self.low == 0 and self.high == _MAX_VERSION

    def __str__(self) -> str:
        """Show the range as a reader expects it in an error message: ``0 to 4``."""
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"


@dataclass(frozen=True)
class Embed:
    """A message that a bytes field holds, and the column its struct goes to.

    `when` is (field, value): the message is there only if that field of the root message,
    a string, has that value.
    """

    message: Message
    column: str
    about: str
    when: tuple[str, str] | None


@dataclass(frozen=True)
class Field:
    """One field of a message: its position on the wire and the column it becomes.

    `kind` is a primitive type of Kafka's or ``struct``; `path` names the field for a reader of
    an error message (``members[].memberId``).
    """

    name: str
    path: str
    column: str
    about: str
    kind: str
    is_array: bool
    struct: Struct | None
    versions: Versions
    nullable: Versions
    default: int | str | None
    tag: int | None
    tagged: Versions
    unit: str | None
    none: int | str | None
    embeds: tuple[Embed, ...]
    error_column: str | None
    error_about: str | None

    @property
    def fixed_width(self) -> int | None:
        """Bytes of one element of the field, or None if that depends on the data."""
        if self.struct is not None:
            return None
        return FIXED_WIDTH.get(self.kind)


@dataclass(frozen=True)
class Struct:
    """A sequence of fields, in the order of the wire.

    `repeats_version` says that the message's version stands in front of it again, as an int16.
    """

    name: str
    fields: tuple[Field, ...]
    column_order: tuple[str, ...]
    repeats_version: bool


@dataclass(frozen=True)
class Message:
    """A struct that stands alone: it has versions, and is flexible from some version on.

    `layout` names another layout of the same version number: a former one (``before 3.8``), or
    that of another vendor (``Redpanda``). Embedded messages
    start with their version (`has_version_header`); `missing_tail` says what it means if their
    bytes end before their last field: ``refused``, ``noted`` or ``tolerated``.
    """

    name: str
    about: str
    valid: Versions
    flexible: Versions
    root: Struct
    layout: str | None
    has_version_header: bool
    missing_tail: str


@dataclass(frozen=True)
class RecordType:
    """One record type of ``__consumer_offsets``: the int16 that its keys start with."""

    id: int
    name: str
    about: str
    grain: str
    table: str
    key: Message
    value: Message
    former_values: tuple[Message, ...]
    variants: tuple[Message, ...]

    @property
    def value_layouts(self) -> tuple[Message, ...]:
        """The layouts to try for a value, today's first, those of other vendors last."""
        return (self.value, *self.former_values, *self.variants)


def snake_case(name: str) -> str:
    """Turn a name of Kafka's into a column's: ``groupInstanceId`` -> ``group_instance_id``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


@cache
def record_types() -> dict[int, RecordType]:
    """All declared record types, by their number."""
    declared = [_record_type(d) for d in _declarations() if "recordType" in d]
    by_id = {record_type.id: record_type for record_type in declared}
    if len(by_id) != len(declared):
        msg = "two files in schemas/kafka declare the same recordType"
        raise DeclarationError(msg)
    return dict(sorted(by_id.items()))


@cache
def embedded_messages() -> dict[str, Message]:
    """The messages that bytes fields of other messages hold, by name."""
    names = [_text(d["name"]) for d in _declarations() if "recordType" not in d]
    return {name: _embedded_message(name) for name in names}


@cache
def _embedded_message(name: str) -> Message:
    declaration = next((d for d in _declarations() if d["name"] == name), None)
    if declaration is None:
        raise DeclarationError(f"there is no message {name}")
    return _message(declaration)


@cache
def _declarations() -> list[JsonObject]:
    folder = resources.files("schemas") / "kafka"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".json")), key=lambda f: f.name)
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def _record_type(declaration: JsonObject) -> RecordType:
    name = _text(declaration["name"])
    return RecordType(
        id=_integer(declaration["recordType"]),
        name=name,
        about=_text(declaration["about"]),
        grain=_text(declaration["grain"]),
        table=_text(declaration.get("table", snake_case(name))),
        key=_message(_object(declaration["key"])),
        value=_message(_object(declaration["value"])),
        former_values=tuple(
            _message(_object(former)) for former in _list(declaration.get("formerValues"))
        ),
        variants=tuple(
            _message(_varied(_object(declaration["value"]), _object(variant)))
            for variant in _list(declaration.get("variants"))
        ),
    )


def _varied(value: JsonObject, variant: JsonObject) -> JsonObject:
    """Return the declaration of a value as another vendor writes it."""
    repeating = _list(variant["versionInFrontOf"])
    structs: list[Json] = [
        {**_object(s), "repeatsVersion": _object(s)["name"] in repeating}
        for s in _list(value.get("commonStructs"))
    ]
    return {**value, **variant, "commonStructs": structs}


def _message(declaration: JsonObject) -> Message:
    structs = {
        _text(_object(s)["name"]): _object(s) for s in _list(declaration.get("commonStructs"))
    }
    return Message(
        name=_text(declaration["name"]),
        about=_text(declaration.get("about", "")),
        valid=Versions.parse(_text(declaration["validVersions"])),
        flexible=Versions.parse(_text(declaration["flexibleVersions"])),
        root=_struct(declaration, "", structs),
        layout=_optional_text(declaration.get("layout")),
        has_version_header="versionHeader" in declaration,
        missing_tail=_text(declaration.get("missingTail", "refused")),
    )


def _struct(declaration: JsonObject, path: str, structs: dict[str, JsonObject]) -> Struct:
    return Struct(
        name=_text(declaration.get("name", "")),
        fields=tuple(_field(_object(f), path, structs) for f in _list(declaration["fields"])),
        column_order=tuple(_text(c) for c in _list(declaration.get("columnOrder"))),
        repeats_version=declaration.get("repeatsVersion") is True,
    )


def _field(declaration: JsonObject, parent_path: str, structs: dict[str, JsonObject]) -> Field:
    name = _text(declaration["name"])
    type_name = _text(declaration["type"])
    is_array = type_name.startswith("[]")
    kind = type_name.removeprefix("[]")
    path = parent_path + name + ("[]" if is_array else "")
    struct = None
    if kind not in _PRIMITIVES:
        nested = declaration if "fields" in declaration else structs.get(kind)
        if nested is None:
            msg = f"{path}: type {kind} is neither a primitive type nor declared"
            raise DeclarationError(msg)
        struct = _struct({**nested, "name": kind}, f"{path}.", structs)
        kind = "struct"
    tag = declaration.get("tag")
    default = declaration.get("default")
    none = declaration.get("none")
    return Field(
        name=name,
        path=path,
        column=_text(declaration.get("column", snake_case(name))),
        about=_text(declaration["about"]),
        kind=kind,
        is_array=is_array,
        struct=struct,
        versions=Versions.parse(_text(declaration["versions"])),
        nullable=Versions.parse(_text(declaration.get("nullableVersions", "none"))),
        default=default if isinstance(default, int) and not isinstance(default, bool) else None,
        tag=None if tag is None else _integer(tag),
        tagged=Versions.parse(_text(declaration.get("taggedVersions", "none"))),
        unit=_optional_text(declaration.get("unit")),
        none=none if isinstance(none, int | str) else None,
        embeds=tuple(_embed(_object(e)) for e in _list(declaration.get("embeds"))),
        error_column=_optional_text(declaration.get("errorColumn")),
        error_about=_optional_text(declaration.get("errorAbout")),
    )


def _embed(declaration: JsonObject) -> Embed:
    when = declaration.get("when")
    condition = None
    if when is not None:
        ((field, value),) = _object(when).items()
        condition = (field, _text(value))
    return Embed(
        message=_embedded_message(_text(declaration["message"])),
        column=_text(declaration["column"]),
        about=_text(declaration["about"]),
        when=condition,
    )


def _checked(kind: type[_T], called: str) -> Callable[[Json], _T]:
    def check(value: Json) -> _T:
        if not isinstance(value, kind):
            raise DeclarationError(f"expected {called}, found {value!r}")
        return value

    return check


_text = _checked(str, "a string")
_integer = _checked(int, "a number")
_object = _checked(dict, "an object")


def _optional_text(value: Json) -> str | None:
    return None if value is None else _text(value)


def _list(value: Json) -> list[Json]:
    return [] if value is None else _checked(list, "a list")(value)

"""Kafka's own classes, in a Java process, and how what they read is held against the decoder."""

from __future__ import annotations

import base64
import json
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.row_decoder import DecodedRow, Rejected, decode_record
from launch.jars import JarSet, fetch
from schemas.messages import Field, Message, RecordType, Struct, embedded_messages, record_types
from tests.factories import EPOCH, FIRST_MS, LAST_MS, Pair, same
from tests.support.broker import JARS

if TYPE_CHECKING:
    from typing_extensions import Self

PROGRAM = Path(__file__).with_name("KafkaDecoder.java")
CLOSING_S = 60

# What the release of the broker in broker-jars.xml lacks.
UNKNOWN_TO_KAFKA = {
    9: "ShareGroupPartitionMetadata was removed",
    18: "StreamsGroupPartitionMetadata was removed",
    24: "StreamsGroupTargetAssignmentResolvedTopicIds is newer than the broker",
}
# Tags that are newer than the broker are unknown to it: it passes over them by their size.
NEWER_TAGS = {17: ("stored_description_topology_epoch", "failed_description_topology_epoch")}

BOTH_READ = "both read"
BOTH_REFUSE = "both refuse"
OTHER_TYPE = "type Kafka lacks"
FORMER_LAYOUT = "former layout"
NEWER_TAG = "tag Kafka lacks"
CUT_EMBEDDED = "embedded cut short"
OUT_OF_MEMORY = "out of memory"
DIFFERENT = "different"
REASONS = (OTHER_TYPE, FORMER_LAYOUT, NEWER_TAG, CUT_EMBEDDED, OUT_OF_MEMORY)
"""Why the decoder does not do what Kafka's classes do: docs/decoding.md has these, too."""


class NoJdkError(RuntimeError):
    """There is no Java that runs a program from its source."""


def jdk() -> str:
    """Find a Java that runs a program from its source.

    Raises:
        NoJdkError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None:
        raise NoJdkError("java is not installed")
    listed = subprocess.run([found, "--list-modules"], capture_output=True, text=True, check=True)
    if "jdk.compiler@" not in listed.stdout:
        raise NoJdkError("java is a JRE: running Kafka's own classes takes a JDK, which compiles")
    return found


class KafkaClasses:
    """Decodes records by the classes of the broker, in one process for many batches."""

    def __init__(self, java: str) -> None:
        jars = fetch(JarSet.from_file(JARS, name="kafka-broker"))
        command = [java, "-XX:+UseSerialGC", "-Xmx256m", "-cp", f"{jars[0].parent}/*", str(PROGRAM)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(CLOSING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def send(self, pairs: Sequence[Pair]) -> None:
        """Hand a batch over; `answers` has to be asked before the next one."""
        parts = [part for pair in pairs for part in pair]
        framed = b"".join(
            struct.pack(">i", -1) if p is None else struct.pack(">i", len(p)) + p for p in parts
        )
        assert self._process.stdin
        self._process.stdin.write(struct.pack(">i", len(pairs)) + framed)
        self._process.stdin.flush()

    def answers(self, count: int) -> list[dict[str, object]]:
        """Wait for what Kafka makes of the records of a batch."""
        assert self._process.stdout
        lines = [self._process.stdout.readline() for _ in range(count)]
        assert all(lines), "the Java process ended: see what it wrote to stderr"
        return [json.loads(line) for line in lines]


# -- verdicts -------------------------------------------------------------------------------------


def compare_record(
    pair: Pair, row: DecodedRow | Rejected, theirs: Mapping[str, object]
) -> tuple[str, list[str]]:
    """Hold what the decoder makes of a record against what Kafka does.

    Returns:
        `BOTH_READ`, `BOTH_REFUSE`, one of `REASONS`, or `DIFFERENT` and the differences.
    """
    found = list(record_differences(pair, row, theirs))
    if found:
        reason = known_reason(pair, row, theirs)
        return (DIFFERENT, found) if reason is None else (reason, [])
    if isinstance(row, Rejected):
        return BOTH_REFUSE, []
    return CUT_EMBEDDED if has_cut_embedded(row.columns, theirs) else BOTH_READ, []


def known_reason(
    pair: Pair, row: DecodedRow | Rejected, theirs: Mapping[str, object]
) -> str | None:
    """Say why the decoder differs from Kafka where it does with reason.

    The decoder knows more than the broker's release. That is the reason only if a decoder that
    knows as much as the broker does not differ, and one that knows as much as ours does as ours.
    """
    if "OutOfMemoryError" in str(theirs.get("refused")):
        return OUT_OF_MEMORY
    as_kafka = decode_record(*pair, types_of_kafka())
    if any(record_differences(pair, as_kafka, theirs)) or not same(row, decode_record(*pair)):
        return None
    number = type_of(pair)
    if number in UNKNOWN_TO_KAFKA:
        return OTHER_TYPE
    if isinstance(row, DecodedRow) and any(note.startswith("layout: ") for note in notes(row)):
        return FORMER_LAYOUT
    return NEWER_TAG if number in NEWER_TAGS else None


@cache
def types_of_kafka() -> dict[int, RecordType]:
    """Declare record types as the release of the broker does."""
    return {
        number: replace(
            declared,
            value=without(declared.value, NEWER_TAGS.get(number, ())),
            former_values=(),
            variants=(),
        )
        for number, declared in record_types().items()
        if number not in UNKNOWN_TO_KAFKA
    }


def without(message: Message, columns: Sequence[str]) -> Message:
    fields = tuple(f for f in message.root.fields if f.column not in columns)
    return replace(message, root=replace(message.root, fields=fields))


def type_of(pair: Pair) -> int | None:
    key = pair[0]
    return struct.unpack(">h", key[:2])[0] if key and len(key) > 1 else None


# -- differences ----------------------------------------------------------------------------------


def record_differences(
    pair: Pair, row: DecodedRow | Rejected, theirs: Mapping[str, object]
) -> Iterator[str]:
    """Tell how a record that the decoder and Kafka read differs between them."""
    if isinstance(row, Rejected):
        if "refused" not in theirs:
            yield f"Kafka reads it, we refuse it: {row.error}"
        return
    if "refused" in theirs:
        yield f"Kafka refuses it, we read it: {theirs['refused']}"
        return
    record_type = record_types()[type_of(pair) or 0]
    columns = row.columns
    left = [
        f"trailing_bytes: {theirs[f'{part}Left']} after {message.name}"
        for part, message in (("key", record_type.key), ("value", record_type.value))
        if theirs[f"{part}Left"]
    ]
    ours = [note for note in notes(row) if note.startswith("trailing_bytes")]
    if ours != left:
        yield f"{ours}, of Kafka {left}"
    yield from struct_differences(record_type.key.root, theirs["key"], columns)
    if columns["is_tombstone"] != ("value" not in theirs):
        yield "a tombstone to one of the two"
    elif "value" in theirs:
        yield from struct_differences(record_type.value.root, theirs["value"], columns)
        for embedded in embedded_pairs(columns, theirs):
            yield from embedded_differences(*embedded)


def notes(row: DecodedRow) -> list[str]:
    found = row.columns["decode_notes"]
    return found if isinstance(found, list) else []


def struct_differences(struct: Struct, theirs: object, ours: object) -> Iterator[str]:
    assert isinstance(theirs, dict)
    assert isinstance(ours, dict)
    names = {json_name(field): field for field in struct.fields}
    for name in theirs.keys() - names.keys():
        yield f"{name}, which we do not know"
    for name, field in names.items():
        if name in theirs:
            yield from value_differences(field, theirs[name], ours[field.column])
        elif not is_default(field, ours[field.column]):
            yield f"{field.path}: {ours[field.column]!r}, which Kafka does not see"


def json_name(field: Field) -> str:
    return field.name[0].lower() + field.name[1:]


def is_default(field: Field, value: object) -> bool:
    """Return whether Kafka shows no tagged field for a value: an empty one, if none is declared."""
    if value is None or value == field.default:
        return True
    if field.unit == "epoch_ms":
        return value == EPOCH
    if field.struct is not None and isinstance(value, dict):
        return not any(value.values())
    return value == []


def value_differences(field: Field, theirs: object, ours: object) -> Iterator[str]:
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for one, other in zip(theirs, ours, strict=True):
            yield from value_differences(field, one, other)
    elif field.struct is not None and isinstance(theirs, dict) and isinstance(ours, dict):
        yield from struct_differences(field.struct, theirs, ours)
    elif as_column(field, theirs) != ours:
        yield f"{field.path}: {ours!r}, Kafka reads {theirs!r}"


def as_column(field: Field, value: object) -> object:
    """Turn a value of Kafka's JSON into what the column holds."""
    if value is None or value == field.none:
        return None
    if field.unit == "epoch_ms":
        assert isinstance(value, int)
        return EPOCH + timedelta(milliseconds=value) if FIRST_MS <= value <= LAST_MS else None
    if field.kind == "bytes" and isinstance(value, str):
        return base64.b64decode(value)
    return value


# -- embedded messages ----------------------------------------------------------------------------


class Embedded(NamedTuple):
    """What bytes of a consumer embed: the message, our struct and error, the bytes, Kafka's."""

    name: str
    ours: object
    error: object
    raw: bytes
    theirs: dict[str, Any]

    @property
    def is_cut(self) -> bool:
        """Whether the bytes end before a field: then we read what there is, and Kafka nothing."""
        return "refused" in self.theirs and self.ours is not None


def embedded_pairs(row: Mapping[str, object], theirs: Mapping[str, object]) -> list[Embedded]:
    ours = our_embedded(row)
    kafkas = as_list(theirs["embedded"])
    return [Embedded(*found, other) for found, other in zip(ours, kafkas, strict=True)]


def has_cut_embedded(row: Mapping[str, object], theirs: Mapping[str, object]) -> bool:
    return "embedded" in theirs and any(e.is_cut for e in embedded_pairs(row, theirs))


def our_embedded(row: Mapping[str, object]) -> Iterator[tuple[str, object, object, bytes]]:
    """Return what a row's consumers embed, as it lies there."""
    if row.get("protocol_type") == "consumer":
        for member in as_list(row["members"]):
            for kind in ("subscription", "assignment"):
                found = (member[kind], member[f"{kind}_error"], member[f"{kind}_bytes"])
                yield (f"ConsumerProtocol{kind.title()}", *found)
    classic = row.get("classic_member_metadata")
    if isinstance(classic, dict):
        for each in as_list(classic["supported_protocols"]):
            found = (each["subscription"], each["subscription_error"], each["metadata"])
            yield ("ConsumerProtocolSubscription", *found)


def as_list(value: object) -> list[dict[str, Any]]:
    assert isinstance(value, list)
    return value


def embedded_differences(
    name: str, ours: object, error: object, raw: bytes, theirs: dict[str, Any]
) -> Iterator[str]:
    """Tell how an embedded message differs; without a byte it is none to us, an error to Kafka."""
    message = embedded_messages()[name]
    if "refused" in theirs:
        if raw and (not error or (ours is not None and "the bytes end at byte" not in str(error))):
            yield f"{name} {raw!r}: we see {error or 'nothing wrong'}, Kafka {theirs['refused']}"
        return
    if ours is None:
        yield f"{name} {raw!r}: {error}, which Kafka reads"
        return
    assert isinstance(ours, dict)
    is_known = ours["version"] <= message.valid.high
    remarks = str(error).split("; ") if error else []
    left = [r.partition(" at byte ")[2].partition(": ")[2] for r in remarks if "left over" in r]
    expected = theirs["left"] if is_known else 0
    if left != [f"{expected} bytes left over after the last field"] * bool(expected) or any(
        "left over" not in remark and "UTF-8" not in remark for remark in remarks
    ):
        yield f"{name} {raw!r}: {error}, Kafka has {theirs['left']} bytes left"
    for field in message.root.fields:
        if ours["version"] in field.versions:
            value = theirs["value"][json_name(field)]
            yield from value_differences(field, value, ours[field.column])

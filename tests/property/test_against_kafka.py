"""Kafka's own classes and ours take and refuse the same records, and read the same from them."""

from __future__ import annotations

import base64
import json
import random
import re
import struct
import subprocess
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.row_decoder import DecodedRow, Rejected
from jobs.runtime.jars import JarSet, fetch
from schemas.messages import embedded_messages, record_types
from tests.damage import damaged, pool
from tests.factories import EPOCH, FIRST_MS, LAST_MS, decode_all, record_batch
from tests.support.broker import JARS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from schemas.messages import Field, Struct
    from tests.factories import Pair

PROGRAM = Path(__file__).parents[1] / "support" / "KafkaDecoder.java"
DAMAGED = 20_000
TIMEOUT_S = 300
UNKNOWN_TO_KAFKA = {
    9: "ShareGroupPartitionMetadata was removed",
    18: "StreamsGroupPartitionMetadata was removed",
    24: "StreamsGroupTargetAssignmentResolvedTopicIds is newer than the broker",
}
# Tags that are newer than the broker are unknown to it: it passes over them by their size.
NEWER_TAGS = {17: ("stored_description_topology_epoch", "failed_description_topology_epoch")}


def kafka_decodes(java: str, pairs: Sequence[Pair]) -> list[dict[str, object]]:
    """Let Kafka decode records."""
    jars = fetch(JarSet.from_file(JARS, name="kafka-broker"))
    parts = [part for pair in pairs for part in pair]
    framed = b"".join(
        struct.pack(">i", -1) if p is None else struct.pack(">i", len(p)) + p for p in parts
    )
    done = subprocess.run(
        [java, "-XX:+UseSerialGC", "-cp", f"{jars[0].parent}/*", str(PROGRAM)],
        input=struct.pack(">i", len(pairs)) + framed,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    lines = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert len(lines) == len(pairs)
    return lines


def compare(java: str, pairs: Sequence[Pair]) -> Counter[str]:
    """Hold the decoder against Kafka, and count what the records were."""
    seen: Counter[str] = Counter()
    rows = decode_all(record_batch(pairs))
    for pair, row, theirs in zip(pairs, rows, kafka_decodes(java, pairs), strict=True):
        verdict, found = compare_record(pair, row, theirs)
        assert not found, f"key={pair[0]!r} value={pair[1]!r}: {found}"
        seen[verdict] += 1
    return seen


def compare_record(
    pair: Pair, row: DecodedRow | Rejected, theirs: Mapping[str, object]
) -> tuple[str, list[str]]:
    taken = theirs.get("left") == 0
    if isinstance(row, DecodedRow):
        return compare_row(pair, row, theirs, taken=taken)
    if "is not known" in row.error:
        return "version unknown", []  # Kafka checks no version, and reads what comes
    if row.record_type in NEWER_TAGS:
        return "newer tags", []
    return "refused", [f"Kafka takes it, we refuse: {row.error}"] if taken else []


def compare_row(
    pair: Pair, row: DecodedRow, theirs: Mapping[str, object], *, taken: bool
) -> tuple[str, list[str]]:
    number = int.from_bytes(pair[0][:2], "big") if pair[0] else -1
    if number in UNKNOWN_TO_KAFKA:
        return "type unknown to Kafka", []
    if any(row.columns[name] is not None for name in NEWER_TAGS.get(number, ())):
        return "newer tags", []
    if any(note.startswith("layout: ") for note in notes(row)):
        return "former layout", ["Kafka takes it, we read a former layout"] if taken else []
    if not taken:
        return "taken", [f"Kafka refuses it, we take it: {theirs}"]
    return "taken", list(row_differences(number, row.columns, theirs))


def notes(row: DecodedRow) -> list[str]:
    found = row.columns["decode_notes"]
    return found if isinstance(found, list) else []


def row_differences(
    number: int, row: Mapping[str, object], theirs: Mapping[str, object]
) -> Iterator[str]:
    record_type = record_types()[number]
    yield from struct_differences(record_type.key.root, theirs["key"], row)
    if row["is_tombstone"] != ("value" not in theirs):
        yield "one of us reads a tombstone"
    elif "value" in theirs:
        yield from struct_differences(record_type.value.root, theirs["value"], row)
        ours = list(our_embedded(row))
        theirs_embedded = theirs["embedded"]
        assert isinstance(theirs_embedded, list)
        if len(ours) != len(theirs_embedded):
            yield f"{len(ours)} embedded messages, Kafka has {len(theirs_embedded)}"
        for (name, found, error, raw), expected in zip(ours, theirs_embedded, strict=False):
            yield from embedded_differences(name, found, error, raw, expected)


def struct_differences(struct: Struct, theirs: object, ours: object) -> Iterator[str]:
    assert isinstance(theirs, dict)
    assert isinstance(ours, dict)
    for field in struct.fields:
        name = field.name[0].lower() + field.name[1:]
        if name in theirs:
            yield from value_differences(field, theirs[name], ours[field.column])
        elif not is_default(field, ours[field.column]):
            yield f"{field.path}: {ours[field.column]!r}, which Kafka does not see"


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
    elif as_column(field, theirs) != (java_text(ours) if isinstance(ours, str) else ours):
        yield f"{field.path}: {ours!r}, Kafka reads {theirs!r}"


def as_column(field: Field, value: object) -> object:
    """Turn a value of Kafka's JSON into what the column holds."""
    if value is None or value == field.none:
        return None
    if field.unit == "epoch_ms":
        assert isinstance(value, int)
        return EPOCH + timedelta(milliseconds=value) if FIRST_MS <= value <= LAST_MS else None
    if not isinstance(value, str):
        return value
    return base64.b64decode(value) if field.kind == "bytes" else java_text(value)


def java_text(text: str) -> str:
    """Even out how many U+FFFD stand for bytes that are not UTF-8: Java and Python count apart."""
    return re.sub("\ufffd+", "\ufffd", text)


def our_embedded(
    row: Mapping[str, object],
) -> Iterator[tuple[str, object, object, bytes]]:
    """Return what a row's consumers embed: message, struct, error and bytes, as they lie there."""
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
    name: str, ours: object, error: object, raw: bytes, theirs: Mapping[str, object]
) -> Iterator[str]:
    message = embedded_messages()[name]
    if "value" not in theirs:
        if raw and not error:
            yield f"{name} {raw!r}: we see nothing wrong, Kafka {theirs['refused']}"
        return
    if ours is None:
        yield f"{name} {raw!r}: {error}, which Kafka reads"
        return
    version = int.from_bytes(raw[:2], "big")
    if error and not theirs["left"] and "UTF-8" not in str(error):
        yield f"{name} {raw!r}: {error}, Kafka sees nothing wrong"
    if theirs["left"] and version <= message.valid.high and not error:
        yield f"{name} {raw!r}: {theirs['left']} bytes left over without a remark"
    assert isinstance(ours, dict)
    for field in message.root.fields:
        if version in field.versions:
            value = as_dict(theirs["value"])[field.name[0].lower() + field.name[1:]]
            yield from value_differences(field, value, ours[field.column])


def as_dict(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value


def test_kafka_reads_the_same_from_sound_records(java: str) -> None:
    seen = compare(java, pool())
    assert seen["refused"] == 0
    assert seen["taken"] > 0.8 * seen.total()


def test_kafka_takes_and_refuses_the_same_of_damaged_records(java: str) -> None:
    rng = random.Random("against Kafka")  # noqa: S311 - to be the same in every run
    seen = compare(java, [damaged(rng) for _ in range(DAMAGED)])
    assert seen["refused"] > 0.2 * seen.total(), seen
    assert seen["taken"] > 0.2 * seen.total(), seen

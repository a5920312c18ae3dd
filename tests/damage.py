"""Damaged records: what bit rot, truncation and malice make of real ones."""

from __future__ import annotations

import random
import struct
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from decoders.encoder import encode_key, encode_value
from tests.factories import layouts

if TYPE_CHECKING:
    from schemas.messages import Field, Struct
    from tests.factories import Pair

RECORDINGS = Path(__file__).parents[1] / "examples" / "recordings"
MADE_OF_EACH_LAYOUT = 30

LIES = [
    *(struct.pack(">i", n) for n in (2**31 - 1, -1, -2, -(2**31), 0, 1, 255, 2**16)),
    *(struct.pack(">h", n) for n in (2**15 - 1, -1, -2, -(2**15), 0, 1)),
    b"\xff\xff\xff\xff\x0f",  # the varint 2**32 - 1, which Java takes for -1
    b"\x80\x80\x80\x80\x08",  # the varint 2**31, from which Java cannot subtract 1
    b"\xff\xff\xff\xff\x07",  # the varint 2**31 - 1
    b"\xff\xff\xff\xff\xff\xff",  # a varint that does not end
    b"\x81\x80\x02",  # a string of 32768 bytes, one more than Kafka allows
    b"\x00",
    b"\x01",
    b"\x02",
]
ODD_BYTES = (0x00, 0x01, 0x7F, 0x80, 0xC3, 0xED, 0xF0, 0xFF)


@cache
def pool() -> list[Pair]:
    """Collect the records to damage: recorded ones, and made ones of every layout."""
    pairs: list[Pair] = []
    for file in sorted(RECORDINGS.glob("*.parquet")):
        table = pq.read_table(file, columns=["key", "value"])
        keys, values = (table.column(name).to_pylist() for name in ("key", "value"))
        pairs += zip(keys, values, strict=True)
    assert pairs, f"no recordings in {RECORDINGS}"
    rng = random.Random("made")  # noqa: S311 - to be the same in every run
    for record_type, message, version in layouts() * MADE_OF_EACH_LAYOUT:
        key = encode_key(record_type.id, made_values(record_type.key.root, 0, rng))
        values = made_values(message.root, version, rng)
        pairs.append((key, encode_value(record_type.id, version, values, layout=message.layout)))
    return pairs


def made_values(struct: Struct, version: int, rng: random.Random) -> dict[str, object]:
    due = [f for f in struct.fields if version in f.versions]
    return {f.name: made_value(f, version, rng) for f in due}


def made_value(field: Field, version: int, rng: random.Random) -> object:
    if version in field.nullable and rng.random() < 0.3:
        return None
    if field.is_array:
        return [made_element(field, version, rng) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    return made_element(field, version, rng)


def made_element(field: Field, version: int, rng: random.Random) -> object:
    if field.struct is not None:
        return made_values(field.struct, version, rng)
    if field.kind == "string":
        return rng.choice(("", "a", "orders", "consumer", "connect", "größe", "🙂"))
    if field.kind == "bytes":
        return rng.randbytes(rng.choice((0, 1, 4, 12)))
    if field.kind == "uuid":
        return "".join(rng.choices("ABCDabcd0189-_", k=21)) + "A"
    limits = {"int8": 2**7, "uint16": 2**16, "int16": 2**15, "int32": 2**31, "int64": 2**63}
    limit = limits[field.kind]
    low = 0 if field.kind == "uint16" else -limit
    return rng.choice((0, 1, 3, limit - 1, low, rng.randrange(low, limit)))


def damaged(rng: random.Random) -> Pair:
    """Take a record and damage it one to three times, mostly its value."""
    key, value = rng.choice(pool())
    for _ in range(rng.choice((1, 1, 2, 3))):
        choice = rng.random()
        if choice < 0.05:
            key = rng.choice(pool())[0]
        elif choice < 0.10 and key is not None:
            key = struct.pack(">h", rng.randrange(-2, 27)) + key[2:]
        elif choice < 0.15 and value is not None:
            value = struct.pack(">h", rng.randrange(-2, 7)) + value[2:]
        elif choice < 0.25:
            key = damaged_bytes(key, 0, rng)
        else:
            value = damaged_bytes(value, 1, rng)
    return key, value


def damaged_bytes(octets: bytes | None, part: int, rng: random.Random) -> bytes | None:
    octets = octets or b""
    at = rng.randint(0, len(octets))
    head, tail = octets[:at], octets[at:]
    match rng.randrange(10):
        case 0 | 1 if tail:
            return head + bytes([tail[0] ^ 1 << rng.randrange(8)]) + tail[1:]
        case 2 | 3 if tail:
            return head + bytes([rng.choice(ODD_BYTES)]) + tail[1:]
        case 4:
            tail = b""
        case 5:
            tail += rng.randbytes(rng.choice((1, 2, 5, 40)))
        case 6:  # a piece goes, or comes a second time
            tail = octets[rng.randint(0, len(octets)) :]
        case 7:
            other = rng.choice(pool())[part] or b""
            tail = other[rng.randint(0, len(other)) :]
        case 8 | 9:
            lie = rng.choice(LIES)
            tail = lie + tail[rng.choice((0, len(lie))) :]
        case _:
            return rng.choice((None, b"", b"\x00"))
    return head + tail

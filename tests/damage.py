"""Damaged records: what bit rot, truncation and malice make of real ones."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq

from schemas.messages import Field, Message, RecordType, Struct
from tests.factories import Pair, layouts
from tests.support.encoder import encode_key, encode_message, encode_value, unsigned_varint

Damage = Callable[[bytes, random.Random], bytes]

RECORDINGS = Path(__file__).parents[1] / "examples" / "recordings"
MADE_OF_EACH_LAYOUT = 30
OF_KEY = 0.15  # so much of the damage is done to keys
LONG_STRINGS = 0.02  # so many changes of a varint make a text of 32 KB

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


# -- sound records --------------------------------------------------------------------------------


@cache
def recorded() -> list[Pair]:
    """Collect the records of the recordings."""
    pairs: list[Pair] = []
    for file in sorted(RECORDINGS.glob("*.parquet")):
        table = pq.read_table(file, columns=["key", "value"])
        keys, values = (table.column(name).to_pylist() for name in ("key", "value"))
        pairs += zip(keys, values, strict=True)
    assert pairs, f"no recordings in {RECORDINGS}"
    return pairs


@cache
def pool() -> list[Pair]:
    """Collect the records to damage: recorded ones, and made ones of every layout."""
    rng = random.Random("made")  # noqa: S311 - to be the same in every run
    return recorded() + [made(case, rng) for case in layouts() * MADE_OF_EACH_LAYOUT]


@cache
def recorded_by_version() -> list[list[Pair]]:
    """Sort the recorded ones by type and version; tombstones apart."""
    found: dict[tuple[bytes, bytes | None], list[Pair]] = {}
    for key, value in recorded():
        assert key
        found.setdefault((key[:2], value and value[:2]), []).append((key, value))
    return list(found.values())


def of_any_version(rng: random.Random) -> Pair:
    """Take a record, of each type and version as often as of another."""
    if rng.random() < 0.5:
        return made(rng.choice(layouts()), rng)
    return rng.choice(rng.choice(recorded_by_version()))


def made(case: tuple[RecordType, Message, int], rng: random.Random) -> Pair:
    """Make a record of a layout."""
    record_type, message, version = case
    key = encode_key(record_type.id, made_values(record_type.key.root, 0, rng))
    values = made_values(message.root, version, rng)
    return key, encode_value(record_type.id, version, values, layout=message.layout)


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
        return made_bytes(field, rng)
    if field.kind == "uuid":
        return "".join(rng.choices("ABCDabcd0189-_", k=21)) + "A"
    limits = {"int8": 2**7, "uint16": 2**16, "int16": 2**15, "int32": 2**31, "int64": 2**63}
    limit = limits[field.kind]
    low = 0 if field.kind == "uint16" else -limit
    return rng.choice((0, 1, 3, limit - 1, low, rng.randrange(low, limit)))


def made_bytes(field: Field, rng: random.Random) -> bytes:
    if not field.embeds or rng.random() < 0.2:
        return rng.randbytes(rng.choice((0, 1, 4, 12)))
    message = rng.choice(field.embeds).message
    version = rng.randint(message.valid.low, message.valid.high)
    octets = encode_message(message, version, made_values(message.root, version, rng))
    # What is embedded does not condemn its record: only here a part of it can be damaged alone.
    damage = rng.choice((cut, flipped, appended, other_length)) if rng.random() < 0.3 else None
    return damage(octets, rng) if damage else octets


# -- damage to bytes ------------------------------------------------------------------------------


def flipped(octets: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(octets))
    return octets[:at] + bytes([octets[at] ^ 1 << rng.randrange(8)]) + octets[at + 1 :]


def odd(octets: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(octets))
    return octets[:at] + bytes([rng.choice(ODD_BYTES)]) + octets[at + 1 :]


def cut(octets: bytes, rng: random.Random) -> bytes:
    return octets[: rng.randrange(len(octets))]


def appended(octets: bytes, rng: random.Random) -> bytes:
    return octets + rng.choice((b"\0", rng.randbytes(rng.choice((1, 2, 5, 40)))))


def repeated(octets: bytes, rng: random.Random) -> bytes:
    """Leave a piece out, or let it come a second time."""
    at = rng.randint(0, len(octets))
    return octets[:at] + octets[rng.randint(0, len(octets)) :]


def spliced(octets: bytes, rng: random.Random) -> bytes:
    """Go on with the end of some other key or value."""
    other = rng.choice(rng.choice(pool())) or b""
    return octets[: rng.randint(0, len(octets))] + other[rng.randint(0, len(other)) :]


def lying(octets: bytes, rng: random.Random) -> bytes:
    """Write a length that lies, over other bytes or between them."""
    at = rng.randint(0, len(octets))
    lie = rng.choice(LIES)
    return octets[:at] + lie + octets[at + rng.choice((0, len(lie))) :]


def other_length(octets: bytes, rng: random.Random) -> bytes:
    """Change a number that may be a length or a count: it is not more than the bytes behind it."""
    width, kind = rng.choice(((2, ">h"), (4, ">i")))
    found = [
        (at, number)
        for at in range(2, len(octets) - width + 1)
        if 0 <= (number := struct.unpack_from(kind, octets, at)[0]) <= len(octets) - at - width
    ]
    if not found:
        return lying(octets, rng)
    at, number = rng.choice(found)
    left = len(octets) - at - width
    changed = rng.choice((number + rng.choice((1, -1, 2, -2)), 2 * number, left, left + 1, 0, -1))
    most = 2 ** (8 * width - 1) - 1
    return octets[:at] + struct.pack(kind, min(changed, most)) + octets[at + width :]


def other_varint(octets: bytes, rng: random.Random) -> bytes:
    """Change a byte that may be a varint, or write the same number in more bytes."""
    found = [at for at in range(2, len(octets)) if octets[at] <= len(octets) - at]
    if not found:
        return lying(octets, rng)
    at = rng.choice(found)
    number = octets[at]
    if rng.random() < LONG_STRINGS:
        # Instead of the text that such a varint may stand before, as long as Kafka allows or more.
        length = rng.choice((2**15 - 1, 2**15))
        text = unsigned_varint(length + 1) + b"x" * length
        return octets[:at] + text + octets[at + max(number, 1) :]
    changed = rng.choice(
        (
            unsigned_varint(max(number + rng.choice((1, -1, 2, -2)), 0)),
            unsigned_varint(rng.choice((0, 2 * number, number << 7, len(octets) - at))),
            unsigned_varint(2**32 - 1 - number),
            bytes([number | 0x80, *[0x80] * rng.randrange(5), 0x00]),
        )
    )
    return octets[:at] + changed + octets[at + 1 :]


# -- damage to records ----------------------------------------------------------------------------


def damaging(damage: Damage) -> Callable[[Pair, random.Random], Pair]:
    """Damage the value of a record, or its key: of a tombstone mostly that."""

    def damaged_pair(pair: Pair, rng: random.Random) -> Pair:
        key, value = pair
        if rng.random() < (OF_KEY if value is not None else 1 - OF_KEY):
            return damage(key or b"\0", rng), value
        return key, damage(value or b"\0", rng)

    return damaged_pair


def other_type(pair: Pair, rng: random.Random) -> Pair:
    key, value = pair
    return struct.pack(">h", rng.randrange(-2, 27)) + (key or b"")[2:], value


def other_version(pair: Pair, rng: random.Random) -> Pair:
    key, value = pair
    return key, struct.pack(">h", rng.randrange(-2, 7)) + (value or b"")[2:]


def swapped(pair: Pair, _: random.Random) -> Pair:
    key, value = pair
    return value, key


def other_key(pair: Pair, rng: random.Random) -> Pair:
    return rng.choice(pool())[0], pair[1]


def emptied(pair: Pair, rng: random.Random) -> Pair:
    nothing = rng.choice((None, b"", b"\0"))
    return (nothing, pair[1]) if rng.random() < OF_KEY else (pair[0], nothing)


KINDS = {
    "bytes cut off": damaging(cut),
    "bit flipped": damaging(flipped),
    "odd byte": damaging(odd),
    "length changed": damaging(other_length),
    "varint changed": damaging(other_varint),
    "length that lies": damaging(lying),
    "bytes appended": damaging(appended),
    "piece gone or twice": damaging(repeated),
    "end of another": damaging(spliced),
    "other record type": other_type,
    "other value version": other_version,
    "key and value swapped": swapped,
    "key of another": other_key,
    "null or empty": emptied,
}
"""What is done to a record, by its name."""
OFTEN = {
    "bit flipped": 3,
    "odd byte": 3,
    "length changed": 2,
    "varint changed": 2,
    "length that lies": 3,
    "bytes appended": 2,
    "piece gone or twice": 2,
    "end of another": 2,
}


def damaged(rng: random.Random) -> Pair:
    """Take a record and damage it one to three times."""
    return damaged_more(rng.choice(pool()), rng.choice((1, 1, 2, 3)), rng)


def damaged_more(pair: Pair, times: int, rng: random.Random) -> Pair:
    """Damage a record several times."""
    for kind in rng.choices(list(KINDS), [OFTEN.get(kind, 1) for kind in KINDS], k=times):
        pair = KINDS[kind](pair, rng)
    return pair

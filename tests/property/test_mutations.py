"""Real records, damaged: nothing is lost, nothing raises, and both decoders agree on each."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from itertools import product

import pyarrow as pa
import pytest

from benchmarks.row_decoder import DecodedRow
from decoders.records import decode
from schemas.messages import Message, RecordType, Struct, record_types
from tests.damage import damaged
from tests.factories import Pair, assert_agrees_with_row_decoder, layout_id, layouts, record_batch
from tests.support.encoder import encode_key, encode_value, unsigned_varint

BATCH = 5_000
# A batch may take so many times its own bytes while it is decoded, whatever they say.
MEMORY_FACTOR = 100


def check_batches(count: int) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(count):
        rng = random.Random(seed)  # noqa: S311 - to be the same in every run
        batch = record_batch([damaged(rng) for _ in range(BATCH)])
        for row in assert_agrees_with_row_decoder(batch):
            outcomes[row.table if isinstance(row, DecodedRow) else "rejected"] += 1
    # Damage of every kind is of use only while both outcomes are frequent, in every table.
    assert set(outcomes) == {"rejected", *(t.table for t in record_types().values())}
    assert 0.2 < outcomes["rejected"] / outcomes.total() < 0.8, outcomes


def test_20_000_damaged_records() -> None:
    check_batches(4)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_million_damaged_records() -> None:
    check_batches(200)


@pytest.mark.parametrize("case", layouts(), ids=layout_id)
def test_lying_lengths_take_memory_in_proportion_to_the_bytes(
    case: tuple[RecordType, Message, int],
) -> None:
    liars = list(lying_values(*case))
    assert peak_memory(liars) < MEMORY_FACTOR * byte_count(liars)


def test_a_lying_length_takes_no_more_memory_than_an_honest_one() -> None:
    # Elements of one byte each are the most that bytes can hold.
    key = encode_key(16, {"GroupId": "billing", "RegularExpression": "o.*"})
    names = struct.pack(">h", 0) + unsigned_varint(9_000 + 1) + unsigned_varint(1) * 9_000
    honest: list[Pair] = [(key, names + bytes(17))] * 50
    lying: list[Pair] = [(key, names + b"\xff" * 17)] * 50
    bound = peak_memory(honest)
    assert bound < MEMORY_FACTOR * byte_count(honest)
    assert peak_memory(lying) < 1.1 * bound


def lying_values(record_type: RecordType, message: Message, version: int) -> Iterator[Pair]:
    """Return values that promise more elements than follow, at every position of a small value."""
    key = encode_key(record_type.id, small_values(record_type.key.root, 0))
    values = small_values(message.root, version)
    honest = encode_value(record_type.id, version, values, layout=message.layout)
    flexible = version in message.flexible
    for at, count, filler in product(range(2, len(honest)), (2**31 - 1, 1_900), (b"\0", b"\1")):
        lie = unsigned_varint(count + 1) if flexible else struct.pack(">i", count)
        yield key, honest[:at] + lie + filler * 2_000


def small_values(struct: Struct, version: int) -> dict[str, object]:
    empty = {"string": "a", "bytes": b"", "uuid": "A" * 22}
    return {
        f.name: [] if f.is_array else None if version in f.nullable else empty.get(f.kind, 0)
        for f in struct.fields
        if version in f.versions and f.tag is None
    }


def byte_count(pairs: list[Pair]) -> int:
    return sum(len(key or b"") + len(value or b"") for key, value in pairs)


def peak_memory(pairs: list[Pair]) -> int:
    """Measure the most that decoding a batch holds at a time, NumPy's memory and Arrow's."""
    batch = record_batch(pairs)
    decode(batch)  # what is made once and kept does not count
    default = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(default)
    tracemalloc.start()
    pa.set_memory_pool(counted)
    try:
        decoded = decode(batch)
        _, peak = tracemalloc.get_traced_memory()
        del decoded  # its memory has to go before the pool that counts it
        return peak + int(counted.max_memory())
    finally:
        pa.set_memory_pool(default)
        tracemalloc.stop()

"""How records are put together before they are decoded."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from decoders.batches import MAX_BYTES, MAX_ROWS, sorted_out

COMMIT, METADATA, MEMBER = b"\0\1", b"\0\2", b"\0\5"


def records(*keys: bytes | None, size: int = 10) -> pa.RecordBatch:
    values = [i.to_bytes(4, "big") + bytes(size) for i in range(len(keys))]
    columns = [pa.array(keys, pa.binary()), pa.array(values, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["key", "value"])


def test_each_kind_is_apart_and_each_type_is_counted() -> None:
    in_type: Counter[bytes | None] = Counter()
    batch = records(COMMIT + b"a", None, METADATA + b"a", b"\0", MEMBER + b"b", b"\0\0c")
    out = [b["key"].to_pylist() for b in sorted_out([batch, batch.slice(2, 1)], in_type)]
    assert out == [
        [COMMIT + b"a", b"\0\0c"],
        [METADATA + b"a"] * 2,
        [None, b"\0", MEMBER + b"b"],
    ]
    assert in_type == {COMMIT: 1, None: 1, METADATA: 2, b"\0": 1, MEMBER: 1, b"\0\0": 1}


@pytest.mark.parametrize("length", [1, 999, MAX_ROWS, 3 * MAX_ROWS + 1])
def test_small_records_come_in_full_batches(length: int) -> None:
    batch = records(*[COMMIT] * (4 * MAX_ROWS))
    given = [
        batch.slice(start, length) for start in range(0, min(len(batch), 200 * length), length)
    ]
    out = list(sorted_out(given, Counter()))
    assert pa.Table.from_batches(out).equals(pa.Table.from_batches(given))
    assert all(len(b) == MAX_ROWS for b in out[:-1])


@pytest.mark.parametrize("length", [1, 60, 500])
def test_large_records_come_in_batches_that_stay_in_the_caches(length: int) -> None:
    batch = records(*[METADATA] * 500, size=100_000)
    given = [batch.slice(start, length) for start in range(0, 500, length)]
    out = list(sorted_out(given, Counter()))
    assert pa.Table.from_batches(out).equals(pa.Table.from_batches(given))
    assert all(MAX_BYTES / 2 <= b.nbytes < 2 * MAX_BYTES for b in out[:-1])


def test_a_record_larger_than_a_batch_comes_alone() -> None:
    batch = records(METADATA, METADATA, size=2 * MAX_BYTES)
    assert [len(b) for b in sorted_out([batch], Counter())] == [1, 1]

"""The decoder is vectorised: a loop over records that slips in shows in a ratio, on any machine.

Both sides are measured in one process, by processor time; it was 50 to 75.
"""

from __future__ import annotations

import time
from dataclasses import replace

import pyarrow as pa
import pytest

from benchmarks import generate
from benchmarks.ingest_decode import batches_of
from benchmarks.row_decoder import decode_record
from decoders.records import decode

LEAST = 15
TRIES = 3
# One by one, every fourth record shows how long all of them take.
EVERY = 4


@pytest.mark.parametrize(
    ("shares", "count"),
    [
        ({"commits": 1.0, "group_metadata": 0.0}, 20_000),
        ({"commits": 0.0, "group_metadata": 1.0}, 2_000),
    ],
    ids=["commits", "group metadata"],
)
def test_batches_are_decoded_many_times_as_fast_as_rows(
    shares: dict[str, float], count: int
) -> None:
    shape = replace(generate.Shape(members=(10, 10), skew=0.9), **shares)
    batches = batches_of(generate.records(shape, count))
    table = pa.Table.from_batches(batches)
    pairs = list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    some = pairs[::EVERY]
    decode(batches[0])  # what it makes once
    by_batch = min(_seconds(lambda: [decode(b) for b in batches]) for _ in range(TRIES))
    by_row = min(_seconds(lambda: [decode_record(k, v) for k, v in some]) for _ in range(TRIES))
    assert by_row * len(pairs) / len(some) / by_batch > LEAST


def _seconds(action: object) -> float:
    assert callable(action)
    began = time.process_time()
    action()
    return time.process_time() - began

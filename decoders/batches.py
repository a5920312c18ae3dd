"""Batches of records as the decoder is fast with them.

A pass over few small records costs what one over many does; large ones have to stay in the
processor's caches with all that is read from them (``benchmarks/run.sh ingest_decode``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Iterator

MAX_ROWS = 65_536
MAX_BYTES = 4 * 2**20
# What starts the keys of a kind: commits, and group metadata.
_KINDS = (pa.array([b"\0\0", b"\0\1"]), pa.array([b"\0\2"]))


def sorted_out(
    batches: Iterable[pa.RecordBatch], in_type: Counter[bytes | None]
) -> Iterator[pa.RecordBatch]:
    """Put records of one kind together: commits, group metadata, and all others.

    Args:
        batches: columns key, value and others; of any length.
        in_type: by the two bytes that a key starts with, fewer bytes, or None, of a key without
            them, the number of records; those that are read are added.

    Yields:
        The same records in batches of at most MAX_ROWS, which end about where they reach MAX_BYTES.
    """
    waiting = [_Waiting() for _ in range(len(_KINDS) + 1)]
    for batch in batches:
        types = pc.binary_slice(batch.column("key"), 0, 2)
        for entry in pc.value_counts(types):
            in_type[entry["values"].as_py()] += entry["counts"].as_py()
        rest = None
        for kind, place in zip(_KINDS, waiting, strict=False):
            chosen = pc.is_in(types, kind)
            rest = chosen if rest is None else pc.or_(rest, chosen)
            yield from place.add(batch.filter(chosen))
        yield from waiting[-1].add(batch.filter(pc.invert(rest)))
    for place in waiting:
        yield from place.take()


class _Waiting:
    """Records of one kind until there are enough."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        some = max(1, min(MAX_ROWS, batch.num_rows * MAX_BYTES // max(1, batch.nbytes)))
        start = 0
        while start < batch.num_rows:
            part = batch.slice(start, min(some, MAX_ROWS - self._rows))
            start += part.num_rows
            self._batches.append(part)
            self._rows += part.num_rows
            self._bytes += part.nbytes
            if self._rows >= MAX_ROWS or self._bytes >= MAX_BYTES:
                yield from self.take()

    def take(self) -> Iterator[pa.RecordBatch]:
        if self._batches:
            yield pa.concat_batches(self._batches)
        self._batches, self._rows, self._bytes = [], 0, 0

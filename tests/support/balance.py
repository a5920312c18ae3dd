"""Decoded + quarantined = bronze: each record is in exactly one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pyarrow as pa


def unbalanced(records: pa.Table, decoded: Iterable[pa.Table]) -> list[tuple[int, int]]:
    """Find records that are not in exactly one of the tables they decode into.

    Args:
        records: rows of bronze.records, of one cluster and topic.
        decoded: rows of every table that records can go to, quarantine among them.

    Returns:
        Partition and offset of each; none if all is well.
    """
    bronze = Counter(_positions(records))
    silver = Counter(at for table in decoded for at in _positions(table))
    return sorted(at for at in bronze | silver if not bronze[at] == silver[at] == 1)


def _positions(table: pa.Table) -> Iterator[tuple[int, int]]:
    columns = (table[name].to_pylist() for name in ("record_partition", "record_offset"))
    return zip(*columns, strict=True)

"""Recordings cut into what each of some runs would have found."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]


def parts_of(recording: Path, folder: Path, count: int) -> list[Path]:
    """Cut a recording into parts, each of which has the next records of every partition."""
    recorded = pq.read_table(recording)
    by_partition, parts = _by_partition(recorded), []
    for number in range(count):
        rows: list[Row] = []
        for records in by_partition:
            start, end = (len(records) * n // count for n in (number, number + 1))
            rows += records[start:end]
        parts.append(rows)
    return _written(parts, recorded.schema, folder)


def halves_of(recording: Path, folder: Path) -> list[Path]:
    """Cut the records of each partition in two where none is missing, which would be a gap."""
    recorded = pq.read_table(recording)
    first: list[Row] = []
    second: list[Row] = []
    for rows in _by_partition(recorded):
        numbers = range(max(1, len(rows) // 2), len(rows))
        cuts = (n for n in numbers if rows[n]["offset"] == rows[n - 1]["offset"] + 1)
        cut = next(cuts, len(rows))
        first += rows[:cut]
        second += rows[cut:]
    return _written([first, second], recorded.schema, folder)


def _by_partition(records: pa.Table) -> list[list[Row]]:
    """Return the records of each partition, in the order of its log."""
    by_partition = defaultdict(list)
    for row in records.sort_by("offset").to_pylist():
        by_partition[row["partition"]].append(row)
    return [*by_partition.values()]


def _written(parts: list[list[Row]], schema: pa.Schema, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"part-{number}.parquet" for number in range(len(parts))]
    for path, rows in zip(paths, parts, strict=True):
        pq.write_table(pa.Table.from_pylist(rows, schema), path)
    return paths

"""Recordings cut into what each of some runs would have found."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path


def parts_of(recording: Path, folder: Path, count: int) -> list[Path]:
    """Cut a recording into parts, each of which has the next records of every partition."""
    recorded = pq.read_table(recording)
    by_partition = defaultdict(list)
    for row in recorded.sort_by("offset").to_pylist():
        by_partition[row["partition"]].append(row)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(count):
        rows = []
        for records in by_partition.values():
            start, end = (len(records) * n // count for n in (number, number + 1))
            rows += records[start:end]
        paths.append(folder / f"part-{number}.parquet")
        pq.write_table(pa.Table.from_pylist(rows, recorded.schema), paths[-1])
    return paths

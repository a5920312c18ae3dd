"""Writes a made-up ``__consumer_offsets`` as Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.generate import SCHEMA
from tests import factories

if TYPE_CHECKING:
    from pathlib import Path

MINUTE = 60_000


class Topic:
    """The records of some groups, with offsets as a broker gives them."""

    def __init__(self) -> None:
        self.rows: list[tuple[object, ...]] = []
        self._next = [0] * 50

    def add(self, partition: int, at: int, encoded: tuple[bytes, bytes | None]) -> None:
        """Add a record."""
        offset, self._next[partition] = self._next[partition], self._next[partition] + 1
        row = ("__consumer_offsets", partition, offset, at, "CreateTime", *encoded)
        self.rows.append(row)

    def lives(self, group: str, partition: int, at: int, offset: int, minutes: int = 1) -> None:
        """Let a member join, and commit for some minutes."""
        member = factories.member(
            subscription=factories.subscription(), assignment=factories.assignment()
        )
        fields = {"generation": 1, "currentStateTimestamp": at - 10}
        self.add(partition, at, factories.group_metadata(member, group=group, **fields))
        for then in range(at + 1_000, at + minutes * MINUTE, MINUTE):
            self.commits(group, partition, then, offset)

    def commits(self, group: str, partition: int, at: int, offset: int) -> None:
        """Let a group commit an offset of a partition."""
        key = {"group": group, "topic": "orders", "partition": 0}
        commit = factories.offset_commit(key=key, offset=offset, commitTimestamp=at)
        self.add(partition, at, commit)

    def expire(self, group: str, partition: int, at: int) -> None:
        """Let the group's offset expire."""
        key = {"group": group, "topic": "orders", "partition": 0}
        self.add(partition, at, (factories.offset_commit(key=key)[0], None))

    def write(self, path: Path) -> Path:
        """Write the records since the last time."""
        rows = [dict(zip(SCHEMA.names, row, strict=True)) for row in self.rows]
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path)
        self.rows = []
        return path

"""Writes a made-up ``__consumer_offsets`` as Parquet files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.generate import SCHEMA
from schemas.placement import partition_for
from tests import factories

MINUTE = 60_000
PARTITIONS = 50
HOUR = 60 * MINUTE
GAP_SINCE = 1_700_000_000_000
"""The last moment that is known of the groups of `with_a_gap`; an hour later they are again."""
_MEMBER = {
    "ClientHost": "/10.0.0.1",
    "SubscribedTopicNames": ["orders"],
    "RebalanceTimeoutMs": 300_000,
}
GAP_GROUPS = CLASSIC, MODERN = "gap-classic", "gap-modern"


class Topic:
    """The records of some groups, with offsets as a broker gives them."""

    def __init__(self) -> None:
        self.rows: list[tuple[object, ...]] = []
        self._next = [0] * PARTITIONS

    def add(self, partition: int, at: int, encoded: tuple[bytes, bytes | None]) -> None:
        """Add a record."""
        offset, self._next[partition] = self._next[partition], self._next[partition] + 1
        row = ("__consumer_offsets", partition, offset, at, "CreateTime", *encoded)
        self.rows.append(row)

    def skip(self, partition: int, count: int = 9) -> None:
        """Let records be missing."""
        self._next[partition] += count

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

    def generation(
        self, group: str, at: int, generation: int, topic: str = "orders", **owned: int
    ) -> None:
        """Write a generation of a classic group, with the partition of each member."""
        members = [
            factories.member(
                memberId=name,
                clientId=f"client-{name}",
                subscription=factories.subscription(Topics=[topic]),
                assignment=factories.assignment(
                    AssignedPartitions=[{"Topic": topic, "Partitions": [partition]}]
                ),
            )
            for name, partition in owned.items()
        ]
        fields = {"generation": generation, "currentStateTimestamp": at - 10}
        encoded = factories.group_metadata(*members, group=group, **fields)
        self.add(partition_for(group, PARTITIONS), at, encoded)

    def epoch(self, group: str, at: int, epoch: int, new: tuple[str, ...], **owned: int) -> None:
        """Write an epoch of a consumer group: its new members, and the partition of each member."""
        partition = partition_for(group, PARTITIONS)

        def add(record_type: int, member: str = "", **values: object) -> None:
            encoded = factories.modern(record_type, values, group=group, member=member)
            self.add(partition, at, encoded)

        def parts(name: str) -> list[dict[str, object]]:
            return [{"TopicId": factories.TOPIC_ID, "Partitions": [owned[name]]}]

        for name in new:
            add(5, name, **_MEMBER, ClientId=f"client-{name}")
        add(3, Epoch=epoch)
        for name in new:
            add(7, name, TopicPartitions=parts(name))
        add(6, AssignmentEpoch=epoch)
        for name in owned:
            current = {"AssignedPartitions": parts(name), "PartitionsPendingRevocation": []}
            add(8, name, MemberEpoch=epoch, PreviousMemberEpoch=epoch - 1, State=0, **current)


def with_a_gap() -> Topic:
    """Make a topic with an hour of which records are missing.

    Meanwhile member `a` of the `GAP_GROUPS` went, `c` came, and a partition changed its owner.
    """
    topic, back = Topic(), GAP_SINCE + HOUR
    topic.generation(CLASSIC, GAP_SINCE, 1, a=0, b=1)
    topic.epoch(MODERN, GAP_SINCE, 57, ("a", "b"), a=0, b=1)
    for group in GAP_GROUPS:
        topic.skip(partition_for(group, PARTITIONS))
    topic.generation(CLASSIC, back, 5, b=0, c=1)
    topic.epoch(MODERN, back, 59, ("c",), c=0, b=1)
    topic.generation(CLASSIC, back + HOUR, 6, b=0, c=1)
    topic.epoch(MODERN, back + HOUR, 60, (), c=0, b=1)
    return topic

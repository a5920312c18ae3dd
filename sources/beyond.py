"""What a source has that the lakehouse has not, unless it is another log than the one held.

Cluster, topic, partition and offset identify a record. A topic that was recreated, or that
lost its end, has the same offsets with other records: it is refused, with the name to give.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from schemas.errors import SourceError
from schemas.tables import MARKER, RECORDS
from sources import kafka, parquet
from sources.coverage import (
    Extent,
    Position,
    Range,
    extents,
    is_marker,
    offsets_of,
    record_type,
    within,
)
from sources.kafka import Topic
from sources.parquet import File
from sources.plan import State, free_name
from storage.lakehouse import Lakehouse

# The kind of a record of which the lakehouse has the position, with other bytes.
_OTHER = "other"

# Before a log is taken for one that lost its end, it is asked again: a new leader may not know at
# once how far it is.
_SECOND_LOOK_S = 5.0


@dataclass(frozen=True)
class Source:
    """What a source has that the lakehouse has not."""

    records: DataFrame  # the records
    ranges: list[Range]  # the offsets that they account for
    # What they hold, by record type; None of a source that is read only once.
    found: dict[Position, Extent] | None = None
    # Offsets of transactions' ends, which are no records, by partition.
    markers: dict[Position, np.ndarray] = field(default_factory=dict)
    # What tells the files that it is of, see `State`; None of a cluster.
    files: dict[str, Any] | None = None

    @property
    def offsets(self) -> int:
        """Count the offsets: it has as many records at most."""
        return sum(r.next_offset - r.from_offset for r in self.ranges)


def refuse_second_topic(lakehouse: Lakehouse, topic: str, state: State) -> None:
    """Refuse another topic than the one that is held: silver tells records apart by offsets."""
    if state.topic not in (None, topic):
        raise SourceError(
            f"cluster {lakehouse.cluster} of the lakehouse holds topic {state.topic}, not "
            f"{topic}: {_own_name(lakehouse)}"
        )


def from_cluster(lakehouse: Lakehouse, cluster: kafka.Cluster, name: str, state: State) -> Source:
    """Return what a topic has beyond a state; refuse another log than the one that was read."""
    topic = kafka.describe(lakehouse.spark, cluster, name)
    _check_cluster(lakehouse, cluster, topic, state)
    _check_ends(lakehouse, cluster, topic, state)
    ranges = kafka.new_ranges(topic, cluster, state.positions)
    _check_last_records(lakehouse, cluster, name, ranges, state)
    spark = lakehouse.spark
    return Source(kafka.read(spark, cluster, ranges) if ranges else spark.range(0), ranges)


def _check_cluster(
    lakehouse: Lakehouse, cluster: kafka.Cluster, topic: Topic, state: State
) -> None:
    """Refuse another Kafka cluster: a wrong address is likelier than one that was recreated."""
    known, found = state.kafka_cluster_id, topic.kafka_cluster_id
    if known is not None and found is not None and known != found:
        raise SourceError(
            f"{cluster.bootstrap_servers} is Kafka cluster {found}, but cluster "
            f"{lakehouse.cluster} of the lakehouse was read from {known}: check "
            f"--bootstrap-servers, or {_own_name(lakehouse)}"
        )


def _check_ends(lakehouse: Lakehouse, cluster: kafka.Cluster, topic: Topic, state: State) -> None:
    """Compare id and ends of the topic with those of the one that was read."""
    if kafka.shorter(topic, state.positions):
        every = replace(cluster, isolation_level="read_uncommitted")
        topic = kafka.describe(lakehouse.spark, every, topic.name)
        if kafka.shorter(topic, state.positions):
            time.sleep(_SECOND_LOOK_S)
            topic = kafka.describe(lakehouse.spark, every, topic.name)
    _refuse_another(lakehouse, state, kafka.another_log(topic, state.positions, state.topic_id))


def _check_last_records(
    lakehouse: Lakehouse, cluster: kafka.Cluster, name: str, ranges: list[Range], state: State
) -> None:
    """Compare the last record held of each partition with the log's.

    A topic recreated has another id, but old brokers have no ids, and a killed run notes none; a
    log that lost its end and grew again keeps its id.
    """
    last = {}
    for r in ranges:
        offset = state.last_read.get((r.topic, r.record_partition), -1)
        if offset >= (r.first_offset_available or 0):
            last[r.record_partition] = offset
    theirs = kafka.fetch(lakehouse.spark, cluster, name, last) if last else {}
    if not theirs:
        return
    at_any = F.col("record_partition").isin(*theirs) & F.col("record_offset").isin(
        *(last[p] for p in theirs)
    )
    rows = lakehouse.read(RECORDS).where(at_any).collect()
    ours = {(r.record_partition, r.record_offset): (r.key, r.value) for r in rows}
    found = {(p, last[p]): record for p, record in theirs.items()}
    _refuse_another(lakehouse, state, kafka.other_bytes(name, found, ours))


def _refuse_another(lakehouse: Lakehouse, state: State, shown_by: str) -> None:
    """Refuse another log than the one that was read, if anything shows that it is one."""
    if shown_by:
        is_known = state.kafka_cluster_id is not None
        address = "" if is_known else "check --bootstrap-servers, or "
        raise SourceError(f"{shown_by}; {address}{_own_name(lakehouse)}")


def _own_name(lakehouse: Lakehouse) -> str:
    """Advise to keep records apart from those that a cluster has, under a name that is free."""
    name = free_name(lakehouse.cluster, lakehouse.clusters(RECORDS))
    return f"keep it under a name of its own: --cluster {name}"


def from_files(
    lakehouse: Lakehouse,
    path: str,
    topic: str,
    state: State,
    *,
    files: Sequence[File],
    unread: Sequence[File],
) -> Source:
    """Return what files have beyond a state; refuse those that are of another log.

    Those that `parquet.unread` gives, of those that `parquet.listed` has found, are read.
    """
    note = parquet.noted(files)
    if not unread:
        return Source(lakehouse.spark.range(0), [])
    every = parquet.read(lakehouse.spark, path, unread, is_part=len(unread) < len(files))
    records = every.where(F.col("topic") == topic)
    ends = is_marker(F.col("key"))
    found = extents(records, F.when(ends, MARKER).otherwise(record_type(F.col("key"))))
    markers: dict[Position, np.ndarray] = {}
    if any(MARKER in e.by_kind for e in found.values()):
        markers = offsets_of(records.where(ends))
        records = records.where(~ends)
        found = extents(records, record_type(F.col("key")))
    elif not found and (other := every.select("topic").first()) is not None:
        raise SourceError(
            f"--records {path}: holds no record of topic {topic}, but some of {other.topic}: name "
            "it with --topic"
        )
    if found and all(e.by_kind.keys() == {""} for e in found.values()):
        parquet.check_keys(path, records)
    if state.reaches_back(found):
        held = lakehouse.read(RECORDS).where(within(state.file_ranges(found)))
        compared = parquet.compared(records, held)
        kind = F.when(F.col("is_other"), _OTHER).otherwise(record_type(F.col("key")))
        found = extents(compared.where("NOT is_held OR is_other"), kind)
        is_another = any(_OTHER in e.by_kind for e in found.values())
        if is_another and (row := compared.where("is_other").first()) is not None:
            raise SourceError(
                f"--records {path}: {row.topic}-{row.record_partition} at offset "
                f"{row.record_offset} has other bytes than cluster {lakehouse.cluster} of the "
                f"lakehouse has there, so it is another topic: {_own_name(lakehouse)}"
            )
        records = compared.where("NOT is_held").drop("is_held", "is_other")
    if any(e.distinct_offsets < e.records for e in found.values()):
        if (row := parquet.repeated_with_other_bytes(records).first()) is not None:
            raise SourceError(
                f"--records {path}: holds {row.topic}-{row.record_partition} at offset "
                f"{row.record_offset} twice with different bytes: it mixes several topics; ingest "
                "them one by one, each with its own --cluster"
            )
        records = parquet.once(records)
        found = extents(records, record_type(F.col("key")))
    return Source(records, state.file_ranges(found), found, markers, note)

"""Detects the anomalies of groups, one after the other; knows neither Spark nor tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc

from detectors import group
from detectors.group import GroupDetector
from detectors.minutes import MINUTE_COLUMNS
from detectors.model import Row
from detectors.rows import anomaly_rows
from detectors.thresholds import Thresholds
from detectors.unread import NEVER_COLUMNS, OWNERS_COLUMNS, WAIT_COLUMNS
from schemas import gold
from schemas.columns import Column, array_of_millis, arrow_schema, column

CHECKPOINT = "checkpoint"
"""The kind of the row that holds what the detectors keep of a group."""

SORT_RANKS = {
    CHECKPOINT: 0,
    **dict.fromkeys((group.OPEN_GENERATION, group.OPEN_SESSION), 1),
    **dict.fromkeys((group.OPEN_STATE, group.OWNER, group.LAG), 2),
    **dict.fromkeys((group.WAIT, group.TWO_OWNERS, group.NEVER_OWNED), 2),
    group.GENERATION: 3,
    group.SESSION: 4,
    **dict.fromkeys((group.MOVE, group.MINUTE, group.TOPIC), 5),
}
"""Sort order of the kinds of rows; rows of the same rank are sorted by their positions."""

OUTPUT: tuple[Column, ...] = (
    *gold.ANOMALIES,
    column("state", "string", "What the detectors remember of a group; null in rows of anomalies."),
)
"""The columns of what `detected` gives."""

_RECORD = ("record_partition", "record_offset", "record_timestamp")
_GENERATION = (
    *("group_type", "generation", "aborted_generations", "aborted_evidence"),
    *("join_started_at", "join_started_at_max", "join_completed_at", "join_completed_at_min"),
    *("stable_at", "ended_at", "known_until", "join_ms", "sync_ms", "rebalance_ms"),
    *("protocol_type", "protocol", "leader_client_id", "member_count", "cause"),
    *("rebalance_timeout_ms", "session_timeout_ms", "subscriptions", "separate_subscriptions"),
    *("subscribed_topics", "members_joined", "members_left", "members_replaced"),
    *("assigned_partitions", "most_partitions", "idle_members", "unassigned_topics"),
    *("moved_partitions", "unowned_partitions", "waited_for"),
    *("delay_ms", "waiting_tasks", "waiting_since", *_RECORD),
)
_SESSION = (
    *("group_instance_id", "client_id", "client_host", "joined_at", "left_at", "end_cause"),
    *("record_partition", "record_offset"),
)
COLUMNS = {
    CHECKPOINT: ("state",),
    **dict.fromkeys((group.GENERATION, group.OPEN_GENERATION), _GENERATION),
    **dict.fromkeys((group.SESSION, group.OPEN_SESSION), _SESSION),
    group.OPEN_STATE: ("state", "generation", "started_at_max", *_RECORD),
    group.MOVE: (
        *("topic", "topic_partition", "move", "at", "previous_offset", "previous_at"),
        *("committed_offset", "step", "largest_step_before", "farthest_before"),
        *("topic_id", "previous_topic_id", "is_kept", "is_complete"),
        *("last_there_at", "last_there_until", "rhythm_since", *_RECORD),
    ),
    group.MINUTE: MINUTE_COLUMNS,
    group.OWNER: ("topic", "topic_partition", "client_id", "client_host", "valid_from"),
    group.LAG: ("at", "lag", "usual_step", "topics", "committed_at", "lagging"),
    group.WAIT: WAIT_COLUMNS,
    group.TWO_OWNERS: OWNERS_COLUMNS,
    group.NEVER_OWNED: NEVER_COLUMNS,
    group.TOPIC: ("topic", "record_partition", "firsts"),
}
"""By kind, the columns of its rows that the detectors read."""

# Rows that are Python's at a time: as such they take many times the memory.
_WINDOW = 2_000
_BATCH_ROWS = 5_000


def detected(
    batches: Iterable[pa.RecordBatch],
    thresholds: Thresholds,
    cluster: str,
    now: int,
    *,
    known_until: Mapping[int, int],
    lost: Mapping[int, int],
) -> Iterator[pa.RecordBatch]:
    """Detect the anomalies of groups: those settled now, by the time of the log, and all open ones.

    The batches have columns group_id, kind, and those of `COLUMNS`, which are null in rows of other
    kinds. The rows of a group follow each other, its checkpoint first, then by `SORT_RANKS`. What
    is given has the columns `OUTPUT`. Times are epoch milliseconds; `known_until` are those of
    partitions that could not be read to their end, `lost` the last offset of each that was lost
    before it could be read.
    """

    def rows() -> Iterator[Row]:
        for group_id, of_group in groupby(_read_rows(batches), key=itemgetter(0)):
            if thresholds.ignores(group_id):
                continue
            limits = thresholds.of(group_id)
            detector = GroupDetector(limits, lost=lost)
            for _, kind, row in of_group:
                if kind == CHECKPOINT:  # the first, if there is one
                    detector = GroupDetector(limits, row["state"], lost)
                else:
                    detector.take(kind, row)
            at = detector.time(now, known_until)
            settled, still_open = detector.settled(), detector.still_open(at)
            yield from anomaly_rows(settled, still_open, cluster, group_id, limits, now=at)
            yield {"group_id": group_id, "state": detector.to_json()}

    found = rows()
    while of_batch := list(islice(found, _BATCH_ROWS)):
        yield batch_of(of_batch, OUTPUT)


def _read_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, str, Row]]:
    """Return group, kind and row of what became known, in order."""
    for batch in batches:
        for start in range(0, batch.num_rows, _WINDOW):
            window = batch.slice(start, _WINDOW)
            kinds = window["kind"].to_pylist()
            rows = {
                kind: iter(
                    window.select(COLUMNS[kind]).filter(pc.equal(window["kind"], kind)).to_pylist()
                )
                for kind in dict.fromkeys(kinds)
            }
            for group_id, kind in zip(window["group_id"].to_pylist(), kinds, strict=True):
                yield group_id, kind, next(rows[kind])


def batch_of(rows: list[Row], columns: Sequence[Column]) -> pa.RecordBatch:
    """Make a batch of rows whose times are epoch milliseconds."""
    schema = arrow_schema(columns)
    arrays = [
        array_of_millis([row.get(declared.name) for row in rows], declared.type).cast(field.type)
        for declared, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

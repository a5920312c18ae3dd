"""Rows of gold and silver, as Arrow reads them, in the order of the watch; as `anomalies.spark`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from anomalies.group import (
    GENERATION,
    LAG,
    MINUTE,
    MOVE,
    OPEN_GENERATION,
    OPEN_STATE,
    OPEN_STAY,
    STAY,
)
from anomalies.model import MINUTE_MS
from anomalies.watching import (
    GENERATION_COLUMNS,
    HEAD,
    MOVE_COLUMNS,
    STATE_COLUMNS,
    STAY_COLUMNS,
    TURNS,
)
from schemas.columns import in_millis, millis_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anomalies.model import Row

GENERATIONS = ("group_id", "is_settled", *GENERATION_COLUMNS)
STATES = ("group_id", *STATE_COLUMNS)
STAYS = ("group_id", "is_settled", "member_id", *STAY_COLUMNS)
MOVES = ("group_id", *MOVE_COLUMNS)
COMMITS = (
    *("group_id", "record_partition", "record_offset", "topic", "topic_partition"),
    *("is_tombstone", "record_timestamp", "commit_timestamp"),
)


class Sources(NamedTuple):
    """What a watch looks at: the rows of `anomalies.spark.Sources`.

    Attributes:
        generations: columns `GENERATIONS`.
        states: columns `STATES`.
        stays: columns `STAYS`.
        moves: columns `MOVES`.
        commits: of the commits that are new, columns `COMMITS`.
        lags: columns group_id, at (epoch milliseconds) and lag.
        heads: columns group_id and state.
    """

    generations: pa.Table
    states: pa.Table
    stays: pa.Table
    moves: pa.Table
    commits: pa.Table
    lags: pa.Table
    heads: pa.Table


class _Event(NamedTuple):
    """A row, and where it stands among those of its group; see `anomalies.spark.events`."""

    group_id: str
    turn: int
    place: int
    second_place: int
    kind: str
    tie: str
    row: Row | str


def commit_minutes(commits: pa.Table) -> pa.Table:
    """Sum up commits by group and minute, as `anomalies.spark.commit_minutes` does."""
    at = pc.coalesce(commits["record_timestamp"], commits["commit_timestamp"])
    millis = millis_of(at)
    minute = pc.divide(millis, MINUTE_MS)
    timed = commits.append_column("at", millis).append_column("minute", minute)
    timed = timed.filter(pc.and_(pc.invert(commits["is_tombstone"]), pc.is_valid(millis)))
    key = ["group_id", "record_partition", "minute"]
    bounds = [("at", "min"), ("at", "max"), ("record_offset", "min"), ("record_offset", "max")]
    of_partition = timed.group_by([*key, "topic", "topic_partition"]).aggregate(
        [([], "count_all"), *bounds]
    )
    names = [f"{name}_{how}" for name, how in bounds]
    sums = [(name, name.rpartition("_")[2]) for name in names]
    of_minute = of_partition.group_by(key).aggregate(
        [("count_all", "sum"), ([], "count_all"), *sums]
    )
    told = ("commits", "partitions", "first_at", "last_at", "first_offset", "last_offset")
    return of_minute.rename_columns([*key, *told])


def events(sources: Sources) -> Iterator[tuple[str, str, Row | str]]:
    """Bring all that a watch looks at into its order, as `anomalies.watching.watched` takes it."""
    every = sorted(_events(sources), key=lambda event: event[:-1])
    return ((event.group_id, event.kind, event.row) for event in every)


def _events(sources: Sources) -> Iterator[_Event]:
    for head in sources.heads.to_pylist():
        yield _event(head["group_id"], HEAD, head["state"])
    for group, row in _rows(sources.generations):
        kind = GENERATION if row.pop("is_settled") else OPEN_GENERATION
        yield _event(group, kind, row, row["record_offset"])
    for group, row in _told(sources.stays):
        kind = STAY if row.pop("is_settled") else OPEN_STAY
        member = row.pop("member_id") or ""
        # Null stands before all others.
        offset = -1 if row["record_offset"] is None else row["record_offset"]
        yield _event(group, kind, row, row["left_at"], second_place=offset, tie=member)
    for group, row in _rows(sources.states):
        yield _event(group, OPEN_STATE, row)
    for group, row in _rows(sources.lags):
        yield _event(group, LAG, row)
    for group, row in _rows(sources.moves):
        yield _event(group, MOVE, row, row["record_offset"])
    for group, row in _rows(commit_minutes(sources.commits)):
        yield _event(group, MINUTE, row, row["first_offset"])


def _event(
    group: str, kind: str, row: Row | str, place: int = 0, *, second_place: int = 0, tie: str = ""
) -> _Event:
    return _Event(group, TURNS[kind], place, second_place, kind, tie, row)


def _told(stays: pa.Table) -> Iterator[tuple[str, Row]]:
    """Give the stays that a detector asks for, and of all others the time of the last."""
    ended = stays.filter(pc.is_valid(stays["left_at"]))
    is_replaced = pc.equal(ended["end_cause"], "static_member_replaced")
    yield from _rows(ended.filter(pc.and_(is_replaced, pc.is_valid(ended["group_instance_id"]))))
    last = ended.group_by(["group_id", "is_settled"]).aggregate([("left_at", "max")])
    nothing = dict.fromkeys(STAYS[1:])
    for group, row in _rows(last.rename_columns(["group_id", "is_settled", "left_at"])):
        yield group, nothing | row


def _rows(table: pa.Table) -> Iterator[tuple[str, Row]]:
    """Give rows with their groups, times as epoch milliseconds."""
    for row in in_millis(table).to_pylist():
        yield row.pop("group_id"), row

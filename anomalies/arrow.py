"""Rows of gold and silver, as Arrow reads them, in the order of the watch; as `anomalies.spark`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
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
    from collections.abc import Callable, Iterator

    from anomalies.model import Row

_GROUP = "group_id"
_WINDOW = 2_000

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


class _Part(NamedTuple):
    """Rows of one kind, and where they stand among those of their groups.

    Attributes:
        rows: as `anomalies.watching.watched` takes them, with their groups.
        place, second_place, tie: see `anomalies.spark.events`; the same for all unless given.
    """

    kind: str
    rows: pa.Table
    place: pa.ChunkedArray | int = 0
    second_place: pa.ChunkedArray | int = 0
    tie: pa.ChunkedArray | None = None


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
    """Bring all that a watch looks at into its order, as `anomalies.watching.watched` takes it.

    Rows become Python's some at a time: as such they take many times the memory.
    """
    parts = [part for part in _parts(sources) if part.rows.num_rows]
    if not parts:
        return
    names = _sorted(pa.chunked_array([c for p in parts for c in p.rows[_GROUP].chunks]))
    group, part, row = _in_order(parts, names)
    of_names = names.to_pylist()
    for start in range(0, len(part), _WINDOW):
        window = slice(start, start + _WINDOW)
        given: dict[int, Iterator[Row | str]] = {}
        for number in np.unique(part[window]).tolist():
            chosen = row[window][part[window] == number]
            given[number] = _told_rows(parts[number], chosen)
        for name, number in zip(group[window].tolist(), part[window].tolist(), strict=True):
            yield of_names[name], parts[number].kind, next(given[number])


def _parts(sources: Sources) -> list[_Part]:
    parts = [_Part(HEAD, sources.heads.select([_GROUP, "state"]))]
    for is_settled, of_generation, of_stay in (
        (True, GENERATION, STAY),
        (False, OPEN_GENERATION, OPEN_STAY),
    ):
        rows = _where_settled(sources.generations, is_settled=is_settled)
        parts.append(_Part(of_generation, rows, place=rows["record_offset"]))
        stays = _where_settled(_told(sources.stays), is_settled=is_settled)
        tie = pc.fill_null(stays["member_id"], "")
        rows = stays.drop_columns(["member_id"])
        place = {"place": rows["left_at"], "second_place": rows["record_offset"]}
        parts.append(_Part(of_stay, rows, **place, tie=tie))
    minutes = commit_minutes(sources.commits)
    parts += [
        _Part(OPEN_STATE, in_millis(sources.states)),
        _Part(LAG, sources.lags.select([_GROUP, "at", "lag"])),
        _Part(MOVE, in_millis(sources.moves), place=sources.moves["record_offset"]),
        _Part(MINUTE, minutes, place=minutes["first_offset"]),
    ]
    # Of many chunks, Arrow takes rows by putting all of them together, each time.
    return [part._replace(rows=part.rows.combine_chunks()) for part in parts]


def _where_settled(rows: pa.Table, *, is_settled: bool) -> pa.Table:
    chosen = rows.filter(pc.equal(rows["is_settled"], is_settled))
    return in_millis(chosen.drop_columns(["is_settled"]))


def _in_order(parts: list[_Part], names: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Give the group of each row, by its place among the names, its part, and its place there."""
    kinds = sorted({part.kind for part in parts})
    tied = [part.tie for part in parts if part.tie is not None]
    ties = _sorted(pa.chunked_array([c for tie in tied for c in tie.chunks], pa.string()))
    counts = [part.rows.num_rows for part in parts]

    def every(value: Callable[[_Part], pa.ChunkedArray | int]) -> np.ndarray:
        # Null stands before all others.
        found = [value(part) for part in parts]
        return np.concatenate(
            [
                np.full(count, v)
                if isinstance(v, int)
                else pc.fill_null(v, -1).to_numpy().astype(np.int64)
                for v, count in zip(found, counts, strict=True)
            ]
        )

    group = every(lambda part: pc.index_in(part.rows[_GROUP], names))
    order = np.lexsort(
        (
            every(lambda part: 0 if part.tie is None else pc.index_in(part.tie, ties)),
            every(lambda part: kinds.index(part.kind)),
            every(lambda part: part.second_place),
            every(lambda part: part.place),
            every(lambda part: TURNS[part.kind]),
            group,
        )
    )
    number = np.repeat(np.arange(len(parts)), counts)
    row = np.concatenate([np.arange(count) for count in counts])
    return group[order], number[order], row[order]


def _sorted(texts: pa.ChunkedArray) -> pa.Array:
    """Give each text once, in the order that Python has them in."""
    known = pc.unique(texts)
    return known.take(pc.sort_indices(known))


def _told_rows(part: _Part, chosen: np.ndarray) -> Iterator[Row | str]:
    rows = part.rows.drop_columns([_GROUP]).take(pa.array(chosen))
    yield from rows["state"].to_pylist() if part.kind == HEAD else rows.to_pylist()


def _told(stays: pa.Table) -> pa.Table:
    """Give the stays that a detector asks for, and of all others the time of the last."""
    ended = stays.filter(pc.is_valid(stays["left_at"]))
    is_replaced = pc.equal(ended["end_cause"], "static_member_replaced")
    asked_for = ended.filter(pc.and_(is_replaced, pc.is_valid(ended["group_instance_id"])))
    last = ended.group_by([_GROUP, "is_settled"]).aggregate([("left_at", "max")])
    last = last.rename_columns([_GROUP, "is_settled", "left_at"])
    return pa.concat_tables([asked_for, last], promote_options="default")

"""Detects the anomalies of one group from its new rows and what earlier runs have kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

import orjson

from detectors import minutes, moves, rebalances, samples, sessions, topics, unread
from detectors.memberships import Membership, Memberships
from detectors.model import Episode, Findings, Row, Track
from detectors.thresholds import Values

GENERATION, OPEN_GENERATION = "generation", "open_generation"
SESSION, OPEN_SESSION = "session", "open_session"
OPEN_STATE, OWNER = "open_state", "owner"
MOVE, MINUTE, LAG, TOPIC, WAIT = "move", "minute", "lag", "topic", "wait"
TWO_OWNERS, NEVER_OWNED = "two_owners", "never_owned"

OPEN_KINDS = {GENERATION: OPEN_GENERATION, SESSION: OPEN_SESSION}
"""By kind, the kind of its rows that later records may change."""

_MEMBERS = frozenset({"members_joined", "members_left", "members_replaced", "idle_members"})
_NONE: Mapping[int, int] = MappingProxyType({})
_OPEN = (OPEN_GENERATION, OPEN_SESSION, OPEN_STATE, WAIT, TWO_OWNERS, NEVER_OWNED)
_SOURCES = (
    *("generations", "sessions", "moves", "minutes", "topics", "unread", "owners", "samples"),
    "never",
)


class GroupDetector:
    """Runs the detectors of one group over its rows.

    Each source (generations, sessions, moves of offsets, minutes of commits) has its memory and its
    findings, since each comes in the order of the log, but not with the others: a generation is
    settled only when the next one is known. What is wrong with topics is found in generations and
    moves together, when all have come.

    Args:
        limits: the thresholds of the group.
        checkpoint: what `to_json` gave after the last run; None for a group that is new.
        lost: by partition of the log, the last offset that was lost before it could be read.
    """

    def __init__(
        self, limits: Values, checkpoint: str | None = None, lost: Mapping[int, int] = _NONE
    ) -> None:
        kept = {} if checkpoint is None else orjson.loads(checkpoint)
        self._limits, self._lost = limits, lost
        self._tracks = {
            s: Track(kept.get(s, {}), limits, Findings(kept.get("episodes", {}).get(s)))
            for s in _SOURCES
        }
        self._first_shown = unread.first_shown(self._tracks["unread"].memory)
        self._memberships = [Membership(*p) for p in kept.get("presences", [])]
        self._open: dict[str, list[Row]] = {k: [] for k in _OPEN}
        self._news = topics.News()
        self._stays = sessions.Stays()
        self._owners: dict[tuple[str, int], list[Row]] = defaultdict(list)
        self._last_commit = (kept.get("last_partition", -1), kept.get("last_commit", -1))

    def take(self, kind: str, row: Row) -> None:
        """Take a row: the open ones first, then each kind in the order of the log.

        Open rows come from the group's newest records; later records may still change them.
        """
        tracks = self._tracks
        if kind == WAIT:
            self._take_wait(row)
        elif kind in self._open:
            self._open[kind].append(row)
        elif kind == GENERATION:
            self._memberships.append(Membership.of(row))
            rebalances.examine(tracks["generations"], row)
            # Who came and went is most of a row, and is not asked for any more.
            self._news.generations.append({k: v for k, v in row.items() if k not in _MEMBERS})
        elif kind == SESSION:
            memory, at = tracks["sessions"].memory, row["left_at"]
            memory["clock"] = max(at, memory.get("clock", at))
            self._stays.add(row)
        elif kind == OWNER:
            self._owners[row["topic"], row["topic_partition"]].append(row)
        elif kind == LAG:
            self._news.lags.append(row)
            minutes.take_lag(tracks["minutes"].memory, row)
            samples.take_sample(tracks["samples"], row)
        elif kind == TOPIC:
            self._news.events += topics.first_commits(row)
        elif kind == MOVE:
            self._last_commit = (row["record_partition"], row["record_offset"])
            self._news.events += topics.events_of(row)
            owners = self._owners.get((row["topic"], row["topic_partition"]), ())
            moves.take_move(tracks["moves"], row, self._order, owners)
            minutes.take_move(tracks["minutes"], row)
            unread.take_move(tracks["unread"], row)
        elif kind == MINUTE:
            self._last_commit = (row["record_partition"], row["last_offset"])
            minutes.take_minute(tracks["minutes"], row, self._order)
            unread.take_minute(tracks["unread"], row)

    def _take_wait(self, row: Row) -> None:
        if row["until"] is None:  # the commit that ends it may be lost
            is_known = row["record_offset"] >= self._lost.get(row["record_partition"], -1)
            row = {**row, "is_complete": row["is_complete"] and is_known}
        # A run knows of the commits of others that are new.
        first = self._first_shown.get(unread.key(row), row)
        if first["first_at"] < row["first_at"]:
            row = row | first
        self._open[WAIT].append(row)
        minutes.take_wait(self._tracks["minutes"].memory, row)

    @cached_property
    def _order(self) -> Memberships:
        newest = map(Membership.of, self._open[OPEN_GENERATION])
        return Memberships([*self._memberships, *newest])

    def settled(self) -> list[Episode]:
        """Return the episodes that no later row can change; call it when all rows were taken."""
        tracks = self._tracks
        generations = [*self._news.generations, *self._open[OPEN_GENERATION]]
        topics.settle(tracks["topics"], self._news, self._open[OPEN_GENERATION])
        self._news = topics.News()
        for session in self._open[OPEN_SESSION]:
            self._stays.note(session)
        sessions.take_stays(tracks["sessions"], self._stays)
        self._stays = sessions.Stays()
        waits, order = self._open[WAIT], self._order
        unread.settle(tracks["unread"], waits, order)
        unread.settle_owners(tracks["owners"], self._open[TWO_OWNERS], generations)
        unread.settle_never(tracks["never"], self._open[NEVER_OWNED], self._newest)
        found = [e for t in tracks.values() for e in t.findings.settle(t.memory.get("clock"))]
        return [e for e in found if self._is_reported(e)]

    def still_open(self, now: int) -> list[Episode]:
        """Return the other episodes, as of the given time; call it after `settled`.

        What follows from rows that a later run may change is not kept.
        """
        then = GroupDetector(self._limits, self.to_json(), self._lost)
        then._memberships, then._open = self._memberships, self._open
        then._look_ahead(now)
        every = [t.findings for t in then._tracks.values()]
        episodes = [e for findings in every for e in (*findings.done, *findings.current.values())]
        return [e for e in episodes if self._is_reported(e)]

    @property
    def _newest(self) -> Row | None:
        """The newest generation, if it is known."""
        return next(iter(self._open[OPEN_GENERATION][-1:]), None)

    def _look_ahead(self, now: int) -> None:
        """Take the open rows, and the time of the log."""
        tracks = self._tracks
        if not self._open[OPEN_STATE]:  # a group that may be gone: nothing is known behind its end
            ends = (row["ended_at"] for row in self._open[OPEN_GENERATION])
            now = min([now, *(at for at in ends if at is not None)])
        for row in self._open[OPEN_GENERATION]:
            rebalances.examine(tracks["generations"], row, now if row["ended_at"] is None else None)
        topics.look_ahead(tracks["topics"], self._open[OPEN_GENERATION], now)
        for row in self._open[OPEN_STATE]:
            rebalances.examine_state(tracks["generations"], row, self._newest, now)
        over = [s for s in self._open[OPEN_SESSION] if s["left_at"] is not None]
        lasting = [s for s in self._open[OPEN_SESSION] if s["left_at"] is None]
        stays = sessions.Stays()
        for session in over:
            stays.add(session)
        for session in lasting:
            stays.note(session)
        sessions.take_stays(tracks["sessions"], stays)
        for row in self._open[WAIT]:
            if row["until"] is None:  # the others are kept
                minutes.take_wait(tracks["minutes"].memory, row)
        minutes.take_end(tracks["minutes"], self._order, now, self._lost)
        unread.look_ahead(tracks["unread"], self._order)
        unread.look_ahead_owners(tracks["owners"], now)

    def time(self, now: int, known_until: Mapping[int, int]) -> int:
        """Return the time of the log for the group; in `known_until`, partitions end before it."""
        rows = [*self._open[OPEN_GENERATION], *self._open[OPEN_STATE]]
        by_minute = self._tracks["minutes"].memory
        newest = rows[-1:] or [by_minute.get("next") or by_minute.get("minute") or {}]
        return min(now, known_until.get(newest[0].get("record_partition", -1), now))

    def _is_reported(self, episode: Episode) -> bool:
        # A condition that is shorter than that is normal while members join or leave.
        least = self._limits.get(episode.kind, {}).get("least_ms")
        is_short = least is not None and episode.ended_at - episode.started_at < least
        return not is_short or episode.label == topics.DELETED

    def to_json(self) -> str:
        """Write down what the next run needs."""
        kept: Row = {s: track.memory for s, track in self._tracks.items() if track.memory}
        by_minute = self._tracks["minutes"].memory
        if by_minute:
            kept["minutes"] = minutes.kept(by_minute, self._order.times)
        findings = {s: track.findings for s, track in self._tracks.items()}
        kept["episodes"] = {s: found.to_json() for s, found in findings.items() if found.current}
        position = self._last_commit
        if last := by_minute.get("minute") or by_minute.get("next"):  # it may still be evaluated
            position = min(position, (last["record_partition"], last["last_offset"]))
        kept["presences"] = [list(p) for p in Memberships(self._memberships).since(position)]
        kept["last_partition"], kept["last_commit"] = self._last_commit
        return orjson.dumps(kept).decode()

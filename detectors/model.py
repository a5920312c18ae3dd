"""What a detector finds: episodes, each with a start, an end, and the records that prove it.

Times are epoch milliseconds, None where the log has none. All of it is plain data, so that it can
be kept as JSON between two runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from detectors.thresholds import Values
from schemas.gold import SEVERITIES

Row: TypeAlias = dict[str, Any]

_RANKS = {severity: rank for rank, severity in enumerate(SEVERITIES)}

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
MINUTE_MS = 60_000
SKEW_MS = MINUTE_MS
"""Clocks, of brokers or of the driver, that differ by more are wrong."""


class Position(NamedTuple):
    """A record of the log."""

    partition: int | None
    offset: int | None
    timestamp: int | None

    @classmethod
    def of(cls, row: Row) -> Position:
        """Return the record that a row is of."""
        return cls(row["record_partition"], row["record_offset"], row["record_timestamp"])


def in_force_until(generation: Row) -> int | None:
    """Return until when a generation was in force for certain; None if nothing has ended it."""
    known, ended = generation.get("known_until"), generation.get("ended_at")
    return ended if known is None else int(known)


class Hit(NamedTuple):
    """One finding; findings of a kind and subject that lie close together are one episode."""

    kind: str
    severity: str
    started_at: int
    ended_at: int
    last: Position  # the last record that proves it
    gap_ms: int = HOUR_MS  # findings further apart belong to two episodes
    first: Position | None = None  # the first record, if it is another
    subject: str = ""  # what it is about beside the group: a member, a topic; empty if nothing
    label: str | None = None
    # Numbers that an episode sums up.
    sums: dict[str, float] = {}  # noqa: RUF012 - never changed
    # The sums with which an episode starts whose first finding this is, if they are not `sums`.
    initial_sums: dict[str, float] = {}  # noqa: RUF012
    # Numbers of which an episode keeps the maximum.
    maxima: dict[str, float] = {}  # noqa: RUF012
    # Values of which an episode keeps the last; none of a list that is empty.
    last_values: dict[str, Any] = {}  # noqa: RUF012
    # Values of which an episode keeps the distinct ones, up to `_LISTED`.
    lists: dict[str, list[str]] = {}  # noqa: RUF012

    def counted(self, name: str, times: int, window: str = "an_hour") -> Hit:
        """Add how often it happened in a window: an episode begins with all of these times."""
        return self._replace(
            sums={name: 1}, initial_sums={name: times}, maxima={f"{name}_in_{window}": times}
        )


_LISTED = 20


@dataclass
class Episode:
    """An anomaly, so far."""

    kind: str
    severity: str
    started_at: int
    ended_at: int  # until when it is known to have lasted
    first: list[int | None]
    last: list[int | None]
    gap_ms: int
    subject: str
    label: str | None
    evidence: dict[str, Any] = field(default_factory=dict)
    is_over: bool = False  # something ended it

    @classmethod
    def from_hit(cls, hit: Hit) -> Episode:
        """Begin an episode with its first finding."""
        evidence: dict[str, Any] = {**hit.sums, **hit.initial_sums, **hit.maxima}
        evidence |= {name: value for name, value in hit.last_values.items() if value != []}
        evidence |= {name: values[:_LISTED] for name, values in hit.lists.items()}
        first, last = list(hit.first or hit.last), list(hit.last)
        return cls(*hit[:4], first, last, hit.gap_ms, hit.subject, hit.label, evidence)

    def accepts(self, hit: Hit, clock: int | None) -> bool:
        """Return whether a finding belongs to the episode.

        The later of the finding's start and the log's clock counts: a run may have ended at that
        time, while the clock of another broker is behind.
        """
        at = hit.started_at if clock is None else max(hit.started_at, clock)
        return not self.is_over and at - self.ended_at <= hit.gap_ms

    def extend(self, hit: Hit) -> None:
        """Take a further finding."""
        if _RANKS[hit.severity] >= _RANKS[self.severity]:
            self.severity, self.label = hit.severity, hit.label
        self.ended_at = max(self.ended_at, hit.ended_at)
        self.last = list(hit.last)
        known = self.evidence
        for name, value in hit.sums.items():
            known[name] = known.get(name, 0) + value
        for name, value in hit.maxima.items():
            if name not in known or value > known[name]:
                known[name] = value
        for name, value in hit.last_values.items():
            known[name] = value
            if value == []:
                del known[name]
        for name, values in hit.lists.items():
            seen = known.setdefault(name, [])
            seen += [v for v in dict.fromkeys(values) if v not in seen][: _LISTED - len(seen)]

    def is_open(self, now: int) -> bool:
        """Return whether a later finding may still extend it."""
        return not self.is_over and now - self.ended_at <= self.gap_ms


class Findings:
    """The episodes of one group: those that are done, and those that a finding may extend."""

    def __init__(self, current: list[Row] | None = None) -> None:
        self.current = {(row["kind"], row["subject"]): Episode(**row) for row in current or []}
        self.done: list[Episode] = []

    def add(self, hit: Hit, clock: int | None = None) -> None:
        """Add a finding; `clock` is the time of its source when it was made."""
        key = (hit.kind, hit.subject)
        known = self.current.get(key)
        if known is not None and known.accepts(hit, clock):
            known.extend(hit)
            return
        if known is not None:
            self.done.append(known)
        self.current[key] = Episode.from_hit(hit)

    def end_others(self, lasting: Mapping[str, Container[str]]) -> None:
        """End the episodes of the kinds in `lasting`, except those of the listed subjects."""
        for (kind, subject), episode in self.current.items():
            if kind in lasting and subject not in lasting[kind]:
                episode.is_over = True

    def settle(self, clock: int | None) -> list[Episode]:
        """Return the episodes that nothing can change any more, and forget them."""
        for key, episode in list(self.current.items()):
            if clock is not None and not episode.is_open(clock):
                self.done.append(self.current.pop(key))
        done, self.done = self.done, []
        return done

    def to_json(self) -> list[Row]:
        """Return the open ones as plain data, to be written down before they change."""
        return [vars(episode) for episode in self.current.values()]


class Track(NamedTuple):
    """What is followed in one kind of rows of a group."""

    memory: Row  # what is kept of the rows before; changed
    limits: Values  # the thresholds of the group
    findings: Findings  # takes what is found


def remember(memory: Row, name: str, value: Any, most: int) -> None:  # noqa: ANN401 - plain data
    """Keep a value behind those before it, of which no more are kept."""
    kept = memory.setdefault(name, [])
    kept.append(value)
    del kept[:-most]


def partition_name(row: Row) -> str:
    """Return how evidence and sentences name the partition of a row: `topic/number`."""
    return f"{row['topic']}/{row['topic_partition']}"


def anomaly_id(cluster: str, kind: str, group_id: str, subject: str, started_at: int | None) -> str:
    """Name an anomaly: the same in each run that finds it, since its start never moves."""
    parts = (cluster, kind, group_id, subject, str(started_at))
    text = "\0".join(parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20]

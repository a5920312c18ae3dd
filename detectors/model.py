"""What a detector finds: episodes, each with a start, an end, and the records that prove it.

Times are epoch milliseconds, None where the log has none. All of it is plain data, so that it can
be kept as JSON between two runs.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from schemas.gold import SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

Row: TypeAlias = dict[str, Any]

_RANKS = {severity: rank for rank, severity in enumerate(SEVERITIES)}

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
SKEW_MS = MINUTE_MS
"""Clocks, of brokers or of the driver, that differ by more are wrong."""


class Position(NamedTuple):
    """A record of the log."""

    partition: int | None
    offset: int | None
    timestamp: int | None


class Hit(NamedTuple):
    """One finding; findings of a kind and subject that lie close together are one episode.

    Attributes:
        subject: what it is about beside the group: a member, a topic; empty if nothing.
        gap_ms: findings further apart belong to two episodes.
        add: numbers that an episode sums up.
        begin: what an episode has of them that this finding begins, where that is more.
        most: numbers of which an episode keeps the greatest.
        note: what an episode keeps of its last finding.
        lists: values of which an episode keeps all that differ, up to a bound.
    """

    kind: str
    subject: str
    severity: str
    started_at: int
    ended_at: int
    first: Position
    last: Position
    gap_ms: int
    label: str | None = None
    add: dict[str, float] = {}  # noqa: RUF012 - never changed
    begin: dict[str, float] = {}  # noqa: RUF012
    most: dict[str, float] = {}  # noqa: RUF012
    note: dict[str, Any] = {}  # noqa: RUF012
    lists: dict[str, list[str]] = {}  # noqa: RUF012


_LISTED = 20


@dataclass
class Episode:
    """An anomaly, so far.

    Attributes:
        ended_at: until when it is known to have lasted.
        is_over: something ended it.
    """

    kind: str
    subject: str
    severity: str
    started_at: int
    ended_at: int
    first: list[int | None]
    last: list[int | None]
    gap_ms: int
    label: str | None
    evidence: dict[str, Any] = field(default_factory=dict)
    is_over: bool = False

    @classmethod
    def begun(cls, hit: Hit) -> Episode:
        """Begin an episode with its first finding."""
        evidence = {**hit.add, **hit.begin, **hit.most, **hit.note}
        evidence |= {name: values[:_LISTED] for name, values in hit.lists.items()}
        return cls(
            hit.kind,
            hit.subject,
            hit.severity,
            hit.started_at,
            hit.ended_at,
            list(hit.first),
            list(hit.last),
            hit.gap_ms,
            hit.label,
            evidence,
        )

    def takes(self, hit: Hit, clock: int | None) -> bool:
        """Return whether a finding belongs to it that was made when the log's clock stood there.

        The clock of another broker may be behind, but a run may have ended in between.
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
        for name, value in hit.add.items():
            known[name] = known.get(name, 0) + value
        for name, value in hit.most.items():
            if name not in known or value > known[name]:
                known[name] = value
        known.update(hit.note)
        for name, values in hit.lists.items():
            seen = known.setdefault(name, [])
            seen += [v for v in dict.fromkeys(values) if v not in seen][: _LISTED - len(seen)]

    def to_json(self) -> Row:
        """Return it as plain data, to be written down before it changes."""
        return vars(self)

    def is_open(self, now: int) -> bool:
        """Return whether a later finding may still extend it."""
        return not self.is_over and now - self.ended_at <= self.gap_ms


class Findings:
    """The episodes of one group: those that are done, and those that a finding may extend."""

    def __init__(self, current: list[Row] | None = None) -> None:
        self.current = {(row["kind"], row["subject"]): Episode(**row) for row in current or []}
        self.done: list[Episode] = []

    def hit(self, hit: Hit, clock: int | None = None) -> None:
        """Take a finding, made when the clock of its source stood where it is given."""
        key = (hit.kind, hit.subject)
        known = self.current.get(key)
        if known is not None and known.takes(hit, clock):
            known.extend(hit)
            return
        if known is not None:
            self.done.append(known)
        self.current[key] = Episode.begun(hit)

    def end_others(self, lasting: Mapping[str, Container[str]]) -> None:
        """Let kinds of conditions be over but for some subjects of each."""
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

    def open(self) -> Iterator[Episode]:
        """Return the episodes that a later finding may change."""
        yield from self.current.values()

    def to_json(self) -> list[Row]:
        """Return the open ones as plain data, to be written down before they change."""
        return [episode.to_json() for episode in self.current.values()]


def anomaly_id(cluster: str, kind: str, group_id: str, subject: str, started_at: int | None) -> str:
    """Name an anomaly: the same in each run that finds it, since its start never moves."""
    parts = (cluster, kind, group_id, subject, str(started_at))
    text = "\0".join(parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20]

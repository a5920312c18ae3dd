"""What one group did in a window of time: sentences in their order, each with its record."""

from __future__ import annotations

import datetime as dt
import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from reporting.model import Log
from reporting.remedies import Remedies
from reporting.text import duration, moment, printable
from schemas.words import count

Row = Mapping[str, Any]

MARKS = {
    "Stable": "█",
    "PreparingRebalance": "▒",
    "CompletingRebalance": "░",
    "Assigning": "▒",
    "Reconciling": "░",
    "Empty": "·",
    "NotReady": "·",
    "Dead": " ",
}
"""How a state is drawn; a moment of which nothing is known is a question mark."""
UNKNOWN = "?"
_NAMED = 5
_HOUR_MS = 3_600_000
_TICKS = 3
_SHORT_MS = 4_000
# How times of a window of so many milliseconds are written.
_FORMS = ((900_000, "%H:%M:%S"), (86_400_000, "%H:%M"), (float("inf"), "%m-%d %H:%M"))
# A column of the band that holds several states shows the one that matters most to a reader.
_RANK = {mark: rank for rank, mark in enumerate([" ", "·", "█", "░", "▒"])}


@dataclass(frozen=True)
class Event:
    """Something that happened."""

    at: int  # when, in epoch milliseconds; before the window of what began earlier
    kind: str  # rebalance, state, lag, unknown, or the severity of an anomaly
    text: str  # a sentence
    # Partition and offset of the record in `__consumer_offsets` that proves it; None if no record
    # does.
    record: tuple[int, int] | None
    is_exact: bool = True  # the log has the time; else it is the best estimate


@dataclass(frozen=True)
class Story:
    """What a group did in a window: what happened, in the order of time, and the rows as read.

    The history of the log begins at `first`. `remedies` are of these rebalances.
    """

    group: str
    since: int
    until: int
    events: list[Event]
    found: Mapping[str, Sequence[Row]]
    first: int = 0
    remedies: Remedies = field(default_factory=Remedies)

    @property
    def cost(self) -> tuple[int, int]:
        """For how long members were without partitions of theirs, as far as is known; at least."""
        rows = self.found.get("generations", ())
        return (
            sum(row["cost_member_ms"] or 0 for row in rows),
            sum(row["cost_member_ms_min"] or 0 for row in rows),
        )

    def figures(self) -> dict[str, Any]:
        """Return the story for programs."""
        said = [(asdict(event), event.record or (None, None)) for event in self.events]
        events = [
            {name: told[name] for name in ("at", "is_exact", "kind", "text")}
            | {"record_partition": partition, "record_offset": offset}
            for told, (partition, offset) in said
        ]
        window = {"group_id": self.group, "since": self.since, "until": self.until}
        shown = {name: self.found[name] for name in ("states", "owners", "offsets")}
        cost = dict(zip(("cost_member_ms", "cost_member_ms_min"), self.cost, strict=True))
        counted = {
            "remedies": [asdict(remedy) for remedy in self.remedies.named],
            "remarks": self.remedies.remarks,
        }
        return {**window, **cost, **counted, "events": events, **shown}


def window(log: Log, since: int | None, until: int | None) -> tuple[int, int]:
    """Return start and end of a window: if nothing else is said, the last hour of a log."""
    until = log.newest + 1 if until is None else until
    return until - _HOUR_MS if since is None else since, until


def near(log: Log, group: str) -> list[str]:
    """Return the groups of a log that may be meant by a name that is none."""
    return difflib.get_close_matches(group, log.groups, _NAMED, 0.4) or sorted(log.groups)[:_NAMED]


def near_names(log: Log, group: str) -> str:
    """Return what to say behind a name that is none: the groups that may be meant, if any."""
    names = ", ".join(map(printable, near(log, group)))
    return f"; near are {names}" if names else ""


class Owned(NamedTuple):
    """A partition and its owner, within the window; an owner of None is not known."""

    partition: str
    owner: str | None
    since: int
    until: int | None
    is_doubted: bool  # behind `until` records are missing


def owned(story: Story) -> list[Owned]:
    """Return who owned what, by partition and time."""
    named = [(r["topic"] or r["topic_id"], r["topic_partition"], r) for r in story.found["owners"]]
    found = []
    for topic, number, row in sorted(named, key=lambda n: (*n[:2], n[2]["valid_from"])):
        begins, ends = max(row["valid_from"], story.since), row["valid_to"]
        host = f" at {row['client_host']}" if row["client_host"] else ""
        owner: str | None = f"{row['client_id'] or row['member_id']}{host}"
        is_doubted = is_unknown(row, "valid_to", story.since, story.until)
        if is_doubted:
            ends = row["known_until"]
            owner = owner if ends >= begins else None
        elif ends is not None and ends >= story.until:
            ends = None
        found.append(Owned(f"{topic}:{number}", owner, begins, ends, is_doubted))
    return found


def committed(story: Story) -> list[tuple[str, int | None, int | None, int]]:
    """Return each partition with its first and last committed offset, and how many commits."""
    by_partition: dict[tuple[str, int], list[Row]] = {}
    hours = story.found["offsets"]
    for row in sorted(hours, key=lambda r: r["record_timestamp"] or r["first_commit_at"] or 0):
        by_partition.setdefault((row["topic"], row["topic_partition"]), []).append(row)
    found = []
    for (topic, number), rows in sorted(by_partition.items()):
        offsets = (row["first_committed_offset"] for row in rows)
        first = next((offset for offset in offsets if offset is not None), None)
        commits = sum(row["commits"] for row in rows)
        found.append((f"{topic}:{number}", first, rows[-1]["last_committed_offset"], commits))
    return found


def events(found: Mapping[str, Sequence[Row]], since: int, until: int) -> list[Event]:
    """Return what happened in a window, in the order of time.

    Found are rows of the group that touch it, times in epoch milliseconds, by `states`,
    `generations`, `anomalies`, `lag`, `owners` and `members`; by `incidents` if there are any.
    """
    every = [
        *_rebalances(found["generations"]),
        *_states(found["states"]),
        *_anomalies(found["anomalies"]),
        *_incidents(found.get("incidents", ())),
        *_lag(found["lag"]),
        *_unknown(found, since, until),
    ]
    in_window = (e for e in every if e.kind in _LASTING or since <= e.at < until)
    return sorted(in_window, key=lambda e: (e.at, e.record or (-1, -1)))


def band(states: Iterable[Row], since: int, until: int, width: int) -> str:
    """Draw states over time, a character for each of `width` equal parts of the window."""
    parts: list[str] = [UNKNOWN] * width
    scale = width / max(1, until - since)
    for row in states:
        start, end = row["started_at"], row["ended_at"]
        end = end if row["known_until"] is None else row["known_until"]
        if start is None or (end is not None and end <= since):
            continue
        first = max(0, int((start - since) * scale))
        last = width if end is None else min(width, max(first + 1, int((end - since) * scale)))
        mark = MARKS.get(row["state"], UNKNOWN)
        for number in range(first, last):
            if _RANK.get(parts[number], -1) < _RANK.get(mark, -1):
                parts[number] = mark
    return "".join(parts)


def axis(since: int, until: int, width: int, where: dt.tzinfo) -> str:
    """Write the times below a band, each where its mark stands: `╵07:01:08   ╵07:01:15`."""
    length, line = until - since, ""
    form = next(form for longest, form in _FORMS if length <= longest)
    for part in range(_TICKS):
        column = width * part // _TICKS
        at = moment(since + length * column // width, where)
        exact = f".{at.microsecond // 1_000:03}" if length <= _SHORT_MS else ""
        line = f"{line.ljust(column)}╵{at.strftime(form)}{exact}"
    return line


# What may have begun before the window, and goes on in it.
_LASTING = ("info", "warning", "critical", "rebalance", "unknown")
# Until when what may not be known is said to last.
_ENDS = {"states": "ended_at", "members": "left_at", "owners": "valid_to"}


def _record(row: Row) -> tuple[int, int] | None:
    partition, offset = row.get("record_partition"), row.get("record_offset")
    return None if partition is None or offset is None else (partition, offset)


def _rebalances(generations: Iterable[Row]) -> Iterator[Event]:
    for row in generations:
        at = row["join_started_at"]
        if at is None:
            continue
        yield Event(
            at,
            "rebalance",
            _sentence(row),
            _record(row),
            is_exact=row["join_started_at_min"] == row["join_started_at_max"],
        )


def _sentence(row: Row) -> str:
    """Say what a rebalance did: `Rebalance to generation 3: crash-2 joined. Join 5.9 s, …`."""
    word = "generation" if row["group_type"] == "classic" else "group epoch"
    why = row["cause_detail"] or row["cause"] or "cause unknown"
    took = [
        f"{name} {duration(row[column])}"
        for name, column in (("join", "join_ms"), ("assignment", "sync_ms"))
        if row[column] is not None
    ]
    after = [count(row["member_count"] or 0, "member")]
    if row["leader_client_id"] is not None:
        after.append(f"leader {row['leader_client_id']}")
    if row["moved_partitions"]:
        after.append(f"{count(row['moved_partitions'], 'partition')} moved")
    first = f"Rebalance to {word} {row['generation']}: {why}."
    # Where an offset is missing, a record may be compacted away.
    if row["aborted_generations"] and row["aborted_evidence"] == "complete":
        first += f" {count(row['aborted_generations'], 'attempt')} before it had been aborted."
    rest = ", ".join([*took, *after])
    return f"{first} {rest[:1].upper()}{rest[1:]}."


def _states(states: Iterable[Row]) -> Iterator[Event]:
    """Yield what no rebalance says: the group is empty, gone, or waits."""
    for row in states:
        lasted = row["duration_ms"]
        is_told = row["state"] in {"Empty", "Dead", "NotReady"} and lasted != 0
        if row["started_at"] is None or not is_told:
            continue
        how_long = ", and is so still" if lasted is None else f", for {duration(lasted)}"
        if row["known_until"] not in (None, row["ended_at"]):
            surely = row["known_until"] - row["started_at"]
            how_long = f", for {duration(surely)} at least" if surely else ""
        said = {
            "Empty": f"The group has no members{how_long}.",
            "Dead": "The group is gone: deleted, or its last offset expired.",
            "NotReady": f"The group waits for its topology{how_long}.",
        }
        is_exact = row["evidence"] == "exact"
        yield Event(row["started_at"], "state", said[row["state"]], _record(row), is_exact)


def _anomalies(anomalies: Iterable[Row]) -> Iterator[Event]:
    for row in anomalies:
        first = row["first_record_partition"], row["first_record_offset"]
        record = None if None in first else first
        text = f"{row['kind']}: {row['summary']}"
        yield Event(row["started_at"], row["severity"], text, record)


def _incidents(incidents: Iterable[Row]) -> Iterator[Event]:
    for row in incidents:
        text = f"Part of an incident of {count(row['group_count'], 'group')}: {row['summary']}"
        yield Event(row["started_at"], row["severity"], text, None)


def _lag(samples: Iterable[Row]) -> Iterator[Event]:
    for row in samples:
        if row["lag"] is None:
            text = "None of the partitions that the group commits has a log and an offset."
            yield Event(row["sampled_at"], "lag", text, None)
            continue
        status = f", status {row['group_status']}" if row["group_status"] else ""
        of = count(row["partitions"], "partition")
        most = "at most " if row.get("is_bound") else ""
        text = f"Lag {most}{count(row['lag'], 'record')} in {of}{status}."
        yield Event(row["sampled_at"], "lag", text, None)


def is_unknown(row: Row, end: str, since: int, until: int) -> bool:
    """Return whether it is not known, at some time of a window, what a row of a period says."""
    known_until, ends = row["known_until"], row[end]
    if known_until is None or known_until >= until:
        return False
    return ends is None or ends > max(since, known_until)


def _unknown(found: Mapping[str, Sequence[Row]], since: int, until: int) -> Iterator[Event]:
    """Yield from when on, and for how long, records are missing that may tell of something else."""
    doubted: dict[int, dict[str, list[Row]]] = {}
    for name, end in _ENDS.items():
        for row in found[name]:
            if is_unknown(row, end, since, until):
                doubted.setdefault(row["known_until"], {}).setdefault(name, []).append(row)
    for at, rows in doubted.items():
        ends = [row[_ENDS[name]] for name, of_one in rows.items() for row in of_one]
        known = [end for end in ends if end is not None]
        how_long = f"for up to {duration(max(known) - at)}" if known == ends else "and so still"
        stays, owned = rows.get("members", ()), rows.get("owners", ())
        partitions = {(row["topic"] or row["topic_id"], row["topic_partition"]) for row in owned}
        what = ["what state the group was in"] if "states" in rows else []
        what += [f"whether {_named(stays)} stayed"] if stays else []
        what += [f"who owned {count(len(partitions), 'partition')}"] if partitions else []
        all_of_it = ", and ".join(part for part in (", ".join(what[:-1]), what[-1]) if part)
        text = f"Not known from here on, {how_long} (records are missing): {all_of_it}."
        yield Event(at, "unknown", text, None)


def _named(members: Sequence[Row]) -> str:
    """Name some members: `3 members (a, b)`."""
    names = sorted({r["group_instance_id"] or r["client_id"] or r["member_id"] for r in members})
    more = ["…"] if len(names) > _NAMED else []
    return f"{count(len(members), 'member')} ({', '.join([*names[:_NAMED], *more])})"

"""Holds what the history and the detectors tell of a life against what was so."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.generate import SCHEMA
from offsets.progress import Holes
from tests.lives.player import Kept, Played
from tests.lives.scripts import (
    CONNECT,
    CONSUMER,
    DAY,
    HOUR,
    MINUTE,
    SHARE,
    START,
    STREAMS,
    Life,
)
from tests.support.detection import detected_history
from tests.support.history import Log, commits_of, logs_of, rebuild
from timeline import cause, members
from timeline.holes import Unseen, holes_of
from timeline.model import GENERATIONS, OWNERS, SESSIONS, STATES

Row = dict[str, Any]
CLASSIC = "classic"
PREPARING, COMPLETING = "PreparingRebalance", "CompletingRebalance"
STABLE, EMPTY, DEAD = "Stable", "Empty", "Dead"
ALARMS = ("warning", "critical")
UNSEEN = ("hang",)
"""Trouble that is but an info without samples of the lag: the topic may be idle."""
_CLOCK_MS = 20
_LEAST_MS = 1_000
_INSTANTS = 25
_BEHIND_MS = (1_000, 90_000)
_METADATA_MS = 5 * MINUTE + 10_000
_FOREVER = 1 << 60
# What is told wrong, from the worst on, and how much of it is as bad as an alarm.
_ALARM, _MISS, _GENERATION, _PLACE, _STATE_HOUR, _CAUSE = 100, 60, 20, 4, 200, 2


class Reading(NamedTuple):
    """How the log is read."""

    compacts: bool = False  # whether the log cleaner has been there at each reading
    gap_ms: int = 0  # for so long nobody reads
    # At so many times, each shortly behind a change, a run looks at what is there then.
    moments: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether every record is read."""
        return not self.compacts


class Step(NamedTuple):
    """From a time on, until another, a group was so."""

    at: int
    until: int
    type: str
    state: str
    generation: int
    members: dict[str, str]
    owners: dict[str, list[str]]


class Generation(NamedTuple):
    """A generation that the coordinator wrote, or an epoch."""

    type: str
    number: int
    at: int  # when it was stable; of an epoch, when it began
    completed: int | None  # when its join phase ended; None where there was none
    members: dict[str, str]
    # Client ids of the members that the one before did not have, by member id.
    joined: dict[str, str]
    gone: dict[str, str]  # those of members that only the one before had
    owners: dict[str, str]  # member ids by partition; none if a partition has two
    # How many partitions went to another member; None if that cannot be said so simply.
    moved: int | None
    is_first: bool  # whether the group had none before
    since: int
    said: str  # what the coordinator said since the one before


class Wrong(NamedTuple):
    """Something that is told wrong."""

    weight: float  # how bad that is
    group: str
    what: str  # its kind
    detail: str


class Verdict(NamedTuple):
    """What is told wrong of a life, and what was counted."""

    protocol: str
    wrong: list[Wrong]
    figures: Counter[str]


def judge(played: Played, reading: Reading | None = None) -> Verdict:
    """Fold a life, detect, and compare."""
    life, reading = played.life, reading or Reading()
    records, times = read(played.records, life, reading)
    steps, said, runs = _truth(played)
    figures: Counter[str] = Counter()
    wrong: list[Wrong] = []
    names = {r["id"]: r["topic"] for r in played.truth if r["kind"] == "topic"}
    truths = {g: Truth(life, g, steps[g], said, runs, reading) for g in life.groups if steps[g]}
    for group, told, anomalies in _told(life, names, records, times):
        if (truth := truths.get(group)) is not None:
            wrong += truth.compare(told, figures)
            wrong += truth.alarms(anomalies, figures)
    for at in _moments(life, steps, reading):
        until = [*(time for time in times if time < at), at]
        there = _found(played.records, until, compacts=reading.compacts)
        for group, _, anomalies in _told(life, names, there, until):
            if (truth := truths.get(group)) is not None:
                found = [*truth.as_of(at).alarms(anomalies, Counter())]
                false = [w for w in found if w.what == "alarm"]
                figures["meanwhile"] += bool(false)
                wrong += [w._replace(detail=f"as of {clock(at)}: {w.detail}") for w in false]
    return Verdict(life.kind.protocol, sorted(wrong, reverse=True), figures)


def _told(
    life: Life, names: dict[str, str], records: list[Kept], times: list[int]
) -> Iterator[tuple[str, dict[str, list[Row]], list[Row]]]:
    """Yield history and anomalies of each group, as of the last of the times of the runs."""
    logs, commits = read_back(records)
    for group in life.groups:
        told: dict[str, list[Row]] = {t: [] for t in (STATES, GENERATIONS, SESSIONS, OWNERS)}
        anomalies: list[Row] = []
        if group in logs:
            log = logs[group]._replace(unseen=_unseen(records, times, logs[group]))
            cuts = [sum((e.timestamp or 0) <= at for e in log.events) for at in times[:-1]]
            told = rebuild(log, cuts)
            others = {name: rows for name, rows in commits.items() if name != group}
            rows = commits.get(group, [])
            anomalies = detected_history(told, times[-1], rows, _holes(records), others=others)
            for row in told[OWNERS]:  # no commit has named it yet
                row["topic"] = row["topic"] or names.get(row["topic_id"])
        yield group, told, anomalies


def read_back(records: list[Kept]) -> tuple[dict[str, Log], dict[str, list[Row]]]:
    """Return the log of each group, and its commits."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "records.parquet"
        write(records, path)
        logs = {log.group_id: log for log in logs_of(path)}
        commits = dict(commits_of(path))
        logs_of.cache_clear()
        commits_of.cache_clear()
    return logs, commits


def _moments(life: Life, steps: dict[str, list[Step]], reading: Reading) -> list[int]:
    chance = random.Random(life.name)  # noqa: S311 - to be the same in every run
    changes = [step.at for of_group in steps.values() for step in of_group]
    times = (chance.choice(changes) + chance.randint(*_BEHIND_MS) for _ in range(reading.moments))
    return sorted(min(at, life.end) for at in times)


# -- what is read ---------------------------------------------------------------------------------


def read(records: list[Kept], life: Life, reading: Reading) -> tuple[list[Kept], list[int]]:
    """Return the records that a schedule of runs finds, and when each run was."""
    times = [life.end]
    if reading.gap_ms or reading.compacts:
        third = (life.end - START) // 3
        until = START + third + (reading.gap_ms or third)
        times = [START + third, *([until] if until < life.end else []), life.end]
    return _found(records, times, compacts=reading.compacts), times


def _found(records: list[Kept], times: list[int], *, compacts: bool) -> list[Kept]:
    """Return the records that runs find at some times."""
    if not compacts:
        return [r for r in records if r.timestamp <= times[-1]]
    found: list[Kept] = []
    for after, at in pairwise([0, *times]):
        found += [r for r in _compacted(records, at) if after < r.timestamp <= at]
    return sorted(found, key=lambda r: (r.partition, r.offset))


def _compacted(records: list[Kept], at: int) -> Iterator[Kept]:
    """Yield what the cleaner has left by a time; an hour lies in the active segment."""
    cleaned = at - HOUR
    newest = {(r.partition, r.key): r.offset for r in records if r.timestamp <= cleaned}
    for record in records:
        is_newest = newest.get((record.partition, record.key)) == record.offset
        is_old_tombstone = record.value is None and record.timestamp <= cleaned - DAY
        if record.timestamp > cleaned or (is_newest and not is_old_tombstone):
            yield record


def write(records: list[Kept], path: Path) -> None:
    """Write records as `--records` takes them."""
    places = zip(*records, strict=True) if records else [[]] * 5
    partitions, offsets, timestamps, keys, values = map(list, places)
    names, kinds = ["__consumer_offsets"] * len(records), ["CreateTime"] * len(records)
    columns = [names, partitions, offsets, timestamps, kinds, keys, values]
    pq.write_table(pa.table(columns, schema=SCHEMA), path)


def _holes(records: list[Kept]) -> dict[int, Holes]:
    read_of: dict[int, set[int]] = defaultdict(set)
    for record in records:
        read_of[record.partition].add(record.offset)
    holes: dict[int, Holes] = {}
    for partition, offsets in read_of.items():
        missing = np.array(sorted(set(range(max(offsets) + 1)) - offsets), np.int64)
        holes |= holes_of(np.full(len(missing), partition), missing, missing, {})
    return holes


def _unseen(records: list[Kept], times: list[int], log: Log) -> tuple[Unseen, ...]:
    """Return the times in which a log was not read."""
    found: list[Unseen] = []
    last, since = -1, times[0]
    for after, at in pairwise([0, *times]):
        own = [r for r in records if r.partition == log.partition and after < r.timestamp <= at]
        if not own:
            continue  # files do not say whether there was anything
        if log.has_hole(last, own[-1].offset):
            found.append(Unseen(last + 1, since, at))
        last, since = own[-1].offset, at
    return tuple(found)


# -- what was so ----------------------------------------------------------------------------------


def _truth(
    played: Played,
) -> tuple[dict[str, list[Step]], list[tuple[int, str]], list[tuple[int, dict[str, list[str]]]]]:
    steps: dict[str, list[Step]] = defaultdict(list)
    said: list[tuple[int, str]] = []
    runs: list[tuple[int, dict[str, list[str]]]] = []
    for row in played.truth:
        if row["kind"] == "said":
            said.append((row["at"], row["text"].partition("] ")[2]))
        elif row["kind"] == "runs":
            now = dict(runs[-1][1]) if runs else {}
            now[row["member"]] = row["tasks"]
            if row["is_gone"]:
                del now[row["member"]]
            runs.append((row["at"], now))
        elif row["kind"] == "group":
            of_group = steps[row["group"]]
            if of_group:
                of_group[-1] = of_group[-1]._replace(until=row["at"])
            own = (row[n] for n in ("type", "state", "generation", "members", "owners"))
            of_group.append(Step(row["at"], played.life.end, *own))
    return steps, said, runs


@dataclass
class Truth:
    """What was so of a group, to compare with."""

    life: Life
    group: str
    steps: list[Step]
    said: list[tuple[int, str]]  # what the coordinator wrote to its log, and when
    runs: list[tuple[int, dict[str, list[str]]]]  # what each worker of Connect ran from a time on
    reading: Reading

    def __post_init__(self) -> None:
        self.chance = random.Random(self.group)  # noqa: S311 - to be the same in every run

    def as_of(self, at: int) -> Truth:
        """Return what was so until a time."""
        steps = [s._replace(until=min(s.until, at)) for s in self.steps if s.at <= at]
        return replace(self, steps=steps)

    def compare(self, told: dict[str, list[Row]], figures: Counter[str]) -> list[Wrong]:
        """Compare all tables; count what was compared."""
        figures["groups"] += 1
        found = [*self._states(told[STATES], figures)]
        found += self._generations(told[GENERATIONS], figures)
        found += self._join_starts(told[STATES], figures)
        found += self._shown_starts(told[GENERATIONS])
        found += self._places("members", told[SESSIONS], told[GENERATIONS], figures)
        found += self._places("owners", told[OWNERS], told[GENERATIONS], figures)
        found += self._ends(told[SESSIONS], figures)
        return found

    def _wrong(self, weight: float, what: str, detail: str) -> Wrong:
        return Wrong(weight, self.group, what, detail)

    # -- states -------------------------------------------------------------------------------

    def _states(self, rows: list[Row], figures: Counter[str]) -> Iterator[Wrong]:
        rows = sorted(rows, key=lambda r: r["sequence"])
        ends = [r["started_at_min"] or 0 for r in rows[1:]] + [_FOREVER]
        # From when it had begun for certain, until the next may have begun, is said without doubt.
        spans = [
            (r["started_at"], r["ended_at"] or _FOREVER, r["state"], r["started_at_max"], end)
            for r, end in zip(rows, ends, strict=True)
        ]
        wrong: Counter[tuple[str, str]] = Counter()
        first: dict[tuple[str, str], int] = {}
        for step in self.steps:
            is_rebalance = step.type == CLASSIC and step.state in (PREPARING, COMPLETING)
            if is_rebalance and step is self.steps[-1]:
                continue  # no record tells yet that it has begun
            figures["state_ms"] += step.until - step.at
            figures["rebalancing_ms"] += is_rebalance * (step.until - step.at)
            untold = step.until - step.at
            for since, until, state, certain_since, certain_until in spans:
                ms = min(until, step.until) - max(since, step.at)
                if ms <= 0:
                    continue
                untold -= ms
                if state == step.state:
                    figures["state_right_ms"] += ms
                    figures["rebalancing_told_ms"] += is_rebalance * ms
                else:
                    wrong[step.state, state] += ms
                    first.setdefault((step.state, state), max(since, step.at))
                    begun, over = max(certain_since, step.at), min(certain_until, step.until)
                    figures["state_untrue_ms"] += max(0, over - begun)
            if untold > 0 and self.reading.is_whole:
                wrong[step.state, "nothing"] += untold
                first.setdefault((step.state, "nothing"), step.at)
            figures["state_untold_ms"] += max(0, untold)
        figures["state_wrong_ms"] += wrong.total()
        for (true, state), ms in wrong.items():
            if ms > _LEAST_MS:
                detail = (
                    f"{ms / 1000:.0f} s of {true} are {state}, first {clock(first[true, state])}"
                )
                yield self._wrong(_STATE_HOUR * ms / HOUR, "state", detail)

    def _join_starts(self, rows: list[Row], figures: Counter[str]) -> Iterator[Wrong]:
        """Hold that each join phase began within its bounds."""
        starts = [s.at for s in self.steps if s.type == CLASSIC and s.state != STABLE]
        for row in rows:
            if row["state"] != PREPARING or row["group_type"] != CLASSIC:
                continue
            low = (row["started_at_min"] or 0) - 1
            high = (row["started_at_max"] or _FOREVER) + 1
            figures["joins"] += 1
            if any(low <= at <= high for at in starts):
                figures["joins_in_bounds"] += 1
            else:
                detail = f"join phase of {clock(row['started_at'])} began outside its bounds"
                yield self._wrong(_PLACE, "bounds", detail)

    def _shown_starts(self, rows: list[Row]) -> Iterator[Wrong]:
        """Hold that join phases had begun by when commits show it, on which alarms rest."""
        rests = [s for s in self.steps if s.type == CLASSIC and s.state == STABLE]
        for row in rows:
            by, end = row["join_started_at_max"], row["join_completed_at"]
            if row["group_type"] != CLASSIC or by is None or end is None or by >= end:
                continue
            rest = next((s for s in rests if s.at <= by < s.until - _CLOCK_MS), None)
            if rest is not None:
                late = f"{(rest.until - by) / 1000:.0f} s later"
                detail = (
                    f"generation {row['generation']} began to join by {clock(by)}, truly {late}"
                )
                yield self._wrong(_PLACE, "shown start", detail)

    # -- generations --------------------------------------------------------------------------

    def generations(self) -> list[Generation]:
        """Return what was written, in the order of time."""
        found: list[Generation] = []
        completed: int | None = None
        before: Step | None = None
        for step, after in zip(self.steps, [*self.steps[1:], None], strict=True):
            is_new = before is None or before.state == DEAD or before.type != step.type
            is_other = before is not None and before.generation != step.generation
            writes = False
            if step.state == DEAD:
                pass
            elif step.type != CLASSIC:
                # The first epoch of a group that a regular expression makes has no record.
                is_unwritten = is_new and step.generation == 1 and "pattern" in self.life.style
                writes = (is_new or is_other) and not is_unwritten
            elif is_new:
                # An empty group that only commits has no record of its own.
                joins = after is not None and after.state == PREPARING
                is_downgrade = before is not None and before.state != DEAD
                writes = joins or is_downgrade or step.state == PREPARING
            elif step.state == COMPLETING and before and before.state != COMPLETING:
                completed = step.at
            elif step.state == STABLE and before and before.state != STABLE:
                writes = not found or found[-1].number != step.generation
            elif step.state == EMPTY:
                writes = is_other
            if writes:
                # Generation 0 is that of the group which is made for its first member. One that is
                # empty is not converted: it is deleted, and another made in the same write.
                is_back = before is not None and (
                    before.state == DEAD or (before.state == EMPTY and before.type != step.type)
                )
                is_first = not found or found[-1].number == 0 or is_back
                old = {} if is_first else found[-1].members
                since = found[-1].at if found else 0
                # A coordinator says why before the group is seen to be so; the rebalance behind a
                # conversion is one with it.
                said = "\n".join(
                    text
                    for at, text in self.said
                    if since < at <= step.at or (at == since and "Converted" in text)
                )
                now = step.members
                owners = {p: m for m, owned in step.owners.items() for p in owned}
                if len(owners) < sum(map(len, step.owners.values())):
                    owners = {}  # where a partition has two owners, none is the one it moved from
                last = found[-1].owners if found else {}
                is_classic = step.type == CLASSIC and bool(found) and found[-1].type == CLASSIC
                is_same = is_classic and bool(owners) and owners.keys() == last.keys()
                moved = sum(last[p] != m for p, m in owners.items()) if is_same else None
                found.append(
                    Generation(
                        *(step.type, step.generation, step.at, completed, now),
                        {m: c for m, c in now.items() if m not in old},
                        {m: c for m, c in old.items() if m not in now},
                        *(owners, moved, is_first, since, said),
                    )
                )
                completed = None
            before = step
        return found

    def _generations(self, rows: list[Row], figures: Counter[str]) -> Iterator[Wrong]:
        left = list(rows)
        pairs: list[tuple[Generation, Row]] = []
        for one in self.generations():
            same = [r for r in left if (r["group_type"], r["generation"]) == (one.type, one.number)]
            if not same:
                if self.reading.is_whole:
                    figures["generations"] += 1
                    detail = f"no {one.type} generation {one.number} of {clock(one.at)}"
                    yield self._wrong(_GENERATION, "generation", detail)
                continue
            figures["generations"] += 1
            figures["generations_found"] += 1
            row = min(same, key=lambda r: abs(r["record_timestamp"] - one.at))
            left.remove(row)
            pairs.append((one, row))
            reached = row["stable_at"] if one.completed is not None else None
            if abs((reached or row["record_timestamp"]) - one.at) > _CLOCK_MS:
                detail = f"generation {one.number} is of {clock(one.at)}, not {clock(reached)}"
                yield self._wrong(_PLACE, "time of a generation", detail)
        # What begins and ends within one event of the coordinator is seen as a step of another.
        begun = {(s.type, s.generation) for s in self.steps}
        for row in (r for r in left if (r["group_type"], r["generation"]) not in begun):
            detail = f"there was no {row['group_type']} generation {row['generation']}"
            yield self._wrong(_GENERATION, "generation", detail)
        for one, row in pairs:
            yield from self._cause(one, row, figures)
            is_plain = self.reading.is_whole and not self.life.style["static"]
            told = row["moved_partitions"]
            if is_plain and one.moved is not None and told not in (None, one.moved):
                detail = f"generation {one.number}, {clock(one.at)}: {told}, truly {one.moved}"
                yield self._wrong(_PLACE, "moved partitions", detail)

    def _cause(self, one: Generation, row: Row, figures: Counter[str]) -> Iterator[Wrong]:
        told, at = row["cause"], f"{one.type} generation {one.number}, {clock(one.at)}"
        figures["causes"] += 1
        if told == cause.UNKNOWN:
            figures["causes_untold"] += 1
            if self.reading.is_whole and not one.is_first:
                yield self._wrong(_CAUSE / 4, "cause", f"{at}: unknown; {row['cause_detail']}")
            return
        if not self.reading.is_whole and row["previous_generation"] != one.number - 1:
            return
        came = {m["member_id"] for m in row["members_joined"] or ()}
        if self.reading.is_whole and came - one.members.keys():
            strangers = sorted(came - one.members.keys())
            yield self._wrong(_PLACE, "members that came", f"{at}: {strangers} were no members")
        bears = self._bears(told, one)
        figures["causes_right"] += bears
        if not bears:
            detail = f"{at}: {told}, {row['cause_detail']!r}; {len(one.joined)} came,"
            last = one.said.splitlines()[-3:]
            yield self._wrong(_CAUSE, "cause", f"{detail} {len(one.gone)} went; {' | '.join(last)}")
        elif told in (cause.NEW_MEMBER, cause.MEMBER_LEFT) and self.reading.is_whole:
            who = one.joined if told == cause.NEW_MEMBER else one.gone
            named = row["cause_detail"].partition(" joined")[0].partition(" left or")[0]
            names = set(re.sub(r" and \d+ more", "", named).split(", "))
            if not (names <= set(who.values()) or named.startswith("the last")):
                detail = f"{at}: {row['cause_detail']!r}, but it was {sorted(who.values())}"
                yield self._wrong(_CAUSE, "cause_detail", detail)

    def _bears(self, told: str, one: Generation) -> bool:
        """Return whether what happened, and what the coordinator said, bear a cause out."""
        again = set(one.joined.values()) & set(one.gone.values())
        is_replaced = "eplac" in one.said
        # Without a word on topics or members, a share group's epoch assigns what is ready by then.
        is_quiet = one.type == "share" and not (one.joined or one.gone)
        is_initialized = is_quiet and "new metadata hash" not in one.said
        borne = {
            cause.GROUP_CREATED: one.is_first,
            cause.NEW_MEMBER: bool(one.joined),
            cause.MEMBER_LEFT: bool(one.gone),
            cause.MEMBER_RESTARTED: bool(again),
            cause.STATIC_MEMBER_REPLACED: is_replaced or bool(again),
            cause.SUBSCRIPTION_CHANGED: any(
                self._happened(what, one) for what in ("start", "create", "drop", "subscribe")
            ),
            cause.PARTITIONS_CHANGED: any(
                self._happened(what, one)
                for what in ("create", "grow", "drop", "move", "connector")
            ),
            cause.TOPIC_DELETED: self._happened("drop", one),
            cause.CONFIGURATION_CHANGED: self._happened("connector", one),
            cause.LEADER_REJOINED: "Leader" in one.said,
            cause.COOPERATIVE_FOLLOW_UP: "pdating metadata" in one.said
            or "Leader" in one.said
            or is_initialized,
            cause.CONVERSION: "Converted" in one.said,
            cause.FAIL_OVER: self._happened("fail_over", one),
        }
        return borne.get(told, True)

    def _happened(self, what: str, one: Generation) -> bool:
        """Return whether something happened that clients learn of within five minutes."""
        since, until = one.since - _METADATA_MS - START, one.at - START
        return any(s["do"] == what and since <= s["at"] <= until for s in self.life.steps)

    # -- members and owners -------------------------------------------------------------------

    def _instants(self) -> list[tuple[int, Step]]:
        """Return instants at which the group was at rest."""
        rests = [
            s
            for s in self.steps
            if s.until - s.at > 2 * _CLOCK_MS and s.state not in (PREPARING, COMPLETING)
        ]
        weights = [min(s.until - s.at, 10 * MINUTE) for s in rests]
        chosen = self.chance.choices(rests, weights, k=_INSTANTS) if rests else []
        return [(self.chance.randint(s.at + _CLOCK_MS, s.until - 1), s) for s in chosen]

    def _places(
        self, what: str, rows: list[Row], generations: list[Row], figures: Counter[str]
    ) -> Iterator[Wrong]:
        """Compare who was a member, or owned what, at some instants."""
        since, until = ("joined_at", "left_at") if what == "members" else ("valid_from", "valid_to")
        is_work = what == "owners" and self.life.kind.protocol == CONNECT
        for at, step in self._instants():
            certain: set[str] = set()
            perhaps: set[str] = set()
            for row in rows:
                if row[since] is not None and row[since] <= at < (row[until] or _FOREVER):
                    known = row.get("known_until")
                    place = row["member_id"]
                    if what == "owners":
                        place = f"{row['topic']}/{row['topic_partition']} of {place}"
                    (perhaps if known is not None and known <= at else certain).add(place)
            true = set(step.members)
            if is_work:
                work = self._work(at, step, generations)
                if work is None:
                    continue
                true, certain = work
            elif what == "owners":
                true = {f"{p} of {m}" for m, owned in step.owners.items() for p in owned}
            missing, extra = true - certain - perhaps, certain - true
            figures[what] += 1
            is_right = not extra and not (missing and self.reading.is_whole)
            figures[f"{what}_right"] += is_right
            if not is_right:
                some = f"missing {sorted(missing)[:3]}, extra {sorted(extra)[:3]}"
                detail = f"{clock(at)}, {step.state} {step.generation}: {some}"
                yield self._wrong(_PLACE, what, detail)

    def _work(
        self, at: int, step: Step, generations: list[Row]
    ) -> tuple[set[str], set[str]] | None:
        """Return what workers of Connect ran, and what is told; None while it changes."""
        near = [since for since, _ in self.runs if abs(since - at) < 3_000]
        known = [tasks for since, tasks in self.runs if since <= at]
        rows = [r for r in generations if (r["stable_at"] or _FOREVER) <= at]
        if near or not known or not rows or step.state != STABLE:
            return None
        row = max(rows, key=lambda r: r["stable_at"])
        later = [r["generation"] for r in generations if (r["stable_at"] or 0) > at]
        if not self.reading.is_whole and min(later, default=0) > row["generation"] + 1:
            return None  # generations are missing: what ran in between is told by nothing
        runs = {m: tasks for m, tasks in known[-1].items() if m in step.members}
        every = sum(map(len, runs.values()))
        tasks = sum(not t.endswith("/-1") for all_of in runs.values() for t in all_of)
        assigned = row["assigned_partitions"]
        true = {str(every if assigned == every else tasks)}
        true |= {f"idle {m}" for m, all_of in runs.items() if not all_of}
        return true, {str(assigned), *(f"idle {m}" for m in row["idle_members"] or ())}

    def _ends(self, rows: list[Row], figures: Counter[str]) -> Iterator[Wrong]:
        """Compare when and why sessions ended."""
        if not self.reading.is_whole:
            return
        for row in rows:
            member, left = row["member_id"], row["left_at"]
            if left is None or not any(member in s.members for s in self.steps):
                continue
            figures["ends"] += 1
            gone = [
                after.at
                for step, after in pairwise(self.steps)
                if member in step.members and member not in after.members
            ]
            true = min(gone or [self.life.end], key=lambda at: abs(at - left))
            earliest = row["left_at_min"] or 0
            if not earliest - _CLOCK_MS <= true <= left + _CLOCK_MS:
                detail = f"{member} left at {clock(true)}, told {clock(earliest)} to {clock(left)}"
                yield self._wrong(_PLACE, "end of a session", detail)
                continue
            since = row["joined_at"]
            words = [text for at, text in self.said if member in text and since < at <= left]
            is_replaced = any(re.search(f"eplac.*member {member}", text) for text in words[-1:])
            later = [s for s in self.steps if true <= s.at <= left + _CLOCK_MS]
            is_back = any(row["client_id"] in s.members.values() for s in later)
            told = row["end_cause"]
            borne = {
                members.REPLACED: is_replaced or (row["group_instance_id"] and is_back),
                members.LEFT: not is_replaced,
                members.RESTARTED: is_back,
                members.EMPTIED: not later or any(s.state in (EMPTY, DEAD) for s in later),
                members.CONVERTED: any("Converted" in text for _, text in self.said),
            }
            figures["ends_right"] += bool(borne.get(told, True))
            if not borne.get(told, True):
                last = " | ".join(words[-1:])
                yield self._wrong(_CAUSE, "end_cause", f"{member} of {clock(left)}: {told}; {last}")

    # -- anomalies ----------------------------------------------------------------------------

    def alarms(self, rows: list[Row], figures: Counter[str]) -> Iterator[Wrong]:
        """Hold that trouble is told, and nothing else."""
        kind = self.life.kind
        is_ordinary = self.life.is_ordinary or self.group != self.life.groups[0]
        if kind.label == "slow join" and all(ms < MINUTE for _, ms in self._phases(self.steps)):
            # Nobody had to wait for the member that was busy.
            return
        since = (self.life.trouble_at or START) - MINUTE
        fitting = [
            r for r in rows if r["kind"] in kind.fits and (r["ended_at"] or _FOREVER) >= since
        ]
        figures["ordinary" if is_ordinary else "trouble"] += 1
        false = 0
        for row in rows:
            if row["severity"] not in ALARMS:
                continue
            untrue = self._is_untrue(row)
            early = not is_ordinary and (row["ended_at"] or _FOREVER) < since
            if untrue or early or (is_ordinary and row["kind"] not in kind.fits):
                false += 1
                why = "untrue: " if untrue else ""
                weight = _ALARM * (1 + (row["severity"] == "critical") + untrue)
                detail = f"{row['severity']} {row['kind']} ({row['label']}), {why}{row['summary']}"
                yield self._wrong(weight, "alarm", f"{clock(row['started_at'])} {detail}")
        figures["alarmed"] += bool(false and is_ordinary)
        figures["untrue"] += bool(false and not is_ordinary)
        if not is_ordinary and not any(
            r["severity"] in ALARMS or kind.label in UNSEEN for r in fitting
        ):
            figures["missed" if not fitting else "told_as_info"] += 1
            told = Counter(f"{r['severity']} {r['kind']}" for r in rows)
            detail = f"{kind.label} since {clock(self.life.trouble_at)}: told {dict(told)}"
            yield self._wrong(_MISS / (1 + bool(fitting)), "miss", detail)

    def _is_untrue(self, row: Row) -> bool:
        """Return whether an anomaly that states a plain fact is contradicted by what was so."""
        since, until = row["started_at"] - 2_000, (row["ended_at"] or _FOREVER) + 2_000
        near = [s for s in self.steps if s.at <= until and s.until >= since]
        phases = self._phases(near)
        if row["kind"] == "slow_rebalance" and "partitions took" in row["summary"]:
            # From when one was told to give them up until another had them, the group is Stable.
            rests = [s.at for s in near if s.state == STABLE]
            return max(rests, default=0) - min(rests, default=0) < 29_000
        if row["kind"] == "slow_rebalance":
            limits = {PREPARING: 29_000, COMPLETING: 4_900}
            return not any(ms >= limits.get(state, 55_000) for state, ms in phases)
        if row["kind"] == "stuck_rebalance":
            return not any(ms >= 55_000 for _, ms in phases)
        by_label = {"slow_members": False, "short_lived_members": True}
        if row["label"] in by_label and self.life.kind.protocol in (CONSUMER, SHARE, STREAMS):
            # Who is frozen polls no sooner than who works; neither is stopped.
            stays = any(step["do"] in ("work", "freeze") for step in self.life.steps)
            return stays is by_label[row["label"]]
        if row["kind"] == "idle_members" and self.life.kind.protocol != CONNECT:
            return not any(not owned for s in near for owned in s.owners.values())
        return False

    @staticmethod
    def _phases(steps: Sequence[Step]) -> list[tuple[str, int]]:
        """Return how long it took from rest to rest, and each state in between."""
        found: list[tuple[str, int]] = []
        began: int | None = None
        for step in steps:
            if step.state in (STABLE, EMPTY, DEAD):
                began = None
                continue
            began = step.at if began is None else began
            found.append((step.state, step.until - step.at))
            found.append(("all", step.until - began))
        return found


def clock(ms: int | None) -> str:
    """Return a time of the life: days, hours, minutes, seconds since it began."""
    if ms is None:
        return "-"
    at = max(0, ms - START)
    day, rest = divmod(at, DAY)
    hours, rest = divmod(rest, HOUR)
    minutes, rest = divmod(rest, MINUTE)
    return f"{day}d {hours:02}:{minutes:02}:{rest / 1000:06.3f}"

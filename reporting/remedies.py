"""What would have prevented a group's rebalances: counted from its history, setting by setting.

Each remedy is counted by itself: what two of them prevent is in both numbers. A rebalance counts
if everything that changed with it would not have been seen, so that none is counted that would
have happened all the same.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from reporting.text import consumer_time, cut, duration
from schemas.words import count

Row = Mapping[str, Any]

STATIC, SESSION, POLL = "static_membership", "session_timeout", "max_poll_interval"
DELAY, COOPERATIVE = "initial_delay", "cooperative"
_HUNG, _DIED, _STOPPED, _LEFT = "hung", "died", "stopped", "left"

_SECOND, _MINUTE, _HOUR = 1_000, 60_000, 3_600_000
_MOST = 3
# A remedy of one rebalance in many is none.
_LEAST, _LEAST_SHARE, _LEAST_SAVED_MS = 2, 0.05, 10_000
# The delay is of all groups.
_LEAST_OF_STARTS = 3
# session.timeout.ms since 3.0, and group.consumer.session.timeout.ms: what the new protocols have,
# whose members do not say.
_UNKNOWN_SESSION_MS = 45_000
# Nobody should wait for a dead member longer than for one that is stuck, by default.
_SESSIONS = tuple(s * _SECOND for s in (6, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300))
# What hangs for longer is better looked at than waited for.
_HUNG_SESSIONS = tuple(s for s in _SESSIONS if s <= 2 * _MINUTE)
_POLLS = tuple(s * _SECOND for s in (5, 10, 15, 20, 30, 60, 120, 180, 300, 600, 900, 1200, 1800))
# Each start of an empty group takes so much longer.
_DELAYS = tuple(s * _SECOND for s in (3, 5, 10, 15))
# The smallest value that covers so much of what the largest one covers: one straggler is left out.
_ENOUGH = 0.9
# Kubernetes starts what failed again within five minutes; then it has to join. Later is a decision.
_BACKOFF_MS = 6 * _MINUTE
# A deployment and its rollback restart a client twice within the hour.
_LOOP = 3
# As detectors have it: what ends with max.poll.interval.ms lasts as long, or a few polls longer.
_POLLS_LAST = (0.9, 3.5)
# Who is usually away for so much longer was stopped.
_AWAY = 1.5
# A join phase that waits for a member that is dead lasts till its session ends: the whole of it, if
# another is started at once.
_DEATHS_TAKE, _WAITS = (0.5, 1.5), (0.8, 1.2)
_NAMED, _LONGEST_NAME = 3, 60
_TYPES = ("classic", "consumer")


@dataclass(frozen=True)
class Remedy:
    """A setting that would have prevented rebalances, or what they cost."""

    kind: str  # which one, by a word
    setting: str  # names and values, as clients or brokers have them
    rebalances: int  # how many would not have happened
    of: int  # how many there were
    saved_member_ms: int  # what these cost, or what of their cost would not have been
    saved_member_ms_min: int  # it is no less
    text: str  # a sentence on all of that, and on what the setting costs
    # Partition and offset of the records that tell of these rebalances.
    records: list[tuple[int, int]]
    # Whether it is at most so many, since the log does not tell all that matters.
    is_most: bool = False

    @property
    def sentence(self) -> str:
        """The text, with the first and the last of the records."""
        places = [f"{partition}/{offset}" for partition, offset in self.records]
        return f"{self.text} (records {places[0]} to {places[-1]})"


@dataclass(frozen=True)
class Remedies:
    """What would have prevented rebalances, the best first; and what is to be said beside it."""

    named: list[Remedy] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def sentences(self) -> list[str]:
        """All that is to be said."""
        return [*(remedy.sentence for remedy in self.named), *self.remarks]


class _Absence(NamedTuple):
    """A member that went, and the one that came back in its place."""

    slot: str  # what stays the same of the two
    gone: int  # index of the generation without it, and of the one that has it again
    back: int
    ids: tuple[str, str]  # ids of the two members
    away_ms: int  # from the rebalance that it went with till all had joined the one it is back with
    missed_ms: int  # from the one rebalance to the other, as far as is known
    stayed_ms: int | None  # how long it had been a member; None if that is not known
    member: Row  # what the record says of it
    was_awaited: bool  # whether the join phase that it came back in lasted till a session ended
    is_seen: bool  # whether others were in the group meanwhile

    @property
    def session_ms(self) -> int:
        return self.member["session_timeout_ms"] or _UNKNOWN_SESSION_MS

    @property
    def left_in_order(self) -> bool:
        """Whether it said that it leaves: whoever is silent remains for a session timeout."""
        least = min(self.session_ms, self.member["rebalance_timeout_ms"] or self.session_ms)
        return self.stayed_ms is not None and self.stayed_ms < least

    @property
    def session_needed_ms(self) -> int:
        """The session timeout that covers the absence, from the last heartbeat on."""
        if self.left_in_order:  # heartbeats come three times in a session timeout, or more often
            return self.away_ms + self.session_ms // 3
        # If it died without a word, the group has noticed that only a session timeout later.
        return self.away_ms + (self.session_ms if self.gone < self.back else 0)


def remedies(generations: Sequence[Row], sessions: Sequence[Row] | None) -> Remedies:
    """Count what would have prevented rebalances of one group.

    Times are epoch milliseconds. The sessions tell who was there at once with whom, and for how
    long; they are None if not all of them are known.
    """
    rows = [row for row in generations if row["join_started_at"] is not None]
    rows.sort(key=lambda row: (row["join_started_at"], row["record_offset"]))
    found = _Counting(rows, sessions)
    named = [*found.by_absence(), *found.by_delay(), *found.by_assignor()]
    named.sort(key=lambda r: (-r.rebalances, -r.saved_member_ms, r.kind))
    return Remedies(named[:_MOST], list(found.remarks()))


class _Counting:
    def __init__(self, rows: list[Row], sessions: Sequence[Row] | None) -> None:
        self.rows = rows
        self.before = _with_members_before(rows)
        absences = list(_absences(rows, sessions))
        self.loops = {slot: _why_again(loop) for slot, loop in _loops(absences, rows).items()}
        self.classes: defaultdict[str | None, list[_Absence]] = defaultdict(list)
        for absence in absences:
            self.classes[self._class(absence)].append(absence)

    def _class(self, absence: _Absence) -> str | None:
        """Return what hides an absence, or why nothing should; None if nobody saw it."""
        row, loop = self.rows[absence.back], self.loops.get(absence.slot)
        if row["protocol_type"] not in ("consumer", None) or row["group_type"] not in _TYPES:
            return None
        if loop == POLL:
            return POLL
        keeps_id = absence.ids[0] == absence.ids[1]
        if not absence.is_seen or (keeps_id and absence.left_in_order):
            return None
        if keeps_id:
            return SESSION
        if loop not in (None, _LEFT):
            return loop
        return STATIC if absence.member["group_instance_id"] is None else SESSION

    # -- members that come back ---------------------------------------------------------------

    def by_absence(self) -> Iterator[Remedy]:
        """Yield what would have hidden that members were away."""
        session_needed = attrgetter("session_needed_ms")
        for kind, values, needed, written in (
            (STATIC, _SESSIONS, session_needed, self._static),
            (SESSION, _SESSIONS, session_needed, self._session),
            (_HUNG, _HUNG_SESSIONS, _hung_needed, self._hung),
            (POLL, _POLLS, _poll_needed, self._poll),
        ):
            absences = [a for a in self.classes[kind] if needed(a) <= values[-1]]
            most = len(self._prevented(absences))
            for value in values if most else ():
                covered = [a for a in absences if needed(a) <= value]
                prevented = self._prevented(covered)
                if len(prevented) >= _ENOUGH * most:
                    yield from self._remedy(kind, prevented, written(covered, value))
                    break

    def _prevented(self, absences: Iterable[_Absence]) -> list[int]:
        """Return the rebalances of which nothing is left if no one sees that members are away."""
        went: defaultdict[int, set[str]] = defaultdict(set)
        came: defaultdict[int, set[str]] = defaultdict(set)
        for absence in absences:
            went[absence.gone].add(absence.ids[0])
            came[absence.back].add(absence.ids[1])
        found: list[int] = []
        for number, row in enumerate(self.rows):
            if row["cause"] == "cooperative_follow_up" and found[-1:] == [number - 1]:
                found.append(number)  # it ends what the one before began
            elif went[number] or came[number]:
                left, joined = _left(row), _joined(row)
                is_hidden = left.keys() <= went[number] and joined.keys() <= came[number]
                if is_hidden and _is_whole(row) and not self._is_changed(number):
                    found.append(number)
        return found

    def _is_changed(self, number: int) -> bool:
        """Return whether more than members changed: what they subscribe to, or how they assign."""
        row, before = self.rows[number], self.before[number]
        if before is None or not row["member_count"]:
            return False
        names = ("group_type", "subscriptions", "subscribed_topics", "protocol")
        return any(row[name] != before[name] for name in names)

    def _remedy(
        self, kind: str, prevented: list[int], setting: tuple[str, str, str]
    ) -> Iterator[Remedy]:
        """Yield a remedy, if it is worth it; `setting` is it, why, and what it costs."""
        of, number = len(self.rows), len(prevented)
        least = _LEAST_OF_STARTS if kind == DELAY else _LEAST
        if number < max(least, _LEAST_SHARE * of):
            return
        rows = [self.rows[n] for n in prevented]
        saved = sum(row["cost_member_ms"] or 0 for row in rows)
        least = sum(row["cost_member_ms_min"] or 0 for row in rows)
        what, why, price = setting
        most = "at most " if (is_most := kind in (_HUNG, POLL)) else ""
        text = f"With {what}, {most}{number:,} of {count(of, 'rebalance')} would not have happened"
        text += f", which cost {consumer_time(saved, least)}: {why}" if saved else f": {why}"
        text, kind = f"{text}. {price}", SESSION if kind == _HUNG else kind
        yield Remedy(kind, what, number, of, saved, least, text, _records(rows), is_most)

    def _static(self, absences: list[_Absence], value: int) -> tuple[str, str, str]:
        what, why, price = self._session(absences, value)
        looping = Counter(a.slot for a in absences if a.slot in self.loops)
        if looping:
            price += (
                f" First find out why {_names(looping)} stop and start again and again: it would"
                " only be hidden, and their partitions wait while they are away."
            )
        return f"group.instance.id and {what}", why, price

    def _session(self, absences: list[_Absence], value: int) -> tuple[str, str, str]:
        now = max(a.session_ms for a in absences)
        value = max(value, now)
        is_classic = self.rows[-1]["group_type"] == "classic"
        name = "session.timeout.ms" if is_classic else "group.consumer.session.timeout.ms"
        what = f"{name}={value}" + (" as it is" if value == now else "")
        longest = duration(max(a.away_ms for a in absences))
        names, times = _names(Counter(a.slot for a in absences)), count(len(absences), "time")
        later = f"after {duration(value)} instead of {duration(now)}"
        when = later if value > now else f"only after these {duration(now)}"
        price = f"In return, a member that stops is missed {when}."
        return what, f"{names} came back {times}, after {longest} at most", price

    def _hung(self, absences: list[_Absence], value: int) -> tuple[str, str, str]:
        what, why, price = self._session(absences, value)
        doubt = "The log does not tell whether they hung, or died, which no setting prevents."
        return what, why, f"{doubt} {price}"

    def _poll(self, absences: list[_Absence], value: int) -> tuple[str, str, str]:
        now = max(a.member["rebalance_timeout_ms"] or 0 for a in absences)
        names = _names(Counter(a.slot for a in absences))
        why = f"{names} went when max.poll.interval.ms={now} had passed, or later, and came back"
        price = (
            'The log does not tell why; "poll timeout" in their logs does. In return, a rebalance'
            f" waits up to {duration(value)} for a member that does not poll, instead of"
            f" {duration(now)}; a smaller max.poll.records makes polls shorter."
        )
        return f"max.poll.interval.ms={value}", why, price

    # -- starts that came apart ---------------------------------------------------------------

    def by_delay(self) -> Iterator[Remedy]:
        """Yield what would have had members that start together join together."""
        late: list[tuple[int, list[int]]] = []
        for number, row in enumerate(self.rows):
            if row["group_type"] != "classic" or not _is_start(self.rows, number):
                continue
            needed, since, pending = 0, row, []
            for after in range(number + 1, len(self.rows)):
                other = self.rows[after]
                distance = other["join_started_at"] - since["join_started_at"]
                if other["cause"] == "cooperative_follow_up":
                    pending.append(after)
                    continue
                only_joined = other["cause"] == "new_member" and not _left(other)
                if not only_joined or distance > _DELAYS[-1] or not _is_whole(other):
                    break
                needed, since = max(needed, distance), other
                pending.append(after)
            if any(self.rows[n]["cause"] == "new_member" for n in pending):
                late.append((needed, pending))
        if not late:
            return
        longest = max(needed for needed, _ in late)
        value = next(v for v in _DELAYS if v >= longest)
        prevented = [number for _, numbers in late for number in numbers]
        why = f"members of {count(len(late), 'start')} came up to {duration(longest)} apart"
        price = (
            f"In return, each start of an empty group takes {duration(value)} at least, of every"
            " group of these brokers."
        )
        setting = f"group.initial.rebalance.delay.ms={value} (brokers)"
        yield from self._remedy(DELAY, prevented, (setting, why, price))

    # -- assignors that give up everything ----------------------------------------------------

    def by_assignor(self) -> Iterator[Remedy]:
        """Yield what would have let members keep what they got back."""
        rows, saved, least = [], 0.0, 0.0
        for number, row in enumerate(self.rows):
            is_consumer = row["protocol_type"] in ("consumer", None) and row["protocol"] != "stream"
            if is_consumer and row["rebalance_protocol"] == "eager" and row["cost_member_ms"]:
                if not (kept := _kept(row, self.before[number])):
                    continue
                rows.append(row)
                saved += row["cost_member_ms"] * kept
                least += (row["cost_member_ms_min"] or 0) * kept
        if len(rows) < max(_LEAST, _LEAST_SHARE * len(self.rows)) or saved < _LEAST_SAVED_MS:
            return
        setting = "the cooperative-sticky assignor or group.protocol=consumer"
        cost = sum(r["cost_member_ms"] for r in self.rows if r["cost_member_ms"])
        assignors = " and ".join(sorted({r["protocol"] for r in rows if r["protocol"]}))
        text = (
            f"With {setting}, about {consumer_time(round(saved), round(least))} of"
            f" {consumer_time(cost, cost)} would not have been lost: in"
            f" {count(len(rows), 'rebalance')} members gave up what {assignors} gave them again."
            " The rebalances stay; in return, each that moves something takes two steps."
        )
        of = len(self.rows)
        yield Remedy(COOPERATIVE, setting, 0, of, round(saved), round(least), text, _records(rows))

    # -- what no setting prevents -------------------------------------------------------------

    def remarks(self) -> Iterator[str]:
        """Yield what is not to be prevented by a setting, and what is not known."""
        stopped = [a for a in self.classes[_STOPPED] if a.away_ms <= _BACKOFF_MS]
        again = [*self.classes[_DIED], *stopped]
        numbers = {n for a in again for n in (a.gone, a.back)}
        waited = self._waited_for_the_dead()
        numbers |= waited
        if len(numbers) >= _LOOP:
            left = (m for n in waited for m in _left(self.rows[n]).values())
            who = {a.slot for a in again} | {_slot(m, ()) for m in left}
            what = "members die, hang or are stopped" if stopped else "members die"
            yield (
                f"No setting prevents {count(len(numbers), 'rebalance')} of {_names(Counter(who))}:"
                f" {what} again and again. Static membership would only hide it, while their"
                " partitions wait; find out why, in their logs and exit statuses."
            )
        missing = sum(not _is_whole(row) for row in self.rows)
        if missing:
            yield f"Before {count(missing, 'rebalance')} records are missing: these do not count."
        unknown = sum(row["cause"] in ("unknown", None) for row in self.rows)
        if unknown:
            yield f"Why {count(unknown, 'rebalance')} began is not known."

    def _waited_for_the_dead(self) -> set[int]:
        """Return rebalances in which others were started for members that had died, if many."""
        back = {(a.gone, a.ids[0]) for of_class in self.classes.values() for a in of_class}
        followed, waited = 0, set()
        for number, row in enumerate(self.rows):
            left = [m for m in row["members_left"] or () if (number, m["member_id"]) not in back]
            if left and row["members_joined"]:
                followed += 1
                if any(_took_a_session(row, m["session_timeout_ms"], _WAITS) for m in left):
                    waited.add(number)
        return waited if len(waited) >= max(_LOOP, followed / 2) else set()


# -- who went and came back ------------------------------------------------------------------------


def _absences(rows: Sequence[Row], sessions: Sequence[Row] | None) -> Iterator[_Absence]:
    """Yield who went and came back, in the order of coming back."""
    shared = None if sessions is None else _shared(sessions)
    stays: defaultdict[str, dict[int | None, int]] = defaultdict(dict)
    for stay in sessions or ():
        if stay["left_at"] is not None and stay["joined_at"] is not None:
            lasted = stay["left_at"] - stay["joined_at"]
            stays[stay["member_id"]][stay["last_generation"]] = lasted
    gone: defaultdict[str, deque[tuple[int, Row]]] = defaultdict(deque)
    emptied = -1
    for number, row in enumerate(rows):
        left, joined = _left(row), _joined(row)
        for member in left.values():
            gone[_slot(member, shared)].append((number, member))
        for member_id, member in joined.items():
            slot = _slot(member, shared)
            if not gone[slot]:
                continue
            since, former = gone[slot].popleft()
            if (former["session_timeout_ms"] is None) != (member["session_timeout_ms"] is None):
                continue  # it came back with the other protocol
            until = row["join_completed_at"] or row["join_started_at"]
            yield _Absence(
                slot,
                since,
                number,
                (former["member_id"], member_id),
                max(0, until - rows[since]["join_started_at"]),
                max(0, row["join_started_at"] - rows[since]["join_started_at"]),
                stays[former["member_id"]].get(rows[since]["previous_generation"]),
                member,
                was_awaited=since == number and _took_a_session(row, member["session_timeout_ms"]),
                is_seen=emptied < since,
            )
        if not row["member_count"]:
            emptied = number


def _with_members_before(rows: Iterable[Row]) -> list[Row | None]:
    """Return for each generation the last one before it that had members."""
    found: list[Row | None] = []
    before = None
    for row in rows:
        found.append(before)
        before = row if row["member_count"] else before
    return found


def _is_whole(row: Row) -> bool:
    """Return whether no record of another generation may be missing before one."""
    return bool(row["aborted_evidence"] == "complete" or row["aborted_generations"] == 0)


def _left(row: Row) -> dict[str, Row]:
    """Return members that a generation no longer has, by id; a static one that was replaced is."""
    replaced = {
        m["replaced_member_id"]: {**m, "member_id": m["replaced_member_id"]}
        for m in row["members_replaced"] or ()
        if m["group_instance_id"] is None
    }
    return {m["member_id"]: m for m in row["members_left"] or ()} | replaced


def _joined(row: Row) -> dict[str, Row]:
    """Return members that a generation has first."""
    replaced = [m for m in row["members_replaced"] or () if m["group_instance_id"] is None]
    return {m["member_id"]: m for m in (*(row["members_joined"] or ()), *replaced)}


def _slot(member: Row, shared: Collection[str] | None) -> str:
    """Name what stays the same when a member restarts.

    A client id does, also where an orchestrator brings a client back with another address, unless
    several members have it at once, or may have.
    """
    if member["group_instance_id"] is not None:
        return f"instance {member['group_instance_id']}"
    client = member["client_id"] or member["member_id"]
    is_shared = shared is None or client in shared
    return f"{client}@{member['client_host']}" if is_shared else client


def _shared(sessions: Iterable[Row]) -> set[str]:
    """Return client ids that several members had at once."""
    by_client: defaultdict[str, list[Row]] = defaultdict(list)
    for session in sessions:
        if session["joined_at"] is not None:
            by_client[session["client_id"] or session["member_id"]].append(session)
    found = set()
    for client, of_client in by_client.items():
        of_client.sort(key=lambda s: s["joined_at"])
        ends = [s["left_at"] for s in of_client]
        if any(
            end is None or end > later["joined_at"]
            for end, (_, later) in zip(ends, pairwise(of_client), strict=False)
        ):
            found.add(client)
    return found


def _loops(absences: Iterable[_Absence], rows: Sequence[Row]) -> dict[str, list[_Absence]]:
    """Return the absences of whoever came back again and again within an hour, by slot."""
    by_slot: defaultdict[str, list[_Absence]] = defaultdict(list)
    for absence in absences:
        by_slot[absence.slot].append(absence)
    found = {}
    for slot, of_slot in by_slot.items():
        times = [rows[a.back]["join_started_at"] for a in of_slot]
        if any(after - at <= _HOUR for at, after in zip(times, times[_LOOP - 1 :], strict=False)):
            found[slot] = of_slot
    return found


def _is_slow(loop: Sequence[_Absence]) -> bool:
    """Return whether a client goes whenever the longest time between two polls has passed.

    It comes back with its next poll, and stays for that time at least.
    """
    if not any(a.is_seen for a in loop):
        return False  # a job that is started again and again
    polls = [a for a in loop if a.stayed_ms is not None and a.member["rebalance_timeout_ms"]]
    lasted = [(a.stayed_ms or 0) / a.member["rebalance_timeout_ms"] for a in polls]
    if not lasted or statistics.median(lasted) > _POLLS_LAST[1]:
        return False
    away = statistics.median(a.missed_ms / a.member["rebalance_timeout_ms"] for a in polls)
    are_long = sum(lasting >= _POLLS_LAST[0] for lasting in lasted) >= _ENOUGH * len(lasted)
    return are_long and bool(away <= _AWAY)


def _why_again(loop: Sequence[_Absence]) -> str:
    """Return why a client went again and again, as far as the log tells."""
    if _has_died(loop):
        return _DIED
    if _is_slow(loop):
        return POLL
    if all(a.left_in_order for a in loop):
        return _LEFT
    needed = statistics.median(map(_hung_needed, loop))
    return _HUNG if needed <= _HUNG_SESSIONS[-1] else _STOPPED


def _has_died(loop: Sequence[_Absence]) -> bool:
    """Return whether a client was started while the group still waited for the former one."""
    at_once = [a.was_awaited for a in loop if a.gone == a.back]
    # Nobody knows when many a join phase began: those seem to be short.
    return any(at_once) and 4 * sum(at_once) >= len(at_once)


def _took_a_session(
    row: Row, session_ms: int | None, share: tuple[float, float] = _DEATHS_TAKE
) -> bool:
    """Return whether a join phase lasted as long as the rest of a member's session."""
    took = row["join_ms"]
    if not session_ms or took is None:
        return False
    # As long as the coordinator waits for a member that is alive, it tells nothing.
    if took >= _ENOUGH * (row["rebalance_timeout_ms"] or took + 1):
        return False
    return bool(share[0] <= took / session_ms <= share[1])


def _hung_needed(absence: _Absence) -> int:
    """Return how long it had been silent: it was missed when a session timeout had passed."""
    return absence.away_ms + absence.session_ms


def _poll_needed(absence: _Absence) -> int:
    """Return the time from one poll to the next: it went when the longest allowed had passed."""
    return absence.away_ms + (absence.member["rebalance_timeout_ms"] or 0)


def _is_start(rows: Sequence[Row], number: int) -> bool:
    row = rows[number]
    if not row["member_count"] or _left(row):
        return False
    return row["cause"] == "group_created" or (number > 0 and not rows[number - 1]["member_count"])


def _kept(row: Row, before: Row | None) -> float:
    """Return which part of what members had to give up they got back: 0 if that is not known."""
    stickiness, moved = row["stickiness"], row["moved_partitions"] or 0
    if before is None or not stickiness:
        return 0
    if not moved:
        return 1
    kept = moved * stickiness / (1 - stickiness)
    # What those had that are gone, nobody gave up: by the mean of all.
    of_each = (before["assigned_partitions"] or 0) / before["member_count"]
    given = moved - of_each * len(_left(row))
    return float(kept / (kept + max(0, given)))


# -- words -----------------------------------------------------------------------------------------


def _names(times: Counter[str]) -> str:
    names = [cut(name, _LONGEST_NAME) for name in sorted(times)]
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _records(rows: Iterable[Row]) -> list[tuple[int, int]]:
    return [(row["record_partition"], row["record_offset"]) for row in rows]

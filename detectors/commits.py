"""What is wrong with what a group commits: offsets that go back, or too far, or nowhere."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from detectors.members import client_of
from detectors.model import HOUR_MS, MINUTE_MS, SKEW_MS, Hit, Position
from schemas.gold import CRITICAL, INFO, WARNING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from detectors.model import Findings, Row, Track
    from detectors.thresholds import Values

    LogPosition = tuple[int, int]

# A reset writes all its partitions at once; the commits of one poll come at once, too.
_AT_ONCE_MS = 500
_SOON_MS = MINUTE_MS
_WEEK_MS = 7 * 24 * 60 * MINUTE_MS
_EPISODE_MS = 10 * MINUTE_MS
_SECOND_MS = 1_000
# `rhythm_since` is the time of the fifth commit before: four intervals before the last one.
_INTERVALS = 4
# Kinds of which an episode tells the number of partitions.
_MOVED = ("offset_rewind", "offset_jump", "offset_reset")
_REMEMBERED_PAUSES = 20
REMEMBERED_SAMPLES = 20
"""Samples of the lag that a later run may still need."""


MINUTE_COLUMNS = (
    *("minute", "commits", "partitions", "keys", "first_at", "last_at"),
    *("record_partition", "first_offset", "last_offset"),
)
"""What is asked of the commits of a minute, see `take_minute`."""


class Membership(NamedTuple):
    """A group as of one of its own records.

    Attributes:
        offset: offset of the record.
        members: members from there on.
        partitions: partitions that are assigned; None if that is not known.
        timestamp: time of the record.
        record_partition: its partition.
        topics: those that members subscribe to; None if that is not known.
        keeps_offsets: whether no offset of those expires; see `topics.keeps_offsets`.
        is_classic: whether it is a classic group.
    """

    offset: int
    members: int
    partitions: int | None
    timestamp: int | None
    record_partition: int = -1
    topics: Sequence[str] | None = None
    keeps_offsets: bool = False
    is_classic: bool = True

    @property
    def position(self) -> LogPosition:
        """Return partition and offset of the record."""
        return self.record_partition, self.offset


class Memberships:
    """The members of a group by position in the log: its records and commits share a partition.

    After the topic has grown, that may be another partition than before.
    """

    def __init__(self, known: list[Membership]) -> None:
        self._known = sorted(known, key=_position)

    def at(self, position: LogPosition) -> Membership | None:
        """Return the group as of a position; None before the first record of its own there."""
        behind = bisect_right(self._known, position, key=_position)
        found = self._known[behind - 1] if behind else None
        return found if found is not None and found.record_partition == position[0] else None

    def emptied(self, first: LogPosition, last: int | None = None) -> Membership | None:
        """Return the first record behind a position that shows the group empty."""
        for found in self._known[bisect_right(self._known, first, key=_position) :]:
            is_there = found.record_partition == first[0]
            if is_there and (last is None or found.offset <= last) and not found.members:
                return found
        return None

    def since(self, position: LogPosition) -> list[Membership]:
        """Return what is still needed for events from a position on."""
        now = self.at(position)
        return [
            p
            for p in self._known
            if p.record_partition != position[0] or p.position >= (now or p).position
        ]


def _position(membership: Membership) -> LogPosition:
    return membership.position


# -- single commits --------------------------------------------------------------------------------


def take_move(
    track: Track, move: Row, memberships: Memberships, owners: Sequence[Row] = ()
) -> None:
    """Take one row of offset_moves: a commit that did not just go on.

    Args:
        track: what is kept of the moves before.
        move: the row, its times in epoch milliseconds.
        memberships: who was in the group when.
        owners: rows of partition_owners of the partition, by valid_from; none if nobody asked.
    """
    memory, limits, findings = track
    at = move["at"]
    if at is None:
        return
    memory["clock"] = max(at, memory.get("clock", at))
    group = memberships.at((move["record_partition"], move["record_offset"]))
    hit: Hit | None = None
    if move["move"] == "deleted":
        hit = _deleted(memory, limits, move, group)
    elif move["move"] == "returned":
        hit = _returned(memory, move)
    elif group is not None and group.members:
        is_after = group.timestamp is not None and at - group.timestamp <= _SOON_MS
        hit = _went(limits, move, "after_rebalance" if is_after else None)
        if hit is not None and (client := _remembered(move, owners)) is not None:
            hit = hit._replace(lists={**hit.lists, "remembered": [client]})
    elif _is_in_rhythm(move, group) or (move["step"] < 0 and not move["is_complete"]):
        # Nobody but a member, or a consumer that was assigned its partitions, commits like that.
        # Between records that are missing, there may have been members.
        hit = _went(limits, move, "no_members")
    elif move["step"] < 0 or _is_set(memory, limits, move, group):
        was_set = memory.setdefault("set", {})
        was_set.pop(_partition(move), None)
        was_set[_partition(move)] = at
        while at - was_set[oldest := next(iter(was_set))] > _EPISODE_MS:
            del was_set[oldest]
        hit = _reset(move)
    if hit is not None:
        findings.add(_counted(memory, findings, hit, move), memory["clock"])


def _counted(memory: Row, findings: Findings, hit: Hit, move: Row) -> Hit:
    """Count the partitions of an episode, each once."""
    if hit.kind not in _MOVED:
        return hit
    told = findings.current.get((hit.kind, hit.subject))
    goes_on = told is not None and told.accepts(hit, memory["clock"])
    moved: dict[str, dict[str, int]] = memory.setdefault("moved", {})
    if not goes_on:
        moved[hit.kind] = {}
    moved[hit.kind][_partition(move)] = 1
    return hit._replace(maxima={**hit.maxima, "partitions": len(moved[hit.kind])})


def _partition(move: Row) -> str:
    return f"{move['topic']}/{move['topic_partition']}"


def _span(move: Row, gap_ms: int) -> tuple[int, int, Position, int]:
    return move["at"], move["at"], Position.of(move), gap_ms


def _from_to(move: Row, before: str = "previous_offset") -> list[str]:
    return [f"{_partition(move)}: {move[before]} to {move['committed_offset']}"]


def _reset(move: Row) -> Hit:
    """Find offsets that somebody set, since nobody was there to read."""
    label = "backward" if move["step"] < 0 else "forward"
    return Hit(
        "offset_reset",
        WARNING,
        *_span(move, _AT_ONCE_MS),
        label=label,
        sums={f"{label}_offsets": abs(move["step"])},
        lists={"resets": _from_to(move)},
    )


def _usual_ms(move: Row) -> float | None:
    """Return how long the partition usually was not committed; None if that is not known."""
    before, since = move["previous_at"], move["rhythm_since"]
    return None if before is None or since is None else (before - since) / _INTERVALS


def _is_in_rhythm(move: Row, group: Membership | None) -> bool:
    """Return whether a commit without members is of a consumer that commits again and again.

    Kafka takes a commit without a generation from a consumer with assign() as from an admin; the
    one goes on from where it was, the other comes once, or a few times.
    """
    usual = _usual_ms(move)
    if usual is None or _is_of_members(move["rhythm_since"], group):
        return False
    return bool(move["at"] - move["previous_at"] <= usual * _INTERVALS)


def _is_of_members(at: int, group: Membership | None) -> bool:
    """Return whether a commit may have been a member's, of a group that has none any more."""
    if group is None:
        return False
    return bool(group.timestamp is None or at <= group.timestamp)


def _is_set(memory: Row, limits: Values, move: Row, group: Membership | None) -> bool:
    """Return whether a step on was made by somebody who set the offset, not by a reader.

    Members cannot have read when there are none. A consumer with assign() that was stopped reads
    what came meanwhile, or a batch of any size: only what is beyond each measure was set.
    """
    if not move["is_complete"] or move["previous_at"] is None:
        return False
    at, before = move["at"], move["previous_at"]
    set_at = memory.get("set", {}).get(_partition(move))
    if set_at is not None and at - set_at <= _EPISODE_MS:
        return True  # it has just been set, and is so again
    largest, usual = move["largest_step_before"], _usual_ms(move)
    if largest is None:
        return False
    if _is_of_members(before, group):
        return True
    if not usual:
        return False
    intervals = (at - before) / usual
    most = limits["offset_reset"]["times_the_pause"] * largest * intervals
    return bool(_skip(move) > most)


def _skip(move: Row) -> int:
    """Return how far a commit went beyond where the partition had been."""
    return int(move["committed_offset"] - move["farthest_before"])


def _went(limits: Values, move: Row, label: str | None) -> Hit | None:
    """Find commits of consumers that go back, so that records are read twice, or skip some."""
    if move["step"] >= 0:
        return _skipped(limits, move, label)
    step = -move["step"]
    return Hit(
        "offset_rewind",
        WARNING if step >= limits["offset_rewind"]["warning_offsets"] else INFO,
        *_span(move, _EPISODE_MS),
        label=label,
        sums={"rewinds": 1, "offsets": step},
        maxima={"largest": step},
        lists={"moves": _from_to(move)},
    )


def _remembered(move: Row, owners: Sequence[Row]) -> str | None:
    """Return whose last commit a rewind goes back to: that of its owner when it had it before.

    A client that is given a partition again may go on with a position of its own (librdkafka before
    1.9) instead of the group's.
    """
    at, until = move.get("last_there_at"), move.get("last_there_until")
    if at is None or until is None:
        return None
    before, behind, now = (
        bisect_right(owners, time, key=lambda o: o["valid_from"]) - 1
        for time in (at, until, move["at"])
    )
    if not 0 <= before < behind < now:
        return None
    clients = [_client(owners[n]) for n in (before, behind, now)]
    return clients[0] if clients[0] == clients[2] != clients[1] else None


def _skipped(limits: Values, move: Row, label: str | None) -> Hit | None:
    """Find steps that nobody can have read in the time.

    A client that commits by time sees its position once after any number of polls, and what waits
    after a pause or a burst is read as fast as it can be: how far a step goes beyond those before
    tells nothing. The time is that since the commit before, or as long as usual where a broker
    that had stood still took two commits at once.
    """
    usual, skip, limit = _usual_ms(move), _skip(move), limits["offset_jump"]
    if usual is None or move["largest_step_before"] is None or not move["is_complete"]:
        return None
    time = max(move["at"] - move["previous_at"], usual)
    if skip < limit["offsets"] or skip * _SECOND_MS <= limit["records_a_second"] * time:
        return None
    return Hit(
        "offset_jump",
        WARNING,
        *_span(move, _EPISODE_MS),
        label=label if label == "no_members" else None,
        sums={"jumps": 1, "offsets": skip},
        maxima={"largest": skip},
        lists={"moves": _from_to(move, "farthest_before")},
    )


def _deleted(memory: Row, limits: Values, move: Row, group: Membership | None) -> Hit | None:
    """Find offsets that went away since they were old, or that somebody may have deleted."""
    limit, at = limits["offsets_expired"], move["at"]
    since = [move["previous_at"]]
    if group is not None and group.members:
        label, least = "group_in_use", limit["in_use_idle_ms"]
        if group.topics is not None and move["topic"] not in group.topics:
            label = "not_subscribed"
        elif group.topics is not None and group.keeps_offsets:
            return None  # the topic was deleted
    else:
        label, least = "group_gone", limit["least_idle_ms"]
        if group is not None and group.is_classic:
            # Offsets age from when the last member left (ClassicGroup.offsetExpirationCondition),
            # in the new protocols from their commit (ConsumerGroup.offsetExpirationCondition).
            since.append(group.timestamp)
    idle = at - max((t for t in since if t is not None), default=at)
    if idle < least:
        return None  # deleted by somebody, or with their topic
    is_open = idle < limit["in_use_idle_ms"]
    memory.setdefault("expired", {})[_partition(move)] = move["previous_offset"]
    return Hit(
        "offsets_expired",
        WARNING if label == "group_in_use" else INFO,
        *_span(move, _WEEK_MS),
        label="perhaps_deleted" if is_open else label,
        sums={"partitions": 1},
        maxima={"idle_ms": idle} | ({"perhaps_deleted": 1} if is_open else {}),
        lists={"offsets": [f"{_partition(move)}: {move['previous_offset']}"]},
    )


def _returned(memory: Row, move: Row) -> Hit | None:
    """Find groups that came back after their offsets had gone."""
    expired: dict[str, int] = memory.get("expired", {})
    if _partition(move) not in expired:
        return None
    offset = expired.pop(_partition(move))
    text = f"{_partition(move)}: {offset}, then {move['committed_offset']}"
    return Hit(
        "offsets_expired",
        WARNING,
        *_span(move, _WEEK_MS),
        label="still_needed",
        sums={"came_back": 1},
        lists={"began_again": [text]},
    )


# -- commits by the minute -------------------------------------------------------------------------


def take_minute(track: Track, part: Row, memberships: Memberships) -> None:
    """Take the commits of one minute, or of a part of it that a run cut off, by `MINUTE_COLUMNS`.

    The next minute shows whether a minute's clock was right: the last one waits for it beside the
    one before.
    """
    memory = track.memory
    for known in (memory.get("next"), memory.get("minute")):
        if known is not None and _minute_of(known) == _minute_of(part):
            known["commits"] += part["commits"]
            known["keys"] = sorted({*known.get("keys", ()), *part["keys"]})
            known["partitions"] = max(known["partitions"], len(known["keys"]))
            known["first_at"] = min(known["first_at"], part["first_at"])
            known["last_at"] = max(known["last_at"], part["last_at"])
            known["last_offset"] = max(known["last_offset"], part["last_offset"])
            return
    take_next(track, memberships, part["first_at"])
    memory["next"] = {n: part[n] for n in MINUTE_COLUMNS}


def _minute_of(part: Row) -> tuple[int, int]:
    return part["record_partition"], part["minute"]


def take_next(track: Track, memberships: Memberships, then: int) -> None:
    """Take the minute that has waited for the time of what follows it, in epoch milliseconds."""
    memory, limits, findings = track
    last, following = memory.get("minute"), memory.pop("next", None)
    if following is None:
        return
    at = following["first_at"]
    if last is not None:
        earliest = last["first_at"] - SKEW_MS
        if then >= earliest and not earliest <= at <= then + SKEW_MS:
            return  # a clock far ahead or behind, whose time says nothing
    clock = min(at, then)
    memory["clock"] = max(clock, memory.get("clock", clock))
    if last is not None:
        find_commit_storm(track, memberships)
        if last["record_partition"] == following["record_partition"]:
            hit = _paused(memory, limits, following, memberships)
            if hit is not None:
                findings.add(hit)
                findings.end_others({"commit_stall": ()})
    memory["minute"] = following


def find_commit_storm(track: Track, memberships: Memberships) -> None:
    """Find a client that commits for every record, or nearly so, in the last minute.

    Exactly-once commits ten times a second by default. No record tells that it is of a transaction,
    and each transaction ends with a marker, which has an offset and is no record: where there are
    no such offsets, there was none.
    """
    last: Row | None = track.memory.get("minute")
    if last is None:
        return
    group = memberships.at((last["record_partition"], last["last_offset"]))
    assigned = group.partitions if group is not None and group.members else None
    partitions = max(assigned or 0, last["partitions"], 1)
    a_minute = last["commits"] / partitions
    limit = track.limits["commit_storm"]
    if a_minute <= limit["a_partition_and_minute"]:
        return
    others = last["last_offset"] - last["first_offset"] + 1 - last["commits"]
    is_open = others >= last["commits"] / last["partitions"] - 1
    is_open &= a_minute <= limit["transactions_a_partition_and_minute"]
    severity = CRITICAL if a_minute > limit["critical_a_partition_and_minute"] else WARNING
    track.findings.add(
        Hit(
            "commit_storm",
            INFO if is_open else severity,
            *(last["first_at"], last["last_at"]),
            Position(last["record_partition"], last["last_offset"], last["last_at"]),
            2 * MINUTE_MS,
            Position(last["record_partition"], last["first_offset"], last["first_at"]),
            label="perhaps_transactions" if is_open else None,
            sums={"commits": last["commits"]},
            maxima={"commits_a_partition_and_minute": round(a_minute), "partitions": partitions},
        )
    )


def _paused(memory: Row, limits: Values, part: Row, memberships: Memberships) -> Hit | None:
    """Find a time without commits though members were there all along."""
    last = memory["minute"]
    pauses: list[int] = memory.setdefault("pauses", [])
    end = (part["first_at"], part["first_offset"])
    hit = _stall(memory, limits, end, memberships)
    pauses.append(part["first_at"] - last["last_at"])
    del pauses[:-_REMEMBERED_PAUSES]
    return hit


def find_open_stall(track: Track, memberships: Memberships, now: int) -> None:
    """Find a group that has members, and has not committed for long, up to the time of the log."""
    if track.memory.get("minute") is None:
        return
    hit = _stall(track.memory, track.limits, (now, None), memberships)
    if hit is not None:
        track.findings.add(hit)


def take_lag(memory: Row, sample: Row) -> None:
    """Take how far the group was behind at a time: `at` and `lag`, in all partitions."""
    samples: list[list[int]] = memory.setdefault("samples", [])
    if sample["lag"] is not None and (not samples or sample["at"] > samples[-1][0]):
        samples.append([sample["at"], sample["lag"]])


def _stall(
    memory: Row, limits: Values, end: tuple[int, int | None], memberships: Memberships
) -> Hit | None:
    """Find a pause longer than is usual, as long as members are there.

    Only a sample of the lag in the meantime tells whether there was anything to commit.
    """
    last, pauses = memory["minute"], memory.get("pauses", [])
    until, offset = end
    start = last["last_offset"]
    position = last["record_partition"], start
    group = memberships.at(position)
    if group is None or not group.members:
        return None
    emptied = memberships.emptied(position, None if offset is None else offset - 1)
    if emptied is not None and emptied.timestamp is not None:
        until, offset = emptied.timestamp, emptied.offset
    pause, longest = until - last["last_at"], max(pauses, default=0)
    limit = limits["commit_stall"]
    if pause <= max(limit["pause_ms"], limit["times_the_usual"] * longest):
        return None
    record = Position(last["record_partition"], start, last["last_at"])
    lags = [lag for at, lag in memory.get("samples", []) if last["last_at"] < at <= until]
    label = None
    if lags:
        label = "records_wait" if any(lags) else "nothing_to_read"
    return Hit(
        "commit_stall",
        WARNING if any(lags) else INFO,
        *(last["last_at"], until),
        record if offset is None else Position(last["record_partition"], offset, until),
        0,
        record,
        label=label,
        maxima={"pause_ms": pause, "lag": max(lags, default=0), "longest_usual_pause_ms": longest},
    )


# -- static members --------------------------------------------------------------------------------


def take_sessions(track: Track, ended: Sequence[Row], others: Sequence[Row]) -> None:
    """Take sessions of static members, and find those whose place is taken again and again.

    Two clients with one instance id take turns: the coordinator fences the one that the other
    replaces. One client that is replaced by itself restarts.

    Args:
        track: what is kept of the sessions before.
        ended: rows of member_sessions with group_instance_id, in the order in which they ended.
        others: those that go on, or may change: they tell who came after, and who is on a machine.
    """
    memory = track.memory
    sessions: dict[str, list[Row]] = defaultdict(list)
    on_machine: dict[str, set[str]] = defaultdict(set)
    for session in (*ended, *others):
        sessions[session["group_instance_id"]].append(session)
        on_machine[session["client_host"]].add(session["group_instance_id"])
    taken: dict[str, list[Row]] = memory.setdefault("replaced", {})
    for session in ended:
        if session["end_cause"] == "static_member_replaced":
            instance, at = session["group_instance_id"], session["left_at"]
            hour = [t for t in taken.get(instance, []) if t["at"] >= at - HOUR_MS]
            taken[instance] = [
                *hour,
                {"at": at, "offset": session["record_offset"], "client": _client(session)},
            ]
            after = [s for s in sessions[instance] if s["joined_at"] == at and s is not session]
            is_shared = len(on_machine[session["client_host"]]) > 1
            _replaced(track, session, taken[instance], after, is_shared=is_shared)
    for instance, times in list(taken.items()):
        if times[-1]["at"] < memory.get("clock", 0) - HOUR_MS:
            del taken[instance]


def _client(session: Row) -> str:
    return f"{session.get('client_id')}@{session.get('client_host')}"


def _replaced(
    track: Track, session: Row, hour: list[Row], after: list[Row], *, is_shared: bool
) -> None:
    """Judge a session that another has taken the place of.

    Args:
        track: takes what is found.
        session: the session.
        hour: how often that happened to the instance within the hour, this time among them.
        after: the session that took its place, if it is known.
        is_shared: other members are on its machine.
    """
    _, limits, findings = track
    fencing, flapping = limits["static_member_fencing"], limits["member_flapping"]
    instance, at = session["group_instance_id"], session["left_at"]
    lately = [t for t in hour if t["at"] >= at - fencing["window_ms"]]
    seen = [*(t["client"] for t in lately), *map(_client, after[:1])]
    clients = [client for client, _ in groupby(seen)]
    takes_turns = len(clients) > len(set(clients))
    # On a machine with others, client id and host may be of two clients. A second takeover does
    # not tell; a third by the same client does.
    is_open = is_shared and len(clients) == 1 and len(lately) == fencing["replacements"]
    if is_open or (takes_turns and len(lately) >= fencing["replacements"]):
        hit = Hit(
            "static_member_fencing",
            CRITICAL if len(lately) >= fencing["critical_replacements"] else WARNING,
            *_since(lately, session, round(fencing["window_ms"])),
            subject=instance,
            lists={"clients": list(dict.fromkeys(clients))},
        )
        findings.add(hit.counted("replacements", len(lately), "window"), at)
        return
    told = findings.current.get(("static_member_fencing", instance))
    if len(clients) == 1 and told is not None and told.evidence["clients"] == clients:
        del findings.current["static_member_fencing", instance]
    if len(hour) >= flapping["returns_an_hour"]:
        hit = Hit(
            "member_flapping",
            CRITICAL if len(hour) >= flapping["critical_an_hour"] else WARNING,
            *_since(hour, session, HOUR_MS),
            subject=client_of(session),
            label="restarted",
            lists={"clients": list(dict.fromkeys(t["client"] for t in hour))},
        )
        findings.add(hit.counted("returns", len(hour)), at)


def _since(times: list[Row], session: Row, gap_ms: int) -> tuple[int, int, Position, int, Position]:
    """Return the span of what happened several times, up to the end of a session."""
    first, at, partition = times[0], session["left_at"], session["record_partition"]
    last = Position(partition, session["record_offset"], at)
    return first["at"], at, last, gap_ms, Position(partition, first["offset"], first["at"])

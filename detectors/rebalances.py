"""What is wrong with how a group rebalances: each detector looks at one generation after the other.

A detector yields what it finds in a generation, by what is kept of those before it.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from detectors import unread
from detectors.members import SlotChanges, host_of
from detectors.model import HOUR_MS, MINUTE_MS, Hit, Position, Row, Track, in_force_until
from detectors.thresholds import Values
from schemas.gold import CRITICAL, INFO, WARNING

_CONFIGURATION = "configuration_changed"
_CONDITIONS = ("idle_members", "assignment_skew", "mixed_subscriptions", unread.KIND)
# Causes without a change of members: each is normal once an hour, and more often in `_SUBJECTS`; a
# burst counts as one.
_NO_MEMBER = {
    "partitions_changed",
    "subscription_changed",
    "topic_deleted",
    _CONFIGURATION,
    "settings_changed",
    "leader_rejoined",
    "coordinator_failover_suspected",
    "unknown",
}
# The second half of a rebalance that is counted already, or a step that moves no partition.
_PART_OF_ANOTHER = {"cooperative_follow_up", "probing", "conversion", "group_created"}
# Those of what a group reads, which its members' logs do not explain.
_SUBJECTS = {"partitions_changed", "subscription_changed", "topic_deleted", _CONFIGURATION}
_ASSIGNED = "assigned_partitions"
# What is kept of a generation till the next one.
_LAST = (
    *("generation", "member_count", "group_type", "rebalance_timeout_ms", "stable_at"),
    *("leader_client_id", _ASSIGNED),
)
_RECONFIGURED = "reconfigured"
_CONNECTOR_AND_TASK = 2
_CHANGES = ("joined", "left", "replaced")
_AT_LEAST_TWO = 2
_NEARLY = 0.9
# Who makes a storm has its part in more of it than this.
_PART = 0.5
_TEN_MINUTES_MS = 10 * MINUTE_MS
_BURST_MS = MINUTE_MS
# Of an assignment that lasts less, the next one decides what is odd.
_REST_MS = MINUTE_MS
# A burst that lasts is none: members of a deployment may each make a rebalance, a minute apart.
_LONGEST_BURST_MS = _TEN_MINUTES_MS
# Who makes topics or connectors one after the other takes longer, and is done some time.
_SERIES_MS, _LONGEST_SERIES_MS = 3 * MINUTE_MS, 30 * MINUTE_MS
# So soon one member of a deployment follows the other that made the group begin again.
_ATTEMPTS_MS = 2 * MINUTE_MS
# Longer times to poll do not fit into an hour often enough. Who leaves when such a time is over was
# there for no less, but for what the times of a rebalance are off, and not for much more.
_LONG_POLL_MS, _NEARLY_OVER, _JUST_OVER = 20 * MINUTE_MS, 0.97, 1.1
# So many recent sessions and rebalances decide which kind of members causes a storm.
_SESSIONS, _RECENT = 50, 50
# Members of a share group that stay for so long have read their share, and nobody waits for them.
_SHARED_WORK_MS = 5 * MINUTE_MS
_FEW_CLIENTS = 5
_NAMES = 10_000  # of clients that are remembered
_NAMELESS = ("@*", "None@*")  # clients that give themselves no id have none in common
# Of what is kept of a rebalance, see `_noted`. The rebalances of an hour may be hundreds.
_CLOCK, _COUNTS, _MS, _CAUSE = map(itemgetter, ("clock", "counts", "ms", "cause"))
# So many rebalances in which members of a machine came are neither threads that start nor pods.
_PILED_UP = 10


class _Rebalance(NamedTuple):
    """A rebalance as the detectors see it."""

    generation: Row  # the row of the generation that it led to
    changes: SlotChanges  # what it did to the slots of the group
    memory: Row  # what is kept of those before; changed
    limits: Values  # the thresholds of the group
    span: tuple[int, int, Position]  # when it began, when it ended, and the record that shows it


def examine(track: Track, generation: Row, now: int | None = None) -> None:
    """Take one generation: a row of group_generations, its times in epoch milliseconds.

    The newest one lasts till `now`, the time of the log, which the others do without.
    """
    memory, limits, findings = track
    record, started = Position.of(generation), generation.get("join_started_at")
    at = record.timestamp if started is None else int(started)
    if at is None:
        return
    ends = (generation.get(name) for name in ("stable_at", "join_completed_at"))
    ended = next((end for end in ends if end is not None), at)
    memory["clock"] = max(at, memory.get("clock", at))
    changes = SlotChanges(memory, generation, at)
    rebalance = _Rebalance(generation, changes, memory, limits, (at, ended, record))
    for detector in _DETECTORS:
        for hit in detector(rebalance):
            findings.add(hit, memory["clock"])
    # What is waited for goes on since then, whatever the clock is.
    for hit in (*_tasks_wait(memory, limits, generation, now), *_not_ready(rebalance)):
        findings.add(hit)
    _conditions(track, rebalance, now)
    assigned = (memory.get("last") or {}).get(_ASSIGNED)
    memory["last"] = {name: generation.get(name) for name in _LAST}
    if memory["last"][_ASSIGNED] is None:
        memory["last"][_ASSIGNED] = assigned


def examine_state(track: Track, state: Row, newest: Row | None, now: int) -> None:
    """Take the state that a group is in at the time of the log, and its newest generation.

    Both are open rows, of group_states and of group_generations.
    """
    limits, last = track.limits, newest or track.memory.get("last") or {}
    since = state.get("started_at_max")
    if since is None or state["state"] in ("Stable", "Empty", "Dead"):
        return
    timeout, record = last.get("rebalance_timeout_ms"), Position.of(state)
    is_newest = last.get("generation") == state.get("generation")
    stable = last.get("stable_at")
    if state["state"] == "Reconciling" and is_newest and stable is not None and stable <= since:
        # All had got there. A static member is away, and keeps its place until its session ends
        # (ConsumerGroupHeartbeatRequest.LEAVE_GROUP_STATIC_MEMBER_EPOCH): nobody waits for it.
        return
    if state["state"] == "NotReady":
        wait = track.memory.get("not_ready") if is_newest else None
        hits = _waits_for_topics(
            limits, wait or {"since": since, "record": record}, timeout, (now, record), state
        )
        for hit in hits:
            track.findings.add(hit)
        return
    allowed = _allowed_ms(limits, timeout)
    if now - since > allowed:
        hit = Hit(
            "stuck_rebalance",
            CRITICAL,
            *(since, now, record),
            label="still_rebalancing",
            maxima={"rebalance_ms": now - since, "allowed_ms": allowed},
            last_values={
                "state": state["state"],
                "generation": state.get("generation"),
                # It alone is waited for then.
                **(_leader(last) if is_newest and state["state"] == "CompletingRebalance" else {}),
                **({"by_coordinator": 1} if state["state"] == "Assigning" else {}),
            },
            lists=_waited_for(last) if is_newest and state["state"] == "Reconciling" else {},
        )
        track.findings.add(hit)


# -- storms ----------------------------------------------------------------------------------------


def _rebalance_storm(seen: _Rebalance) -> Iterator[Hit]:
    """Find rebalances that nothing benign explains, too many in an hour or ten minutes."""
    generation, memory, limit = seen.generation, seen.memory, seen.limits["rebalance_storm"]
    clock, cause = memory["clock"], generation["cause"]
    number = _repetition(seen, limit, clock)
    explained: list[int] = memory.setdefault("apart", [])
    del explained[: bisect_left(explained, clock - HOUR_MS)]
    if number == 1 or (number == 0 and _grows(generation)):
        explained.append(clock)
    hour = _noted(seen, number, clock)
    if number <= 1:
        return
    counted = [event for event in hour if event["counts"]]
    times = sum(map(_COUNTS, counted))
    recent = counted[bisect_left(counted, clock - _TEN_MINUTES_MS, key=_CLOCK) :]
    short, share = sum(map(_COUNTS, recent)), sum(map(_MS, counted)) / HOUR_MS
    is_long, is_dense = share > limit["share_of_time"], short >= limit["in_ten_minutes"]
    if times < limit["warning_an_hour"] and not is_dense and not (is_long and len(counted) > 1):
        return
    label = _trigger(hour[-_SESSIONS:], memory["sessions"], generation)
    # Who made a storm is not forgotten at once where the last sessions are of no kind.
    shown_at, former = memory.get("trigger", (clock, None))
    if label is not None:
        memory["trigger"] = [clock, label]
    elif former != _RECONFIGURED and clock - shown_at <= HOUR_MS:
        label = former
    severity = CRITICAL if times >= limit["critical_an_hour"] or is_dense else WARNING
    if label == _RECONFIGURED:  # by somebody who has a reason, as long as it takes
        severity = WARNING
    severity = _of_shared(seen, severity)
    # The series that it is part of, in which one restart follows the other within minutes, and all
    # that count.
    series = min(hour[-1]["series"], counted[0]["clock"])
    first = hour[bisect_left(hour, series, key=_CLOCK)]
    causes = Counter(map(_CAUSE, counted))
    _, ended, record = seen.span
    yield Hit(
        "rebalance_storm",
        severity,
        *(first["at"], ended, record),
        first=Position(*first["record"]),
        label=label,
        sums={"rebalances": hour[-1]["counts"], f"causes.{cause}": 1},
        initial_sums={"rebalances": times, **{f"causes.{c}": n for c, n in causes.items()}},
        maxima={
            "rebalances_in_an_hour": times,
            "rebalances_in_ten_minutes": short,
            "share_of_hour": round(share, 3),
            "member_count": generation.get("member_count") or 0,
            "explained": len(explained) - bisect_left(explained, series),
        },
        last_values={
            "clients": _by_whom(
                (e.get("clients", ()) for e in counted[-_RECENT:]), seen.changes.clients
            )
        },
    )


def _grows(generation: Row) -> bool:
    """Return whether members came to the group, as in a scale-out."""
    return bool(generation.get("members_joined")) and generation["cause"] not in _PART_OF_ANOTHER


def _noted(seen: _Rebalance, number: int, clock: int) -> list[Row]:
    """Keep a rebalance and the sessions that it ended; return the rebalances of the hour."""
    generation, memory = seen.generation, seen.memory
    sessions: list[list[int | None]] = memory.setdefault("sessions", [])
    sessions += [[clock, *session] for session in seen.changes.sessions]
    # The clock never runs back, so the oldest are the first.
    outdated = bisect_left(sessions, clock - HOUR_MS, key=lambda session: session[0] or 0)
    del sessions[: max(len(sessions) - _SESSIONS, outdated)]
    hour: list[Row] = memory.setdefault("rebalances", [])
    del hour[: bisect_left(hour, clock - HOUR_MS, key=_CLOCK)]
    if number:
        # Who comes to an empty group waits for others that may come, and for nobody else; and where
        # all are new, no commits tell how long the former were waited for.
        was_there = bool((memory.get("last") or {}).get("member_count"))
        stay = len(generation.get("members_joined") or ()) < (generation.get("member_count") or 0)
        goes_on = hour and clock - hour[-1]["clock"] <= _TEN_MINUTES_MS
        hour.append(
            {
                "at": seen.span[0],
                "clock": clock,
                "series": hour[-1]["series"] if goes_on else clock,
                "counts": 0 if number == 1 else 1 + _aborted_for_certain(generation),
                "ms": _took(generation) or 0,
                "join_ms": generation.get("join_ms") if was_there and stay else None,
                "returns": _came_back(seen),
                "cause": generation["cause"],
                "session_timeout_ms": generation.get("session_timeout_ms"),
                "record": list(seen.span[2]),
                "clients": _come_and_gone(generation),
            }
        )
    return hour


def _came_back(seen: _Rebalance) -> int:
    """Return how many members came back that may not have been stopped meanwhile."""
    changes = seen.changes
    if seen.generation["group_type"] != "classic":
        return changes.went_on
    return len(changes.returns) or int(changes.starts_again)


def _come_and_gone(generation: Row) -> list[str]:
    """Name the clients that came, went or restarted with a generation; of many none stands out."""
    clients = {host_of(m) for what in _CHANGES for m in generation.get(f"members_{what}") or ()}
    return sorted(clients) if len(clients) <= _FEW_CLIENTS else []


def _by_whom(clients: Iterable[Iterable[str]], there: Iterable[str]) -> list[str]:
    """Return who had a part in most of some rebalances, by who came and went in each.

    Where no client stands out, a machine may, or a client id that moves from one to the next,
    unless it is that of all, of those that are `there`, too.
    """
    every = [{*of_one} for of_one in clients]
    least = max(2, int(_PART * len(every)) + 1)
    for part in (str, _machine_of, _id_of):
        counted = Counter(chain.from_iterable({*map(part, of_one)} for of_one in every))
        named = sorted(c for c, n in counted.items() if n >= least and c not in _NAMELESS)
        if named and (part is str or len(named) < len({*counted, *map(part, there)})):
            return named
    return []


@lru_cache(_NAMES)
def _machine_of(client: str) -> str:
    return f"*@{client.rpartition('@')[2]}"


@lru_cache(_NAMES)
def _id_of(client: str) -> str:
    return f"{client.rpartition('@')[0]}@*"


def _repetition(seen: _Rebalance, limit: dict[str, float], at: int) -> int:
    """Return how often such a rebalance happened within the hour, with this; 0 if not counted.

    What is normal more often than once is 1 as long as it is.
    """
    cause = seen.generation["cause"]
    if cause in _PART_OF_ANOTHER or _moves_nothing(seen):
        return 0
    if cause not in _NO_MEMBER:
        return max([*seen.changes.restarts, seen.changes.group_restart, 0])
    bursts: dict[str, list[list[int]]] = seen.memory.setdefault("bursts", {})
    times = [burst for burst in bursts.get(cause, []) if burst[1] >= at - HOUR_MS]
    bursts[cause] = times
    is_subject = cause in _SUBJECTS
    gap, longest = (
        (_SERIES_MS, _LONGEST_SERIES_MS) if is_subject else (_BURST_MS, _LONGEST_BURST_MS)
    )
    if times and at - times[-1][1] <= gap:
        began, times[-1][1] = times[-1][0], at
        longest = max(longest, MINUTE_MS * (seen.generation.get("member_count") or 0))
        return 2 if at - began > longest or (is_subject and _too_many(times, limit, cause)) else 0
    times.append([at, at])
    return max(1, _too_many(times, limit, cause) + 1)


def _moves_nothing(seen: _Rebalance) -> bool:
    """Return whether the topics' metadata changed, and all members have as much as before.

    From Kafka 4.1 on, the racks of replicas are part of a topic's hash (Utils.computeTopicHash):
    where brokers have racks, each replica that is moved begins an epoch. In a classic group all
    members would join again. What was never assigned moved nothing: the coordinator may assign
    once for several epochs (KIP-1263).
    """
    generation, before = seen.generation, (seen.memory.get("last") or {}).get(_ASSIGNED)
    if generation["cause"] != "partitions_changed" or generation["group_type"] == "classic":
        return False
    assigned = generation.get(_ASSIGNED)
    if assigned is None:
        return generation.get("join_completed_at") is None and before is not None
    return not generation.get("moved_partitions") and assigned == before


def _too_many(bursts: list[list[int]], limit: dict[str, float], cause: str) -> int:
    """Return how many bursts of a cause there are within the hour beyond what is normal."""
    normal = 1.0
    if cause in _SUBJECTS:
        name = "reconfigurations" if cause == _CONFIGURATION else "topic_changes"
        normal = limit[f"{name}_an_hour"]
    return max(0, len(bursts) - round(normal))


def _of_shared(seen: _Rebalance, severity: str) -> str:
    """Return how bad it is that members come and go: in a share group nobody waits for them."""
    # Each reads what it is given, and what was given to one that is gone goes to others
    # (ShareGroupPartitionAssignor; SharePartition.releaseAcquiredRecords).
    if seen.generation["group_type"] != "share":
        return severity
    lasted = [ms for _, ms, _ in seen.memory["sessions"] if ms is not None]
    works = bool(lasted) and statistics.median(lasted) >= _SHARED_WORK_MS
    return INFO if works else WARNING


def _trigger(hour: list[Row], sessions: list[list[int | None]], generation: Row) -> str | None:
    """Return what kind of members make the storm, by length and end of their sessions."""
    if all(event["cause"] in _SUBJECTS for event in hour if event["counts"]):
        return _RECONFIGURED
    lasted = [session for _, session, _ in sessions if session is not None]
    if not lasted:
        return None
    polls = [
        session / timeout for _, session, timeout in sessions if session is not None and timeout
    ]
    returns = sum(event.get("returns", 0) for event in hour)
    comes_back = returns >= _AT_LEAST_TWO
    # A worker's timeout is that of its rebalances.
    is_polling = generation.get("protocol_type") != "connect"
    median = statistics.median(polls) if polls else 0
    if is_polling and comes_back and 0.9 <= median <= 3.5:  # noqa: PLR2004
        # max.poll.interval.ms is what clients send as the rebalance timeout: it passes, the
        # client leaves, and comes back with its next poll.
        return "slow_members"
    waits = [
        e["join_ms"] / e["session_timeout_ms"]
        for e in hour
        if e["counts"] and e["join_ms"] is not None and e["session_timeout_ms"]
    ]
    if waits and 0.5 <= statistics.median(waits) <= 1.5:  # noqa: PLR2004
        # The join phase waits for members that died without a word, till their sessions end.
        return "crash_loop"
    # In the new protocols, who comes back was not stopped.
    went_on = generation["group_type"] != "classic" and 2 * returns >= len(hour)
    is_short = statistics.median(lasted) < _TEN_MINUTES_MS
    return "short_lived_members" if is_short and not went_on else None


# -- single rebalances -----------------------------------------------------------------------------


def _aborted_rebalances(seen: _Rebalance) -> Iterator[Hit]:
    """Find rebalances that began again before they were done."""
    generation, at, limit = seen.generation, seen.span[0], seen.limits["aborted_rebalances"]
    aborted, memory = _aborted_for_certain(generation), seen.memory
    # Members of a deployment or a scale-out follow each other, each with an attempt or without.
    since = memory.get("attempted_at")
    goes_on = since is not None and at - since <= _ATTEMPTS_MS
    if goes_on and any(generation.get(f"members_{what}") for what in _CHANGES):
        memory["attempted_at"] = at
    if not aborted or generation["group_type"] != "classic":
        return
    # Members that start together may each restart the first rebalance, and those that stop together
    # the last: nobody goes on meanwhile.
    is_start = generation["cause"] == "group_created"
    former = seen.memory.get("last")
    was_empty = former is not None and not former.get("member_count")
    disturbs = not (is_start or was_empty) and bool(generation.get("member_count"))
    hour: list[Any] = seen.memory.setdefault("aborted", [])
    hour[:] = [e for e in hour if e[0] >= at - HOUR_MS]
    if disturbs:
        # A deployment or a scale-out counts as one.
        times = (0 if goes_on else 1) if _is_explained(seen, aborted) else aborted
        memory["attempted_at"] = at
        hour.append([at, times, _come_and_gone(generation)])
    times, severity = sum(n for _, n, _ in hour), INFO
    if disturbs and times >= limit["warning_an_hour"]:
        severity = CRITICAL if times >= limit["critical_an_hour"] else WARNING
    clients = _by_whom((clients for _, _, clients in hour), seen.changes.clients)
    yield Hit(
        "aborted_rebalances",
        severity,
        *seen.span,
        label="first_start" if is_start else None,
        sums={"aborted": aborted, f"causes.{generation['cause']}": 1},
        maxima={"aborted_in_an_hour": times},
        last_values={"clients": clients or _ghosts(generation)},
    )


def _is_explained(seen: _Rebalance, aborted: int) -> bool:
    """Return whether each attempt may be of another member that came, went or was started anew.

    In a deployment or scale-out each does so once, while the leader is still to assign.
    """
    changes = sum(len(seen.generation.get(f"members_{what}") or ()) for what in _CHANGES)
    returns = map(len, seen.changes.returns.values())
    again = max([*seen.changes.restarts, seen.changes.group_restart, *returns], default=0)
    return aborted <= changes and again <= 1


def _ghosts(generation: Row) -> list[str]:
    """Return clients with several members that joined at a time.

    Who gives a join up and tries again has a new member id, and the old one stays until its session
    ends.
    """
    joined = Counter(host_of(member) for member in generation.get("members_joined") or ())
    return sorted(client for client, n in joined.items() if n > 1)


def _slow_rebalance(seen: _Rebalance) -> Iterator[Hit]:
    """Find join and sync phases that took long."""
    generation, limit = seen.generation, seen.limits["slow_rebalance"]
    (began, ended, record), told_at = seen.span, _told_at(seen)
    join, sync = _joined_for(generation, told_at), generation.get("sync_ms") or 0
    # In the new protocols nobody joins: the coordinator assigns, and members give partitions up one
    # after the other, as they poll.
    is_classic = generation["group_type"] == "classic"
    longest = limit["join_ms" if is_classic else "reconciliation_ms"]
    is_late = sync > limit["sync_ms" if is_classic else "reconciliation_ms"]
    if join > longest or is_late:
        took = {"join_ms" if is_classic else "assigned_ms": join} if join > longest else {}
        if took and told_at is not None:
            # Until who was told to give something up had done so, nobody was to join.
            took, began = {"handover_ms": join}, min(began, told_at)
        elif took and (aborted := _aborted_for_certain(generation)):
            # In each attempt that was given up the members had joined, and the leader was to assign
            # (ClassicGroup.initNextGeneration): which of it took how long no record tells.
            took = {"attempts_ms": join, "aborted": aborted}
        lists = _waited_for(generation, join) if (took if is_classic else is_late) else {}
        if "join_ms" in took and is_classic and not lists and generation.get("members_left"):
            # One that died is waited for as long as its session had to go.
            lists = {"left_meanwhile": gone} if (gone := _gone(generation)) else {}
        if is_late:
            took["sync_ms"] = sync
        yield Hit(
            "slow_rebalance",
            WARNING,
            *(began, ended, record),
            label="first_start" if generation["cause"] == "group_created" else None,
            sums={"rebalances": 1},
            maxima=dict(took),
            last_values=_leader(generation) if is_late else {},
            lists=lists,
        )


def _waited_for(generation: Row, join: int = 0) -> dict[str, list[str]]:
    """Return evidence of who was waited for, if records tell.

    In a classic group commits may show who re-joined last. A join phase that lasts as long as the
    coordinator waits ends without those that it waited for (ClassicGroup.removeMember by
    GroupMetadataManager.completeClassicGroupJoin, or when their sessions end).
    """
    if members := generation.get("waited_for"):
        name = "rejoined_last" if generation["group_type"] == "classic" else "waited_for"
        return {name: [host_of(member) for member in members]}
    # Who came back in the same rebalance did join; and a wait between the two is for another.
    waits = [generation.get(f"{name}_timeout_ms") for name in ("session", "rebalance")]
    left = _gone(generation)
    if not any(w and _NEARLY * w <= join <= w / _NEARLY for w in waits) or not left:
        return {}
    return {"not_rejoined": left}


def _gone(generation: Row) -> list[str]:
    """Return the clients that left with a generation, and did not come back in it."""
    left, joined = (
        {host_of(member) for member in generation.get(f"members_{what}") or ()}
        for what in ("left", "joined")
    )
    return sorted(left - joined)


def _leader(generation: Row) -> Row:
    """Return evidence of who was to assign, in a classic group."""
    leader = generation.get("leader_client_id")
    is_classic = generation.get("group_type") == "classic"
    return {"leader": leader} if is_classic and leader else {}


def _told_at(seen: _Rebalance) -> int | None:
    """Return when a member was told to give up what another one gets now; None if none was.

    It re-joins once it has, so that the members take from then on (ConsumerCoordinator.
    onJoinComplete); in Connect the leader may have them wait.
    """
    generation, last = seen.generation, seen.memory.get("last") or {}
    is_follow_up = generation["cause"] == "cooperative_follow_up" and _is_whole(generation)
    is_known = generation.get("moved_partitions") and generation.get("protocol_type") != "connect"
    return last.get("stable_at") if is_follow_up and is_known else None


def _joined_for(generation: Row, told_at: int | None = None) -> int:
    """Return for how long the members joined at least: what is only estimated shows nothing."""
    since, until = generation.get("join_started_at_max"), generation.get("join_completed_at_min")
    known = [t for t in (since, told_at) if t is not None]
    return max(0, until - min(known)) if known and until is not None else 0


def _took(generation: Row) -> int | None:
    """Return how long a rebalance lasted at least; None if it did not get to its end."""
    if generation["group_type"] != "classic":
        return generation.get("rebalance_ms")
    if generation.get("stable_at") is None:
        return None
    return _joined_for(generation) + (generation.get("sync_ms") or 0)


def _stuck_rebalance(seen: _Rebalance) -> Iterator[Hit]:
    """Find rebalances longer than any member may take."""
    generation, last = seen.generation, seen.memory.get("last") or {}
    took = _took(generation)
    if took is None or not generation.get("member_count"):
        return
    timeouts = (row.get("rebalance_timeout_ms") for row in (generation, last))
    allowed = _allowed_ms(seen.limits, max((t for t in timeouts if t), default=None))
    if took > allowed:
        aborted, join = _aborted_for_certain(generation), _joined_for(generation)
        assigns = generation["group_type"] != "classic" and 2 * join > took
        yield Hit(
            "stuck_rebalance",
            WARNING,
            *seen.span,
            sums={"rebalances": 1},
            maxima={"rebalance_ms": took, "allowed_ms": allowed, "aborted": aborted},
            last_values={
                "generation": generation["generation"],
                **(_leader(generation) if 2 * (generation.get("sync_ms") or 0) > took else {}),
                **({"by_coordinator": 1} if assigns else {}),
            },
            lists={} if assigns else _waited_for(generation, join),
        )


def _not_ready(seen: _Rebalance) -> Iterator[Hit]:
    """Find streams groups that waited for topics, from one epoch to the next.

    Nobody is waited for then: of an epoch that members did not get to, nothing else has no length.
    Records that are missing hide it, too; so they have to be there, from a known beginning on.
    """
    generation, memory, (at, _, record) = seen.generation, seen.memory, seen.span
    wait, last = memory.pop("not_ready", None), memory.get("last") or {}
    if generation["group_type"] != "streams":
        return
    is_whole, timeout = _is_whole(generation), last.get("rebalance_timeout_ms")
    if wait is not None and is_whole:
        yield from _waits_for_topics(seen.limits, wait, timeout, (at, record), last)
    is_known = generation["cause"] == "group_created" or last.get("stable_at") is not None
    waits = generation.get("stable_at") is None and generation.get("rebalance_ms") is None
    if waits and generation.get("member_count") and (wait is not None or is_known) and is_whole:
        memory["not_ready"] = wait or {"since": at, "record": list(record)}


def _waits_for_topics(
    limits: Values, wait: Row, timeout: int | None, until: tuple[int, Position], waits: Row
) -> Iterator[Hit]:
    """Find that a streams group, in its state or a generation, has waited for too long."""
    (end, record), since = until, wait["since"]
    # It waits for no member, but its topics may be made after it was started.
    allowed = max(_allowed_ms(limits, timeout), round(limits["stuck_rebalance"]["never_stable_ms"]))
    if end - since > allowed:
        yield Hit(
            "stuck_rebalance",
            CRITICAL,
            *(since, end, record, _TEN_MINUTES_MS),
            first=Position(*wait["record"]),
            label="not_ready",
            maxima={"rebalance_ms": end - since, "allowed_ms": allowed},
            last_values={"state": "NotReady", "generation": waits.get("generation")},
        )


def _never_stable(seen: _Rebalance) -> Iterator[Hit]:
    """Find groups of the new protocols of which each epoch begins before the last is reached."""
    generation, memory = seen.generation, seen.memory
    chain: Row | None = memory.pop("unsettled", None)
    began, last = generation.get("join_started_at"), memory.get("last") or {}
    is_next = generation["generation"] == (last.get("generation") or 0) + 1
    is_known = is_next or _is_whole(generation)
    if generation["group_type"] not in ("consumer", "streams") or began is None:
        return
    if not generation.get("member_count"):
        return
    if chain is None or not is_known:
        chain = {"since": began, "epochs": 0, "record": list(seen.span[2])}
    chain["epochs"] += 1
    stable = generation.get("stable_at")
    if stable is None and generation.get("ended_at") and generation.get("rebalance_ms") is None:
        return  # a streams group that waits for its topics
    if stable is None:
        memory["unsettled"] = chain
    end = stable if stable is not None else generation.get("ended_at")
    timeouts = generation.get("rebalance_timeout_ms")
    allowed = max(
        seen.limits["stuck_rebalance"]["never_stable_ms"], _allowed_ms(seen.limits, timeouts)
    )
    if chain["epochs"] < _AT_LEAST_TWO or end is None or end - chain["since"] <= allowed:
        return
    took = end - chain["since"]
    yield Hit(
        "stuck_rebalance",
        WARNING,
        *(chain["since"], end, seen.span[2]),
        first=Position(*chain["record"]),
        subject="epochs",  # that the last one goes on is told beside it, with its own numbers
        label="never_stable",
        maxima={"rebalance_ms": took, "allowed_ms": allowed, "epochs": chain["epochs"]},
        last_values={"generation": generation["generation"]},
        lists=_waited_for(generation),
    )


def _tasks_wait(memory: Row, limits: Values, generation: Row, now: int | None) -> Iterator[Hit]:
    """Find tasks of Connect that nobody runs for longer than their scheduled delay.

    The leader is to hand them out in the rebalance that the delay ends with, or before. What waits
    in one generation does so till the next is in force, if none is missing in between.
    """
    wait: Row | None = memory.pop("wait", None)
    is_next = wait is not None and generation["generation"] == wait["generation"] + 1
    if wait is not None and (is_next or _is_whole(generation)):
        yield from _waited(limits, wait, generation, generation.get("stable_at"))
    else:
        wait = None
    since, delay = generation.get("waiting_since"), generation.get("delay_ms")
    if since is None or delay is None:
        return
    memory["wait"] = {
        "generation": generation["generation"],
        "since": since,
        "tasks": generation.get("waiting_tasks") or [],
        "delay_ms": delay,
        "longest_ms": max(delay, 0 if wait is None else wait["longest_ms"]),
        "rebalance_timeout_ms": generation.get("rebalance_timeout_ms"),
        "leader": generation.get("leader_client_id"),
    }
    if generation.get("ended_at") is None:
        yield from _waited(limits, memory["wait"], generation, now)


def _waited(limits: Values, wait: Row, generation: Row, end: int | None) -> Iterator[Hit]:
    """Find that tasks waited too long until a time, as a generation shows."""
    allowed = wait["longest_ms"] + _allowed_ms(limits, wait["rebalance_timeout_ms"])
    if end is None or end - wait["since"] <= allowed:
        return
    waited, tasks = end - wait["since"], wait["tasks"]
    yield Hit(
        "stuck_rebalance",
        WARNING,
        *(wait["since"], end, Position.of(generation), _TEN_MINUTES_MS),
        label="tasks_wait",
        maxima={"waited_ms": waited, "allowed_ms": allowed, "rebalance_ms": waited},
        last_values={
            "delay_ms": wait["delay_ms"],
            "waiting": len(tasks),
            "leader": wait["leader"],
        },
        lists={"tasks": tasks},
    )


def _is_whole(generation: Row) -> bool:
    return generation.get("aborted_evidence") == "complete"


def _aborted_for_certain(generation: Row) -> int:
    return (generation.get("aborted_generations") or 0) if _is_whole(generation) else 0


def _allowed_ms(limits: Values, timeout: int | None) -> int:
    limit = limits["stuck_rebalance"]
    longest = timeout or limit["unknown_timeout_ms"]
    return round(longest * (1 + limit["tolerance"]))


def _member_flapping(seen: _Rebalance) -> Iterator[Hit]:
    """Find clients that leave and come back over and over."""
    limit, (_, ended, record) = seen.limits["member_flapping"], seen.span
    for client, returns in seen.changes.returns.items():
        times, (began, offset, timestamp) = len(returns), returns[0]
        if times >= limit["returns_an_hour"]:
            yield Hit(
                "member_flapping",
                _of_shared(seen, CRITICAL if times >= limit["critical_an_hour"] else WARNING),
                *(began, ended, record),
                first=Position(record.partition, offset, timestamp),
                subject=client,
            ).counted("returns", times)


def _polls_too_late(seen: _Rebalance) -> Iterator[Hit]:
    """Find clients that leave each time when their time to poll is over, however long that is.

    Of times that fit into an hour often enough, `_member_flapping` tells.
    """
    generation, (at, ended, record) = seen.generation, seen.span
    stays: dict[str, Row] = {
        client: stay
        for client, stay in seen.memory.get("stays", {}).items()
        if at - stay["since"] <= 2 * stay["timeout_ms"]
    }
    seen.memory["stays"] = stays
    joined, left, replaced = (generation.get(f"members_{what}") or () for what in _CHANGES)
    for member in (*left, *replaced):
        if (stay := stays.get(host_of(member))) is None:
            continue
        is_over = _NEARLY_OVER <= (at - stay["since"]) / stay["timeout_ms"] <= _JUST_OVER
        stay["over"] = [*stay["over"], [at, *record]] if is_over else []
        times, limit = len(stay["over"]), seen.limits["member_flapping"]["returns_an_hour"]
        if times >= limit:
            began, *first = stay["over"][0]
            yield Hit(
                "member_flapping",
                WARNING,
                *(began, ended, record, 2 * stay["timeout_ms"]),
                first=Position(*first),
                subject=host_of(member),
                label="polls_too_late",
                sums={"returns": 1},
                initial_sums={"returns": times},
                last_values={"timeout_ms": stay["timeout_ms"]},
            )
    for member in (*joined, *replaced):
        timeout, over = member.get("rebalance_timeout_ms") or 0, []
        if (stay := stays.pop(host_of(member), None)) is not None:
            over = stay["over"]
        if timeout >= _LONG_POLL_MS and generation.get("protocol_type") != "connect":
            since = generation.get("stable_at") or ended
            stays[host_of(member)] = {"since": since, "timeout_ms": timeout, "over": over}


def _leader_rejoin_loop(seen: _Rebalance) -> Iterator[Hit]:
    """Find leaders that start a rebalance again and again, though nobody came or went."""
    if seen.generation["cause"] != "leader_rejoined":
        return
    at, ended, record = seen.span
    hour: list[list[int | None]] = seen.memory.setdefault("leader_rejoins", [])
    hour[:] = [e for e in hour if (e[0] or 0) >= at - HOUR_MS]
    hour.append([at, *record])
    began, *first = hour[0]
    if len(hour) >= seen.limits["leader_rejoin_loop"]["rejoins_an_hour"]:
        yield Hit(
            "leader_rejoin_loop",
            WARNING,
            *(int(began or 0), ended, record),
            first=Position(*first),
            subject=seen.generation.get("leader_client_id") or "",
            label="workers" if seen.generation.get("protocol_type") == "connect" else None,
        ).counted("rejoins", len(hour))


def _protocol_change(seen: _Rebalance) -> Iterator[Hit]:
    """Find changes of the assignor, or of the whole protocol."""
    generation, memory, at = seen.generation, seen.memory, seen.span[0]
    last, is_conversion = memory.get("last"), generation["cause"] == "conversion"
    before, after = memory.get("protocol"), generation.get("protocol") or None
    # A generation without members has none; that of another protocol says nothing of the next.
    if after is not None or is_conversion:
        memory["protocol"] = after
    if is_conversion and last is not None:
        before, after = last.get("group_type"), generation["group_type"]
    if before is None or after is None or before == after:
        return
    hour: list[int] = memory.setdefault("protocol_changes", [])
    hour[:] = [*(t for t in hour if t >= at - HOUR_MS), at]
    is_often = len(hour) >= seen.limits["protocol_change"]["warning_an_hour"]
    yield Hit(
        "protocol_change",
        WARNING if is_often else INFO,
        *seen.span,
        label="conversion" if is_conversion else "assignor",
        sums={"changes": 1},
        lists={"listed_changes": [f"{before} to {after}"]},
    )


_DETECTORS = (
    *(_rebalance_storm, _aborted_rebalances, _slow_rebalance, _stuck_rebalance, _member_flapping),
    *(_polls_too_late, _never_stable, _leader_rejoin_loop, _protocol_change),
)


# -- conditions that last --------------------------------------------------------------------------


def _conditions(track: Track, seen: _Rebalance, now: int | None) -> None:
    """Find what is odd about an assignment, for as long as it is in force."""
    memory, limits, findings = track
    generation = seen.generation
    pile = _piled_up(memory, generation)
    start = generation.get("stable_at")
    if start is None and generation.get("member_count"):
        return  # not known yet, so open conditions stay open
    end = in_force_until(generation)
    if end is None:
        end = now if now is not None else start
    found: dict[str, list[str]] = {kind: [] for kind in _CONDITIONS}
    is_scaled_out = _is_scaled_out(memory, limits, generation, start, end)
    is_apart = _are_apart(seen, start, end)
    if start is not None and end is not None:
        span = (start, max(start, end))
        hits = _conditions_of(seen, span, pile, is_scaled_out=is_scaled_out, is_apart=is_apart)
        for hit in hits:
            limit = limits[hit.kind]
            if hit.ended_at - hit.started_at >= limit.get("least_ms", limit.get("pause_ms", 0)):
                findings.add(hit)
            found[hit.kind].append(hit.subject)
    # What a generation of seconds has is on the way to the next, and what it lacks comes back with
    # that, as who restarts does; and who stops all to start again has mended nothing yet.
    if generation.get("member_count") and (end or 0) - (start or 0) >= _REST_MS:
        findings.end_others(found)


def _is_scaled_out(
    memory: Row, limits: Values, generation: Row, start: int | None, end: int | None
) -> bool:
    """Return whether members without partitions came for a while to a group that did without.

    An autoscaler brings them for a load, a blue-green switch for as long as both versions run.
    """
    limit, members = limits["idle_members"], generation.get("member_count") or 0
    if "usual" not in memory:
        # Before the first record that is known, too, the group may have done without them.
        memory["usual"] = {"more_since": start} if generation["cause"] == "unknown" else {}
    usual: Row = memory["usual"]
    if not members:
        usual.clear()
    if start is None or end is None or not members:
        return False
    if len(generation.get("idle_members") or ()) < limit["warning_share"] * members:
        usual.setdefault("since", start)
        usual["members"] = members
        return False
    since = usual.pop("since", None)
    if since is not None and start - since >= _TEN_MINUTES_MS:
        usual["more_since"] = start if members > usual["members"] else None
    more_since = usual.get("more_since")
    return more_since is not None and bool(end - more_since <= limit["scale_out_ms"])


def _piled_up(memory: Row, generation: Row) -> Row | None:
    """Return how many members came from one machine, one by one, and stay without a partition.

    An application that makes a client for each request, and never closes it, has all of them on its
    machine. Pods have one each, and threads start together; workers of Connect make no clients so.
    """
    if generation.get("protocol_type") == "connect":
        return None
    at, members = memory["clock"], generation.get("member_count") or 0
    former: dict[str, Row] = memory.get("came", {})
    memory["came"] = came = {h: k for h, k in former.items() if at - k["last"] <= HOUR_MS}
    joined, left, replaced = (
        [member.get("client_host") or "" for member in generation.get(f"members_{what}") or ()]
        for what in _CHANGES
    )
    for host in (*left, *replaced):
        came.pop(host, None)
    if len(joined) == members:
        came.clear()  # the group starts
        return None
    for host, number in Counter(joined).items():
        if (known := came.get(host)) is None:
            record = list(Position.of(generation))
            known = {"machine": host, "since": at, "record": record, "came": 0, "times": 0}
        came[host] = known
        known |= {"last": at, "came": known["came"] + number, "times": known["times"] + 1}
    pile = max(came.values(), key=lambda known: int(known["times"]), default=None)
    is_pile = (
        pile is not None
        and pile["times"] >= _PILED_UP
        and pile["last"] - pile["since"] >= _TEN_MINUTES_MS
        and len(generation.get("idle_members") or ()) >= _PILED_UP
    )
    return pile if is_pile else None


def _are_apart(seen: _Rebalance, start: int | None, end: int | None) -> bool:
    """Return whether members have long had no topic in common with others, as nothing moves on.

    A deployment to another topic moves on as each member restarts once, and takes as long as they
    do. In a share group such do not disturb each other.
    """
    generation, memory, restarts = seen.generation, seen.memory, seen.changes.restarts
    if start is None or end is None:
        return False
    if (generation.get("separate_subscriptions") or 0) <= 1 or generation["group_type"] == "share":
        memory.pop("apart_since", None)
        memory.pop("moved", None)
        return False
    since: int = memory.setdefault("apart_since", start)
    moved = memory["moved"] = memory.get("moved", 0) + len(restarts)
    if restarts and max(restarts) == 1 and moved <= (generation.get("member_count") or 0):
        since = memory["apart_since"] = start
    return bool(end - since > seen.limits["mixed_subscriptions"]["warning_ms"])


def _conditions_of(
    seen: _Rebalance,
    span: tuple[int, int],
    pile: Row | None,
    *,
    is_scaled_out: bool,
    is_apart: bool,
) -> Iterator[Hit]:
    generation, limits = seen.generation, seen.limits
    lasting = *span, Position.of(generation), _TEN_MINUTES_MS
    members = generation.get("member_count") or 0
    most, total = generation.get("most_partitions"), generation.get("assigned_partitions")
    is_connect = generation.get("protocol_type") == "connect"
    unit = {"unit": "task"} if is_connect else {}
    idle = generation.get("idle_members") or []
    is_alike = (generation.get("subscriptions") or 0) <= 1
    # The range assignor gives each topic to the first members.
    is_enough = generation.get("protocol") == "range" and is_alike and (total or 0) >= members
    # A worker of Connect that came back waits for its tasks, which the leader holds back for it; so
    # does a member of Kafka Streams till it is its turn to warm some up.
    awaits_tasks = bool(generation.get("delay_ms"))
    # In the first half of a cooperative rebalance nobody has what is to move yet. And of a group
    # that got nothing at all, topics that nobody is assigned are told, if it is known which.
    has_no_share = bool(generation.get("unowned_partitions")) or (
        not total and bool(generation.get("unassigned_topics"))
    )
    if idle and generation["group_type"] != "share" and not (awaits_tasks or has_no_share):
        is_much = len(idle) >= limits["idle_members"]["warning_share"] * members
        # Where there is one partition, others are in reserve: they take over at once.
        is_much &= not (is_scaled_out or total == 1)
        if is_connect:
            # Connectors come and go, and workers wait for them; who runs no more than a connector
            # and its task has nothing that another could take over.
            is_much &= (most or 0) > _CONNECTOR_AND_TASK
        hit = Hit(
            "idle_members",
            WARNING if is_much else INFO,
            *lasting,
            label="nothing_assigned" if total == 0 else None,
            maxima={"idle": len(idle), "member_count": members},
            last_values={"partitions": total, "enough": total if is_enough else [], **unit},
            lists={"members": list(idle)},
        )
        if pile is not None:  # they came one by one, since when they did
            hit = hit._replace(
                severity=WARNING,
                started_at=pile["since"],
                first=Position(*pile["record"]),
                subject=pile["machine"],
                label="never_closed",
                maxima=hit.maxima | {"came": pile["came"], "came_ms": pile["last"] - pile["since"]},
            )
        yield hit
    limit = limits["assignment_skew"]
    # What waits is handed out to workers that came back, and so have nothing yet.
    waiting = generation.get("waiting_tasks") or []
    # Who alone subscribes to a topic has all of it.
    if most and total and members > 1 and is_alike and (waiting or not awaits_tasks):
        mean = (total + len(waiting)) / members
        if most > limit["times_the_mean"] * mean and most - mean >= limit["least_difference"]:
            yield Hit(
                "assignment_skew",
                WARNING,
                *lasting,
                maxima={"most_partitions": most},
                last_values={"mean_partitions": round(mean, 1), "member_count": members, **unit},
            )
    if unowned := generation.get("unowned_partitions"):
        yield Hit(
            unread.KIND,
            WARNING,
            *lasting,
            subject=unowned[0],
            label=unread.NO_OWNER,
            maxima={"partitions": len(unowned), "member_count": members},
            lists={"unread": unowned},
        )
    if (subscriptions := generation.get("subscriptions") or 0) > 1:
        yield Hit(
            "mixed_subscriptions",
            WARNING if is_apart else INFO,
            *lasting,
            label="nothing_in_common" if is_apart else None,
            maxima={"subscriptions": subscriptions},
        )

"""What is wrong with how a group rebalances: each detector looks at one generation after the other.

A detector is a function of the generation, of what it remembers of those before, and of its
thresholds; it yields what it finds.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left
from typing import TYPE_CHECKING

from detectors.members import SlotChanges, follow
from detectors.model import HOUR_MS, MINUTE_MS, Hit, Position
from schemas.gold import CRITICAL, INFO, WARNING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from detectors.model import Findings, Row
    from detectors.thresholds import Values

_CONFIGURATION = "configuration_changed"
_CONDITIONS = ("idle_members", "assignment_skew", "mixed_subscriptions")
# Causes without a change of members: each is normal once an hour; a burst counts as one.
_NO_MEMBER = {
    "partitions_changed",
    "subscription_changed",
    "topic_deleted",
    _CONFIGURATION,
    "leader_rejoined",
    "coordinator_failover_suspected",
    "unknown",
}
# The second half of a rebalance that is counted already, or a step that moves no partition.
_PART_OF_ANOTHER = {"cooperative_follow_up", "probing", "conversion", "group_created"}
_CONNECTOR_AND_TASK = 2
_TEN_MINUTES_MS = 10 * MINUTE_MS
_BURST_MS = MINUTE_MS
# So many recent sessions and rebalances decide which kind of members causes a storm.
_SESSIONS = 50
_CAUSE = "causes."


def examine(
    memory: Row, limits: Values, findings: Findings, generation: Row, now: int | None
) -> None:
    """Take one generation.

    Args:
        memory: what is kept of the generations before; changed.
        limits: the thresholds of the group.
        findings: takes what is found.
        generation: a row of group_generations, its times in epoch milliseconds.
        now: time of the log; given for the newest generation, which lasts till then.
    """
    at = _began(generation)
    if at is None:
        return
    memory["clock"] = max(at, memory.get("clock", at))
    changes = follow(memory, generation, at)
    for detector in (_storm, _aborted, _slow, _stuck, _flapping, _leader, _recreated, _protocol):
        for hit in detector(memory, limits, generation, changes):
            findings.add(hit, memory["clock"])
    for hit in _waiting(memory, limits, generation, now):
        findings.add(hit, memory["clock"])
    _conditions(limits, findings, generation, now)
    memory["last"] = {
        name: generation.get(name)
        for name in (
            "generation",
            "member_count",
            "group_type",
            "rebalance_timeout_ms",
            "stable_at",
        )
    }


def still_rebalancing(memory: Row, limits: Values, state: Row, now: int) -> Iterator[Hit]:
    """Look at the state a group is in.

    Args:
        memory: what `examine` keeps.
        limits: the thresholds of the group.
        state: the open row of group_states.
        now: time of the log.
    """
    since = state.get("started_at_max")
    if since is None or state["state"] in ("Stable", "Empty", "Dead"):
        return
    allowed = _allowed_ms(limits, (memory.get("last") or {}).get("rebalance_timeout_ms"))
    if now - since > allowed:
        record = _position(state)
        yield Hit(
            "stuck_rebalance",
            "",
            CRITICAL,
            since,
            now,
            record,
            record,
            HOUR_MS,
            label="still_rebalancing",
            maxima={"rebalance_ms": now - since, "allowed_ms": allowed},
            last_values={"state": state["state"], "generation": state.get("generation")},
        )


def _began(generation: Row) -> int | None:
    at = generation.get("join_started_at")
    return generation.get("record_timestamp") if at is None else at


def _ended(generation: Row) -> int:
    ends = (generation.get(n) for n in ("stable_at", "join_completed_at", "join_started_at"))
    at = next((t for t in ends if t is not None), None)
    return int(generation["record_timestamp"] if at is None else at)


def _position(row: Row) -> Position:
    return Position(row["record_partition"], row["record_offset"], row["record_timestamp"])


def _hit(kind: str, severity: str, generation: Row, **given: object) -> Hit:
    """Make a finding of one generation alone."""
    record = _position(generation)
    start, end = _began(generation), _ended(generation)
    return Hit(kind, "", severity, start or end, end, record, record, HOUR_MS, **given)  # type: ignore[arg-type]


# -- storms ----------------------------------------------------------------------------------------


def _storm(memory: Row, limits: Values, generation: Row, changes: SlotChanges) -> Iterator[Hit]:
    """Find rebalances that nothing benign explains, too many in an hour or ten minutes."""
    clock = memory["clock"]
    seen: list[Row] = memory.setdefault("rebalances", [])
    del seen[: bisect_left(seen, clock - HOUR_MS, key=_clock)]
    sessions: list[list[int | None]] = memory.setdefault("sessions", [])
    sessions += [[clock, *session] for session in changes.sessions]
    # The clock never runs back, so the oldest are the first.
    del sessions[
        : max(len(sessions) - _SESSIONS, bisect_left(sessions, clock - HOUR_MS, key=_since))
    ]
    limit = limits["rebalance_storm"]
    number = _repetition(memory, limit, generation, changes, clock)
    apart: list[int] = memory.setdefault("apart", [])
    del apart[: bisect_left(apart, clock - HOUR_MS)]
    if number <= 1:
        apart.append(clock)
    if number == 0:
        return
    aborted = _aborted_for_certain(generation)
    last = seen[-1] if seen else None
    goes_on = last is not None and clock - last["clock"] <= _TEN_MINUTES_MS
    event = {
        "at": _began(generation) or 0,
        "clock": clock,
        "series": last["series"] if last is not None and goes_on else clock,
        "counts": 0 if number == 1 else 1 + aborted,
        "ms": _took(generation) or 0,
        "join_ms": generation.get("join_ms"),
        "cause": generation["cause"],
        "session_timeout_ms": generation.get("session_timeout_ms"),
        "record": list(_position(generation)),
        "before": {} if last is None else _sums(last),
    }
    seen.append(event)
    if number == 1:
        return
    sums, before_hour = _sums(event), seen[0]["before"]
    in_hour = {name: number - before_hour.get(name, 0) for name, number in sums.items()}
    before_short = seen[bisect_left(seen, clock - 10 * MINUTE_MS, key=_clock)]["before"]
    hour = in_hour["rebalances"]
    short = sums["rebalances"] - before_short.get("rebalances", 0)
    share = in_hour["ms"] / HOUR_MS
    is_long = in_hour["events"] > 1 and share > limit["share_of_time"]
    if hour < limit["warning_an_hour"] and short < limit["in_ten_minutes"] and not is_long:
        return
    is_critical = hour >= limit["critical_an_hour"] or short >= limit["in_ten_minutes"]
    # The series that it is part of: one restart follows the other within minutes.
    first = seen[bisect_left(seen, event["series"], key=_clock)]
    yield Hit(
        "rebalance_storm",
        "",
        CRITICAL if is_critical else WARNING,
        first["at"],
        _ended(generation),
        Position(*first["record"]),
        _position(generation),
        HOUR_MS,
        label=_trigger([e for e in seen[-_SESSIONS:] if e["counts"]], sessions),
        sums={"rebalances": event["counts"], f"causes.{generation['cause']}": 1},
        initial_sums={
            name: number
            for name, number in in_hour.items()
            if number and (name == "rebalances" or name.startswith(_CAUSE))
        },
        maxima={
            "rebalances_in_an_hour": hour,
            "rebalances_in_ten_minutes": short,
            "share_of_hour": round(share, 3),
            "member_count": generation.get("member_count") or 0,
            "explained": len(apart) - bisect_left(apart, event["series"]),
        },
    )


def _since(session: list[int | None]) -> int:
    return session[0] or 0


def _clock(event: Row) -> int:
    clock: int = event["clock"]
    return clock


def _sums(event: Row) -> dict[str, int]:
    """Return the running totals up to and including an event.

    The totals of a window are the difference of two, so that no window has to be added up again.
    """
    sums = dict(event["before"])
    if event["counts"]:
        cause = f"{_CAUSE}{event['cause']}"
        own = {"rebalances": event["counts"], "ms": event["ms"], "events": 1, cause: 1}
        for name, number in own.items():
            sums[name] = sums.get(name, 0) + number
    return sums


def _repetition(
    memory: Row, limit: dict[str, float], generation: Row, changes: SlotChanges, at: int
) -> int:
    """Return how often such a rebalance happened within the hour, with this; 0 if not counted.

    What is normal more often than once is 1 as long as it is.
    """
    cause = generation["cause"]
    if cause in _PART_OF_ANOTHER:
        return 0
    if cause not in _NO_MEMBER:
        return max([*changes.restarts, changes.group_restart, 0])
    bursts: dict[str, list[int]] = memory.setdefault("bursts", {})
    times = [t for t in bursts.get(cause, []) if t >= at - HOUR_MS]
    is_new = not times or at - times[-1] > _BURST_MS
    bursts[cause] = [*times, at] if is_new else [*times[:-1], at]
    normal = limit["reconfigurations_an_hour"] if cause == _CONFIGURATION else 1
    return max(1, len(bursts[cause]) - round(normal) + 1) if is_new else 0


def _trigger(counted: list[Row], sessions: list[list[int | None]]) -> str | None:
    """Return what kind of members make the storm, by length and end of their sessions."""
    lasted = [session for _, session, _ in sessions if session is not None]
    if not lasted:
        return None
    polls = [
        session / timeout for _, session, timeout in sessions if session is not None and timeout
    ]
    if polls and 0.9 <= statistics.median(polls) <= 3.5:  # noqa: PLR2004
        # max.poll.interval.ms is what clients send as the rebalance timeout: it passes, the
        # client leaves, and comes back with its next poll.
        return "slow_members"
    waits = [
        e["join_ms"] / e["session_timeout_ms"]
        for e in counted
        if e["join_ms"] is not None and e["session_timeout_ms"]
    ]
    if waits and 0.5 <= statistics.median(waits) <= 1.5:  # noqa: PLR2004
        # The join phase waits for members that died without a word, till their sessions end.
        return "crash_loop"
    is_short = statistics.median(lasted) < _TEN_MINUTES_MS
    return "short_lived_members" if is_short else None


# -- single rebalances -----------------------------------------------------------------------------


def _aborted(memory: Row, limits: Values, generation: Row, _: SlotChanges) -> Iterator[Hit]:
    """Find rebalances that began again before they were done."""
    aborted = generation.get("aborted_generations") or 0
    if generation.get("aborted_evidence") != "complete" or not aborted:
        return
    if generation["group_type"] != "classic":
        return
    # Members that start together may each restart the first rebalance.
    is_start = generation["cause"] == "group_created"
    at = _began(generation) or 0
    seen: list[list[int]] = memory.setdefault("aborted", [])
    seen[:] = [e for e in seen if e[0] >= at - HOUR_MS]
    if not is_start:
        seen.append([at, aborted])
    hour = sum(n for _, n in seen)
    limit = limits["aborted_rebalances"]
    severity = INFO
    if not is_start and hour >= limit["warning_an_hour"]:
        severity = CRITICAL if hour >= limit["critical_an_hour"] else WARNING
    yield _hit(
        "aborted_rebalances",
        severity,
        generation,
        label="first_start" if is_start else None,
        sums={"aborted": aborted, f"causes.{generation['cause']}": 1},
        maxima={"aborted_in_an_hour": hour},
    )


def _slow(memory: Row, limits: Values, generation: Row, _: SlotChanges) -> Iterator[Hit]:
    """Find join and sync phases that took long."""
    limit = limits["slow_rebalance"]
    join = _joined_for(generation, _told_at(memory, generation))
    sync, sync_limit = generation.get("sync_ms") or 0, limit["sync_ms"]
    if generation["group_type"] != "classic":
        # Members of the new protocols give partitions up one after the other, as they poll.
        sync_limit = limit["reconciliation_ms"]
    if join <= limit["join_ms"] and sync <= sync_limit:
        return
    yield _hit(
        "slow_rebalance",
        WARNING,
        generation,
        label="first_start" if generation["cause"] == "group_created" else None,
        sums={"rebalances": 1},
        maxima={"join_ms": join, "sync_ms": sync},
    )


def _told_at(memory: Row, generation: Row) -> int | None:
    """Return when a member was told to give up what another one gets now; None if none was.

    It re-joins once it has, so that the members take from then on (ConsumerCoordinator.
    onJoinComplete); in Connect the leader may have them wait.
    """
    is_follow_up = generation["cause"] == "cooperative_follow_up"
    if not is_follow_up or generation.get("protocol_type") == "connect":
        return None
    is_whole = generation.get("aborted_evidence") == "complete"
    told: int | None = (memory.get("last") or {}).get("stable_at") if is_whole else None
    return told


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


def _stuck(memory: Row, limits: Values, generation: Row, _: SlotChanges) -> Iterator[Hit]:
    """Find rebalances longer than any member may take."""
    took = _took(generation)
    if took is None or not generation.get("member_count"):
        return
    timeouts = [
        generation.get("rebalance_timeout_ms"),
        (memory.get("last") or {}).get("rebalance_timeout_ms"),
    ]
    allowed = _allowed_ms(limits, max((t for t in timeouts if t), default=None))
    if took > allowed:
        yield _hit(
            "stuck_rebalance",
            WARNING,
            generation,
            sums={"rebalances": 1},
            maxima={
                "rebalance_ms": took,
                "allowed_ms": allowed,
                "aborted": _aborted_for_certain(generation),
            },
            last_values={"generation": generation["generation"]},
        )


def _waiting(memory: Row, limits: Values, generation: Row, now: int | None) -> Iterator[Hit]:
    """Find tasks of Connect that nobody runs for longer than their scheduled delay.

    The leader is to hand them out in the rebalance that the delay ends with, or before. What waits
    in one generation does so till the next is in force, if none is missing in between.
    """
    wait: Row | None = memory.pop("wait", None)
    if wait is not None and (
        generation["generation"] == wait["generation"] + 1
        or generation.get("aborted_evidence") == "complete"
    ):
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
    record, waited = _position(generation), end - wait["since"]
    yield Hit(
        "stuck_rebalance",
        "",
        WARNING,
        wait["since"],
        end,
        record,
        record,
        _TEN_MINUTES_MS,
        label="tasks_wait",
        maxima={"waited_ms": waited, "allowed_ms": allowed, "rebalance_ms": waited},
        last_values={
            "delay_ms": wait["delay_ms"],
            "waiting": len(wait["tasks"]),
            "leader": wait["leader"],
        },
        lists={"tasks": wait["tasks"]},
    )


def _aborted_for_certain(generation: Row) -> int:
    is_known = generation.get("aborted_evidence") == "complete"
    return (generation.get("aborted_generations") or 0) if is_known else 0


def _allowed_ms(limits: Values, timeout: int | None) -> int:
    limit = limits["stuck_rebalance"]
    longest = timeout or limit["unknown_timeout_ms"]
    return round(longest * (1 + limit["tolerance"]))


def _flapping(_: Row, limits: Values, generation: Row, changes: SlotChanges) -> Iterator[Hit]:
    """Find clients that leave and come back over and over."""
    limit = limits["member_flapping"]
    record, end = _position(generation), _ended(generation)
    for client, returns in changes.returns.items():
        times = len(returns)
        if times < limit["returns_an_hour"]:
            continue
        first, offset, timestamp = returns[0]
        yield Hit(
            "member_flapping",
            client,
            CRITICAL if times >= limit["critical_an_hour"] else WARNING,
            first,
            end,
            Position(record.partition, offset, timestamp),
            record,
            HOUR_MS,
            sums={"returns": 1},
            initial_sums={"returns": times},
            maxima={"returns_in_an_hour": times},
        )


def _leader(memory: Row, limits: Values, generation: Row, _: SlotChanges) -> Iterator[Hit]:
    """Find leaders that start a rebalance again and again, though nobody came or went."""
    if generation["cause"] != "leader_rejoined":
        return
    at = _began(generation) or 0
    seen: list[list[int | None]] = memory.setdefault("leader_rejoins", [])
    seen[:] = [e for e in seen if (e[0] or 0) >= at - HOUR_MS]
    seen.append([at, *_position(generation)])
    times = len(seen)
    if times < limits["leader_rejoin_loop"]["rejoins_an_hour"]:
        return
    yield Hit(
        "leader_rejoin_loop",
        generation.get("leader_client_id") or "",
        WARNING,
        int(seen[0][0] or 0),
        _ended(generation),
        Position(*seen[0][1:]),
        _position(generation),
        HOUR_MS,
        sums={"rejoins": 1},
        initial_sums={"rejoins": times},
        maxima={"rejoins_in_an_hour": times},
    )


def _recreated(memory: Row, _: Values, generation: Row, __: SlotChanges) -> Iterator[Hit]:
    """Find groups that were deleted, or expired, and made again."""
    last = memory.get("last")
    if generation["cause"] != "group_created" or last is None:
        return
    if last["generation"] == 0 and not last["member_count"]:
        return  # the coordinator's record of the empty new group, which the first join follows
    yield _hit(
        "group_recreated",
        INFO,
        generation,
        sums={"times": 1},
        last_values={
            "last_generation": last["generation"],
            "last_group_type": last["group_type"],
            "group_type": generation["group_type"],
        },
    )


def _protocol(memory: Row, limits: Values, generation: Row, _: SlotChanges) -> Iterator[Hit]:
    """Find changes of the assignor, or of the whole protocol."""
    last = memory.get("last")
    before, after = memory.get("protocol"), generation.get("protocol") or None
    if after is not None:  # a generation without members has none
        memory["protocol"] = after
    if generation["cause"] == "conversion" and last is not None:
        before, after = last.get("group_type"), generation["group_type"]
    if before is None or after is None or before == after:
        return
    at = _began(generation) or 0
    seen: list[int] = memory.setdefault("protocol_changes", [])
    seen[:] = [t for t in seen if t >= at - HOUR_MS]
    seen.append(at)
    is_often = len(seen) >= limits["protocol_change"]["warning_an_hour"]
    yield _hit(
        "protocol_change",
        WARNING if is_often else INFO,
        generation,
        label="conversion" if generation["cause"] == "conversion" else "assignor",
        sums={"changes": 1},
        lists={"listed_changes": [f"{before} to {after}"]},
    )


# -- conditions that last --------------------------------------------------------------------------


def _conditions(limits: Values, findings: Findings, generation: Row, now: int | None) -> None:
    """Find what is odd about an assignment, for as long as it is in force."""
    start = generation.get("stable_at")
    if start is None and generation.get("member_count"):
        return  # not known yet, so open conditions stay open
    end = generation.get("ended_at")
    if end is None:
        end = now if now is not None else start
    found: dict[str, list[str]] = {kind: [] for kind in _CONDITIONS}
    if start is not None and end is not None:
        for hit in _conditions_of(limits, generation, start, max(start, end)):
            # What a generation of seconds has is on the way to the next: it ends nothing.
            if hit.ended_at - start >= limits[hit.kind]["least_ms"]:
                findings.add(hit)
            found[hit.kind].append(hit.subject)
    findings.end_others(found)


def _conditions_of(limits: Values, generation: Row, start: int, end: int) -> Iterator[Hit]:
    record = _position(generation)

    def holds(kind: str, subject: str, severity: str, **given: object) -> Hit:
        gap = 10 * MINUTE_MS
        return Hit(kind, subject, severity, start, end, record, record, gap, **given)  # type: ignore[arg-type]

    members = generation.get("member_count") or 0
    is_connect = generation.get("protocol_type") == "connect"
    unit = {"unit": "task"} if is_connect else {}
    idle = generation.get("idle_members") or []
    # A worker of Connect that came back waits for its tasks, which the leader holds back for it.
    if idle and generation["group_type"] != "share" and not generation.get("delay_ms"):
        many = len(idle) >= limits["idle_members"]["warning_share"] * members
        if is_connect:
            # Connectors come and go, and workers wait for them; who runs no more than a connector
            # and its task has nothing that another could take over.
            many &= (generation.get("most_partitions") or 0) > _CONNECTOR_AND_TASK
        yield holds(
            "idle_members",
            "",
            WARNING if many else INFO,
            maxima={"idle": len(idle), "member_count": members},
            last_values={"partitions": generation.get("assigned_partitions"), **unit},
            lists={"members": list(idle)},
        )
    limit = limits["assignment_skew"]
    most, total = generation.get("most_partitions"), generation.get("assigned_partitions")
    if most and total and members > 1:
        mean = total / members
        if most > limit["times_the_mean"] * mean and most - mean >= limit["least_difference"]:
            yield holds(
                "assignment_skew",
                "",
                WARNING,
                maxima={"most_partitions": most},
                last_values={"mean_partitions": round(mean, 1), "member_count": members, **unit},
            )
    subscriptions = generation.get("subscriptions") or 0
    if subscriptions > 1:
        yield holds("mixed_subscriptions", "", INFO, maxima={"subscriptions": subscriptions})

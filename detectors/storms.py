"""Storms: rebalances that nothing benign explains, too many in an hour or ten minutes."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from operator import itemgetter

from detectors.model import HOUR_MS, MINUTE_MS, Hit, Position, Row
from detectors.one_rebalance import (
    ASSIGNED,
    AT_LEAST_TWO,
    TEN_MINUTES_MS,
    Rebalance,
    aborted_for_certain,
    by_whom,
    come_and_gone,
    of_shared,
    time_taken,
)
from schemas.gold import CRITICAL, WARNING

_CONFIGURATION = "configuration_changed"
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
_RECONFIGURED = "reconfigured"
_BURST_MS = MINUTE_MS
# A burst that lasts is none: members of a deployment may each make a rebalance, a minute apart.
_LONGEST_BURST_MS = TEN_MINUTES_MS
# Who makes topics or connectors one after the other takes longer, and is done some time.
_SERIES_MS, _LONGEST_SERIES_MS = 3 * MINUTE_MS, 30 * MINUTE_MS
# So many recent sessions and rebalances decide which kind of members causes a storm.
_SESSIONS, _RECENT = 50, 50
# Of what is kept of a rebalance, see `_noted`. The rebalances of an hour may be hundreds.
_CLOCK, _COUNTS, _MS, _CAUSE = map(itemgetter, ("clock", "counts", "ms", "cause"))


def rebalance_storm(seen: Rebalance) -> Iterator[Hit]:
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
    recent = counted[bisect_left(counted, clock - TEN_MINUTES_MS, key=_CLOCK) :]
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
    severity = of_shared(seen, severity)
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
            "clients": by_whom(
                (e.get("clients", ()) for e in counted[-_RECENT:]), seen.changes.clients
            )
        },
    )


def _grows(generation: Row) -> bool:
    """Return whether members came to the group, as in a scale-out."""
    return bool(generation.get("members_joined")) and generation["cause"] not in _PART_OF_ANOTHER


def _noted(seen: Rebalance, number: int, clock: int) -> list[Row]:
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
        goes_on = hour and clock - hour[-1]["clock"] <= TEN_MINUTES_MS
        hour.append(
            {
                "at": seen.span[0],
                "clock": clock,
                "series": hour[-1]["series"] if goes_on else clock,
                "counts": 0 if number == 1 else 1 + aborted_for_certain(generation),
                "ms": time_taken(generation) or 0,
                "join_ms": generation.get("join_ms") if was_there and stay else None,
                "returns": _came_back(seen),
                "cause": generation["cause"],
                "session_timeout_ms": generation.get("session_timeout_ms"),
                "record": list(seen.span[2]),
                "clients": come_and_gone(generation),
            }
        )
    return hour


def _came_back(seen: Rebalance) -> int:
    """Return how many members came back that may not have been stopped meanwhile."""
    changes = seen.changes
    if seen.generation["group_type"] != "classic":
        return changes.went_on
    return len(changes.returns) or int(changes.starts_again)


def _repetition(seen: Rebalance, limit: dict[str, float], at: int) -> int:
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


def _moves_nothing(seen: Rebalance) -> bool:
    """Return whether the topics' metadata changed, and all members have as much as before.

    From Kafka 4.1 on, the racks of replicas are part of a topic's hash (Utils.computeTopicHash):
    where brokers have racks, each replica that is moved begins an epoch. In a classic group all
    members would join again. What was never assigned moved nothing: the coordinator may assign
    once for several epochs (KIP-1263).
    """
    generation, before = seen.generation, (seen.memory.get("last") or {}).get(ASSIGNED)
    if generation["cause"] != "partitions_changed" or generation["group_type"] == "classic":
        return False
    assigned = generation.get(ASSIGNED)
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
    comes_back = returns >= AT_LEAST_TWO
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
    is_short = statistics.median(lasted) < TEN_MINUTES_MS
    return "short_lived_members" if is_short and not went_on else None

"""What is wrong with how a group rebalances: each detector looks at one generation after the other.

A detector yields what it finds in a generation, by what is kept of those before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from detectors.conditions import conditions
from detectors.members import SlotChanges, host_of
from detectors.model import HOUR_MS, MINUTE_MS, Hit, Position, Row, Track
from detectors.one_rebalance import (
    ASSIGNED,
    AT_LEAST_TWO,
    CHANGES,
    TEN_MINUTES_MS,
    Rebalance,
    aborted_for_certain,
    by_whom,
    come_and_gone,
    is_whole,
    joined_for,
    of_shared,
    time_taken,
)
from detectors.storms import rebalance_storm
from detectors.thresholds import Values
from schemas.gold import CRITICAL, INFO, WARNING

# What is kept of a generation till the next one.
_LAST = (
    *("generation", "member_count", "group_type", "rebalance_timeout_ms", "stable_at"),
    *("leader_client_id", ASSIGNED),
)
_NEARLY = 0.9
# So soon one member of a deployment follows the other that made the group begin again.
_ATTEMPTS_MS = 2 * MINUTE_MS
# Longer times to poll do not fit into an hour often enough. Who leaves when such a time is over was
# there for no less, but for what the times of a rebalance are off, and not for much more.
_LONG_POLL_MS, _NEARLY_OVER, _JUST_OVER = 20 * MINUTE_MS, 0.97, 1.1


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
    rebalance = Rebalance(generation, changes, memory, limits, (at, ended, record))
    for detector in _DETECTORS:
        for hit in detector(rebalance):
            findings.add(hit, memory["clock"])
    # What is waited for goes on since then, whatever the clock is.
    for hit in (*_tasks_wait(memory, limits, generation, now), *_not_ready(rebalance)):
        findings.add(hit)
    conditions(track, rebalance, now)
    assigned = (memory.get("last") or {}).get(ASSIGNED)
    memory["last"] = {name: generation.get(name) for name in _LAST}
    if memory["last"][ASSIGNED] is None:
        memory["last"][ASSIGNED] = assigned


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


def _aborted_rebalances(seen: Rebalance) -> Iterator[Hit]:
    """Find rebalances that began again before they were done."""
    generation, at, limit = seen.generation, seen.span[0], seen.limits["aborted_rebalances"]
    aborted, memory = aborted_for_certain(generation), seen.memory
    # Members of a deployment or a scale-out follow each other, each with an attempt or without.
    since = memory.get("attempted_at")
    goes_on = since is not None and at - since <= _ATTEMPTS_MS
    if goes_on and any(generation.get(f"members_{what}") for what in CHANGES):
        memory["attempted_at"] = at
    if not aborted or generation["group_type"] != "classic":
        return
    # Members that start together may each restart the first rebalance, and those that stop together
    # the last: nobody goes on meanwhile.
    is_start = generation["cause"] == "group_created"
    former = memory.get("last")
    was_empty = former is not None and not former.get("member_count")
    disturbs = not (is_start or was_empty) and bool(generation.get("member_count"))
    hour: list[Any] = memory.setdefault("aborted", [])
    hour[:] = [e for e in hour if e[0] >= at - HOUR_MS]
    if disturbs:
        # A deployment or a scale-out counts as one.
        times = (0 if goes_on else 1) if _is_explained(seen, aborted) else aborted
        memory["attempted_at"] = at
        hour.append([at, times, come_and_gone(generation)])
    times, severity = sum(n for _, n, _ in hour), INFO
    if disturbs and times >= limit["warning_an_hour"]:
        severity = CRITICAL if times >= limit["critical_an_hour"] else WARNING
    clients = by_whom((clients for _, _, clients in hour), seen.changes.clients)
    yield Hit(
        "aborted_rebalances",
        severity,
        *seen.span,
        label="first_start" if is_start else None,
        sums={"aborted": aborted, f"causes.{generation['cause']}": 1},
        maxima={"aborted_in_an_hour": times},
        last_values={"clients": clients or _ghosts(generation)},
    )


def _is_explained(seen: Rebalance, aborted: int) -> bool:
    """Return whether each attempt may be of another member that came, went or was started anew.

    In a deployment or scale-out each does so once, while the leader is still to assign.
    """
    changes = sum(len(seen.generation.get(f"members_{what}") or ()) for what in CHANGES)
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


def _slow_rebalance(seen: Rebalance) -> Iterator[Hit]:
    """Find join and sync phases that took long."""
    generation, limit = seen.generation, seen.limits["slow_rebalance"]
    (began, ended, record), told_at = seen.span, _told_at(seen)
    join, sync = joined_for(generation, told_at), generation.get("sync_ms") or 0
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
        elif took and (aborted := aborted_for_certain(generation)):
            # In each attempt that was given up the members had joined, and the leader was to assign
            # (ClassicGroup.initNextGeneration): which of it took how long no record tells.
            took = {"attempts_ms": join, "aborted": aborted}
        lists = _waited_for(generation, join) if (took if is_classic else is_late) else {}
        if "join_ms" in took and not lists and generation.get("members_left"):
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


def _told_at(seen: Rebalance) -> int | None:
    """Return when a member was told to give up what another one gets now; None if none was.

    It re-joins once it has, so that the members take from then on (ConsumerCoordinator.
    onJoinComplete); in Connect the leader may have them wait.
    """
    generation, last = seen.generation, seen.memory.get("last") or {}
    is_follow_up = generation["cause"] == "cooperative_follow_up" and is_whole(generation)
    is_known = generation.get("moved_partitions") and generation.get("protocol_type") != "connect"
    return last.get("stable_at") if is_follow_up and is_known else None


def _stuck_rebalance(seen: Rebalance) -> Iterator[Hit]:
    """Find rebalances longer than any member may take."""
    generation, last = seen.generation, seen.memory.get("last") or {}
    took = time_taken(generation)
    if took is None or not generation.get("member_count"):
        return
    timeouts = (row.get("rebalance_timeout_ms") for row in (generation, last))
    allowed = _allowed_ms(seen.limits, max((t for t in timeouts if t), default=None))
    if took > allowed:
        aborted, join = aborted_for_certain(generation), joined_for(generation)
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


def _not_ready(seen: Rebalance) -> Iterator[Hit]:
    """Find streams groups that waited for topics, from one epoch to the next.

    Nobody is waited for then: of an epoch that members did not get to, nothing else has no length.
    Records that are missing hide it, too; so they have to be there, from a known beginning on.
    """
    generation, memory, (at, _, record) = seen.generation, seen.memory, seen.span
    wait, last = memory.pop("not_ready", None), memory.get("last") or {}
    if generation["group_type"] != "streams":
        return
    knows_all, timeout = is_whole(generation), last.get("rebalance_timeout_ms")
    if wait is not None and knows_all:
        yield from _waits_for_topics(seen.limits, wait, timeout, (at, record), last)
    is_known = generation["cause"] == "group_created" or last.get("stable_at") is not None
    waits = generation.get("stable_at") is None and generation.get("rebalance_ms") is None
    if waits and generation.get("member_count") and (wait is not None or is_known) and knows_all:
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
            *(since, end, record, TEN_MINUTES_MS),
            first=Position(*wait["record"]),
            label="not_ready",
            maxima={"rebalance_ms": end - since, "allowed_ms": allowed},
            last_values={"state": "NotReady", "generation": waits.get("generation")},
        )


def _never_stable(seen: Rebalance) -> Iterator[Hit]:
    """Find groups of the new protocols of which each epoch begins before the last is reached."""
    generation, memory = seen.generation, seen.memory
    chain: Row | None = memory.pop("unsettled", None)
    began, last = generation.get("join_started_at"), memory.get("last") or {}
    is_next = generation["generation"] == (last.get("generation") or 0) + 1
    is_known = is_next or is_whole(generation)
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
    if chain["epochs"] < AT_LEAST_TWO or end is None or end - chain["since"] <= allowed:
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
    if wait is not None and (is_next or is_whole(generation)):
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
        *(wait["since"], end, Position.of(generation), TEN_MINUTES_MS),
        label="tasks_wait",
        maxima={"waited_ms": waited, "allowed_ms": allowed, "rebalance_ms": waited},
        last_values={
            "delay_ms": wait["delay_ms"],
            "waiting": len(tasks),
            "leader": wait["leader"],
        },
        lists={"tasks": tasks},
    )


def _allowed_ms(limits: Values, timeout: int | None) -> int:
    limit = limits["stuck_rebalance"]
    longest = timeout or limit["unknown_timeout_ms"]
    return round(longest * (1 + limit["tolerance"]))


def _member_flapping(seen: Rebalance) -> Iterator[Hit]:
    """Find clients that leave and come back over and over."""
    limit, (_, ended, record) = seen.limits["member_flapping"], seen.span
    for client, returns in seen.changes.returns.items():
        times, (began, offset, timestamp) = len(returns), returns[0]
        if times >= limit["returns_an_hour"]:
            yield Hit(
                "member_flapping",
                of_shared(seen, CRITICAL if times >= limit["critical_an_hour"] else WARNING),
                *(began, ended, record),
                first=Position(record.partition, offset, timestamp),
                subject=client,
            ).counted("returns", times)


def _polls_too_late(seen: Rebalance) -> Iterator[Hit]:
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
    joined, left, replaced = (generation.get(f"members_{what}") or () for what in CHANGES)
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


def _leader_rejoin_loop(seen: Rebalance) -> Iterator[Hit]:
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


def _protocol_change(seen: Rebalance) -> Iterator[Hit]:
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
    *(rebalance_storm, _aborted_rebalances, _slow_rebalance, _stuck_rebalance, _member_flapping),
    *(_polls_too_late, _never_stable, _leader_rejoin_loop, _protocol_change),
)

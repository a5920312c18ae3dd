"""What is odd about an assignment, for as long as it is in force."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from detectors import unread
from detectors.model import HOUR_MS, MINUTE_MS, Hit, Position, Row, Track, in_force_until
from detectors.one_rebalance import CHANGES, TEN_MINUTES_MS, Rebalance
from detectors.thresholds import Values
from schemas.gold import INFO, WARNING

_CONDITIONS = ("idle_members", "assignment_skew", "mixed_subscriptions", unread.KIND)
_CONNECTOR_AND_TASK = 2
# Of an assignment that lasts less, the next one decides what is odd.
_REST_MS = MINUTE_MS
# So many rebalances in which members of a machine came are neither threads that start nor pods.
_PILED_UP = 10


def conditions(track: Track, seen: Rebalance, now: int | None) -> None:
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
    if since is not None and start - since >= TEN_MINUTES_MS:
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
        for what in CHANGES
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
        and pile["last"] - pile["since"] >= TEN_MINUTES_MS
        and len(generation.get("idle_members") or ()) >= _PILED_UP
    )
    return pile if is_pile else None


def _are_apart(seen: Rebalance, start: int | None, end: int | None) -> bool:
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
    seen: Rebalance,
    span: tuple[int, int],
    pile: Row | None,
    *,
    is_scaled_out: bool,
    is_apart: bool,
) -> Iterator[Hit]:
    generation, limits = seen.generation, seen.limits
    lasting = *span, Position.of(generation), TEN_MINUTES_MS
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

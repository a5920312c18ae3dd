"""What is wrong with static members: two share an instance id, or one comes back over and over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set as AbstractSet
from itertools import groupby

from detectors.members import client_of, host_of
from detectors.model import HOUR_MS, Hit, Position, Row, Track
from schemas.gold import CRITICAL, WARNING

# A process starts its threads within so long.
_RESTART_MS = 15_000


class Stays:
    """Sessions of static members: who is on a machine, and whose place another took."""

    def __init__(self) -> None:
        # By far the fewest; with the client that came `after`, where it is known.
        self.replaced: list[Row] = []
        self.on_machine: dict[str, set[str]] = defaultdict(set)
        self._awaiting: dict[tuple[str, int], Row] = {}

    def add(self, session: Row) -> None:
        """Take a session that ended; they come in the order of that."""
        self.note(session)
        if session["end_cause"] == "static_member_replaced":
            kept = {**session}
            self._awaiting[session["group_instance_id"], session["left_at"]] = kept
            self.replaced.append(kept)

    def note(self, session: Row) -> None:
        """Take of a session, which may go on, after whom it came, and where."""
        instance = session["group_instance_id"]
        self.on_machine[session["client_host"]].add(instance)
        if (before := self._awaiting.pop((instance, session["joined_at"]), None)) is not None:
            before["after"] = host_of(session)


def take_stays(track: Track, stays: Stays) -> None:
    """Find static members whose place is taken again and again.

    Two clients with one instance id take turns: the coordinator fences the one that the other
    replaces. One client that is replaced by itself restarts.
    """
    memory = track.memory
    taken: dict[str, list[Row]] = memory.setdefault("replaced", {})
    moments: dict[tuple[str, int], set[str]] = defaultdict(set)
    for instance, times in taken.items():
        for time in times:
            moments[time["client"], time["at"] // _RESTART_MS].add(instance)
    for session in stays.replaced:
        moment = host_of(session), session["left_at"] // _RESTART_MS
        moments[moment].add(session["group_instance_id"])
    for session in stays.replaced:
        instance, at = session["group_instance_id"], session["left_at"]
        hour = [t for t in taken.get(instance, []) if t["at"] >= at - HOUR_MS]
        client = host_of(session)
        taken[instance] = [*hour, {"at": at, "offset": session["record_offset"], "client": client}]
        there = stays.on_machine[session["client_host"]]
        # Two clients that share an instance id take that one alone; a process takes all of its own.
        is_process = all(_are_most(t, moments, there) for t in taken[instance][-2:])
        is_shared = len(there) > 1 and not is_process
        _replaced(track, session, taken[instance], is_shared=is_shared)
    for instance, times in list(taken.items()):
        if times[-1]["at"] < memory.get("clock", 0) - HOUR_MS:
            del taken[instance]


def _are_most(
    taken: Row, moments: dict[tuple[str, int], set[str]], there: AbstractSet[str]
) -> bool:
    """Return whether most members of a machine were replaced at about the time of one of them."""
    client, number = taken["client"], taken["at"] // _RESTART_MS
    together = {i for n in (number - 1, number, number + 1) for i in moments.get((client, n), ())}
    return len(together) > 1 and 2 * len(together) > len(there)


def _replaced(track: Track, session: Row, hour: list[Row], *, is_shared: bool) -> None:
    """Judge a session that another has taken the place of, the last of its `hour`.

    `is_shared` is whether the machine has other members, which went on.
    """
    _, limits, findings = track
    fencing, flapping = limits["static_member_fencing"], limits["member_flapping"]
    instance, at = session["group_instance_id"], session["left_at"]
    lately = [t for t in hour if t["at"] >= at - fencing["window_ms"]]
    seen = [t["client"] for t in lately] + ([session["after"]] if "after" in session else [])
    clients = [client for client, _ in groupby(seen)]
    takes_turns = len(clients) > len(set(clients))
    # Who takes a static member's place in a classic group is told under client id and host of the
    # one before (ClassicGroup.replaceStaticMember): both may be of two clients, on one machine or
    # not. So often on one with others, two are as likely as one; more often, one that fails is.
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

"""Follows the slots of a group's members, to distinguish repeated restarts from single ones.

A slot is what one member of a group holds, and what its successor takes over. A member that comes
back, or that takes the slot of one that left, is a restart of the slot; so is a client that is back
before its own session has ended. One restart of a slot an hour is a rolling restart, a deployment
or a lost node; two, with others in between, are a deployment and its rollback, of all or of a part,
a migration, or two deployments of which one takes over from the other. A slot that restarts again
and again makes a storm. With members in new slots a group grows; with members that leave for good
it shrinks; an autoscaler does both a few times an hour, with minutes in between. Other clients may
take the places of those that served for long as often: what was on a node that is drained, or on
one drained before, and previews of branches.

A group that starts again after it had been empty disturbs nobody. It restarts if that comes soon
after it ended, and starts on schedule if that comes by the clock, however long its work took. It is
scaled to nothing and back if it had run for a while, was empty for half a minute, and none of its
former clients starts it.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left, insort
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from detectors.model import HOUR_MS, MINUTE_MS, Row, remember

_WINDOW_MS = HOUR_MS
# Who restarts each hour, as with a new certificate, does so a little sooner now and then.
_ONCE_AN_HOUR_MS = HOUR_MS - 5 * MINUTE_MS
# Kubernetes starts what failed again within five minutes; then it has to join. Later is a decision.
_BACKOFF_MS = 6 * MINUTE_MS
# A client that died and is back is beside itself till its session ends: 45 seconds by default.
_TAKES_OVER_MS = MINUTE_MS
# So often an hour an autoscaler may bring back a member that the group did without for longer, or
# several within a minute.
_SCALE_OUTS = 3
_SCALE_OUT_MS = MINUTE_MS
# What fails starts again in its own place, or does not last. Another client that takes the place
# of one that was there for so long was moved, scaled or deployed.
_SERVED_MS = 10 * MINUTE_MS
# An autoscaler leaves what it has started alone for five minutes (cooldownPeriod of KEDA, the
# stabilization window of Kubernetes), and then starts other pods. It has stopped the last one by
# then, and looks again after half a minute (pollingInterval).
_SCALED_DOWN_MS, _LOOKS_AGAIN_MS = 5 * MINUTE_MS, MINUTE_MS // 2
# One restart of a deployment follows the other within minutes.
_PASS_ENDS_MS = 10 * MINUTE_MS
# Whose slots restart for the third time without a long pause is not being deployed, however long it
# takes to get round; nor is who is taken back again and again.
_PASSES = 3
_SERIES_ENDS_MS = 20 * MINUTE_MS
_ROLLBACKS = 2
_STARTS = 12
_LEAST_STARTS = 4
_JITTER_MS = 3_000
# What a clock starts may take so long to be there, and no longer.
_LATE_STARTS = 5
_LATE_MS = MINUTE_MS
_INSTANCE = "instance "

Return: TypeAlias = list[Any]
"""When a client came back, and offset and time of the record that tells so."""


def client_of(member: Row) -> str:
    """Name the client behind a member: what does not change when it restarts."""
    if member.get("group_instance_id") is not None:
        return f"{_INSTANCE}{member['group_instance_id']}"
    return f"{member.get('client_id') or member['member_id']}@{member.get('client_host') or ''}"


def host_of(member: Row) -> str:
    """Name the client of a member or of an owner, and its machine."""
    return f"{member.get('client_id')}@{member.get('client_host')}"


class SlotChanges:
    """What a generation did to the slots of a group.

    What is kept: `slots` by number, with the client that has or had it and since when, who left it
    and since when it is free, its restarts of the last 55 minutes, how many it had in which
    `series`, and until when a second one counts; `restarted`, which slots did so last; `series`,
    since when and until when restarts follow each other without a pause; `scaled_at`, when somebody
    put a member into a slot; `members` with their slot and since when they are there; `came_back`
    by member, its returns; `gone` by client, which members of that name left when, and their
    returns up to then; `fresh` by client, its last member that came into a new slot; `pass`, the
    slots that restarted one after the other, `deployments`, when those passes ended that left no
    former member, and `rollbacks`, when one of them was taken back; `starts`, when the group began
    and how long it had been empty; `emptied`, when it became so, and `former`, the clients that it
    had had in that hour.
    A client that comes back goes on with those of one that left: members that share client id and
    host, as those of one machine with a client's default id do, are told apart by that.

    Args:
        memory: what is kept of the group; changed.
        generation: a row of group_generations.
        at: when its rebalance began.

    Attributes:
        restarts: of each slot that restarted, the number of its restarts within 55 minutes, with
            those that are normal as one; 1 if it is part of a deployment's rollback.
        returns: by client that came back soon, its returns within the hour. Where several have that
            name at once, of the one with the most.
        sessions: of each member that is gone, the length of its session and its rebalance timeout,
            in milliseconds.
        group_restart: how often within the hour the group started again after it had been empty;
            0 if this generation did not start it, or did so on schedule, or as an autoscaler does.
        starts_again: whether a client started the group that had been in it before it was empty.
        went_on: how many members came back under their own id: their processes went on meanwhile,
            in the new protocols.
    """

    def __init__(self, memory: Row, generation: Row, at: int) -> None:
        self._memory, self._at = memory, at
        self._settled = generation.get("stable_at") or generation.get("record_timestamp") or at
        self._record = [generation.get("record_offset"), generation.get("record_timestamp")]
        self.restarts: list[int] = []
        self.sessions: list[tuple[int, int | None]] = []
        self.returns: dict[str, list[Return]] = {}
        self.went_on = 0
        since, restarted_since = at - _WINDOW_MS, at - _ONCE_AN_HOUR_MS
        self._slots: dict[str, Row] = memory.setdefault("slots", {})
        self._free: list[str] = []
        for name, slot in list(self._slots.items()):
            # In order, so that no more is looked at than goes, which mostly is nothing.
            restarts, left = slot["restarts"], slot["left"]
            if restarts and restarts[0] < restarted_since:
                del restarts[: bisect_left(restarts, restarted_since)]
            if left is None:
                continue
            if left < since:
                del self._slots[name]
            else:
                self._free.append(name)
        self._members: dict[str, tuple[str, int]] = memory.setdefault("members", {})
        self._came_back: dict[str, list[Return]] = {
            member: returns
            for member, returns in memory.get("came_back", {}).items()
            if returns[-1][0] >= since
        }
        memory["came_back"] = self._came_back
        self._gone: dict[str, list[tuple[int, list[Return], str]]] = {
            client: kept
            for client, left in memory.get("gone", {}).items()
            if (kept := [(at, *rest) for at, *rest in left if at >= since])
        }
        memory["gone"] = self._gone
        self._fresh: dict[str, Row] = {
            client: fresh
            for client, fresh in memory.get("fresh", {}).items()
            if at - fresh["at"] <= _TAKES_OVER_MS
        }
        memory["fresh"] = self._fresh
        self._take(generation)

    @property
    def clients(self) -> list[str]:
        """Clients that are there, with their machines; static members are kept by another name."""
        held = (slot["client"] for slot in self._slots.values() if slot["left"] is None)
        return [client for client in held if not client.startswith(_INSTANCE)]

    def _take(self, generation: Row) -> None:
        joined, left, replaced = (
            generation.get(f"members_{what}") or () for what in ("joined", "left", "replaced")
        )
        if joined and len(joined) == generation.get("member_count") and not left:
            # All are new, and no record says that those before had left: it was recreated.
            self._members.clear()
            self._came_back.clear()
            self._clear()
        was_empty = not self._members
        for member in left:
            self._leave(member)
        # A static member that comes back while the generation is in force makes no rebalance.
        came = {member["member_id"] for member in (*joined, *replaced)}
        back = [member for member in replaced if member["replaced_member_id"] in came]
        for member in replaced:
            if member not in back:
                self._replace(member)
        for member in joined:
            self._join(member, is_start=was_empty)
        for member in back:
            if known := self._members.pop(member["replaced_member_id"], None):
                self._members[member["member_id"]] = known
                self._goes_on(member)
        self.starts_again = False
        self.group_restart = self._count_group_restarts(joined, was_empty=was_empty)

    def _clear(self) -> None:
        self._slots.clear()
        self._free.clear()
        for name in ("pass", "deployments", "rollbacks", "series"):
            self._memory.pop(name, None)

    def _leave(self, member: Row) -> None:
        """Note that a member left; its slot is free, or its successor's that is there already.

        That is the client itself, or, of one that has not just come, too, the first of others that
        have: a pod that takes over has another name.
        """
        _, since = self._members.get(member["member_id"], (None, self._at))
        slot, client = self._ended(member["member_id"], member), client_of(member)
        successor = client
        if client not in self._fresh and self._at - since > _TAKES_OVER_MS:
            successor = min(self._fresh, key=lambda c: (self._fresh[c]["at"], c), default=client)
        fresh = self._fresh.pop(successor, {"slot": slot, "member_id": None})
        returns = self._came_back.pop(member["member_id"], [])
        is_taken = fresh["slot"] != slot and fresh["member_id"] in self._members
        is_itself = is_taken and slot is not None and successor == client
        if slot is not None and not is_itself:
            if self._slots[slot]["left"] is None:
                self._free.append(slot)
            self._slots[slot] |= {"left": self._at, "member_id": member["member_id"]}
        if slot is not None and is_taken:
            former, joined = self._members[fresh["member_id"]]
            del self._slots[former]
            self._restart(slot, fresh, successor, came_first=not is_itself)
            self._members[fresh["member_id"]] = (slot, joined)
        if is_itself:
            self._returns({**member, "member_id": fresh["member_id"]}, returns, since=self._at)
        else:
            self._gone.setdefault(client, []).append((self._at, returns, member["member_id"]))

    def _replace(self, member: Row) -> None:
        """Give a member the slot of the one it replaces."""
        client = client_of(member)
        slot = self._ended(member["replaced_member_id"], member) or self._new(client)
        self._restart(slot, member, client)
        self._goes_on(member)
        if member.get("group_instance_id") is None:  # static ones are looked at by their sessions
            before = self._came_back.pop(member["replaced_member_id"], [])
            self._returns(member, before, since=self._at)

    def _goes_on(self, member: Row) -> None:
        """Let a member be fresh if the one that it replaces, of the same client, was."""
        fresh = self._fresh.get(client_of(member))
        if fresh is not None and fresh["member_id"] == member["replaced_member_id"]:
            fresh["member_id"] = member["member_id"]

    def _join(self, member: Row, *, is_start: bool) -> None:
        """Give a member its former slot, or the one that became free last, or a new one."""
        client = client_of(member)
        slot = self._vacant(member, client)
        if left := self._gone.get(client):
            self.went_on += member["member_id"] in {member_id for *_, member_id in left}
            at, returns, _ = left.pop()
            is_itself = slot is not None and self._was_in(slot, member)
            self._returns(member, returns, since=at, is_itself=is_itself)
        if slot is None:
            slot = self._new(client)
            self._members[member["member_id"]] = (slot, self._settled)
            if not is_start:
                own = {"slot": slot, "at": self._at, "member_id": member["member_id"]}
                self._fresh[client] = own
        else:
            self._restart(slot, member, client)

    def _count_group_restarts(self, joined: Sequence[Row], *, was_empty: bool) -> int:
        """Return how often the group restarted after being empty within the hour; 0 if not now."""
        memory = self._memory
        if not self._members and not was_empty:
            memory["emptied"] = self._at
            memory["former"] = sorted({slot["client"] for slot in self._slots.values()})
            # Members that come later get new slots; what counts then is how often that happens.
            self._clear()
        if not (self._members and was_empty):
            return 0
        emptied, former = memory.get("emptied"), memory.pop("former", None)
        self.starts_again = not {client_of(m) for m in joined}.isdisjoint(former or ())
        idle = None if emptied is None else self._at - emptied
        starts: list[tuple[int, int | None]] = memory.get("starts", [])
        ran = emptied - starts[-1][0] if starts and emptied is not None else 0
        is_scaled = ran >= _SCALED_DOWN_MS and former is not None and not self.starts_again
        is_scaled &= idle is None or idle >= _LOOKS_AGAIN_MS
        remember(memory, "starts", (self._at, idle), _STARTS)
        if idle is None or idle > _BACKOFF_MS or is_scaled or _is_on_schedule(memory["starts"]):
            return 0
        since = self._at - _WINDOW_MS
        again = [t for t in memory.get("group_restarts", []) if t >= since]
        memory["group_restarts"] = [*again, self._at]
        return len(again) + 1

    def _ended(self, member_id: str, member: Row) -> str | None:
        slot, joined = self._members.pop(member_id, (None, None))
        if joined is not None:
            lasted = max(0, self._at - joined)
            self.sessions.append((lasted, member.get("rebalance_timeout_ms")))
        return slot if slot in self._slots else None

    def _new(self, client: str) -> str:
        name = str(self._memory.get("last_slot", 0) + 1)
        self._memory["last_slot"] = int(name)
        slot: Row = {"client": client, "left": None, "since": self._settled, "restarts": []}
        self._slots[name] = slot
        return name

    def _was_in(self, name: str, member: Row) -> bool:
        """Return whether a member left a slot itself: its process went on while it was away."""
        # A client keeps its id for as long as it lives, in the new protocols (KIP-1082).
        return bool(self._slots[name].get("member_id") == member["member_id"])

    def _vacant(self, member: Row, client: str) -> str | None:
        own = [name for name in self._free if self._slots[name]["client"] == client]
        if own:
            return min(own, key=lambda name: (not self._was_in(name, member), int(name)))
        return max(self._free, key=lambda n: (self._slots[n]["left"], int(n)), default=None)

    def _restart(self, name: str, member: Row, client: str, *, came_first: bool = False) -> None:
        """Let a member take over a slot, and note how often the slot restarted.

        Another client may have come first, before the one that it replaces left.
        """
        slot = self._slots[name]
        is_deployed = self._is_deployed(name, came_first=came_first and client != slot["client"])
        is_among_others = self._restarts_among_others(name, *slot["restarts"][-1:])
        is_chosen = self._is_added(name, member) or self._is_taken_over(slot, client)
        if slot["left"] is not None:
            self._free.remove(name)
        slot |= {"client": client, "left": None, "since": self._settled}
        insort(slot["restarts"], self._at)
        if is_chosen:
            times = 1 if self._is_scaled_out() else len(slot["restarts"]) - _SCALE_OUTS + 1
        else:
            times = self._again(slot, is_deployed=is_deployed, is_among_others=is_among_others)
        self.restarts.append(max(1, times))
        self._members[member["member_id"]] = (name, self._settled)

    def _is_added(self, name: str, member: Row) -> bool:
        """Return whether the group did without for so long that a member was added to it."""
        left = self._slots[name]["left"]
        is_late = left is not None and self._at - left > _BACKOFF_MS
        return is_late and not self._was_in(name, member)

    def _is_taken_over(self, slot: Row, client: str) -> bool:
        """Return whether another client takes the place of one that had served for long.

        Not where all members were replaced within the hour before: they are being deployed.
        """
        has_served = slot["left"] is not None and slot["left"] - slot["since"] >= _SERVED_MS
        return has_served and slot["client"] != client and not self._memory.get("deployments")

    def _again(self, slot: Row, *, is_deployed: bool, is_among_others: bool) -> int:
        """Return how often a slot restarted within the hour; once if it is being deployed."""
        times = len(slot["restarts"])
        is_second = times == 2  # noqa: PLR2004
        if is_second and is_among_others and self._at >= slot.get("counts_until", self._at):
            slot["counts_until"] = self._at + 2 * _WINDOW_MS
            times = 1
        if (passes := self._passes(slot)) >= _PASSES:
            return max(times, passes - 1)
        return 1 if is_deployed else times

    def _passes(self, slot: Row) -> int:
        """Return how often a slot has restarted since restarts follow each other, for an hour."""
        since, last = self._memory.get("series") or (self._at, self._at)
        if self._at - last > _SERIES_ENDS_MS:
            since = self._at
        self._memory["series"] = [since, max(last, self._at)]
        series, times = slot.get("series") or (since, 0)
        slot["series"] = [since, times + 1 if series == since else 1]
        return int(slot["series"][1]) if self._at - since > _WINDOW_MS else 0

    def _is_scaled_out(self) -> bool:
        """Return whether the last of the members that were put into slots came right before."""
        last = self._memory.get("scaled_at")
        self._memory["scaled_at"] = self._at
        return last is not None and self._at - last <= _SCALE_OUT_MS

    def _restarts_among_others(self, name: str, since: int | None = None) -> bool:
        """Note that a slot restarts; return whether another one has, since this one did.

        Of two deployments, one of which may be of a part or takes over from the other, each slot
        may have a part in both. Whoever restarts twice alone does it for a reason of its own.
        """
        last: Row = self._memory.get("restarted") or {"slot": name, "at": -1, "other": -1}
        other = last["other"] if last["slot"] == name else last["at"]
        self._memory["restarted"] = {"slot": name, "at": self._at, "other": other}
        return since is not None and other > since

    def _is_deployed(self, name: str, *, came_first: bool) -> bool:
        """Return whether a restart is of a further pass over the slots within the hour.

        A pass restarts each slot once, without a long pause. It is a deployment if hardly a member
        is there from before, and the next one begins no sooner than a slot followed the other. Who
        comes before the one that it replaces was put there, and may be of a third one: a release is
        taken back, and made again.
        """
        now: Row | None = self._memory.get("pass")
        if now is None or name in now["slots"] or self._at - now["last"] > _PASS_ENDS_MS:
            since, is_deployment = self._at - _WINDOW_MS, False
            done = [t for t in self._memory.get("deployments", []) if t >= since]
            if now is not None and now["last"] >= since and self._replaced_since(now["since"]):
                done.append(now["last"])
                is_deployment = self._at - now["last"] >= now["longest_gap"]
            self._memory["deployments"] = done
            now = {"slots": [], "since": self._at, "last": self._at, "longest_gap": 0}
            again = [t for t in self._memory.get("rollbacks", []) if t >= since - _WINDOW_MS]
            now["follows"] = len(done) if is_deployment and len(again) < _ROLLBACKS else 0
            now["is_rollback"] = False
            self._memory["rollbacks"], self._memory["pass"] = again, now
        is_in_time = now["follows"] == 1 or (now["follows"] == _ROLLBACKS and came_first)
        if is_in_time and not now["is_rollback"]:
            now["is_rollback"] = True
            self._memory["rollbacks"].append(self._at)
        now["slots"].append(name)
        now["longest_gap"] = max(now["longest_gap"], self._at - now["last"])
        now["last"] = max(now["last"], self._at)
        return bool(now["is_rollback"])

    def _replaced_since(self, since: int) -> bool:
        """Return whether at most a fourth of the members was there before, as those of a canary."""
        older = sum(joined < since for _, joined in self._members.values())
        return older <= len(self._members) // 4

    def _returns(
        self, member: Row, before: list[Return], since: int, *, is_itself: bool = False
    ) -> None:
        """Note that a member came back that had left then, and had come back before."""
        hour, client = self._at - _WINDOW_MS, client_of(member)
        returns = [r for r in before if r[0] >= hour]
        # Later it is a decision, as an autoscaler's. With all others it disturbs nobody: that is a
        # start of the group.
        is_soon = is_itself or self._at - since <= _BACKOFF_MS
        if is_soon and since > self._memory.get("emptied", since - 1):
            insort(returns, [self._at, *self._record])
            if len(returns) > len(self.returns.get(client, ())):
                self.returns[client] = returns
        if returns:
            self._came_back[member["member_id"]] = returns


def _is_on_schedule(starts: list[tuple[int, int | None]]) -> bool:
    """Return whether the last start of a group that had been empty came by the clock.

    The times from start to start are then all alike, and those without members fill up what the
    work left of them; after a backoff they follow the end of the work, and vary as it does. Where
    the work takes the same time each time, whole minutes are the clock's.
    """
    if len(starts) < _LEAST_STARTS:
        return False
    distances = [later - sooner for (sooner, _), (later, _) in pairwise(starts)]
    usual = statistics.median(distances)
    strays = max(_spread(distances), abs(distances[-1] - usual))
    if 2 * strays < _spread([idle for _, idle in starts[1:] if idle is not None]):
        return True
    off = max(map(_off_the_minute, (usual, starts[-1][0] - starts[0][0])))
    return max(strays, off) <= _JITTER_MS or _is_late_by_the_clock([at for at, _ in starts])


def _is_late_by_the_clock(starts: list[int]) -> bool:
    """Return whether starts are each a little behind the clock, now more and now less.

    What waits after the end of its work falls further and further behind.
    """
    mean = (starts[-1] - starts[0]) / (len(starts) - 1)
    period = max(1, round(mean / MINUTE_MS)) * MINUTE_MS
    behind = [at - starts[0] - round((at - starts[0]) / period) * period for at in starts]
    steps = [later - sooner for sooner, later in pairwise(behind)]
    return (
        len(starts) >= _LATE_STARTS
        and max(behind) - min(behind) <= min(_LATE_MS, period / 4)
        and min(steps) < 0 < max(steps)
    )


def _off_the_minute(ms: float) -> float:
    return abs(ms - max(1, round(ms / MINUTE_MS)) * MINUTE_MS)


def _spread(values: list[int]) -> float:
    """Return how far values usually are from their median."""
    middle = statistics.median(values)
    return statistics.median(abs(value - middle) for value in values)

"""Follows the slots of a group's members, to distinguish repeated restarts from single ones.

A slot is what one member of a group holds, and what its successor takes over. A member that comes
back, or that takes the slot of one that left, is a restart of the slot. One restart of a slot an
hour is a rolling restart, a deployment or a lost node. A slot that restarts again and again makes a
storm. With members in new slots a group grows; with members that leave for good it shrinks.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from detectors.model import HOUR_MS

if TYPE_CHECKING:
    from detectors.model import Row

_WINDOW_MS = HOUR_MS


Return: TypeAlias = list[Any]
"""When a client came back, and offset and time of the record that tells so."""


class SlotChanges(NamedTuple):
    """What a generation did to the slots of a group.

    Attributes:
        restarts: of each slot that restarted, the number of its restarts within the hour.
        returns: by client that came back, its returns within the hour. Where several have that name
            at once, of the one with the most.
        sessions: of each member that is gone, the length of its session and its rebalance timeout,
            in milliseconds.
        group_restart: how often within the hour the group started again after it had been empty;
            0 if this generation did not start it.
    """

    restarts: list[int]
    returns: dict[str, list[Return]]
    sessions: list[tuple[int, int | None]]
    group_restart: int


def client_of(member: Row) -> str:
    """Name the client behind a member: what does not change when it restarts."""
    if member.get("group_instance_id") is not None:
        return f"instance {member['group_instance_id']}"
    return f"{member.get('client_id') or member['member_id']}@{member.get('client_host') or ''}"


def follow(memory: Row, generation: Row, at: int) -> SlotChanges:
    """Follow the slots through one generation.

    Args:
        memory: what is kept of the group; changed.
        generation: a row of group_generations.
        at: when its rebalance began.
    """
    slots = _Slots(memory, generation, at)
    joined = len(generation.get("members_joined") or ())
    if joined and joined == generation.get("member_count") and not generation.get("members_left"):
        # All are new, and no record says that those before had left: the group was recreated.
        slots.forget()
    was_empty = not slots.members
    for member in generation.get("members_left") or ():
        slots.leave(member)
    for member in generation.get("members_replaced") or ():
        slots.replace(member)
    for member in generation.get("members_joined") or ():
        slots.join(member)
    group_restart = slots.count_group_restarts(was_empty=was_empty)
    return SlotChanges(slots.restarts, slots.returns, slots.sessions, group_restart)


class _Slots:
    """The slots of a group while one generation is followed.

    What is kept: `slots` by number, with the client that has or had it, since when it is free, and
    its restarts; `members` with their slot and since when they are there; `came_back` by member,
    its returns; `gone` by client, when members of that name left, and their returns up to then. A
    client that comes back goes on with those of one that left: members that share client id and
    host, as those of one machine with a client's default id do, are told apart by that.
    """

    def __init__(self, memory: Row, generation: Row, at: int) -> None:
        self._memory, self._at = memory, at
        self._settled = generation.get("stable_at") or generation.get("record_timestamp") or at
        self._record = [generation.get("record_offset"), generation.get("record_timestamp")]
        self.restarts: list[int] = []
        self.sessions: list[tuple[int, int | None]] = []
        self.returns: dict[str, list[Return]] = {}
        since = at - _WINDOW_MS
        self._slots: dict[str, Row] = memory.setdefault("slots", {})
        self._free: list[str] = []
        for name, slot in list(self._slots.items()):
            # In order, so that no more is looked at than goes, which mostly is nothing.
            restarts, left = slot["restarts"], slot["left"]
            if restarts and restarts[0] < since:
                del restarts[: bisect_left(restarts, since)]
            if left is None:
                continue
            if left < since:
                del self._slots[name]
            else:
                self._free.append(name)
        self.members: dict[str, tuple[str, int]] = memory.setdefault("members", {})
        self._came_back: dict[str, list[Return]] = {
            member: returns
            for member, returns in memory.get("came_back", {}).items()
            if returns[-1][0] >= since
        }
        memory["came_back"] = self._came_back
        self._gone: dict[str, list[tuple[int, list[Return]]]] = {
            client: kept
            for client, left in memory.get("gone", {}).items()
            if (kept := [(at, returns) for at, returns in left if at >= since])
        }
        memory["gone"] = self._gone

    def forget(self) -> None:
        """Forget all members and slots."""
        self.members.clear()
        self._came_back.clear()
        self._clear()

    def _clear(self) -> None:
        self._slots.clear()
        self._free.clear()

    def leave(self, member: Row) -> None:
        """Note that a member left; its slot is free."""
        slot = self._ended(member["member_id"], member)
        if slot is not None:
            if self._slots[slot]["left"] is None:
                self._free.append(slot)
            self._slots[slot]["left"] = self._at
        returns = self._came_back.pop(member["member_id"], [])
        self._gone.setdefault(client_of(member), []).append((self._at, returns))

    def replace(self, member: Row) -> None:
        """Give a member the slot of the one it replaces."""
        client = client_of(member)
        slot = self._ended(member["replaced_member_id"], member) or self._new(client)
        self._restart(slot, member, client)
        if member.get("group_instance_id") is None:  # static ones are looked at by their sessions
            before = self._came_back.pop(member["replaced_member_id"], [])
            self._returns(member, before, since=self._at)

    def join(self, member: Row) -> None:
        """Give a member its former slot, or the one that became free last, or a new one."""
        client = client_of(member)
        if left := self._gone.get(client):
            at, returns = left.pop()
            self._returns(member, returns, since=at)
        slot = self._vacant(client)
        if slot is None:
            self.members[member["member_id"]] = (self._new(client), self._settled)
        else:
            self._restart(slot, member, client)

    def count_group_restarts(self, *, was_empty: bool) -> int:
        """Return how often the group restarted after being empty within the hour; 0 if not now."""
        if not self.members and not was_empty:
            # Members that come later get new slots; what counts then is how often that happens.
            self._clear()
            self._memory["emptied"] = self._at
        since = self._at - _WINDOW_MS
        again = [t for t in self._memory.get("group_restarts", []) if t >= since]
        self._memory["group_restarts"] = again
        emptied = self._memory.get("emptied")
        if not (self.members and was_empty) or emptied is None or emptied < since:
            return 0
        again.append(self._at)
        return len(again)

    def _ended(self, member_id: str, member: Row) -> str | None:
        slot, joined = self.members.pop(member_id, (None, None))
        if joined is not None:
            lasted = max(0, self._at - joined)
            self.sessions.append((lasted, member.get("rebalance_timeout_ms")))
        return slot if slot in self._slots else None

    def _new(self, client: str) -> str:
        name = str(self._memory.get("last_slot", 0) + 1)
        self._memory["last_slot"] = int(name)
        self._slots[name] = {"client": client, "left": None, "restarts": []}
        return name

    def _vacant(self, client: str) -> str | None:
        own = [name for name in self._free if self._slots[name]["client"] == client]
        if own:
            return min(own, key=int)
        return max(self._free, key=lambda n: (self._slots[n]["left"], int(n)), default=None)

    def _restart(self, name: str, member: Row, client: str) -> None:
        slot = self._slots[name]
        if slot["left"] is not None:
            self._free.remove(name)
        slot["client"], slot["left"] = client, None
        insort(slot["restarts"], self._at)
        self.restarts.append(len(slot["restarts"]))
        self.members[member["member_id"]] = (name, self._settled)

    def _returns(self, member: Row, before: list[Return], since: int) -> None:
        """Note that a member came back that had left then, and had come back before."""
        hour, client = self._at - _WINDOW_MS, client_of(member)
        returns = [r for r in before if r[0] >= hour]
        # With all others it disturbs nobody: that is a start of the group.
        if since > self._memory.get("emptied", since - 1):
            insort(returns, [self._at, *self._record])
            if len(returns) > len(self.returns.get(client, ())):
                self.returns[client] = returns
        if returns:
            self._came_back[member["member_id"]] = returns

"""Follows the places of a group's members, to tell restarts that go on from those that happen once.

A member that comes back, and one that comes in the place of another that left, is a restart of that
place. Each place may restart once an hour: that is a rolling restart, a deployment, a lost node. A
place that restarts again and again is what makes a storm. Members that come into new places are a
group that grows; members that leave for good one that shrinks.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any, NamedTuple

from detectors.model import HOUR_MS

if TYPE_CHECKING:
    from detectors.model import Row

_WINDOW_MS = HOUR_MS


class Turn(NamedTuple):
    """What a generation did to the places of a group.

    Attributes:
        restarts: of each place that restarted, its how many-th restart within the hour this is.
        returns: clients that came back, with how often they did within the hour.
        stays: of each member that is gone, how long it had stayed and its rebalance timeout, in
            milliseconds.
        group_restart: the how many-th time within the hour the group began again after it had been
            empty; 0 if it did not.
    """

    restarts: list[int]
    returns: dict[str, int]
    stays: list[tuple[int, int | None]]
    group_restart: int


def client_of(member: Row) -> str:
    """Name the client behind a member: what stays when it restarts."""
    if member.get("group_instance_id") is not None:
        return f"instance {member['group_instance_id']}"
    return f"{member.get('client_id') or member['member_id']}@{member.get('client_host') or ''}"


def follow(memory: Row, generation: Row, at: int) -> Turn:
    """Follow the places through one generation.

    Args:
        memory: what is kept of the group; changed.
        generation: a row of group_generations.
        at: when its rebalance began.
    """
    places = _Places(memory, generation, at)
    joined = len(generation.get("members_joined") or ())
    if joined and joined == generation.get("member_count") and not generation.get("members_left"):
        # All are new, and nothing told that those before had gone: the group was recreated.
        places.forget()
    was_empty = not places.members
    for member in generation.get("members_left") or ():
        places.leave(member)
    for member in generation.get("members_replaced") or ():
        places.replace(member)
    for member in generation.get("members_joined") or ():
        places.join(member)
    group_restart = places.begin_again(was_empty=was_empty)
    returns = {client: len(places.came_back[client]) for client in places.returned}
    return Turn(places.restarts, returns, places.stays, group_restart)


class _Places:
    """The places of a group in the midst of one generation.

    What is kept: `places` by number, with the client that has or had it, since when it is free, and
    its restarts; `members` with their place and since when they are there; `gone`, when clients
    left; `came_back`, when clients returned, with the record that tells so.
    """

    def __init__(self, memory: Row, generation: Row, at: int) -> None:
        self._memory, self._at = memory, at
        self._settled = generation.get("stable_at") or generation.get("record_timestamp") or at
        self._record = [generation.get("record_offset"), generation.get("record_timestamp")]
        self.restarts: list[int] = []
        self.stays: list[tuple[int, int | None]] = []
        self.returned: list[str] = []
        since = at - _WINDOW_MS
        self._places: dict[str, Row] = memory.setdefault("places", {})
        self._free: list[str] = []
        for name, place in list(self._places.items()):
            # In order, so that no more is looked at than goes, which mostly is nothing.
            restarts, left = place["restarts"], place["left"]
            if restarts and restarts[0] < since:
                del restarts[: bisect_left(restarts, since)]
            if left is None:
                continue
            if left < since:
                del self._places[name]
            else:
                self._free.append(name)
        self.members: dict[str, tuple[str, int]] = memory.setdefault("members", {})
        self._gone = {c: t for c, t in memory.get("gone", {}).items() if t >= since}
        self.came_back: dict[str, list[list[Any]]] = memory.setdefault("came_back", {})
        for client, times in list(self.came_back.items()):
            if times[0][0] < since:
                del times[: bisect_left(times, [since])]
                if not times:
                    del self.came_back[client]
        memory["gone"] = self._gone

    def forget(self) -> None:
        """Let nobody have been there."""
        self.members.clear()
        self._clear()

    def _clear(self) -> None:
        self._places.clear()
        self._free.clear()

    def leave(self, member: Row) -> None:
        """Let a member be gone; its place is free."""
        place = self._ended(member["member_id"], member)
        if place is not None:
            if self._places[place]["left"] is None:
                self._free.append(place)
            self._places[place]["left"] = self._at
        self._gone[client_of(member)] = self._at

    def replace(self, member: Row) -> None:
        """Let a member be in the place of the one it replaces."""
        client = client_of(member)
        place = self._ended(member["replaced_member_id"], member) or self._new(client)
        self._restart(place, member, client)
        if member.get("group_instance_id") is None:
            self._returns(client)

    def join(self, member: Row) -> None:
        """Let a member take its former place, or the one that became free last, or a new one."""
        client = client_of(member)
        if client in self._gone:
            self._returns(client)
        place = self._vacant(client)
        if place is None:
            self.members[member["member_id"]] = (self._new(client), self._settled)
        else:
            self._restart(place, member, client)

    def begin_again(self, *, was_empty: bool) -> int:
        """Tell the how many-th time within the hour a group that was empty begins again."""
        if not self.members and not was_empty:
            # Who comes after that begins anew; what counts then is how often that happens.
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
        place, joined = self.members.pop(member_id, (None, None))
        if joined is not None:
            lasted = max(0, self._at - joined)
            self.stays.append((lasted, member.get("rebalance_timeout_ms")))
        return place if place in self._places else None

    def _new(self, client: str) -> str:
        name = str(self._memory.get("last_place", 0) + 1)
        self._memory["last_place"] = int(name)
        self._places[name] = {"client": client, "left": None, "restarts": []}
        return name

    def _vacant(self, client: str) -> str | None:
        own = [name for name in self._free if self._places[name]["client"] == client]
        if own:
            return min(own, key=int)
        return max(self._free, key=lambda n: (self._places[n]["left"], int(n)), default=None)

    def _restart(self, name: str, member: Row, client: str) -> None:
        place = self._places[name]
        if place["left"] is not None:
            self._free.remove(name)
        place["client"], place["left"] = client, None
        insort(place["restarts"], self._at)
        self.restarts.append(len(place["restarts"]))
        self.members[member["member_id"]] = (name, self._settled)

    def _returns(self, client: str) -> None:
        self.returned.append(client)
        insort(self.came_back.setdefault(client, []), [self._at, *self._record])

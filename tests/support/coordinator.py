"""A classic group's coordinator without a network: writes what Kafka's would, and remembers all.

It follows the state machine of ClassicGroup: each step is one that Kafka allows, and the records
are those that Kafka appends. What no record tells stays in `states`, to be held against.
"""

from __future__ import annotations

import itertools
from typing import Any

from tests.support.history import Commit, Log
from timeline.model import Record, partition_hash, partition_key

Row = dict[str, Any]
EMPTY, PREPARING, COMPLETING = "Empty", "PreparingRebalance", "CompletingRebalance"
STABLE, DEAD = "Stable", "Dead"
REBALANCE_TIMEOUT_MS = 60_000
_PARTITIONS = 6


class Coordinator:
    """One classic group.

    Attributes:
        states: when it entered which state.
        generations: generations that became stable: number, join start and end, Stable, members.
        aborted: by generation that became stable, how many were given up before it.
    """

    def __init__(self, *, writes_creation: bool) -> None:
        self.writes_creation = writes_creation
        self.clock = 1_700_000_000_000
        self.offsets = itertools.count()
        self.events: list[Record | Commit] = []
        self.missing: list[int] = []
        self.state: str | None = None
        self.generation = 0
        self.members: dict[str, Row] = {}
        self.joined: set[str] = set()
        self.states: list[tuple[int, str]] = []
        self.generations: list[tuple[int, int, int, int, set[str]]] = []
        self.aborted: dict[tuple[int, int], int] = {}
        self._given_up = 0
        self._started = 0
        self._completed = 0
        self._names = (f"member-{i}" for i in itertools.count())

    def pass_time(self, ms: int) -> None:
        """Let time go by."""
        self.clock += ms

    # -- what members do ---------------------------------------------------------------------------

    def join(self, instance: str | None = None) -> None:
        """Let a new member join, which starts a rebalance."""
        if self.state in (None, DEAD):
            self._create()
        name = next(self._names)
        self.members[name] = {
            "member_id": name,
            "group_instance_id": instance,
            "client_id": f"client-{len(self.members) % 3}",
            "client_host": "/10.0.0.1",
            "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
            "session_timeout_ms": 45_000,
        }
        self._prepare()
        self.joined.add(name)

    def leave(self, number: int) -> None:
        """Let a member leave or fail."""
        if not self.members:
            return
        name = sorted(self.members)[number % len(self.members)]
        del self.members[name]
        self.joined.discard(name)
        self._prepare()
        if not self.members:
            self._complete_join()

    def rejoin_leader(self) -> None:
        """Let a member re-join, which starts a rebalance without any change."""
        if self.state == STABLE:
            self._prepare()

    def restart_static(self, number: int) -> None:
        """Let a static member come back under another id, within its session."""
        statics = sorted(m for m, row in self.members.items() if row["group_instance_id"])
        if self.state != STABLE or not statics:
            return
        old = statics[number % len(statics)]
        row = self.members.pop(old)
        name = next(self._names)
        self.members[name] = {**row, "member_id": name}
        self._write(self._payload(self.states[-1][0]))

    def all_rejoin(self) -> None:
        """End the join phase."""
        if self.state == PREPARING:
            self._complete_join()

    def sync(self) -> None:
        """Let the leader assign."""
        if self.state != COMPLETING:
            return
        self._assign()
        self._write(self._payload(self._completed))
        self._enter(STABLE)
        self.generations.append(
            (self.generation, self._started, self._completed, self.clock, set(self.members))
        )
        self.aborted[self.generation, self.clock] = self._given_up
        self._given_up = 0

    def commit(self, partition: int) -> None:
        """Let a member commit an offset; refused while the leader assigns, or when gone."""
        if self.state in (STABLE, PREPARING):
            hashed = partition_hash(partition_key("t", partition % _PARTITIONS))
            self.events.append(Commit(next(self.offsets), self.clock, hashed, deletes=False))

    def delete(self) -> None:
        """Delete the group, which has to be empty."""
        if self.state == EMPTY:
            self._write(None)
            self._enter(DEAD)
            self.generation, self._given_up = 0, 0

    def other_group(self, count: int) -> None:
        """Let other groups write to the same partition."""
        for _ in range(count):
            next(self.offsets)

    def lose(self, count: int) -> None:
        """Let offsets be missing from what is read."""
        self.missing += [next(self.offsets) for _ in range(count)]

    # -- what the coordinator does -----------------------------------------------------------------

    def _create(self) -> None:
        self._enter(EMPTY)
        self.generation = 0
        if self.writes_creation:
            self._write({"protocol_type": "", "generation": 0, "members": []})

    def _prepare(self) -> None:
        if self.state == PREPARING:
            return
        if self.state == COMPLETING:
            self._given_up += 1
        else:
            self._started = self.clock
        self._enter(PREPARING)
        self.joined = set()

    def _complete_join(self) -> None:
        self.generation += 1
        self._completed = self.clock
        if self.members:
            self._enter(COMPLETING)
        else:
            self._write(self._payload(self.clock))
            self._enter(EMPTY)
            self._given_up = 0

    def _assign(self) -> None:
        names = sorted(self.members)
        for i, name in enumerate(names):
            own = list(range(i, _PARTITIONS, len(names)))
            self.members[name]["assignment"] = {
                "partitions": [{"topic": "t", "partitions": own}] if own else []
            }
            self.members[name]["subscription"] = {"topics": ["t"]}

    def _payload(self, since: int) -> Row:
        names = sorted(self.members)
        return {
            "protocol_type": "consumer",
            "generation": self.generation,
            "protocol": "range" if names else None,
            "leader": names[0] if names else None,
            "current_state_timestamp": since,
            "members": [dict(self.members[name]) for name in names],
        }

    def _write(self, payload: Row | None) -> None:
        record = Record(next(self.offsets), self.clock, "group_metadata", None, payload)
        self.events.append(record)

    def _enter(self, state: str) -> None:
        self.state = state
        self.states.append((self.clock, state))

    def log(self) -> Log:
        """Give what a reader of the partition sees of the group."""
        return Log("g", 0, list(self.events), tuple(self.missing))

"""Records of one group as a coordinator writes them, put together by hand."""

from __future__ import annotations

from typing import Any

from tests.support.history import Commit, Log
from tests.support.members import record_of
from timeline.holes import Unseen
from timeline.model import Record, partition_hash, partition_key

Row = dict[str, Any]
START = 1_700_000_000_000
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000


class Records:
    """The records of one group, in the order of its partition.

    Each method writes one at the time of `clock`, behind the one before; `together` are those that
    the coordinator writes in one batch anyway: at one time, side by side.
    """

    def __init__(self, group: str = "g", partition: int = 0) -> None:
        self.group, self.partition = group, partition
        self.clock = START
        self.events: list[Record | Commit] = []
        self.missing: list[int] = []
        self._next = 0

    def wait(self, ms: int, *, hole: bool = False) -> Records:
        """Let time go by, and other groups write; with a hole, those are not read."""
        self.clock += ms
        if hole:
            self.missing.append(self._next)
        self._next += 1
        return self

    def log(self, *unseen: Unseen) -> Log:
        """Return what a reader of the partition sees; `unseen` is that of `Log`."""
        return Log(
            self.group, self.partition, list(self.events), tuple(self.missing), unseen=unseen
        )

    def record(self, kind: str, payload: Row | None, member: str | None = None) -> Records:
        """Write any record."""
        self.events.append(record_of(self._next, self.clock, kind, member, payload))
        self._next += 1
        return self

    def commit(self, topic: str = "t", partition: int = 0, *, deletes: bool = False) -> Records:
        """Write an offset commit, or its tombstone."""
        hashed = partition_hash(partition_key(topic, partition))
        named = None if deletes else (f"id-of-{topic}", topic)
        self.events.append(Commit(self._next, self.clock, hashed, deletes, named))
        self._next += 1
        return self

    # -- the classic protocol ----------------------------------------------------------------------

    def classic(
        self,
        generation: int,
        members: dict[str, list[int]] | None = None,
        *,
        protocol: str | None = "range",
        took: int = 10,
        topics: tuple[str, ...] = ("t",),
        instance: str | None = None,
        session_timeout_ms: int = 45_000,
    ) -> Records:
        """Write a generation with the partitions of each member, or one without members.

        Args:
            generation: its number.
            members: partitions of the topic `t` by member id.
            protocol: the assignor.
            took: for how long the group was in the state before the record was written.
            topics: what all of them subscribe to.
            instance: the group instance id of its only member.
            session_timeout_ms: the session timeout of all of them.
        """
        fields = [classic_member(name, owned, topics) for name, owned in (members or {}).items()]
        for field in fields:
            field["session_timeout_ms"] = session_timeout_ms
        if instance is not None:
            fields[0]["group_instance_id"] = instance
        payload = {
            "protocol_type": "consumer",
            "generation": generation,
            "protocol": protocol if members else None,
            "leader": next(iter(members)) if members else None,
            "current_state_timestamp": self.clock - took,
            "members": fields,
        }
        return self.record("group_metadata", payload)

    def created(self) -> Records:
        """Write what the Java coordinator writes of a group that is made for its first member."""
        payload = {"protocol_type": "", "generation": 0, "members": []}
        return self.record("group_metadata", payload)

    def deleted(self) -> Records:
        """Write the tombstone of a classic group."""
        return self.record("group_metadata", None)

    # -- the consumer protocol (KIP-848) -----------------------------------------------------------

    def epoch(self, epoch: int | None) -> Records:
        """Write the group epoch, or its tombstone."""
        payload = None if epoch is None else {"epoch": epoch}
        return self.record("consumer_group_metadata", payload)

    def member(self, name: str, *, gone: bool = False, kind: str = "consumer") -> Records:
        """Write a member, or its tombstone."""
        payload = {"client_id": name, "client_host": "/h", "subscribed_topic_names": ["t"]}
        return self.record(f"{kind}_group_member_metadata", None if gone else payload, name)

    def target(self, epoch: int | None, **members: list[int]) -> Records:
        """Write a target assignment: the partitions of each member, then its epoch."""
        for name, owned in members.items():
            payload = {"topic_partitions": _of_topic(owned)}
            self.record("consumer_group_target_assignment_member", payload, name)
        payload = None if epoch is None else {"assignment_epoch": epoch}
        return self.record("consumer_group_target_assignment_metadata", payload)

    def current(
        self,
        name: str,
        epoch: int | None,
        owned: list[int] | None = None,
        *revoking: int,
        previous: int = 0,
    ) -> Records:
        """Write a member's current assignment; it is stable unless it has to give something up."""
        payload = {
            "member_epoch": epoch,
            "previous_member_epoch": previous,
            "state": 1 if revoking else 0,
            "assigned_partitions": _of_topic(owned or []),
            "partitions_pending_revocation": _of_topic(list(revoking)),
        }
        kind = "consumer_group_current_member_assignment"
        return self.record(kind, None if epoch is None else payload, name)

    def joins_empty(self, name: str, epoch: int = 1) -> Records:
        """Let a first member join: all that the coordinator writes then, in one batch."""
        self.member(name).epoch(epoch).target(epoch, **{name: [0, 1]})
        return self.current(name, epoch, [0, 1])

    def leaves_empty(self, name: str, epoch: int) -> Records:
        """Let the last member leave: the epoch of that has no target assignment."""
        self.current(name, None).record("consumer_group_target_assignment_member", None, name)
        return self.member(name, gone=True).epoch(epoch)


def classic_member(name: str, owned: list[int], topics: tuple[str, ...] = ("t",)) -> Row:
    """Return a member of a classic group as silver has it; `a-1` and `a-2` are of one client."""
    return {
        "member_id": name,
        "group_instance_id": None,
        "client_id": f"client-{name.partition('-')[0]}",
        "client_host": "/h",
        "rebalance_timeout_ms": 300_000,
        "session_timeout_ms": 45_000,
        "assignment": {"partitions": [{"topic": "t", "partitions": owned}] if owned else []},
        "subscription": {"topics": list(topics)},
    }


def _of_topic(partitions: list[int]) -> list[Row]:
    return [{"topic_id": "id-of-t", "partitions": partitions}] if partitions else []

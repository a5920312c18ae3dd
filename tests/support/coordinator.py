"""A group's coordinator without a network: writes what Kafka's would, and remembers all.

Each step is what a member, an operator or a broker does, and is left out where Kafka refuses it, so
that a life remains one whatever steps are taken out of it. It follows GroupMetadataManager with
ClassicGroup, ConsumerGroup, ShareGroup, StreamsGroup and OffsetMetadataManager of the Java
coordinator; `is_java` switches off what the Scala one had not.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from tests.support.history import Log
from tests.support.journal import Entered, Generation, Journal, Truth, Written

Row = dict[str, Any]
Parts = frozenset[tuple[str, int]]
EMPTY, PREPARING, COMPLETING = "Empty", "PreparingRebalance", "CompletingRebalance"
STABLE, DEAD = "Stable", "Dead"
ASSIGNING, RECONCILING, NOT_READY = "Assigning", "Reconciling", "NotReady"
CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
SETTLED, UNREVOKED, UNRELEASED = range(3)
"""States of a member, as the byte of its current assignment has them; streams groups add one."""
REBALANCE_TIMEOUT_MS = 60_000
DAY_MS = 86_400_000
NOTHING: Parts = frozenset()


@dataclass
class Member:
    """A member of a group of any type."""

    name: str
    instance: str | None
    client: str
    protocol: str  # the one it speaks, which in a consumer group may be the classic one
    topics: tuple[str, ...] = ("t",)
    assigned: Parts = NOTHING
    revoking: Parts = NOTHING  # what it was asked to give up, and has not yet
    target: Parts = NOTHING
    epoch: int = 0  # of its current assignment; -2 if it is static and will be back
    previous: int = 0
    state: int = SETTLED


class Coordinator:
    """One group.

    Attributes:
        is_skewed: whether the clocks of its brokers ever differed.
        is_cut_off: whether records of members of a new protocol are gone that none superseded.

    Args:
        is_java: whether the Java coordinator is at work.
        protocol: the assignor of classic groups.
        assigns_later: whether new protocols' target assignments are in a batch of their own.
        first_epoch: of a new group.
    """

    def __init__(
        self,
        *,
        is_java: bool = True,
        protocol: str = "range",
        assigns_later: bool = False,
        first_epoch: int = 1,
    ) -> None:
        self.is_java, self.protocol = is_java, protocol
        self.assigns_later, self.first_epoch = assigns_later, first_epoch
        self.journal, self.truth = Journal(), Truth()
        self.is_skewed = self.is_cut_off = False
        self.group_type: str | None = None
        self.state: str | None = None
        self.generation = 0  # or the group epoch
        self.members: dict[str, Member] = {}
        self.leader: str | None = None
        self.assignment_epoch = 0
        self.validated = -1
        self.offsets: set[int] = set()
        self.partitions = {"t": 4, "u": 2}
        self._clock = 1_700_000_000_000
        self._skew = self._ahead = 0
        self._was_ahead = False
        self._moved_at: int | None = None
        self._since = self._started = self._aborted = 0
        self._joined: set[str] = set()
        self._stored: tuple[int, dict[str, Member], str | None, int] | None = None
        self._goes_on = False  # the log shows that a classic group is rebalancing
        self._names = (f"member-{i}" for i in itertools.count())

    @property
    def clock(self) -> int:
        """The time that the broker has."""
        return self._clock + self._skew

    def pass_time(self, ms: int) -> None:
        """Let time go by; a join phase ends in time (DelayedJoin)."""
        until = self._clock + ms
        due = self._since - self._skew + REBALANCE_TIMEOUT_MS
        if self.state == PREPARING and due <= until:
            self._clock = max(self._clock, due)
            self.all_rejoin()
        self._clock = until

    # -- what members do ---------------------------------------------------------------------------

    def join(self, instance: str | None = None, protocol: str = CLASSIC) -> None:
        """Let a new member join."""
        known = next((m for m in self.members.values() if instance and m.instance == instance), 0)
        if known:
            self._return(known, protocol)
        elif not self.is_java and protocol != CLASSIC:
            return
        elif protocol == CLASSIC and (self.group_type == CLASSIC or not self.members):
            self._join_classic(instance)
        elif self._accepts(protocol):
            self._join_modern(instance, protocol)

    def leave(self, number: int) -> None:
        """Let a member leave or fail."""
        member = self._pick(number)
        if member is None:
            return
        if self.group_type != CLASSIC:
            self._fence(member)
            return
        del self.members[member.name]
        self._joined.discard(member.name)
        self._elect()
        self._prepare()
        if not self.members:
            self._complete_join()

    def resubscribe(self, number: int) -> None:
        """Let a member subscribe to one topic more or less."""
        member = self._pick(number)
        if member is None or self.group_type == STREAMS:
            return
        member.topics = ("t",) if "u" in member.topics else ("t", "u")
        if self.group_type == CLASSIC:
            self._prepare()
            return
        batch = [self._member_record(member)]
        self._bump(batch)
        self._heartbeat(member, batch)

    def rejoin_leader(self) -> None:
        """Let the leader re-join, which starts a rebalance without any change."""
        if self.group_type == CLASSIC and self.state == STABLE:
            self._prepare()

    def restart_static(self, number: int, protocol: str = CLASSIC) -> None:
        """Let a static member come back under another id, within its session."""
        statics = sorted(n for n, m in self.members.items() if m.instance)
        if statics:
            self._return(self.members[statics[number % len(statics)]], protocol)

    def all_rejoin(self, absent: int = -1) -> None:
        """End the join phase; dynamic members that are absent are removed."""
        if self.state != PREPARING:
            return
        member = self._pick(absent) if absent >= 0 else None
        if member and member.instance is None and len(self.members) > 1:
            del self.members[member.name]
            self._elect()
        self._complete_join()

    def sync(self) -> None:
        """Let the leader of a classic group assign (classicGroupSyncToClassicGroup)."""
        if self.state != COMPLETING:
            return
        self._assign_classic()
        completed = self._since
        self._write([self._classic_record(completed)])
        self._enter(STABLE)
        self._note_generation(self._started, completed, self.clock)

    def heartbeat(self, number: int) -> None:
        """Let a member of a new protocol report that it has done what it was asked to."""
        member = self._pick(number)
        if member is not None and self.group_type != CLASSIC and member.epoch >= 0:
            self._heartbeat(member, [], acknowledges=True)

    def commit(self, partition: int) -> None:
        """Commit an offset: a member, or an operator while there are none."""
        is_first_join = self.state == PREPARING and not (self._stored and self._stored[1])
        if self.state == COMPLETING or is_first_join or self.group_type == SHARE:
            return
        at, number = self._stamp(), partition % self.partitions["t"]
        self.offsets.add(number)
        self.journal.commit(at, number)
        if self.state in (None, DEAD):
            self._begin(CLASSIC, 0)
            self._enter(EMPTY)
            self._snapshot(at)

    # -- what operators and brokers do -------------------------------------------------------------

    def delete(self) -> None:
        """Delete the group, which has to be empty, or let its offsets expire: that is the same."""
        if self.state != EMPTY:
            return
        at = self._stamp()
        for partition in sorted(self.offsets):
            self.journal.commit(at, partition, deletes=True)
        was_simple = self.generation == 0 and self._stored is None
        self.offsets.clear()
        # GroupMetadataManager.cleanupGroupMetadata of the Scala coordinator
        if self.is_java or not was_simple:
            for record in self._tombstones():
                self.journal.record(at, *record)
        self._end()
        self._snapshot(at)

    def expire_some(self, partition: int) -> None:
        """Let one offset of many expire."""
        if len(self.offsets) > 1 and partition in self.offsets:
            self.offsets.remove(partition)
            self.journal.commit(self._stamp(), partition, deletes=True)

    def more_partitions(self) -> None:
        """Let the topic that the members read grow."""
        self.partitions["t"] += 1
        if self.group_type == CLASSIC:
            self.rejoin_leader()
        elif self.members:
            batch: list[Row] = []
            self._bump(batch)
            self._heartbeat(next(iter(self.members.values())), batch)

    def fail_over(self, skew: int = 0) -> None:
        """Let another broker load the group from the log, its clock so much ahead."""
        before = self._skew
        self._skew = skew
        self.is_skewed |= skew != before
        if self.group_type != CLASSIC:
            return
        self._unsee()
        stored = copy.deepcopy(self._stored) or (0, {}, None, self.clock)
        self.generation, self.members, self.leader, since = stored
        state = STABLE if self.members else EMPTY
        if self._goes_on:
            state = PREPARING  # its members were asked to re-join, and do so at once
        if self._stored is None and not self.offsets:
            # Nobody has ever heard of it.
            state = DEAD
        if self.state != state:
            self._enter(state)
        if state == DEAD:
            self.group_type = None
        self._since = since

    def day_ahead(self) -> None:
        """Let the clock be a day ahead when the next records are written; once in a life."""
        if not self._was_ahead and self.state not in (None, DEAD):
            self._ahead, self._was_ahead, self.is_skewed = DAY_MS, True, True

    def move(self) -> None:
        """Let `__consumer_offsets` grow: the coordinator of another partition knows no group."""
        if self.state in (None, DEAD) or self._ahead:
            return
        self.journal.move()
        self._unsee()
        self._end()
        self.offsets.clear()
        self._moved_at = self.clock

    def other_group(self, count: int) -> None:
        """Let other groups write to the same partition."""
        self.journal.skip(count)

    def lose(self, count: int) -> None:
        """Let records of other groups be missing from what is read."""
        self.journal.lose(self.clock, count)

    def read(self) -> None:
        """Let a run of the reader come by."""
        self.journal.read()

    def compact(self, keeping: int, tombstones: int) -> None:
        """Let the cleaner pass."""
        self.journal.compact(keeping, tombstones=bool(tombstones))

    def truncate(self) -> None:
        """Let what is not read yet be deleted."""
        self.is_cut_off |= self.group_type not in (None, CLASSIC)
        self.journal.truncate()

    def log(self) -> Log:
        """Return what a reader of the partition sees of the group."""
        return self.journal.log()

    # -- classic groups ----------------------------------------------------------------------------

    def _join_classic(self, instance: str | None) -> None:
        """GroupMetadataManager.classicGroupJoinToClassicGroup."""
        batch = []
        if self.group_type != CLASSIC:
            if self.state not in (None, DEAD):  # maybeDeleteEmptyConsumerGroup
                batch = self._tombstones()
                self._end()
            self._begin(CLASSIC, 0)
            self._enter(EMPTY)
            if self.is_java:
                payload = {"protocol_type": "", "generation": 0, "members": []}
                payload["current_state_timestamp"] = self.clock
                batch.append(("group_metadata", None, payload))
        if batch:
            self._write(batch)
            self._stored = (0, {}, None, self.clock)
            self._note_generation(self.clock, self.clock, None)
        member = self._new(instance, CLASSIC)
        self._prepare()
        self._joined.add(member.name)
        self._elect()

    def _elect(self) -> None:
        if self.leader not in self.members:
            self.leader = min(self.members, default=None, key=lambda n: int(n[7:]))

    def _prepare(self) -> None:
        """GroupMetadataManager.prepareRebalance."""
        if self.state == PREPARING:
            return
        if self.state == COMPLETING:
            self._aborted += 1
            for member in self.members.values():  # resetAndPropagateAssignmentWithError
                member.assigned = NOTHING
        else:
            self._started = self.clock
        self._enter(PREPARING)
        self._joined = set()

    def _complete_join(self) -> None:
        """GroupMetadataManager.completeClassicGroupJoin, ClassicGroup.initNextGeneration."""
        self.generation += 1
        if self.members:
            self._enter(COMPLETING)
            return
        self._enter(EMPTY)
        self._write([self._classic_record(self.clock)])
        self._note_generation(self._started, self.clock, None)

    def _assign_classic(self) -> None:
        wanted = self._wanted()
        stored = self._stored[1] if self._stored else {}
        owner = {part: n for n, m in stored.items() if n in self.members for part in m.assigned}
        for name, member in self.members.items():
            held = {p for p in wanted[name] if owner.get(p, name) != name}
            # A cooperative assignor gives a partition only once its owner has given it up.
            own = wanted[name] - held if self.protocol == "cooperative-sticky" else wanted[name]
            member.assigned = frozenset(own)

    def _wanted(self) -> dict[str, Parts]:
        """Deal the partitions of each topic to its subscribers."""
        dealt: dict[str, set[tuple[str, int]]] = {name: set() for name in self.members}
        for topic, count in self.partitions.items():
            names = sorted(n for n, m in self.members.items() if topic in m.topics)
            for number in range(count if names else 0):
                dealt[names[number % len(names)]].add((topic, number))
        return {name: frozenset(parts) for name, parts in dealt.items()}

    def _classic_record(self, since: int) -> Row:
        """GroupCoordinatorRecordHelpers.newGroupMetadataRecord."""
        payload = {
            "protocol_type": CONSUMER,
            "generation": self.generation,
            "protocol": self.protocol if self.members else None,
            "leader": self.leader,
            "current_state_timestamp": since,
            "members": [
                {
                    "member_id": m.name,
                    "group_instance_id": m.instance,
                    "client_id": m.client,
                    "client_host": "/10.0.0.1",
                    "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
                    "session_timeout_ms": 45_000,
                    "assignment": {"partitions": _by("topic", m.assigned)},
                    "subscription": {"topics": list(m.topics)},
                }
                for m in self.members.values()
            ],
        }
        self._stored = copy.deepcopy((self.generation, self.members, self.leader, since))
        return ("group_metadata", None, payload)

    def _return(self, old: Member, protocol: str) -> None:
        """Let a static member replace itself."""
        if self.group_type != CLASSIC:
            self._return_modern(old, protocol)
        elif protocol == CLASSIC:  # updateStaticMemberThenRebalanceOrCompleteJoin
            member = self._rename(old)
            self.leader = member.name if self.leader == old.name else self.leader
            if self.state == STABLE:
                self._write([self._classic_record(self._since)])
            else:
                self._prepare()
        elif self._accepts(protocol):
            # convertToConsumerGroup, and getOrMaybeSubscribeStaticConsumerMember
            batch = self._go_over()
            self._replaced(old, protocol, batch)

    # -- new protocols -----------------------------------------------------------------------------

    def _accepts(self, protocol: str) -> bool:
        if not self.is_java:
            return False
        if self.state in (None, DEAD) or self.group_type == protocol:
            return True
        if self.group_type == CLASSIC:
            # maybeDeleteEmptyClassicGroup, validateOnlineUpgrade
            return protocol == CONSUMER or (protocol == STREAMS and self.state == EMPTY)
        return self.group_type == CONSUMER and protocol == CLASSIC

    def _join_modern(self, instance: str | None, protocol: str) -> None:
        """GroupMetadataManager.consumerGroupHeartbeat and its siblings, with member epoch 0."""
        batch: list[Row] = []
        if self.group_type == CLASSIC and self.state not in (EMPTY, DEAD):
            batch = self._go_over()
        elif self.group_type == CLASSIC and self.state == EMPTY:
            batch = self._tombstones()
            self._end()
        if self.group_type is None:
            self._begin(protocol, self.first_epoch - 1)
            self.assignment_epoch = 0
        member = self._new(instance if protocol in (CONSUMER, CLASSIC) else None, protocol)
        batch.append(self._member_record(member))
        if protocol == STREAMS and self.validated < 0:
            topology = {
                "epoch": 1,
                "subtopologies": [{"subtopology_id": "0", "source_topics": ["t"]}],
            }
            batch.append(("streams_group_topology", None, topology))
            self.validated = 0
        self._bump(batch)
        self._heartbeat(member, batch)

    def _go_over(self) -> list[Row]:
        """GroupMetadataManager.convertToConsumerGroup, ConsumerGroup.createConsumerGroupRecords."""
        self._unsee()
        batch = [("group_metadata", None, None)]
        self.group_type, self.assignment_epoch, self._stored = CONSUMER, self.generation, None
        self._goes_on = False
        for member in self.members.values():
            member.target, member.revoking = member.assigned, NOTHING
            member.epoch = member.previous = self.generation
            member.state = SETTLED
        batch += [self._member_record(m) for m in self.members.values()]
        batch.append(self._epoch_record())
        batch += [self._target_record(m) for m in self.members.values()]
        batch.append(self._target_epoch_record())
        return batch + [self._current_record(m) for m in self.members.values()]

    def _come_back(self, batch: list[Row], gone: Member, *, rebalances: bool) -> None:
        """GroupMetadataManager.convertToClassicGroup, ClassicGroup.fromConsumerGroup."""
        batch += self._tombstones([*self.members.values(), *([gone] if rebalances else [])])
        self.group_type = CLASSIC
        for member in self.members.values():
            member.assigned, member.revoking = member.target, NOTHING
        self.leader = None
        self._elect()
        batch.append(self._classic_record(self.clock))
        self._write(batch)
        self._enter(STABLE)
        self._note_generation(self.clock, self.clock, None if rebalances else self.clock)
        if rebalances:
            self._prepare()
            self._goes_on = True

    def _fence(self, member: Member) -> None:
        """GroupMetadataManager.consumerGroupFenceMember and its siblings."""
        del self.members[member.name]
        others = {m.protocol for m in self.members.values()}
        if self.group_type == CONSUMER and others == {CLASSIC}:
            self._come_back([], member, rebalances=True)
            return
        batch = self._removed(member)
        self._bump(batch)
        if not self.members and not self.assigns_later:
            self.assignment_epoch = self.generation
            batch.append(self._target_epoch_record())
        self._write_modern(batch)

    def _return_modern(self, old: Member, protocol: str) -> None:
        """GroupMetadataManager.getOrMaybeSubscribeStaticConsumerMember."""
        if protocol not in (CLASSIC, CONSUMER):
            return
        if {protocol, old.protocol} == {CONSUMER} and old.epoch >= 0:
            # consumerGroupStaticMemberGroupLeave: only then may another replace it
            old.epoch, old.revoking = -2, NOTHING
            self._write_modern([self._current_record(old)])
            return
        self._replaced(old, protocol, [])

    def _replaced(self, old: Member, protocol: str, batch: list[Row]) -> None:
        """GroupMetadataManager.replaceMember."""
        batch += self._removed(old)
        member = self._rename(old)
        member.protocol, member.epoch, member.previous = protocol, 0, 0
        batch += [self._member_record(member), self._target_record(member)]
        batch += [self._current_record(member)]
        others = {m.protocol for m in self.members.values()}
        if others == {CLASSIC}:
            self._reconcile(member, batch)
            self._come_back(batch, old, rebalances=False)
        else:
            self._heartbeat(member, batch)

    def _heartbeat(self, member: Member, batch: list[Row], *, acknowledges: bool = False) -> None:
        """Let a member's heartbeat bring a target assignment, and reconcile the member."""
        if self.validated == 0 and acknowledges:
            self.validated = 1
            self._bump(batch)
        is_due = acknowledges or not self.assigns_later
        if self.generation > self.assignment_epoch and is_due and self.validated:
            self._assign(batch)
        self._reconcile(member, batch, acknowledges=acknowledges)
        if batch:
            self._write_modern(batch)

    def _assign(self, batch: list[Row]) -> None:
        """TargetAssignmentBuilder.build."""
        wanted = self._wanted()
        for name, member in self.members.items():
            target = wanted[name]
            if self.group_type == SHARE:  # SimpleAssignor: all have all
                target = frozenset((t, p) for t in member.topics for p in range(self.partitions[t]))
            if self.group_type == STREAMS:
                target = frozenset(p for p in target if p[0] == "t")
            if target != member.target or member.epoch == 0:
                member.target = target
                batch.append(self._target_record(member))
        self.assignment_epoch = self.generation
        batch.append(self._target_epoch_record())

    def _reconcile(self, member: Member, batch: list[Row], *, acknowledges: bool = False) -> None:
        """CurrentAssignmentBuilder.build and computeNextAssignment."""
        before = replace(member)
        if member.state == UNREVOKED and not acknowledges:
            return
        if member.state == SETTLED and member.epoch == self.assignment_epoch:
            return
        kept = member.assigned & member.target
        revoking = NOTHING if member.state == UNREVOKED else member.assigned - kept
        others = [m for m in self.members.values() if m is not member]
        taken = {p for m in others for p in m.assigned | m.revoking}
        if self.group_type == SHARE:
            taken, revoking = set(), NOTHING
        free = member.target - kept - taken
        member.assigned, member.revoking = kept, revoking
        if revoking:
            member.state = UNREVOKED
        else:
            member.previous, member.epoch = member.epoch, self.assignment_epoch
            member.assigned = kept | free
            member.state = SETTLED if member.assigned == member.target else UNRELEASED
        if member != before:
            batch.append(self._current_record(member))

    def _bump(self, batch: list[Row]) -> None:
        self.generation += 1
        batch.append(self._epoch_record())

    def _write_modern(self, batch: list[Row]) -> None:
        """Write a batch, and follow what it makes of the group (maybeUpdateGroupState)."""
        before = self.truth.generations[-1] if self.truth.generations else None
        self._write(batch)
        state, epoch, at = self._state(), self.generation, self.clock
        known = self.truth.states[-1] if self.truth.states else None
        if known is None or known[1:] != (self.group_type, state, epoch):
            self._enter(state)
        members = frozenset(self.members)
        is_assigned = self.assignment_epoch == epoch and bool(members)
        planned = None if before is None else (before.group_type, before.number)
        if before is None or planned != (self.group_type, epoch) or known.state == DEAD:
            before = Generation(self.group_type or "", epoch, at, None, None, members)
            self.truth.generations.append(before)
        before.members = members
        if is_assigned and before.completed is None:
            before.completed = at
        if state == STABLE and before.stable is None and is_assigned:
            before.stable = at

    def _state(self) -> str:
        if not self.members:
            return EMPTY
        if self.group_type == SHARE:
            return STABLE
        if self.group_type == STREAMS and self.validated < 1:
            return NOT_READY
        if self.generation > self.assignment_epoch:
            return ASSIGNING
        done = all(
            m.state == SETTLED and m.epoch == self.assignment_epoch for m in self.members.values()
        )
        return STABLE if done else RECONCILING

    def _kind(self, kind: str) -> str:
        return f"{self.group_type}_group_{kind}"

    def _epoch_record(self) -> Row:
        payload = {"epoch": self.generation, "validated_topology_epoch": self.validated}
        return (self._kind("metadata"), None, payload)

    def _member_record(self, member: Member) -> Row:
        payload = {
            "instance_id": member.instance,
            "client_id": member.client,
            "client_host": "/10.0.0.1",
            "subscribed_topic_names": list(member.topics),
            "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
        }
        return (self._kind("member_metadata"), member.name, payload)

    def _target_epoch_record(self) -> Row:
        payload = {"assignment_epoch": self.assignment_epoch}
        return (self._kind("target_assignment_metadata"), None, payload)

    def _target_record(self, member: Member) -> Row:
        name = "active_tasks" if self.group_type == STREAMS else "topic_partitions"
        return (
            self._kind("target_assignment_member"),
            member.name,
            {name: self._parts(member.target)},
        )

    def _current_record(self, member: Member) -> Row:
        is_streams = self.group_type == STREAMS
        owned = "active_tasks" if is_streams else "assigned_partitions"
        revoking = (
            "active_tasks_pending_revocation" if is_streams else "partitions_pending_revocation"
        )
        payload = {
            "member_epoch": member.epoch,
            "previous_member_epoch": member.previous,
            "state": member.state + is_streams,
            owned: self._parts(member.assigned),
            revoking: self._parts(member.revoking),
        }
        return (self._kind("current_member_assignment"), member.name, payload)

    def _parts(self, parts: Parts) -> list[Row]:
        if self.group_type == STREAMS:
            numbers = sorted(p for _, p in parts)
            return [{"subtopology_id": "0", "partitions": numbers}] if numbers else []
        return _by("topic_id", ((f"id-of-{t}", p) for t, p in parts))

    def _removed(self, member: Member) -> list[Row]:
        """GroupMetadataManager.removeMember."""
        kinds = ("current_member_assignment", "target_assignment_member", "member_metadata")
        return [(self._kind(kind), member.name, None) for kind in kinds]

    def _tombstones(self, members: Iterable[Member] = ()) -> list[Row]:
        """The createGroupTombstoneRecords of each type of group."""
        if self.group_type == CLASSIC:
            return [("group_metadata", None, None)]
        each, members = [], list(members)
        for kind in ("current_member_assignment", "target_assignment_member"):
            each += [(self._kind(kind), m.name, None) for m in members]
        each.append((self._kind("target_assignment_metadata"), None, None))
        each += [(self._kind("member_metadata"), m.name, None) for m in members]
        if self.group_type == STREAMS:
            each.append((self._kind("topology"), None, None))
        return [*each, (self._kind("metadata"), None, None)]

    # -- what all have in common -------------------------------------------------------------------

    def _begin(self, group_type: str, generation: int) -> None:
        self.group_type, self.generation = group_type, generation
        self.members, self.leader, self._stored = {}, None, None
        self._aborted, self.validated, self._goes_on = 0, -1, False

    def _end(self) -> None:
        self._enter(DEAD)
        self._begin("", 0)
        self.group_type = None

    def _pick(self, number: int) -> Member | None:
        names = sorted(self.members)
        return self.members[names[number % len(names)]] if names else None

    def _new(self, instance: str | None, protocol: str) -> Member:
        name = next(self._names)
        client = f"client-{len(self.members) % 3}"
        self.members[name] = Member(name, instance, client, protocol)
        return self.members[name]

    def _rename(self, old: Member) -> Member:
        del self.members[old.name]
        name = next(self._names)
        self.members[name] = replace(old, name=name)
        return self.members[name]

    def _enter(self, state: str) -> None:
        self.state, self._since = state, self.clock
        number = None if state == DEAD else self.generation
        self.truth.states.append(Entered(self.clock, self.group_type, state, number))

    def _unsee(self) -> None:
        """Let states that the log does not tell of pass away unseen."""
        known = self.truth.written[-1].at if self.truth.written else 0
        self.truth.unseen.append((known, self.clock))
        self._aborted = 0

    def _note_generation(self, started: int, completed: int, stable: int | None) -> None:
        """Note a generation of a classic group."""
        members = frozenset(self.members)
        planned = Generation(
            CLASSIC, self.generation, started, completed, stable, members, self._aborted
        )
        self.truth.generations.append(planned)
        self._aborted, self._goes_on = 0, False

    def _stamp(self) -> int:
        ahead, self._ahead = self._ahead, 0
        return self.clock + ahead

    def _write(self, batch: list[Row]) -> None:
        at = self._stamp()
        for record in batch:
            self.journal.record(at, *record)
        self._snapshot(at)

    def _snapshot(self, at: int) -> None:
        if self._moved_at is not None:
            self.truth.moved.append((self._moved_at, at))
            self._moved_at = None
        owners = frozenset(
            (*p, m.name) for m in self.members.values() for p in m.assigned | m.revoking
        )
        self.truth.written.append(Written(at, frozenset(self.members), owners))


def _by(name: str, parts: Iterable[tuple[str, int]]) -> list[Row]:
    """Return partitions by topic, as records have them."""
    ordered = itertools.groupby(sorted(parts), key=lambda part: part[0])
    return [{name: topic, "partitions": [p for _, p in of_topic]} for topic, of_topic in ordered]

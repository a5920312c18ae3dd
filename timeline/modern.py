"""Groups of the new protocols: consumer (KIP-848), share (KIP-932) and streams (KIP-1071) groups.

The coordinator keeps all of their state in the log, and writes what belongs together in one batch.
After each batch the state follows from what is there (ConsumerGroup.maybeUpdateGroupState and its
siblings): no members, Empty; the group epoch ahead of the target assignment's, Assigning; a member
not stable at that epoch, Reconciling; else Stable. A streams group whose topology is not validated
is NotReady, a share group is Empty or Stable.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from timeline import cause, generations
from timeline.classic import deleted
from timeline.members import CONVERTED, LEFT, compare, follow_owners, follow_sessions
from timeline.model import Commits, Epochs, Member, partition_key, partition_of
from timeline.timeline import (
    ASSIGNING,
    EMPTY,
    NOT_READY,
    PREPARING,
    RECONCILING,
    STABLE,
    Moment,
    elapsed,
    enter,
    exactly,
    not_before,
)

if TYPE_CHECKING:
    from timeline.members import Changes
    from timeline.model import GroupState, Output, Record, Row

COLUMNS = frozenset(
    {
        *("epoch", "validated_topology_epoch", "assignment_epoch", "member_epoch", "state"),
        *("instance_id", "client_id", "client_host", "rebalance_timeout_ms"),
        *("subscribed_topic_names", "subscribed_topic_regex"),
        *("topic_partitions", "assigned_partitions", "active_tasks", "subtopologies"),
        *("topics", "initializing_topics", "initialized_topics", "deleting_topics"),
    }
)
"""Columns of silver's tables that are read of the records' payloads."""
_FAMILIES = ("consumer", "share", "streams")
# STABLE as the state byte of a member's current assignment has it.
_MEMBER_STABLE = {"consumer": 0, "share": 0, "streams": 1}
_CREATED = "the first members of a new group"


def family(kind: str) -> str | None:
    """Give the group type that a kind of record belongs to; None for classic groups' records."""
    name = kind.partition("_group_")[0]
    return name if name in _FAMILIES else None


def is_metadata(record: Record) -> bool:
    """Tell whether a record holds the group epoch, and its tombstone ends the group."""
    kind = family(record.kind)
    return kind is not None and record.kind == f"{kind}_group_metadata"


def read(state: GroupState, output: Output, batch: list[Record], *, is_complete: bool) -> None:
    """Take a batch of records that the coordinator wrote together.

    Args:
        state: the group before, changed to what it is after.
        output: takes the rows that are complete now.
        batch: the records, of one type of group.
        is_complete: whether no offset is missing between the group's last record and these.
    """
    last = batch[-1]
    kind = family(last.kind)
    was_type, before, subscribed = state.group_type, state.members, _subscriptions(state)
    if was_type != kind:
        state.group_type = kind
        state.epochs = Epochs()
    state.members = {} if was_type == "classic" else dict(before)
    epoch = state.epochs.group
    for record in batch:
        _apply(state, record)
    state.record_offset = last.offset
    state.commits = Commits()
    state.live = []
    if any(is_metadata(r) and r.payload is None for r in batch) and state.epochs.group is None:
        state.members = before
        deleted(state, output, last)
        state.epochs = Epochs()
        return
    at = not_before(state.clock, last.timestamp)
    if was_type == "classic":
        _went_over(state, output, last, before, at)
    when = exactly(at) if is_complete else Moment(at, state.clock, at)
    is_first = state.generation is None
    changes = compare({} if is_first else before, state.members)
    if state.epochs.group != epoch:
        why = _cause(state, changes, was_type, subscribed)
        _bump(state, output, last, when, changes=changes, why=why, is_complete=is_complete)
    elif state.generation is not None and any(changes):
        _amend(state.generation, changes, len(state.members))
    if any(r.kind.endswith("target_assignment_metadata") for r in batch):
        _assigned(state, at)
    name = _state(state)
    if name == STABLE:
        _settled(state, at)
    number = state.epochs.group
    enter(state, output, name, when, last, generation=number, member_count=len(state.members))
    follow_sessions(
        state,
        output,
        state.members,
        last,
        at=at,
        earliest=when.earliest,
        generation=number,
        end_cause=CONVERTED if was_type == "classic" else LEFT,
        replaced=compare(before, state.members).replaced if is_first else changes.replaced,
    )
    follow_owners(state, output, state.members, last, at=at, generation=number)


def _went_over(
    state: GroupState, output: Output, record: Record, before: dict[str, Member], at: int | None
) -> None:
    """Note a join phase of the classic group that the conversion cut short."""
    interval = state.interval
    if interval is None or interval["state"] != STABLE:
        return
    state.classic_since = interval["started_at"]
    if before.keys() - state.members.keys():
        # A member that left has started it: the others were to re-join, and one came back new.
        state.group_type, kind = "classic", state.group_type
        when = Moment(at, interval["started_at"], at)
        number, count = interval["generation"], interval["member_count"]
        enter(state, output, PREPARING, when, record, generation=number, member_count=count)
        state.group_type = kind


def convert_back(state: GroupState) -> None:
    """Forget what only the new protocol knows; the members stay, to be compared."""
    state.epochs = Epochs()


# -- what the records hold -------------------------------------------------------------------------


def _apply(state: GroupState, record: Record) -> None:
    kind = record.kind.removeprefix(f"{state.group_type}_group_")
    action = _ACTIONS.get(kind)
    if action is not None:
        action(state, record.member_id or "", record.payload)


def _metadata(state: GroupState, _: str, payload: Row | None) -> None:
    state.epochs.group = None if payload is None else payload["epoch"]
    state.epochs.validated = None if payload is None else payload.get("validated_topology_epoch")


def _member_metadata(state: GroupState, member_id: str, payload: Row | None) -> None:
    known = state.members.pop(member_id, None)
    if payload is None:
        return
    topics = list(payload.get("subscribed_topic_names") or [])
    member = Member(
        member_id=member_id,
        group_instance_id=payload.get("instance_id"),
        client_id=payload.get("client_id"),
        client_host=payload.get("client_host"),
        rebalance_timeout_ms=payload.get("rebalance_timeout_ms"),
        # What a regular expression stands for is not the member's to tell.
        topics=None if payload.get("subscribed_topic_regex") else topics,
        assigned={} if known is None else known.assigned,
    )
    state.members[member_id] = member


def _target_metadata(state: GroupState, _: str, payload: Row | None) -> None:
    state.epochs.assignment = None if payload is None else payload["assignment_epoch"]


def _target_member(state: GroupState, member_id: str, payload: Row | None) -> None:
    if payload is None:
        state.epochs.target.pop(member_id, None)
    else:
        state.epochs.target[member_id] = _partitions(state, payload, "topic_partitions")


def _current_assignment(state: GroupState, member_id: str, payload: Row | None) -> None:
    if payload is None:
        state.epochs.member.pop(member_id, None)
        state.epochs.is_stable.pop(member_id, None)
        return
    state.epochs.member[member_id] = payload["member_epoch"]
    stable = _MEMBER_STABLE[state.group_type or ""]
    state.epochs.is_stable[member_id] = payload.get("state") == stable
    if member_id in state.members:
        assigned = _partitions(state, payload, "assigned_partitions")
        state.members[member_id] = replace(state.members[member_id], assigned=assigned)


def _topic_names(state: GroupState, _: str, payload: Row | None) -> None:
    for part in ("topics", "initializing_topics", "initialized_topics", "deleting_topics"):
        for topic in (payload or {}).get(part) or ():
            state.topic_names[topic["topic_id"]] = topic["topic_name"]


def _topology(state: GroupState, _: str, payload: Row | None) -> None:
    state.epochs.topology = None if payload is None else payload["epoch"]
    state.epochs.sources = {
        part["subtopology_id"]: [
            *(part.get("source_topics") or ()),
            *(t["name"] for t in part.get("repartition_source_topics") or ()),
        ]
        for part in (payload or {}).get("subtopologies") or ()
    }


_ACTIONS = {
    "metadata": _metadata,
    "member_metadata": _member_metadata,
    "target_assignment_metadata": _target_metadata,
    "target_assignment_member": _target_member,
    "current_member_assignment": _current_assignment,
    "partition_metadata": _topic_names,
    "state_partition_metadata": _topic_names,
    "topology": _topology,
}


def _partitions(state: GroupState, payload: Row, column: str) -> dict[str, list[int]]:
    """Give the partitions of an assignment: by topic id, or by topic for the tasks of Streams."""
    found: dict[str, list[int]] = {}
    if state.group_type == "streams":
        for task in payload.get("active_tasks") or ():
            for topic in state.epochs.sources.get(task["subtopology_id"], ()):
                found.setdefault(topic, []).extend(task["partitions"])
        return found
    for part in payload.get(column) or ():
        found.setdefault(part["topic_id"], []).extend(part["partitions"])
    return found


# -- what follows from them ------------------------------------------------------------------------


def _state(state: GroupState) -> str:
    epochs = state.epochs
    if not state.members:
        return EMPTY
    if state.group_type == "share":
        return STABLE
    if state.group_type == "streams" and (
        epochs.topology is None or epochs.topology != epochs.validated
    ):
        return NOT_READY
    if (epochs.group or 0) > (epochs.assignment or 0):
        return ASSIGNING
    reconciled = all(
        epochs.is_stable.get(m, False) and epochs.member.get(m) == epochs.assignment
        for m in state.members
    )
    return STABLE if reconciled else RECONCILING


def _bump(
    state: GroupState,
    output: Output,
    record: Record,
    when: Moment,
    *,
    changes: Changes,
    why: tuple[str, str],
    is_complete: bool,
) -> None:
    known = state.generation["generation"] if state.generation is not None else None
    number = state.epochs.group
    missing = None if known is None or number is None else max(0, number - known - 1)
    row = generations.begin(
        state,
        output,
        record,
        generation=number,
        join_started=when,
        join_completed=Moment(None, None, None),
        stable_at=None,
        # Each epoch is written, so a number that was left out was never an epoch of its own.
        missing=0 if is_complete else missing,
        is_complete=is_complete,
        ended_at=when.at,
    )
    row["rebalance_ms"] = None
    row["protocol_type"] = state.group_type
    row["rebalance_protocol"] = "incremental"
    row["cause"], row["cause_detail"] = why
    generations.tell_members(row, changes, state.members)


def _amend(row: Row, changes: Changes, member_count: int) -> None:
    """Put down members that changed without a new epoch: a static member that came back."""
    told: Row = {}
    generations.tell_members(told, changes, {})
    for column in ("members_joined", "members_left", "members_replaced"):
        row[column] += told[column]
    row["member_count"] = member_count


def _assigned(state: GroupState, at: int | None) -> None:
    """Put down a new target assignment."""
    row, epochs = state.generation, state.epochs
    owners = {
        partition_key(topic, partition): state.members[m].identity
        for m, topics in epochs.target.items()
        if m in state.members
        for topic, partitions in topics.items()
        for partition in partitions
    }
    if row is not None and epochs.assignment == epochs.group and state.members:
        moved = generations.Moves(state.last_owners, {}, owners, set())
        if row["join_completed_at"] is None:  # Kafka writes one for each epoch
            row["join_completed_at"] = at
            row["join_completed_at_min"] = row["join_completed_at_max"] = at
            row["join_ms"] = elapsed(row["join_started_at"], at)
        generations.tell_moves(row, moved)
        row["idle_members"] = sorted(m for m in state.members if not epochs.target.get(m))
        row["unassigned_topics"] = _unassigned(state, owners)
    state.last_owners = owners


def _unassigned(state: GroupState, owners: dict[str, str]) -> list[str] | None:
    if any(m.topics is None for m in state.members.values()) or state.group_type == "streams":
        return None
    subscribed = {t for m in state.members.values() for t in m.topics or ()}
    ids = {partition_of(p)[0] for p in owners}
    if len(ids) == len(subscribed):
        return []
    if any(i not in state.topic_names for i in ids):
        return None
    return sorted(subscribed - {state.topic_names[i] for i in ids})


def _settled(state: GroupState, at: int | None) -> None:
    row = state.generation
    if row is None or row["stable_at"] is not None:
        return
    if state.group_type == "share" and row["join_completed_at"] is None:
        return  # a share group is Stable before its members have an assignment, too
    row["stable_at"] = at
    row["sync_ms"] = elapsed(row["join_completed_at"], at)
    row["rebalance_ms"] = elapsed(row["join_started_at"], at)


def _subscriptions(state: GroupState) -> dict[str, list[str] | None]:
    return {m.member_id: m.topics for m in state.members.values()}


def _cause(
    state: GroupState,
    changes: Changes,
    was_type: str | None,
    subscribed: dict[str, list[str] | None],
) -> tuple[str, str]:
    if was_type == "classic":
        return cause.CONVERSION, f"the group went over to the {state.group_type} protocol"
    if state.generation is None:
        return cause.GROUP_CREATED, _CREATED
    if any(changes):
        return cause.membership(changes)
    for member_id, topics in subscribed.items():
        member = state.members.get(member_id)
        if member is not None and member.topics != topics:
            name = member.client_id or member_id
            return cause.SUBSCRIPTION_CHANGED, f"{name} subscribes to other topics"
    if not state.members:
        return cause.UNKNOWN, "the group has no members"
    return cause.PARTITIONS_CHANGED, "same members and subscriptions; the topics' metadata changed"

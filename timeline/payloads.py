"""What the records of the new protocols hold, put down in the state of their group."""

from __future__ import annotations

from dataclasses import replace

from timeline import epochs as group_epochs
from timeline import tasks
from timeline.gaps import doubt
from timeline.members import client
from timeline.model import GroupState, Member, Record, Row, partition_key, partition_of

COLUMNS = frozenset(
    {
        *("epoch", "validated_topology_epoch", "assignment_epoch", "member_epoch", "state"),
        *("previous_member_epoch", "metadata_hash", "last_assignment_configs"),
        *("instance_id", "client_id", "client_host", "rebalance_timeout_ms"),
        *("subscribed_topic_names", "subscribed_topic_regex", "regular_expression"),
        *("server_assignor", "classic_member_metadata", *group_epochs.PROFILE),
        *("topic_partitions", "assigned_partitions", "partitions_pending_revocation"),
        *("active_tasks", "active_tasks_pending_revocation", "standby_tasks", "warmup_tasks"),
        "subtopologies",
        *("topics", "initializing_topics", "initialized_topics", "deleting_topics"),
    }
)
"""Columns of silver's tables that are read of the records' payloads."""
# STABLE as the state byte of a member's current assignment has it.
_MEMBER_STABLE = {"consumer": 0, "share": 0, "streams": 1}
_OWNED = (
    *("assigned_partitions", "partitions_pending_revocation"),
    *("active_tasks", "active_tasks_pending_revocation"),
)


def apply(state: GroupState, record: Record) -> None:
    """Take one record; those of other kinds than `_ACTIONS` say nothing about a group."""
    kind = record.kind.removeprefix(f"{state.group_type}_group_")
    action = _ACTIONS.get(kind)
    if action is not None:
        action(state, record.member_id or "", record.payload)


def _metadata(state: GroupState, _: str, payload: Row | None) -> None:
    given, epochs = payload or {}, state.epochs
    epochs.group, epochs.hash = given.get("epoch"), given.get("metadata_hash")
    if epochs.hash is None and state.group_type == "consumer":
        # Where none of the topics is there it is 0 (Utils.computeGroupHash), which is left out of a
        # record as the default. Kafka 4.0 stored none; its share groups' records have no field.
        epochs.hash = 0
    epochs.validated = given.get("validated_topology_epoch")
    settings = given.get("last_assignment_configs")
    epochs.settings = None if settings is None else {s["key"]: s["value"] for s in settings}


def _member_metadata(state: GroupState, member_id: str, payload: Row | None) -> None:
    known, owned = state.members.pop(member_id, None), state.epochs.owned.pop(member_id, {})
    if payload is None:
        return
    profile = {n: payload.get(n) for n in sorted(group_epochs.PROFILE)}
    topics = list(payload.get("subscribed_topic_names") or [])
    member = Member(
        member_id=member_id,
        group_instance_id=payload.get("instance_id"),
        client_id=payload.get("client_id"),
        client_host=payload.get("client_host"),
        rebalance_timeout_ms=payload.get("rebalance_timeout_ms"),
        # The member does not say which topics a regular expression matches.
        topics=(topics or None) if payload.get("subscribed_topic_regex") else topics,
        regex=payload.get("subscribed_topic_regex") or None,
        # In a compacted log, what it owns may come before what it is.
        assigned=owned if known is None else known.assigned,
        session_timeout_ms=(payload.get("classic_member_metadata") or {}).get("session_timeout_ms"),
        profile=profile if state.group_type == "streams" else None,
        assignor=payload.get("server_assignor"),
    )
    if member.group_instance_id is not None and state.gap.is_gapped:
        _replace(state, member.group_instance_id)
    state.members[member_id] = member


def _replace(state: GroupState, instance: str) -> None:
    """Let members go whose place another one takes, as tombstones would tell that are missing."""
    # Kafka knows one of each instance id (ConsumerGroup.staticMembers), and others may have been it
    # in between.
    for members in (state.members, state.gap.absent):
        for member_id in [k for k, m in members.items() if m.group_instance_id == instance]:
            doubt(state, {member_id})
            for gone in (_target_member, _current_assignment, _member_metadata):
                gone(state, member_id, None)
            state.gap.absent.pop(member_id, None)
            state.gap.unnamed = [m for m in state.gap.unnamed if m != member_id]


def _target_metadata(state: GroupState, _: str, payload: Row | None) -> None:
    state.epochs.assignment = None if payload is None else payload["assignment_epoch"]


def _target_member(state: GroupState, member_id: str, payload: Row | None) -> None:
    epochs = state.epochs
    if payload is None:
        epochs.target.pop(member_id, None)
    else:
        epochs.target[member_id] = _partitions(state, payload, "topic_partitions", "active_tasks")
    has_copies = payload is not None and (
        payload.get("standby_tasks") or payload.get("warmup_tasks")
    )
    epochs.copies = _with(epochs.copies, member_id, is_in=bool(has_copies))


def _with(members: list[str], member_id: str, *, is_in: bool) -> list[str]:
    if (member_id in members) == is_in:
        return members
    return sorted({*members, member_id} if is_in else {*members} - {member_id})


def _current_assignment(state: GroupState, member_id: str, payload: Row | None) -> None:
    if payload is None:
        state.epochs.member.pop(member_id, None)
        state.epochs.is_stable.pop(member_id, None)
        state.epochs.owned.pop(member_id, None)
        return
    _arrive(state, member_id, payload["member_epoch"])
    is_warming = bool(payload.get("warmup_tasks"))
    state.epochs.warming = _with(state.epochs.warming, member_id, is_in=is_warming)
    state.epochs.member[member_id] = payload["member_epoch"]
    stable = _MEMBER_STABLE[state.group_type or ""]
    state.epochs.is_stable[member_id] = payload.get("state") == stable
    # A member owns what it has to give up until it says that it has
    # (ConsumerGroup.maybeUpdatePartitionEpoch).
    assigned = _partitions(state, payload, *_OWNED)
    if (member := state.members.get(member_id)) is None:
        state.epochs.owned[member_id] = assigned
        return
    state.members[member_id] = now = replace(member, assigned=assigned)
    if state.group_type != "share" and state.gap.is_gapped:
        _take(state, member_id, {*now.partitions}.difference(member.partitions))


def _arrive(state: GroupState, member_id: str, epoch: int | None) -> None:
    """Note a member that gets to the epoch: the last to give up what others get is waited for.

    Who waits itself, for partitions that are not released yet, is there already
    (CurrentAssignmentBuilder).
    """
    row, epochs, member = state.generation, state.epochs, state.members.get(member_id)
    if row is None or member is None or row["stable_at"] is not None:
        return
    is_there = epoch == epochs.assignment == epochs.group
    if is_there and epochs.member.get(member_id) != epoch and state.group_type != "share":
        row["waited_for"] = [client(member)]


def _take(state: GroupState, member_id: str, taken: set[str]) -> None:
    """Take the partitions of a member from others, whose records of giving them up are missing."""
    # Kafka gives a partition to nobody before it was released (ConsumerGroup.partitionEpoch).
    if not taken:
        return
    for members in (state.members, state.gap.absent):
        for other, member in members.items():
            if other != member_id and not taken.isdisjoint(member.partitions):
                left: dict[str, list[int]] = {}
                for topic, partition in map(partition_of, member.partitions):
                    if partition_key(topic, partition) not in taken:
                        left.setdefault(topic, []).append(partition)
                members[other] = replace(member, assigned=left)


def _topic_names(state: GroupState, _: str, payload: Row | None) -> None:
    for part in ("topics", "initializing_topics", "initialized_topics", "deleting_topics"):
        for topic in (payload or {}).get(part) or ():
            state.topic_names[topic["topic_id"]] = topic["topic_name"]


def _shares(state: GroupState, member_id: str, payload: Row | None) -> None:
    _topic_names(state, member_id, payload)
    state.epochs.is_initialized |= bool((payload or {}).get("initialized_topics"))


def _expression(state: GroupState, _: str, payload: Row | None) -> None:
    regexes = state.epochs.regexes
    if payload is None:  # of one that nobody subscribes to any more
        in_use = {m.regex for m in state.members.values()}
        state.epochs.regexes = {r: topics for r, topics in regexes.items() if r in in_use}
    else:
        regexes[payload.get("regular_expression") or ""] = sorted(payload.get("topics") or ())


def _topology(state: GroupState, _: str, payload: Row | None) -> None:
    epochs, before = state.epochs, state.epochs.sources
    parts = (payload or {}).get("subtopologies") or ()
    epochs.topology = None if payload is None else payload["epoch"]
    epochs.sources = {part["subtopology_id"]: tasks.sources_of(part) for part in parts}
    epochs.uneven = [t for part in parts if tasks.are_uneven(part) for t in tasks.sources_of(part)]
    if not before or before == epochs.sources:
        return
    for member_id, member in state.members.items():
        owned = tasks.renamed(member.assigned or {}, before, epochs.sources)
        state.members[member_id] = replace(member, assigned=owned)
    epochs.target = {
        m: tasks.renamed(target, before, epochs.sources) for m, target in epochs.target.items()
    }


_ACTIONS = {
    "metadata": _metadata,
    "member_metadata": _member_metadata,
    "target_assignment_metadata": _target_metadata,
    "target_assignment_member": _target_member,
    "current_member_assignment": _current_assignment,
    "partition_metadata": _topic_names,
    "state_partition_metadata": _shares,
    "regular_expression": _expression,
    "topology": _topology,
}


def _partitions(state: GroupState, payload: Row, *columns: str) -> dict[str, list[int]]:
    """Return the partitions of an assignment: by topic id, or by topic for the tasks of Streams."""
    found: dict[str, list[int]] = {}
    for part in (part for column in columns for part in payload.get(column) or ()):
        topics = [part.get("topic_id")]
        if "subtopology_id" in part:
            topics = state.epochs.sources.get(part["subtopology_id"], [])
        for topic in topics:
            found.setdefault(topic, []).extend(part["partitions"])
    return found

"""Groups of the classic protocol: what each GroupMetadata record tells of the group.

Kafka writes one when the leader's SyncGroup has been stored, when the group became empty, when a
static member was replaced, when a group was created (Java coordinator), and a tombstone when it is
gone; nothing is written when members join, leave or fail (GroupMetadataManager, ClassicGroup).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from history import cause, estimate, generations
from history.members import (
    DELETED,
    EMPTIED,
    REPLACED,
    compare,
    follow_owners,
    follow_sessions,
)
from history.model import Commits, Member
from history.timeline import (
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
    Moment,
    current,
    elapsed,
    enter,
    exactly,
)

if TYPE_CHECKING:
    from history.model import GroupState, Output, Record, Row

_CONNECT = "connect"


def read(state: GroupState, output: Output, record: Record, *, is_complete: bool) -> None:
    """Take a GroupMetadata record that is no part of a conversion.

    Args:
        state: the group before, changed to what it is after.
        output: takes the rows that are complete now.
        record: the record.
        is_complete: whether no offset is missing between the group's last record and this one.
    """
    if record.payload is None:
        deleted(state, output, record)
    else:
        members = _members(record.payload)
        if state.group_type not in (None, "classic"):
            _converted_back(state, output, record, members)
        elif members and _is_replacement(state, record.payload, members):
            _replaced(state, output, record, members)
        elif current(state) == EMPTY and not members and _same_generation(state, record.payload):
            pass  # written again, by a coordinator that took over: nothing happened
        else:
            _generation(state, output, record, members, is_complete=is_complete)
    state.usual_pause = estimate.usual_pause(state)
    state.commits = Commits()
    state.live = []
    state.record_offset = record.offset


def deleted(state: GroupState, output: Output, record: Record, end_cause: str = DELETED) -> None:
    """Let the group be gone."""
    at = _now(state, record)
    if state.group_type is None:
        state.group_type = "classic"
    follow_sessions(
        state, output, {}, record, at=at, earliest=at, generation=None, end_cause=end_cause
    )
    follow_owners(state, output, {}, record, at=at, generation=None)
    generations.end(state, output, at)
    enter(state, output, DEAD, exactly(at), record, generation=None, member_count=0)
    state.members = {}
    state.last_owners = {}
    state.initial_delay_ms = None


def committed_first(state: GroupState, output: Output, record: Record, *, is_exact: bool) -> None:
    """Let a group begin that only commits offsets: Kafka holds it for empty."""
    state.group_type = "classic"
    at = _now(state, record)
    when = exactly(at) if is_exact else Moment(at, None, at)
    enter(state, output, EMPTY, when, record, generation=0, member_count=0)


# -- what a record can be -----------------------------------------------------------------------


def _generation(
    state: GroupState,
    output: Output,
    record: Record,
    members: dict[str, Member],
    *,
    is_complete: bool,
) -> None:
    """Take a new generation, with members or without."""
    payload = record.payload or {}
    number = payload["generation"]
    known = state.interval["generation"] if state.interval is not None else None
    is_new = number == 0 and not members
    is_repeated = False
    if known is not None and (number < known or is_new):
        # Only a group that was deleted and made again counts from the start.
        is_repeated = number > 0
        _vanished(state, output, record)
        known = None
    if is_new:
        _created(state, output, record)
        return
    if state.record_offset is None and number > 1 and not is_complete:
        # Offsets were committed before, but the records of the group's state then are gone.
        state.interval, state.sequence = None, 0
    state.group_type = "classic"
    was = current(state)
    at = _now(state, record)
    completed = _join_completed(state, record, members, at)
    missing = _missing(known, number, was, is_complete=is_complete)
    changes = compare(state.members, members)
    moved = generations.moves(state.members, members, state.last_owners)
    is_first = was in (None, EMPTY, DEAD)
    if was == PREPARING and state.interval is not None:
        began = state.interval
        # A join phase that an upgrade cut short goes on after the downgrade.
        earliest = state.classic_since or began["started_at_min"]
        started = Moment(began["started_at"], earliest, began["started_at_max"])
        state.classic_since = None
    elif is_first:
        started = _first_started(state, completed, members, missing or 0)
    else:
        follows = _is_follow_up(state, changes, moved.returned)
        started = _rejoin_started(state, completed, members, missing or 0, is_follow_up=follows)
        if not missing:
            estimate.learn(state, completed.at or 0, members)
    if was == DEAD:
        enter(state, output, EMPTY, started, record, generation=0, member_count=0)
    count = len(state.members)
    enter(state, output, PREPARING, started, record, generation=known or 0, member_count=count)
    since = elapsed(state.generation["stable_at"], started.at) if state.generation else None
    before = state.generation
    row = generations.begin(
        state,
        output,
        record,
        generation=number,
        join_started=started,
        join_completed=completed,
        stable_at=at if members else None,
        missing=missing,
        is_complete=is_complete,
    )
    row["protocol_type"] = payload.get("protocol_type")
    row["clock_skew_ms"] = _clock_skew(state, record, at)
    generations.tell_members(row, changes, members)
    if members:
        enter(
            state, output, COMPLETING, completed, record, generation=number, member_count=len(members)
        )
        enter(state, output, STABLE, exactly(at), record, generation=number, member_count=len(members))
        _tell_leader(row, payload, members, before)
        generations.tell_assignment(row, members, moved)
        if payload.get("protocol_type") != _CONNECT:
            row["unassigned_topics"] = generations.unassigned_topics(members)
        row["rebalance_protocol"] = cause.rebalance_protocol(payload.get("protocol"), members)
        evidence = cause.Evidence(
            before=state.members,
            after=members,
            changes=changes,
            protocol=payload.get("protocol"),
            unit="task" if payload.get("protocol_type") == _CONNECT else "partition",
            returned=moved.returned,
            recovered=moved.recovered,
            appeared=moved.appeared,
            vanished=moved.vanished,
            moved=moved.moved,
            since_ms=since,
        )
        row["cause"], row["cause_detail"] = cause.explain(evidence)
        if is_first and not state.members and (known or 0) == 0:
            row["cause"], row["cause_detail"] = _first_cause(row, was, number)
    else:
        enter(state, output, EMPTY, exactly(at), record, generation=number, member_count=0)
        row["cause"] = cause.MEMBER_LEFT if changes.left else cause.UNKNOWN
        row["cause_detail"] = (
            f"the last of {len(changes.left)} members left or failed"
            if changes.left
            else "members came and went without a stable generation"
        )
    if is_repeated:
        row["cause_detail"] = f"{row['cause_detail']}; the generations began again"
    _follow(state, output, record, members, completed, at, number)
    state.last_owners = moved.released if members else {}
    state.members = members


def _follow(  # noqa: PLR0913 - when and by which record
    state: GroupState,
    output: Output,
    record: Record,
    members: dict[str, Member],
    completed: Moment,
    at: int | None,
    number: int | None,
) -> None:
    follow_sessions(
        state,
        output,
        members,
        record,
        at=completed.at,
        earliest=state.members and state.generation and state.generation["join_started_at_min"] or None,
        generation=number,
        **({} if members else {"end_cause": EMPTIED}),
    )
    owners = {} if state.generation and state.generation["protocol_type"] == _CONNECT else members
    follow_owners(state, output, owners, record, at=at, generation=number)


def _created(state: GroupState, output: Output, record: Record) -> None:
    """Take the record of an empty new group, which the first JoinGroup writes."""
    state.group_type = "classic"
    at = _now(state, record)
    enter(state, output, EMPTY, exactly(at), record, generation=0, member_count=0)
    row = generations.begin(
        state,
        output,
        record,
        generation=0,
        join_started=Moment(None, None, None),
        join_completed=exactly(at),
        stable_at=None,
        missing=0,
        is_complete=True,
    )
    row["rebalance_ms"] = None
    row["cause"] = cause.GROUP_CREATED
    row["cause_detail"] = "the coordinator made the group for its first member"


def _vanished(state: GroupState, output: Output, record: Record) -> None:
    """Let the group have been deleted, though the record of that is missing."""
    at = _now(state, record)
    since = state.interval["started_at"] if state.interval is not None else None
    follow_sessions(
        state, output, {}, record, at=at, earliest=since, generation=None, end_cause=DELETED
    )
    follow_owners(state, output, {}, record, at=at, generation=None)
    generations.end(state, output, at)
    enter(state, output, DEAD, Moment(at, since, at), record, generation=None, member_count=0)
    state.members = {}
    state.last_owners = {}


def _replaced(
    state: GroupState, output: Output, record: Record, members: dict[str, Member]
) -> None:
    """Take the return of a static member: another member id, no rebalance."""
    at = _now(state, record)
    changes = compare(state.members, members)
    row = state.generation
    if row is not None:
        row["members_replaced"] += [
            {
                "member_id": new.member_id,
                "group_instance_id": new.group_instance_id,
                "client_id": new.client_id,
                "client_host": new.client_host,
                "replaced_member_id": old.member_id,
            }
            for old, new in changes.replaced
        ]
        leader = (record.payload or {}).get("leader")
        if leader:
            row["leader_id"] = leader
    follow_sessions(
        state,
        output,
        members,
        record,
        at=at,
        earliest=at,
        generation=(record.payload or {})["generation"],
        end_cause=REPLACED,
    )
    follow_owners(
        state, output, members, record, at=at, generation=(record.payload or {})["generation"]
    )
    state.members = members


def _converted_back(
    state: GroupState, output: Output, record: Record, members: dict[str, Member]
) -> None:
    """Take the group's return from the new protocol: it is classic, and rebalances at once."""
    number = (record.payload or {})["generation"]
    at = _now(state, record)
    state.group_type = "classic"
    changes = compare(state.members, members)
    row = generations.begin(
        state,
        output,
        record,
        generation=number,
        join_started=exactly(at),
        join_completed=exactly(at),
        stable_at=None,
        missing=0,
        is_complete=True,
    )
    row["protocol_type"] = (record.payload or {}).get("protocol_type")
    row["protocol"] = (record.payload or {}).get("protocol")
    row["cause"] = cause.CONVERSION
    row["cause_detail"] = "the group went back from the new protocol to the classic one"
    generations.tell_members(row, changes, members)
    follow_sessions(
        state, output, members, record, at=at, earliest=at, generation=number
    )
    follow_owners(state, output, members, record, at=at, generation=number)
    name = PREPARING if members else EMPTY
    enter(state, output, name, exactly(at), record, generation=number, member_count=len(members))
    state.members = members


# -- the parts of a record ------------------------------------------------------------------------


def _members(payload: Row) -> dict[str, Member]:
    is_connect = payload.get("protocol_type") == _CONNECT
    return {m["member_id"]: _member(m, is_connect=is_connect) for m in payload.get("members") or ()}


def _member(given: Row, *, is_connect: bool) -> Member:
    assigned: dict[str, list[int]] | None = None
    assignment = given.get("connect_assignment" if is_connect else "assignment")
    if assignment is not None:
        assigned = {}
        name, numbers = ("connector", "tasks") if is_connect else ("topic", "partitions")
        for part in assignment.get("assignment" if is_connect else "partitions") or ():
            assigned.setdefault(part.get(name) or "", []).extend(part.get(numbers) or ())
    elif given.get("has_empty_assignment"):
        assigned = {}
    subscription = given.get("subscription")
    return Member(
        member_id=given["member_id"],
        group_instance_id=given.get("group_instance_id"),
        client_id=given.get("client_id"),
        client_host=given.get("client_host"),
        rebalance_timeout_ms=given.get("rebalance_timeout_ms"),
        session_timeout_ms=given.get("session_timeout_ms"),
        topics=None if subscription is None else subscription.get("topics") or [],
        assigned=assigned,
    )


def _same_generation(state: GroupState, payload: Row) -> bool:
    return state.interval is not None and state.interval["generation"] == payload["generation"]


def _is_replacement(state: GroupState, payload: Row, members: dict[str, Member]) -> bool:
    """Tell a record written because a static member came back, or written again."""
    return (
        current(state) == STABLE
        and _same_generation(state, payload)
        and {m.identity for m in members.values()} == {m.identity for m in state.members.values()}
    )


def _now(state: GroupState, record: Record) -> int | None:
    """Give the time of a record; never before what has happened already."""
    known = [t for t in (state.clock, record.timestamp) if t is not None]
    return max(known, default=None)


def _join_completed(
    state: GroupState, record: Record, members: dict[str, Member], at: int | None
) -> Moment:
    """Tell when the join phase ended: the record says so, from value version 2 on."""
    if not members or at is None:
        return exactly(at)
    claimed = (record.payload or {}).get("current_state_timestamp")
    if claimed is not None:
        # The clocks of two brokers may differ.
        return exactly(min(max(claimed, state.clock or claimed), at))
    since = state.interval["started_at"] if state.interval is not None else None
    # Commits are refused while the leader assigns, so the phase began after the last of them.
    known = [t for t in (since, state.commits.last) if t is not None and t <= at]
    return Moment(at, max(known, default=None), at)


def _clock_skew(state: GroupState, record: Record, at: int | None) -> int | None:
    """Tell how far the record's time of its state lies behind its own time, if it does."""
    claimed = (record.payload or {}).get("current_state_timestamp")
    if claimed is None or at is None or claimed <= at:
        return None
    return int(claimed - at)


def _missing(known: int | None, number: int, was: str | None, *, is_complete: bool) -> int | None:
    """Count the generations between two records: aborted ones, or lost with their records."""
    if known is not None:
        return max(0, number - known - 1)
    if was == DEAD or is_complete:
        return max(0, number - 1)
    return None


def _first_started(
    state: GroupState, completed: Moment, members: dict[str, Member], missing: int
) -> Moment:
    if completed.at is None:
        return Moment(None, None, None)
    started = estimate.first_join(state, completed.at, len(members), missing)
    if state.interval is not None and started.at is not None:
        lasted = completed.at - started.at
        state.initial_delay_ms = min(lasted, state.initial_delay_ms or lasted)
    return started


def _rejoin_started(
    state: GroupState,
    completed: Moment,
    members: dict[str, Member],
    missing: int,
    *,
    is_follow_up: bool,
) -> Moment:
    if completed.at is None:
        return Moment(None, None, None)
    return estimate.rejoin(state, completed.at, members, missing, is_follow_up=is_follow_up)


def _is_follow_up(state: GroupState, changes: object, returned: list[str]) -> bool:
    """Tell whether members re-joined at once because they had to revoke partitions."""
    joined, left, replaced = changes  # type: ignore[misc]
    return bool(returned) and not (joined or left or replaced)


def _first_cause(row: Row, was: str | None, number: int) -> tuple[str, str]:
    if was is None and number > 1 and row["aborted_generations"] is None:
        return cause.UNKNOWN, "the first record of the group that is known"
    return cause.GROUP_CREATED, f"the first {row['member_count']} members of a new group"


def _tell_leader(row: Row, payload: Row, members: dict[str, Member], before: Row | None) -> None:
    leader = payload.get("leader")
    row["protocol"] = payload.get("protocol")
    row["leader_id"] = leader
    row["leader_client_id"] = members[leader].client_id if leader in members else None
    if before is not None and before["leader_id"] is not None:
        row["leader_changed"] = before["leader_id"] != leader

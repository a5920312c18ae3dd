"""The rows of group_generations that epochs of the new protocols have."""

from __future__ import annotations

from collections.abc import Container
from collections.abc import Set as AbstractSet

from timeline import cost, gaps, generations, tasks
from timeline import epochs as group_epochs
from timeline.members import Changes, client, compare
from timeline.model import GroupState, Row, partition_keys, partition_of
from timeline.timeline import NOT_READY, RECONCILING, Moment, current, elapsed

_OVER = "over before it was assigned"
_MOST_LATE = 20


def begin(
    state: GroupState, of_epoch: group_epochs.Known, when: Moment, *, is_complete: bool
) -> None:
    """Begin the row of an epoch, and put down what becomes of the one before."""
    last, number = state.generation, state.epochs.group
    changes = compare({} if last is None else of_epoch.before, state.members)
    why = group_epochs.explain(state, changes, of_epoch)
    known = None if last is None else last["generation"]
    if last is not None and is_complete and _awaits_assignment(last):
        # The coordinator may assign once for several epochs (KIP-1263).
        last["cause_detail"] = f"{last['cause_detail']}; {_OVER}"
    missing = None if known is None or number is None else max(0, number - known - 1)
    if last is not None and (is_complete or missing == 0):
        _overtaken(state, last, when.at, {m.member_id for m in changes.joined})
    cost.cut(state, when, is_complete=is_complete)
    gaps.bear_out_group(state, number, when.at)
    row = generations.begin(
        state,
        of_epoch.batch[-1],
        generation=number,
        join_started=when,
        # Each epoch is written, so a number that was left out was never an epoch of its own.
        missing=0 if is_complete else missing,
        is_complete=is_complete,
    )
    state.epochs.is_initialized, state.epochs.unresolved = False, {}
    state.gap.left, state.gap.is_over, state.gap.emptied = {}, False, None
    row["protocol_type"] = state.group_type
    row["protocol"] = group_epochs.assignor(state.members)
    row["rebalance_protocol"] = "incremental"
    row["cause"], row["cause_detail"] = why
    generations.fill_members(row, changes, state.members)


def _overtaken(state: GroupState, row: Row, at: int | None, joined: set[str]) -> None:
    """Put down how long an epoch took that the next one came before, and who had not got there."""
    is_over = row["stable_at"] is not None or not row["member_count"]
    # A streams group waits for its topics, and not for its members, while it is not ready.
    if is_over or state.group_type == "share" or state.gap.is_partial:
        return
    if current(state) == NOT_READY:
        return
    lasted = elapsed(row["join_started_at"], at)
    if state.gap.is_gapped and (lasted or 0) > gaps.longest_timeout(state):
        return  # Kafka fences who is too late: all had got there unseen
    row["rebalance_ms"] = lasted
    held = _holders(state, joined)
    row["waited_for"] = held or row.get("waited_for")


def _holders(state: GroupState, joined: Container[str] = ()) -> list[Row]:
    """Return who has partitions yet that others are to get, or was the last to give some up."""
    held = [
        client(member)
        for name, member in state.members.items()
        if name not in joined
        and not set(member.partitions).issubset(partition_keys(state.epochs.target.get(name)))
    ]
    return held[:_MOST_LATE]


def newest(state: GroupState) -> Row | None:
    """Return the epoch or generation that is in force, with who is waited for as it is now."""
    row = state.generation
    if row is None or current(state) != RECONCILING or state.gap.is_partial:
        return row
    return row | {"waited_for": _holders(state) or None}


def _awaits_assignment(row: Row) -> bool:
    is_assigned = row["join_completed_at"] is not None or row["stable_at"] is not None
    return bool(row["member_count"]) and not is_assigned


def of_kind(state: GroupState) -> Row | None:
    """Return the epoch that is in force; of a group that was converted, records may lack it."""
    row = state.generation
    return row if row is not None and row["group_type"] == state.group_type else None


def amend(state: GroupState, row: Row, changes: Changes, *, lacks_records: bool) -> None:
    """Put down members that changed without a new epoch."""
    # A static member came back; or records are missing, and tell of members later, or never.
    if lacks_records:
        _leave_to_the_next(state, changes)
    if state.gap.is_over:
        return
    if not any(changes) and row["member_count"] == len(_of_epoch(state)):
        return
    named: Row = {}
    generations.fill_members(named, changes, {})
    for column in ("members_joined", "members_left"):
        row[column] += named[column]
    generations.add_replaced(row, named["members_replaced"])
    gone = {m.member_id for m in changes.left} | state.gap.absent.keys()
    # And whom a member that is gone had replaced.
    for replaced in reversed(row["members_replaced"]):
        if replaced["member_id"] in gone:
            gone.add(replaced["replaced_member_id"])
    row["members_joined"] = [m for m in row["members_joined"] if m["member_id"] not in gone]
    if row["idle_members"] is not None:
        row["idle_members"] = [m for m in row["idle_members"] if m not in gone]
    row["member_count"] = len(_of_epoch(state))


def assigned(state: GroupState, at: int | None) -> None:
    """Put down a new target assignment."""
    row, epochs = state.generation, state.epochs
    owners = {
        key: state.members[m].identity
        for m, topics in epochs.target.items()
        if m in state.members
        for key in partition_keys(topics)
    }
    if row is not None and epochs.assignment == epochs.group and state.members:
        there = tasks.owners_of(epochs, owners)
        is_whole = not any(map(epochs.target.get, gaps.awaited(state, at)))
        # Kafka writes one for each epoch, before a member can get there.
        if row["join_completed_at"] is None and row["stable_at"] is None:
            row["join_completed_at"] = at
            row["join_completed_at_min"] = row["join_completed_at_max"] = at
            row["join_ms"] = elapsed(row["join_started_at"], at)
        if not is_whole:
            row["assigned_partitions"] = None
        elif state.group_type == "share":  # its partitions have many owners at once
            row["assigned_partitions"] = len(owners)
        elif there is not None:
            generations.fill_moves(row, generations.Moves(state.last_owners, {}, there, set()))
        busy = {m for m, target in epochs.target.items() if target}.union(
            epochs.copies, epochs.warming
        )
        row["idle_members"] = sorted(_of_epoch(state) - busy)
        row["unassigned_topics"] = _unassigned(state, owners)
    state.last_owners = owners


def subscribed_topics(state: GroupState) -> list[str] | None:
    """Return the topics that members subscribe to by name, expression, or topology, if known."""
    if state.group_type == "streams":
        sources = {topic for topics in state.epochs.sources.values() for topic in topics}
        return sorted(sources) if state.members and sources else None
    topics: set[str] = set()
    # Members are many, what they subscribe to is little.
    for regex, named in {(m.regex, m.subscription) for m in state.members.values()}:
        matched = None if regex is None else state.epochs.regexes.get(regex)
        if matched is None and (regex is not None or named is None):
            return None
        topics.update(matched or (), named or ())
    return sorted(topics) or None


def fill_unassigned(state: GroupState) -> None:
    """Put down which topics nobody is assigned, as soon as all that are assigned have a name.

    The log has ids of these; their names come with commits, which members make once they have an
    assignment.
    """
    row, epochs = of_kind(state), state.epochs
    if row is None or row.get("unassigned_topics") is not None or not state.members:
        return
    if epochs.assignment is None or epochs.assignment != epochs.group:
        return
    given = (epochs.target.get(member, {}) for member in state.members)
    if all(topic in state.topic_names for topics in given for topic in topics):
        row["unassigned_topics"] = _unassigned(state, state.last_owners)


def _unassigned(state: GroupState, owners: dict[str, str]) -> list[str] | None:
    subscribed = subscribed_topics(state)
    if subscribed is None or state.group_type == "streams":
        return None
    ids = {partition_of(p)[0] for p in owners}
    if len(ids) == len(subscribed):
        return []
    # Who was set aside may be there, and have what nobody else is to get.
    if any(state.epochs.target.get(m) for m in state.gap.absent):
        return None
    if any(i not in state.topic_names for i in ids):
        return None
    assigned = {state.topic_names[i] for i in ids}
    return [topic for topic in subscribed if topic not in assigned]


def settled(state: GroupState, at: int | None) -> None:
    """Put down that all members have got to an epoch."""
    row = state.generation
    if row is None or row["stable_at"] is not None:
        return
    if state.group_type == "share" and row["join_completed_at"] is None:
        return  # a share group is Stable before its members have an assignment, too
    row["stable_at"] = at
    if not state.gap.is_partial:  # else records may be missing of when it was so before
        row["sync_ms"] = elapsed(row["join_completed_at"], at)
        row["rebalance_ms"] = elapsed(row["join_started_at"], at)


def _leave_to_the_next(state: GroupState, changes: Changes) -> None:
    """Leave who came and went with an epoch that is missing to the next one that is known."""
    # Only the return of a static member makes none.
    epochs = state.epochs
    came = [
        m.member_id
        for m in changes.joined
        if m.group_instance_id is None and epochs.member.get(m.member_id) != epochs.group
    ]
    epochs.unresolved |= dict.fromkeys(came)
    state.gap.left |= {m.member_id: m.plain() for m in changes.left}
    state.gap.is_over |= bool(came or changes.left)


def _of_epoch(state: GroupState) -> AbstractSet[str]:
    """Return the members that the group's epoch began with, or that came back in it."""
    new = {m for m, old in state.epochs.unresolved.items() if old is None}
    return state.members.keys() - new if new else state.members.keys()

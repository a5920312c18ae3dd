"""Groups of the new protocols: consumer (KIP-848), share (KIP-932) and streams (KIP-1071) groups.

The coordinator keeps all of their state in the log, and writes what belongs together in one batch.
After each batch the state follows from what is there (ConsumerGroup.maybeUpdateGroupState and its
siblings): no members, Empty; the group epoch ahead of the target assignment's, Assigning; a member
not stable at that epoch, Reconciling; else Stable. A streams group whose topology is not validated
is NotReady, a share group is Empty or Stable.
"""

from __future__ import annotations

from collections.abc import Container
from collections.abc import Set as AbstractSet
from dataclasses import replace

from timeline import cost, gaps, generations, lives, tasks
from timeline import epochs as group_epochs
from timeline.gaps import doubt
from timeline.members import CONVERTED, LEFT, Changes, client, compare, follow
from timeline.model import (
    Batch,
    Commits,
    Epochs,
    GroupState,
    Member,
    Record,
    Row,
    partition_key,
    partition_keys,
    partition_of,
)
from timeline.timeline import (
    ASSIGNING,
    EMPTY,
    NOT_READY,
    PREPARING,
    RECONCILING,
    STABLE,
    Moment,
    current,
    elapsed,
    enter,
    not_before,
)

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
_FAMILIES = ("consumer", "share", "streams")
# STABLE as the state byte of a member's current assignment has it.
_MEMBER_STABLE = {"consumer": 0, "share": 0, "streams": 1}
_OWNED = (
    *("assigned_partitions", "partitions_pending_revocation"),
    *("active_tasks", "active_tasks_pending_revocation"),
)
_FIRST_EPOCH = 2
# To leave, to come back under the same id, and to leave again takes an epoch each (KIP-1082).
_AWAY_EPOCHS = 3
_OVER = "over before it was assigned"
_MOST_LATE = 20


def family(kind: str) -> str | None:
    """Return the group type that a kind of record belongs to; None for classic groups' records."""
    name = kind.partition("_group_")[0]
    return name if name in _FAMILIES else None


def is_metadata(record: Record) -> bool:
    """Return whether a record holds the group epoch, and its tombstone ends the group."""
    return record.kind.endswith("_group_metadata")


def is_upgrade(
    state: GroupState, new: list[Record], own: list[Record], *, is_complete: bool
) -> bool:
    """Return whether a batch turns a classic group with members into one of a new protocol.

    The coordinator then writes what its members are in the new protocol under the ids that they
    have (ConsumerGroup.createConsumerGroupRecords). A group that it recreates begins with one,
    and with that member's epoch. Members that had joined the classic group, but not synced, are
    seen for the first time; they have the group's generation as their former epoch, too
    (ConsumerGroup.fromClassicGroup), where new ones have none, and come first.
    """
    if not new or any(family(r.kind) != "consumer" for r in new):
        return False  # Kafka converts groups of consumers, no others
    named = {r.member_id for r in new if _has_value(r)}
    if state.group_type == "classic" and named & state.members.keys():
        return True
    if not is_complete and state.group_type == "classic" and _goes_on(state, new):
        return True
    if not any(r.payload is None for r in own):
        return False
    first = next((r.payload for r in new if _is_current(r) and r.payload is not None), None)
    if first is not None and first.get("previous_member_epoch") is not None:
        return bool(first["member_epoch"] == first["previous_member_epoch"])
    is_known = is_complete and lives.is_alive(state)
    return not is_known and len(named) > 1


def _goes_on(state: GroupState, new: list[Record]) -> bool:
    """Return whether nothing refutes that a classic group with members was converted."""
    # The group epoch begins with the group's generation then; that of a group made anew, with 1.
    known = _generation(state)
    values = [r.payload for r in new if r.payload is not None]
    epochs = [v[n] for v in values for n in ("epoch", "assignment_epoch", "member_epoch") if n in v]
    is_later = max(epochs, default=known) >= known and not _ends(new)
    return bool(state.members and known) and is_later


def _generation(state: GroupState) -> int:
    return 0 if state.interval is None else state.interval["generation"] or 0


def _ends(new: list[Record]) -> bool:
    return any(is_metadata(r) and r.payload is None for r in new)


def ends_members(state: GroupState, records: list[Record]) -> bool:
    """Return whether the end of a batch ends a group that has members, as far as is known."""
    last = records[-1]
    if last.payload is not None or state.group_type not in ("classic", "consumer"):
        return False
    if state.group_type == "classic":
        # A group that is deleted loses its offsets right before (DeleteGroups, and the cleanup).
        is_end = last.kind == "group_metadata" and len(records) == 1
        return is_end and bool(state.members) and not state.commits.deleted
    return last.kind == "consumer_group_metadata" and any(_is_member(r) for r in records)


def goes_back(state: GroupState, record: Record) -> bool:
    """Return whether nothing refutes that a group was converted back before a record."""
    if record.kind != "group_metadata":
        return False
    return record.payload is None or record.payload["generation"] >= (state.epochs.group or 0)


def lost_return(state: GroupState, last: Record) -> Record:
    """Return the record of a conversion back that is missing behind the others of its batch."""
    # Who speaks the classic protocol stays (ClassicGroup.fromConsumerGroup).
    members = [
        replace(
            member,
            assigned={
                state.topic_names[topic]: partitions
                for topic, partitions in (member.assigned or {}).items()
                if topic in state.topic_names
            },
        )
        for member in state.members.values()
        if member.session_timeout_ms is not None
    ]
    payload = {"generation": state.epochs.group or 0, "members": members}
    return Record(last.offset + 1, last.timestamp, "group_metadata", None, payload)


def is_downgrade(
    state: GroupState, new: list[Record], own: list[Record], *, is_complete: bool
) -> bool:
    """Return whether a batch turns a group of a new protocol into a classic one with members.

    One without members is deleted, and a new one is made without members, too. If the group that
    is known is another, nothing is known of the one that is converted.
    """
    if lives.is_dead(state):
        return False
    first = next((r.payload for r in own if r.payload is not None), {})
    # Nothing refutes that a classic group was converted twice: its generations go on.
    goes_on = state.group_type != "classic" or (
        not is_complete and bool(state.members) and first.get("generation", 0) >= _generation(state)
    )
    return goes_on and _ends(new) and bool(first.get("members"))


def is_of_member(new: list[Record]) -> bool:
    """Return whether a batch has a member, and not only that members are gone."""
    return any(_has_value(r) for r in new)


def _is_current(record: Record) -> bool:
    return record.kind.endswith("_group_current_member_assignment")


def _is_expression(record: Record) -> bool:
    return record.kind.endswith("_group_regular_expression")


def _is_leave(batch: list[Record]) -> bool:
    """Return whether a batch has members that are gone, and neither one who came nor an epoch."""
    members = [r for r in batch if _is_member(r)]
    has_epoch = any(is_metadata(r) for r in batch)
    return bool(members) and not has_epoch and all(r.payload is None for r in members)


def _lacks_epoch(batch: list[Record], known: Container[str]) -> bool:
    """Return whether a batch has members that came or are gone, but not the epoch of that."""
    # None begins as a static member returns, or with an expression that is not resolved.
    members = [r for r in batch if _is_member(r)]
    came = all(
        r.member_id not in known
        and not (r.payload.get("instance_id") or r.payload.get("subscribed_topic_regex"))
        for r in members
        if r.payload is not None
    )
    is_return = len({r.payload is None for r in members}) > 1
    return bool(members) and came and not is_return and not any(map(is_metadata, batch))


def _came_back(batch: list[Record], epoch: int | None) -> set[str]:
    """Return members that may have been away, if epochs of before are missing."""
    # A client keeps its id when it was fenced, and its member record is written again then.
    epochs = [r.payload["epoch"] for r in batch if is_metadata(r) and r.payload is not None]
    if epochs and max(epochs) - (epoch or 0) <= 1:
        return set()
    return {r.member_id for r in batch if _has_value(r) and r.member_id is not None}


def _end_stays(
    state: GroupState, member_ids: set[str], until: int | None, record: Record, when: Moment
) -> None:
    """End the stays of members that come back with a record, and are borne out until a time."""
    if member_ids:
        doubt(state, member_ids, until)
        others = {k: m for k, m in state.members.items() if k not in member_ids}
        follow(state, others, record, when, generation=state.epochs.group, end_cause=LEFT)


def _bear_out(state: GroupState, batch: list[Record], epoch: int | None, until: int | None) -> None:
    """Let members that records name have been there, if not all that they owned beyond a time."""
    gaps.bear_out(state, _named(batch))
    if until is None:
        if not state.gap.is_partial:
            state.gap.untold = None  # nothing that the state follows from is missing any more
        return
    left = _named([r for r in batch if _is_member(r) and r.payload is None])
    later = (state.epochs.group or 0) - (epoch or 0)
    if later >= _AWAY_EPOCHS:
        doubt(state, left, until)
    elif current(state) != STABLE or later != 1:
        # Between two epochs nobody gives anything up, once all have got to the first. Else who
        # leaves may have given up before, by a record that is missing, what it had.
        gaps.doubt_owners(state, left, until)


def _has_value(record: Record) -> bool:
    return _is_member(record) and record.payload is not None


def _is_member(record: Record) -> bool:
    return record.kind.endswith("_group_member_metadata")


def read(state: GroupState, batch: Batch, *, is_upgrade: bool) -> None:
    """Take records of one type of group that the coordinator wrote at one time."""
    first, *rest = [batch.records] if is_upgrade else _writes(batch.records)
    is_cut = batch.is_cut and not rest
    _read(state, batch._replace(records=first, is_cut=is_cut), is_upgrade=is_upgrade)
    for part in rest:
        is_cut = batch.is_cut and part is rest[-1]
        _read(state, Batch(part, is_complete=True, is_cut=is_cut), is_upgrade=is_upgrade)


def _writes(batch: list[Record]) -> list[list[Record]]:
    """Cut records into those of one epoch each: two requests may come in one millisecond."""
    # What a request changed of members comes before the epoch that it begins, all else behind it.
    writes: list[list[Record]] = [[]]
    has_epoch = False
    for record in batch:
        is_epoch = is_metadata(record) and record.payload is not None
        is_leave = _is_current(record) and record.payload is None
        if has_epoch and (is_epoch or is_leave or _is_member(record) or _is_expression(record)):
            writes.append([])
            has_epoch = False
        writes[-1].append(record)
        has_epoch |= is_epoch
    return writes


def _read(state: GroupState, whole: Batch, *, is_upgrade: bool) -> None:
    """Take records of one epoch; see `read`."""
    batch, is_complete, is_cut, may_lack_a_leave, _ = whole
    if is_complete and not _refutes_empty(state, batch):
        _tell(state)  # nothing that the last state follows from comes any more
    _revive(state)
    begins, batch = _entered(
        state, batch, is_complete=is_complete, is_cut=is_cut, is_upgrade=is_upgrade
    )
    if not batch:
        return
    last, epoch = batch[-1], state.epochs.group
    names_change = is_complete or not may_lack_a_leave or any(_is_member(r) for r in batch)
    known = replace(state.epochs, regexes=dict(state.epochs.regexes))
    sessions, until = set() if is_complete else {*state.sessions}, gaps.began(state)
    before, has_moved_on = _taken(state, batch, is_complete=is_complete, names_change=names_change)
    when = lives.moment(state, last)
    lacks_records = is_cut or not is_complete
    if lacks_records:
        # Only what stands before the hole in the same batch has the same time.
        when = when._replace(earliest=None if state.clock == when.at else state.clock)
    if has_moved_on:
        _end_rebalance(state, last, when)
        has_others = _lacks_epoch(batch, before) or not _named(batch) <= before.keys()
        gaps.set_aside(state, when.at, has_others=has_others)
        before = {k: m for k, m in before.items() if k not in state.gap.absent}
    is_new = begins and (is_complete or _is_creation(state, batch))
    is_unwritten = is_new and _begin_unwritten(state)
    # What it follows from may be missing, till a record bears the state out.
    is_cut_off = (is_upgrade and not is_complete) or (begins and not is_new)
    lacks_some = lacks_records and (_may_lack_more(state, batch) or bool(_newcomers(state)))
    state.gap.is_partial |= has_moved_on or is_cut_off or lacks_some
    if is_upgrade:
        _upgraded(state, batch, when, before, is_complete=is_complete)
    changed = compare(before, state.members)
    if state.epochs.group not in (None, epoch):
        told = _told_before(state, before)
        is_next = is_complete or (state.epochs.group or 0) - (epoch or 0) <= 1
        of_epoch = group_epochs.Known(told, known, is_upgrade, is_new, is_next, batch)
        _begin(state, of_epoch, when, is_complete=is_complete)
        state.gap.is_gapped = lacks_records
    elif (row := _of_kind(state)) is not None:
        state.gap.is_over |= has_moved_on
        changes = _put_off(state, batch, before, changed)
        _amend(state, row, changes, lacks_records=lacks_records)
    if (row := _of_kind(state)) is not None and not (has_moved_on or state.gap.is_over):
        row["subscribed_topics"] = _subscribed(state)
    if is_unwritten or any(r.kind.endswith("target_assignment_metadata") for r in batch):
        _assigned(state, when.at)
    cost.follow(state, before, when, is_known=not (lacks_records or state.gap.is_partial))
    _end_stays(state, sessions & _came_back(batch, epoch), until, last, when)
    _bear_out(state, batch, epoch, None if is_complete else until)
    _enter_if_known(state, last, when)
    _note_leaves(state, batch, before)
    follow(
        state,
        state.members,
        last,
        when,
        generation=state.epochs.group,
        end_cause=CONVERTED if is_upgrade else LEFT,
        replaced=changed.replaced,
        later=state.epochs.unresolved,
    )
    _passed(state, when)


def _may_lack_more(state: GroupState, batch: list[Record]) -> bool:
    """Return whether the state may follow from more than is known, where records are missing."""
    # A share group with a member is Stable, whatever its epoch; others may be at any state.
    has_epoch = state.epochs.group is not None or state.group_type == "share"
    is_told = has_epoch and bool(state.members or _may_be_empty(state))
    # A leave begins an epoch: without one it tells that others may be missing, too.
    return not is_told or _is_leave(batch)


def _begin_unwritten(state: GroupState) -> bool:
    """Let a new group have its first epoch, if no record has it; return whether it has none."""
    # The coordinator begins the next one once a regular expression is resolved, and writes none
    # before that (GroupMetadataManager.consumerGroupHeartbeat up to 4.3).
    epochs = state.epochs
    if epochs.group is not None or state.group_type != "consumer" or not epochs.member:
        return False
    epochs.group = epochs.assignment = max(epochs.member.values())
    return True


def _put_off(
    state: GroupState, batch: list[Record], before: dict[str, Member], changes: Changes
) -> Changes:
    """Leave what begins no epoch before an expression is resolved to that epoch; see `Epochs`."""
    # GroupMetadataManager.maybeUpdateRegularExpressions has it so.
    epochs, members = state.epochs, state.members
    joined, replaced = list(changes.joined), list(changes.replaced)
    predecessors = {new.member_id: old for old, new in replaced}
    told = {r.member_id for r in batch if _has_value(r)}
    if not told and not epochs.unresolved:
        return changes
    for member in [m for k, m in members.items() if k in told]:
        member_id = member.member_id
        old = before.get(member_id) or predecessors.get(member_id)
        is_other = member.regex is not None and (old is None or old.regex != member.regex)
        if is_other and member.regex not in epochs.regexes:
            epochs.unresolved.setdefault(member_id, None if old is None else old.plain())
    for member_id in [m for m in epochs.unresolved if m not in members]:
        del epochs.unresolved[member_id]
    # An expression that matches nothing begins no epoch.
    for member_id in [m for m in epochs.unresolved if members[m].regex in epochs.regexes]:
        was = epochs.unresolved.pop(member_id)
        if was is None:
            joined.append(members[member_id])
        elif was["member_id"] != member_id:
            replaced.append((Member(**was), members[member_id]))
    return Changes(
        [m for m in joined if m.member_id not in epochs.unresolved],
        changes.left,
        [(old, new) for old, new in replaced if new.member_id not in epochs.unresolved],
    )


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


def _told_before(state: GroupState, before: dict[str, Member]) -> dict[str, Member]:
    """Return the members as of the last epoch, without what was left to the next."""
    gone = {member_id: Member(**row) for member_id, row in state.gap.left.items()}
    told, unresolved = before | gone, state.epochs.unresolved
    for member_id in unresolved.keys() & state.members.keys():
        told.pop(member_id, None)
        if (old := unresolved[member_id]) is not None:
            told[old["member_id"]] = Member(**old)
    return told


def _of_epoch(state: GroupState) -> AbstractSet[str]:
    """Return the members that the group's epoch began with, or that came back in it."""
    new = {m for m, old in state.epochs.unresolved.items() if old is None}
    return state.members.keys() - new if new else state.members.keys()


def _taken(
    state: GroupState, batch: list[Record], *, is_complete: bool, names_change: bool
) -> tuple[dict[str, Member], bool]:
    """Let a group be what records say; return who was there, and whether epochs are missing."""
    kind, before, has_others = family(batch[-1].kind), state.members, False
    if state.group_type != kind:
        gaps.clear(state)
        state.group_type, state.epochs, state.members = kind, Epochs(), {}
    else:
        if not is_complete:
            gaps.note(state)
            new = {r.member_id for r in batch if _has_value(r)}
            has_others = not _named(batch) - new <= state.members.keys() | state.gap.absent.keys()
        before = gaps.present(state, _named(batch))
        state.members = dict(before)
    state.gap.is_gapped |= not is_complete
    for record in batch:
        _apply(state, record)
    state.commits, state.live = Commits(), []
    lacks_epoch = not is_complete and _lacks_epoch(batch, before)
    return before, gaps.has_moved_on(
        state, names_change=names_change, has_others=has_others, lacks_epoch=lacks_epoch
    )


def _named(batch: list[Record]) -> set[str]:
    return {r.member_id for r in batch if r.member_id is not None}


def _enter_if_known(state: GroupState, record: Record, when: Moment) -> None:
    """Let the group enter its state, if that follows from what is known."""
    # It may have left the one before since the first record after which it is not told.
    earliest = when.earliest if state.gap.untold is None else state.gap.untold[2]
    if not state.gap.is_partial or (_is_known(state) and _state(state) == STABLE):
        _enter_after_gap(state, record, when._replace(earliest=earliest))
        return
    state.gap.untold = [record.offset, record.timestamp, earliest]
    if state.gap.emptied is None and _state(state) == EMPTY and _is_known(state):
        state.gap.emptied = state.gap.untold


def _note_leaves(state: GroupState, batch: list[Record], before: Container[str]) -> None:
    """Note since when no known member is there, where records are missing."""
    left = _named([r for r in batch if _is_member(r) and r.payload is None])
    is_vacant = not (state.members or state.gap.absent) and all(m in before for m in left)
    if left:
        untold = state.gap.untold if state.gap.is_partial and is_vacant else None
        state.gap.vacant = untold and [*untold, state.epochs.group]


# -- where records are missing ---------------------------------------------------------------------


def _tell(state: GroupState, *, is_placed: bool = False) -> None:
    """Tell the state as of the last record, if all that it follows from is known by now."""
    if state.gap.untold is None or not _is_known(state) or (_newcomers(state) and not is_placed):
        return
    _enter_after_gap(state, *_last_untold(state, state.gap.untold))


def _enter_after_gap(state: GroupState, record: Record, when: Moment) -> None:
    """Let the group enter its state, all that it follows from being known again.

    Where it is in that state still, as far as records tell, it may have been in others meanwhile:
    up to when the state lasted for certain is told by the next one.
    """
    before = state.interval
    if state.gap.vacant is not None and before is not None and state.members:
        # Who came and went unseen would have left a tombstone: most likely nobody was there.
        offset, at, earliest, number = state.gap.vacant
        last, moment = Record(offset or 0, at, "", None, None), Moment(at, earliest, when.at)
        enter(state, EMPTY, moment, last, generation=number, member_count=0)
    _enter(state, record, when)
    if before is None or state.interval is not before:
        state.gap.untold = None
    state.gap.emptied, state.gap.vacant, state.gap.is_partial = None, None, False


def _tell_emptied(state: GroupState) -> None:
    """Let a group be Empty that was deleted unseen: Kafka deletes no group that has members."""
    # Whoever came behind its last epoch, of which nothing was assigned, is of the next life.
    if state.gap.emptied is None or not _may_be_empty(state):
        return
    offset, at, earliest = state.gap.emptied
    record, number = Record(offset or 0, at, "", None, None), state.epochs.group
    enter(state, EMPTY, Moment(at, earliest, at), record, generation=number, member_count=0)


def _refutes_empty(state: GroupState, batch: list[Record]) -> bool:
    """Return whether records go on with an epoch in which no member is known, as members do."""
    if state.members or not state.gap.absent or any(map(is_metadata, batch)):
        return False
    # Who comes with an expression that is not resolved yet comes without an epoch.
    members = [r for r in batch if _is_member(r)]
    has_come = all(_has_value(r) and r.member_id not in state.gap.absent for r in members)
    return not (members and has_come)


def _last_untold(state: GroupState, untold: list[int | None]) -> tuple[Record, Moment]:
    """Return the record after which the state is not told, and its time; see `GroupState`."""
    offset, timestamp, earliest = untold
    record = Record(offset or 0, timestamp, "", None, None)
    return record, lives.moment(state, record)._replace(earliest=earliest)


def _revive(state: GroupState) -> None:
    """Let a group be there again that was Dead, though what state it is in is not known."""
    if state.gap.untold is None or not lives.is_dead(state):
        return
    if state.epochs.target or state.epochs.assignment:
        record, when = _last_untold(state, state.gap.untold)
        number, count = state.epochs.group, len(state.members)
        # Whoever has an assignment for members is Stable, as a rule.
        name = _state(state) if _is_known(state) else STABLE
        enter(state, name, when, record, generation=number, member_count=count)


def tell_the_rest(state: GroupState) -> None:
    """Tell the state of a group of which all was read that the log has."""
    _tell(state, is_placed=True)
    _revive(state)


def _end_rebalance(state: GroupState, record: Record, when: Moment) -> None:
    """Let a rebalance be over in which records went missing: Kafka fences who is too late."""
    if current(state) not in (ASSIGNING, RECONCILING) or state.gap.at is None or when.at is None:
        return
    at = min(state.gap.at + _longest_timeout(state), when.at)
    enter(
        state,
        STABLE,
        Moment(at, state.gap.at, when.at),
        record,
        generation=state.gap.epoch,
        member_count=len(state.members),
    )


def _longest_timeout(state: GroupState) -> int:
    timeouts = [m.rebalance_timeout_ms or gaps.USUAL_TIMEOUT_MS for m in state.members.values()]
    return max(timeouts, default=gaps.USUAL_TIMEOUT_MS)


def _passed(state: GroupState, when: Moment) -> None:
    """Let no time of a group that is there run back behind a record, also if it changed nothing."""
    if lives.is_alive(state):
        state.clock = not_before(state.clock, when.at)


def _entered(
    state: GroupState, batch: list[Record], *, is_complete: bool, is_cut: bool, is_upgrade: bool
) -> tuple[bool, list[Record]]:
    """End the life that a batch ends; return whether another begins, and which records it has."""
    last = batch[-1]
    kind = family(last.kind) or ""
    if state.record_offset is None and not is_complete:
        lives.discard_simple_group(state)
    state.record_offset = last.offset
    if ends := [i for i, r in enumerate(batch) if is_metadata(r) and r.payload is None]:
        # If the group was not known, the rest tells whether it went back to the classic protocol.
        if state.group_type is not None or not is_cut:
            if _state(state) == EMPTY:
                _tell(state)  # Kafka deletes no group that has members, so that it stayed so
            lives.end_by_tombstone(state, last, kind, is_complete=is_complete)
        batch = batch[ends[-1] + 1 :]
    elif state.group_type not in (None, kind) and not is_upgrade:
        _tell_emptied(state)
        lives.end_without_tombstone(state, last)
    elif _begins_again(state, batch, is_complete=is_complete):
        _tell_emptied(state)
        _begin_again(state, last)
        return True, batch
    elif _newcomers(state) and any(map(is_metadata, batch)):
        _tell(state, is_placed=True)
    begins = state.group_type is None
    if begins and all(r.payload is None for r in batch):
        return begins, []  # what was left of a group that is gone
    return begins, batch


def _begins_again(state: GroupState, batch: list[Record], *, is_complete: bool) -> bool:
    """Return whether the epochs of a group begin again: Kafka never lowers one of a group.

    Nor does it write one twice: behind a hole, that of another group may have come as far.
    """
    known, interval = state.epochs.group, state.interval
    if known is None and interval is not None and interval["group_type"] == "classic":
        known = interval["generation"]  # converted, as far as was known
    epochs = [r.payload["epoch"] for r in batch if is_metadata(r) and r.payload is not None]
    if state.epochs.group in epochs and not is_complete:
        return True
    if _newcomers(state):
        epochs += [r.payload["member_epoch"] for r in batch if _is_current(r) and r.payload]
    return known is not None and bool(epochs) and min(epochs) < known


def _newcomers(state: GroupState) -> dict[str, Member]:
    """Return who came to an empty group with an epoch that is missing: of this life, or a new one.

    Only an epoch tells which: each member that comes begins one.
    """
    row = state.interval
    if row is None or row["state"] != EMPTY or row["generation"] != state.epochs.group:
        return {}
    since, stays = row["started_at"] or 0, state.sessions
    absent = {k: m for k, m in state.gap.absent.items() if k in stays}
    return state.members | {k: m for k, m in absent.items() if (stays[k]["joined_at"] or 0) > since}


def _begin_again(state: GroupState, record: Record) -> None:
    """End a group of which the tombstone is missing; who came since it was empty is of the next."""
    kind, epochs, came = state.group_type, state.epochs, _newcomers(state)
    lives.end_without_tombstone(state, record, came)
    if not came:
        return
    state.group_type, state.members = kind, came
    for name in ("member", "is_stable", "owned", "target"):
        known = getattr(epochs, name)
        setattr(state.epochs, name, {k: of for k, of in known.items() if k in came})


def _enter(state: GroupState, record: Record, when: Moment) -> None:
    name, number = _state(state), state.epochs.group
    if name == STABLE:
        _settled(state, when.at)
    elif name == EMPTY:
        lives.tell_conversion(state, record, when)  # a group with members is converted
    enter(state, name, when, record, generation=number, member_count=len(state.members))


def _upgraded(
    state: GroupState,
    batch: list[Record],
    when: Moment,
    before: dict[str, Member],
    *,
    is_complete: bool,
) -> None:
    """Note a join phase of the classic group that the conversion cut short."""
    if not is_complete:
        doubt(state)
    interval = state.interval
    if interval is None or interval["state"] != STABLE:
        return
    state.classic_since = interval["started_at"]
    # All that the group has are converted first, also one that is replaced at once.
    named = {r.member_id for r in batch if _has_value(r)}
    if is_complete and before.keys() - named:
        # A member that left has started it: the others were to re-join, and one came back new.
        state.group_type, kind = "classic", state.group_type
        when = when._replace(earliest=interval["started_at"])
        number, count = interval["generation"], interval["member_count"]
        enter(state, PREPARING, when, batch[-1], generation=number, member_count=count)
        stay = {k: m for k, m in before.items() if k in named}
        replaced = compare(before, state.members).replaced
        follow(state, stay, batch[-1], when, generation=number, end_cause=LEFT, replaced=replaced)
        state.group_type = kind


def _is_creation(state: GroupState, batch: list[Record]) -> bool:
    """Return whether the records themselves show that a group began with them."""
    # Its first epoch is 1, or 2 from Kafka 4.3 on, and all of its members come with it: an epoch
    # that stands there alone is what the cleaner left, of a group whose members all have come back
    # under other ids since (a static member's return makes no epoch).
    named = {r.member_id for r in batch if _is_member(r)}
    epoch, members = state.epochs.group, state.members.keys()
    is_first = epoch is not None and epoch <= _FIRST_EPOCH
    return is_first and bool(members) and state.epochs.member.keys() <= members <= named


def _may_be_empty(state: GroupState) -> bool:
    """Return whether no target assignment was made for the epoch, as behind the last leave."""
    # Only a member lets one be computed (GroupMetadataManager.consumerGroupHeartbeat).
    return (state.epochs.group or 0) > (state.epochs.assignment or 0)


def _is_known(state: GroupState) -> bool:
    """Return whether the records that were read are those that the state follows from."""
    epochs = state.epochs
    if epochs.group is None or (state.group_type == "streams" and epochs.topology is None):
        return False
    is_last = _may_be_empty(state)
    others = {*epochs.member, *epochs.target}.difference(state.gap.absent if is_last else ())
    if not state.members and (others or not is_last):
        return False  # that no member is known makes no group Empty that has assigned to one
    is_ready = state.group_type != "streams" or epochs.topology == epochs.validated
    return epochs.assignment is not None or state.group_type == "share" or not is_ready


# -- what the records hold -------------------------------------------------------------------------


def _apply(state: GroupState, record: Record) -> None:
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


def _begin(
    state: GroupState, of_epoch: group_epochs.Known, when: Moment, *, is_complete: bool
) -> None:
    """Begin an epoch."""
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
    if state.gap.is_gapped and (lasted or 0) > _longest_timeout(state):
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


def _of_kind(state: GroupState) -> Row | None:
    """Return the epoch that is in force; of a group that was converted, records may lack it."""
    row = state.generation
    return row if row is not None and row["group_type"] == state.group_type else None


def _amend(state: GroupState, row: Row, changes: Changes, *, lacks_records: bool) -> None:
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


def _assigned(state: GroupState, at: int | None) -> None:
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


def _subscribed(state: GroupState) -> list[str] | None:
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
    row, epochs = _of_kind(state), state.epochs
    if row is None or row.get("unassigned_topics") is not None or not state.members:
        return
    if epochs.assignment is None or epochs.assignment != epochs.group:
        return
    given = (epochs.target.get(member, {}) for member in state.members)
    if all(topic in state.topic_names for topics in given for topic in topics):
        row["unassigned_topics"] = _unassigned(state, state.last_owners)


def _unassigned(state: GroupState, owners: dict[str, str]) -> list[str] | None:
    subscribed = _subscribed(state)
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


def _settled(state: GroupState, at: int | None) -> None:
    row = state.generation
    if row is None or row["stable_at"] is not None:
        return
    if state.group_type == "share" and row["join_completed_at"] is None:
        return  # a share group is Stable before its members have an assignment, too
    row["stable_at"] = at
    if not state.gap.is_partial:  # else records may be missing of when it was so before
        row["sync_ms"] = elapsed(row["join_completed_at"], at)
        row["rebalance_ms"] = elapsed(row["join_started_at"], at)

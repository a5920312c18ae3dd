"""Groups of the new protocols: consumer (KIP-848), share (KIP-932) and streams (KIP-1071) groups.

The coordinator keeps all of their state in the log, and writes what belongs together in one batch.
After each batch the state follows from what is there (ConsumerGroup.maybeUpdateGroupState and its
siblings): no members, Empty; the group epoch ahead of the target assignment's, Assigning; a member
not stable at that epoch, Reconciling; else Stable. A streams group whose topology is not validated
is NotReady, a share group is Empty or Stable.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from timeline import cost, epoch_rows, gaps, lives
from timeline import epochs as group_epochs
from timeline.gaps import doubt
from timeline.members import CONVERTED, LEFT, Changes, compare, follow
from timeline.model import (
    Batch,
    Commits,
    Epochs,
    GroupState,
    Member,
    Record,
)
from timeline.payloads import apply
from timeline.timeline import (
    ASSIGNING,
    EMPTY,
    NOT_READY,
    PREPARING,
    RECONCILING,
    STABLE,
    Moment,
    current,
    enter,
    not_before,
)

_FAMILIES = ("consumer", "share", "streams")
_FIRST_EPOCH = 2
# To leave, to come back under the same id, and to leave again takes an epoch each (KIP-1082).
_AWAY_EPOCHS = 3


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


def _epoch_of(record: Record) -> int | None:
    """Return the epoch that a member has got to, if a record tells it."""
    return record.payload["member_epoch"] if _is_current(record) and record.payload else None


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
    row, number = state.interval or {}, state.epochs.group
    is_same = row.get("generation") == number == epoch == gaps.newest_epoch(state)
    if is_same and any(_epoch_of(r) == number for r in batch):
        row["known_until"] = None  # no epoch can have been in between
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
    is_skipped = not is_complete and gaps.newest_epoch(state) - (epoch or 0) > 1
    if has_moved_on or is_skipped:
        _end_rebalance(state, last, when, until)
        before = _set_aside(state, batch, before, when.at) if has_moved_on else before
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
        epoch_rows.begin(state, of_epoch, when, is_complete=is_complete)
        state.gap.is_gapped = lacks_records
    elif (row := epoch_rows.of_kind(state)) is not None:
        state.gap.is_over |= has_moved_on
        changes = _put_off(state, batch, before, changed)
        epoch_rows.amend(state, row, changes, lacks_records=lacks_records)
    if (row := epoch_rows.of_kind(state)) is not None and not (has_moved_on or state.gap.is_over):
        row["subscribed_topics"] = epoch_rows.subscribed_topics(state)
    if is_unwritten or any(r.kind.endswith("target_assignment_metadata") for r in batch):
        epoch_rows.assigned(state, when.at)
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


def _told_before(state: GroupState, before: dict[str, Member]) -> dict[str, Member]:
    """Return the members as of the last epoch, without what was left to the next."""
    gone = {member_id: Member(**row) for member_id, row in state.gap.left.items()}
    told, unresolved = before | gone, state.epochs.unresolved
    for member_id in unresolved.keys() & state.members.keys():
        told.pop(member_id, None)
        if (old := unresolved[member_id]) is not None:
            told[old["member_id"]] = Member(**old)
    return told


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
        apply(state, record)
    state.commits, state.live = Commits(), []
    at = batch[-1].timestamp
    if not is_complete and gaps.may_hide_a_life(state, at, state.members.keys()):
        doubt(state)
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
        *untold, number = state.gap.vacant
        _enter_empty(state, untold, number, until=when.at)
    _enter(state, record, when)
    if before is None or state.interval is not before:
        state.gap.untold = None
    state.gap.emptied, state.gap.vacant, state.gap.is_partial = None, None, False


def _tell_emptied(state: GroupState) -> None:
    """Let a group be Empty that was deleted unseen: Kafka deletes no group that has members."""
    # Whoever came behind its last epoch, of which nothing was assigned, is of the next life.
    if state.gap.emptied is None or not _may_be_empty(state):
        return
    _, at, _ = state.gap.emptied
    _enter_empty(state, state.gap.emptied, state.epochs.group, until=at)


def _enter_empty(
    state: GroupState, untold: list[int | None], number: int | None, until: int | None
) -> None:
    """Let a group be Empty since a record behind which its state was not told; see `Gap`."""
    offset, at, earliest = untold
    record = Record(offset or 0, at, "", None, None)
    enter(state, EMPTY, Moment(at, earliest, until), record, generation=number, member_count=0)


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


def _set_aside(
    state: GroupState, batch: list[Record], before: dict[str, Member], at: int | None
) -> dict[str, Member]:
    """Set the members aside that no record names, and return who was there of the others."""
    has_others = _lacks_epoch(batch, before) or not _named(batch) <= before.keys()
    gaps.set_aside(state, at, has_others=has_others)
    return {k: m for k, m in before.items() if k not in state.gap.absent}


def _end_rebalance(state: GroupState, record: Record, when: Moment, since: int | None) -> None:
    """Let a rebalance be over in which records went missing: Kafka fences who is too late."""
    row = state.interval or {}
    is_open = current(state) in (ASSIGNING, RECONCILING)
    if not is_open or since is None or when.at is None:
        return
    at, epoch, count = since + gaps.longest_timeout(state), row["generation"], len(state.members)
    if at < when.at:
        over = Moment(at, since, when.at)
        enter(state, STABLE, over, record, generation=epoch, member_count=count)
        gaps.doubt_group(state, at)


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
        epoch_rows.settled(state, when.at)
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

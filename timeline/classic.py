"""Groups of the classic protocol: what each GroupMetadata record tells of the group.

Kafka writes one when the leader's SyncGroup has been stored, when the group became empty, when a
static member was replaced, when a group was created (Java coordinator), and a tombstone when it is
gone; nothing is written when members join, leave or fail (GroupMetadataManager, ClassicGroup).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from timeline import cause, connect, cost, estimate, gaps, generations, lives, streams
from timeline.gaps import USUAL_TIMEOUT_MS, doubt
from timeline.generations import Moves
from timeline.members import EMPTIED, LEFT, REPLACED, Changes, compare, follow
from timeline.model import (
    Commits,
    Epochs,
    GroupState,
    Member,
    Record,
    Row,
    partition_key,
    partition_of,
)
from timeline.timeline import (
    COMPLETING,
    DEAD,
    EMPTY,
    NEVER,
    PREPARING,
    STABLE,
    Moment,
    current,
    earliest_exit,
    elapsed,
    enter,
    exactly,
    in_state_since,
    not_before,
)

# The cleaner takes whole segments, which are of minutes at least.
_PAUSE_MS = 60_000


def read(state: GroupState, record: Record, *, is_complete: bool, is_cut: bool) -> None:
    """Take a GroupMetadata record that is no part of a conversion, as far as is known.

    If it is complete, no offset is missing between the group's record before and it; if it is cut,
    others of its batch may be.
    """
    if record.payload is None and state.group_type is None and is_cut:
        return  # it may be of a conversion: the rest of its batch would tell
    if record.payload is None:
        lives.end_by_tombstone(state, record, "classic", is_complete=is_complete)
    else:
        if state.group_type not in (None, "classic"):
            lives.end_without_tombstone(state, record)
        members = _members(record.payload, state.members)
        members = _running(state, record.payload, members, is_complete=is_complete)
        is_new = not is_complete and _is_younger(state, record.payload)
        if members and not is_new and _is_replacement(state, record.payload, members):
            _replaced(state, record, members, is_complete=is_complete)
        elif not members and _is_written_again(state, record.payload):
            pass  # by a coordinator that took over: nothing happened
        else:
            _generation(state, record, members, is_complete=is_complete)
    _finish_record(state, record)


def _finish_record(state: GroupState, record: Record) -> None:
    state.usual_pause = estimate.usual_pause(state)
    state.begins_anew = estimate.begins_anew(state)
    state.beats = estimate.beats(state)
    state.commits = Commits()
    state.live = []
    state.record_offset = record.offset
    state.clock = not_before(state.clock, lives.moment(state, record).at)


def begin_simple_group(state: GroupState, record: Record, *, is_exact: bool) -> None:
    """Begin a group that only commits offsets (a simple group): Kafka shows it as Empty."""
    state.group_type = "classic"
    when = lives.moment(state, record)
    if not is_exact:
        when = when._replace(earliest=None)
        if lives.is_dead(state):
            doubt(state)  # it may have been there in between
    enter(state, EMPTY, when, record, generation=0, member_count=0)


def downgrade(state: GroupState, record: Record, *, rebalances: bool, is_whole: bool) -> None:
    """Take the record by which a group of the new protocol becomes a classic one.

    It rebalances if a member left, and not if one was replaced; `is_whole` if no record may be
    missing that shows which.
    """
    members = _members(record.payload or {}, state.members)
    when = lives.moment(state, record)
    lives.tell_conversion(state, record, when)
    known = state.interval["generation"] if state.interval is not None else None
    if not _follows(known, (record.payload or {})["generation"], is_complete=is_whole):
        doubt(state)  # epochs in between may have had other members and owners
    gaps.clear(state)
    state.epochs = Epochs()
    gaps.bear_out_group(state, (record.payload or {})["generation"], when.at)
    if not is_whole:
        when = when._replace(earliest=earliest_exit(state.interval))
    # A rebalance takes seconds, and its end is recorded: where none is known, it is Stable.
    _converted_back(state, record, members, when, rebalances=rebalances and is_whole)
    _finish_record(state, record)


# -- what a record can be ----------------------------------------------------------------------


class _Step(NamedTuple):
    """A record that begins a generation, beside what was known before it."""

    record: Record
    members: dict[str, Member]
    generation: int  # its number
    previous_generation: int | None  # the one in force before; None if it is not known
    previous_state: str | None  # None if it is not known
    missing: int | None  # generations in between that no record tells of; None if that is not known
    when: Moment  # time of the record, when the group was Stable if it has members
    completed: Moment  # when the join phase ended
    is_first: bool  # whether it is certain to be the generation's first record
    is_complete: bool  # whether no offset is missing between the group's last record and it
    follows: bool  # whether nothing was assigned between the generation known before and this one

    @property
    def aborted(self) -> int:
        """How many generations were given up in between for certain."""
        return (self.missing or 0) if self.is_complete else 0


def _is_no_sync(
    state: GroupState, members: dict[str, Member], completed: Moment, stable: Moment
) -> bool:
    """Return whether the time in between cannot be that in which the leader assigned."""
    # Kafka waits no longer than the rebalance timeout for it (classicGroupPendingSync), and takes
    # no commits meanwhile (ClassicGroup.validateOffsetCommit).
    lasted = elapsed(completed.at, stable.at)
    timeouts = (m.rebalance_timeout_ms or USUAL_TIMEOUT_MS for m in members.values())
    if lasted is None or lasted > max(timeouts, default=USUAL_TIMEOUT_MS):
        return lasted is not None
    return state.commits.last is not None and state.commits.last > (completed.at or 0)


def _generation(
    state: GroupState, record: Record, members: dict[str, Member], *, is_complete: bool
) -> None:
    """Take a new generation, with members or without."""
    payload = record.payload or {}
    number = payload["generation"]
    begins_again = _was_recreated(state, record, number, has_members=bool(members))
    if not is_complete:
        at = lives.moment(state, record).at
        if gaps.may_hide_a_life(state, at, members.keys()):
            doubt(state)
    if number == 0 and not members:
        _created(state, record)
        return
    if (
        state.record_offset is None
        and not is_complete
        and (number > 1 or _is_older(state, payload))
    ):
        lives.discard_simple_group(state)
    state.group_type = "classic"
    skew, step = lives.skew(state, record), _step(state, record, members, is_complete=is_complete)
    if not is_complete and step.missing:
        doubt(state)  # generations in between may have had other members and owners
    changes = compare(state.members, members)
    moved = generations.moves(state.members, members, _released(state, step))
    started, before = _started(state, step, changes, moved), state.generation
    waits = _waits(state, step, moved, started)
    _note_least(state, step, started, waits)
    _prepare(state, step, started)
    row = _row(state, step, changes, started)
    row["clock_skew_ms"] = skew
    row |= cost.UNKNOWN if waits is None else cost.of(waits, step.when)
    if members:
        _stable(state, step)
        _fill_leader(row, payload, members, before)
        _fill_assignment(row, step, before, moved)
        if not _is_connect(payload):
            row["unowned_partitions"] = generations.unowned_partitions(members, before, moved)
        since = elapsed(before["stable_at"], started.at) if before is not None else None
        row["cause"], row["cause_detail"] = _cause(state, step, changes, moved, since)
    else:
        enter(state, EMPTY, step.when, record, generation=number, member_count=0)
        row["cause"], row["cause_detail"] = _emptied(changes)
    if begins_again:
        row["cause_detail"] = f"{row['cause_detail']}; the generations began again"
    _follow(state, step, changes, moved, is_connect=_is_connect(payload))
    _keep_released(state, step, moved)
    state.members = members


def _prepare(state: GroupState, step: _Step, started: Moment) -> None:
    """Let the group be in PreparingRebalance; a new one was Empty before."""
    if step.previous_state == DEAD:
        enter(state, EMPTY, started, step.record, generation=0, member_count=0)
    known, count = step.previous_generation or 0, len(state.members)
    enter(state, PREPARING, started, step.record, generation=known, member_count=count)


def _row(state: GroupState, step: _Step, changes: Changes, started: Moment) -> Row:
    """Begin the generation's row."""
    row = generations.begin(
        state,
        step.record,
        generation=step.generation,
        join_started=started,
        join_completed=step.completed,
        stable_at=step.when.at if step.members else None,
        missing=step.missing,
        is_complete=step.is_complete,
    )
    row["protocol_type"] = (step.record.payload or {}).get("protocol_type")
    if not step.is_first:  # how long the leader took is not known
        row["sync_ms"] = None
    generations.fill_members(row, changes, step.members)
    return row


def _step(
    state: GroupState, record: Record, members: dict[str, Member], *, is_complete: bool
) -> _Step:
    """Put what a record that begins a generation says beside what was known before it."""
    payload = record.payload or {}
    number, claimed = payload["generation"], payload.get("current_state_timestamp")
    was = current(state)
    known = state.interval["generation"] if state.interval is not None else None
    when = lives.moment(state, record)
    completed = _join_completed(state, record, members, when, is_complete=is_complete)
    is_own = claimed == record.timestamp
    is_static = any(m.group_instance_id for m in members.values())
    is_first = is_complete or not members or not (is_own or is_static)
    since = earliest_exit(state.interval)
    if not is_first and _is_no_sync(state, members, completed, when):
        # That of a static member that came back: the group had been Stable since the time it tells.
        when, completed = completed._replace(latest=when.latest), completed._replace(earliest=since)
    elif not is_first:
        # It may be that of a static member that came back, and tell when the group became Stable;
        # or that of a conversion, which tells its own time.
        when = when._replace(earliest=since if is_own else completed.earliest)
        completed = completed._replace(earliest=since)
    missing = _missing(known, number, was, is_complete=is_complete)
    follows = _follows(known, number, is_complete=is_complete)
    bounds = (when, completed, is_first, is_complete, follows)
    return _Step(record, members, number, known, was, missing, *bounds)


def _keep_released(state: GroupState, step: _Step, moved: Moves) -> None:
    """Remember what has no owner now, and put down which tasks of Connect wait for one."""
    state.last_owners = _still_there(state, moved.released) if step.members else {}
    state.revoking = sorted({moved.released[p] for p in moved.vanished}) if step.members else []
    waited = state.waiting if state.members and step.follows else {}
    state.waiting = connect.waiting(waited, moved, step.members, step.when.at)
    row = state.generation or {}
    connect.fill_waiting(row, step.members, state.waiting)
    failed = (state.failed or 0) if state.members and step.follows else 0
    state.failed = failed + 1 if connect.has_failed(step.members) else None
    if row.get("protocol") == streams.PROTOCOL:
        row["delay_ms"] = streams.delay_ms(step.members.values(), step.when.at)


def _still_there(state: GroupState, released: dict[str, str]) -> dict[str, str]:
    """Return what waits for an owner, without topics that were deleted: they may be made again."""
    topics = {partition_of(p)[0] for p in cause.without_offsets(released, state.commits.deleted)}
    if not topics:
        return released
    return {p: owner for p, owner in released.items() if partition_of(p)[0] not in topics}


def _released(state: GroupState, step: _Step) -> dict[str, str]:
    """Return the former owners of partitions that the assignor took away to give to others."""
    # A cooperative one takes two generations for that, or some more that follow at once; what has
    # no owner for longer is gone, or nobody wants it.
    protocol = cause.rebalance_protocol((step.record.payload or {}).get("protocol"), step.members)
    before = state.generation
    if step.previous_state == PREPARING:
        return state.last_owners  # of the member whose leave took the group back; see `downgrade`
    if protocol != cause.COOPERATIVE or before is None:
        return {}
    lasted = elapsed(before["stable_at"], step.completed.at)
    # Who is to give something up re-joins within its timeout, and then waits as long for others.
    timeout = 2 * (before["rebalance_timeout_ms"] or USUAL_TIMEOUT_MS)
    timeout += connect.delay_ms(state.members)
    return {} if lasted is not None and lasted > timeout else state.last_owners


def _was_recreated(state: GroupState, record: Record, number: int, *, has_members: bool) -> bool:
    """Return whether the group was recreated without a record of its end, and end it then."""
    # Only a recreated group counts its generations from the start, or has one again, with others in
    # it: what comes next has another number (ClassicGroup.initNextGeneration).
    known = state.interval["generation"] if state.interval is not None else None
    is_again = number == known and current(state) in (EMPTY, STABLE)
    if known is None or (number >= known and not is_again and (number > 0 or has_members)):
        return False
    lives.end_without_tombstone(state, record)
    return number > 0


def _started(state: GroupState, step: _Step, changes: Changes, moved: Moves) -> Moment:
    """Estimate when the rebalance began."""
    end, state.quiet = step.completed.at, None
    if end is None:
        return NEVER
    began = state.interval
    if step.previous_state == PREPARING and began is not None:
        # A join phase that an upgrade cut short goes on after the downgrade.
        earliest = state.classic_since or began["started_at_min"]
        state.classic_since = None
        return Moment(began["started_at"], earliest, began["started_at_max"])
    if step.previous_state in (None, EMPTY, DEAD):
        started = estimate.first_join(state, end, len(step.members), step.aborted)
        if began is not None and started.at is not None and step.is_complete:
            lasted = end - started.at
            state.initial_delay_ms = min(lasted, state.initial_delay_ms or lasted)
        return started
    revoking = _revoking(state, step, changes, moved)
    started = estimate.rejoin(
        *(state, end, step.members, step.aborted),
        is_complete=step.is_complete,
        comes_another=bool(changes.joined),
        revoking=revoking,
    )
    if not (revoking or any(changes) or step.aborted) and connect.wake(state.members, step.members):
        started = estimate.at_once(started, end)
    started = _separated(started, in_state_since(state), end)
    if not step.is_first:
        started = started._replace(earliest=earliest_exit(began))
    if step.is_complete:
        state.quiet = estimate.would_show(state, end, step.members, step.aborted, started.earliest)
        if not step.missing:
            estimate.learn(state, end, step.members)
    return started


def _revoking(state: GroupState, step: _Step, changes: Changes, moved: Moves) -> list[str]:
    """Return the members that had to revoke partitions, and so re-joined at once."""
    # They do whoever comes or goes meanwhile; what workers give up may be gone for good.
    if connect.delay_ms(state.members) or cause.resubscribed(state.members, step.members):
        return []
    is_connect = _is_connect(step.record.payload or {})
    if not _released(state, step) or (is_connect and (any(changes) or not moved.returned)):
        return []
    stay = [m for k, m in step.members.items() if k in state.members]
    return [m.member_id for m in stay if m.identity in state.revoking]


def _separated(started: Moment, before: int | None, end: int) -> Moment:
    """Let a rebalance begin after the state before did, and before its own join phase ended."""
    # Both took their time, if less than a millisecond; whoever orders states by time alone sees
    # them in their order.
    at = started.at
    if at is None or before is None or started.earliest == started.latest or end - before < 2:  # noqa: PLR2004
        return started
    at = min(max(at, before + 1), end - 1)
    earliest = at if started.earliest is None else min(started.earliest, at)
    latest = at if started.latest is None else max(started.latest, at)
    return Moment(at, None if started.earliest is None else earliest, latest)


def _waits(state: GroupState, step: _Step, moved: Moves, started: Moment) -> cost.Waits | None:
    """Return how many members were without partitions of theirs since when; None if unknown."""
    if not step.follows and step.generation > 1:
        state.given_up = {}
        return None  # others may have been there before it, and owned other partitions
    # Who votes for an eager assignor gives up all, whichever one is chosen now
    # (ConsumerCoordinator takes what all of its assignors support).
    protocols = (
        cause.rebalance_protocol((step.record.payload or {}).get("protocol"), step.members),
        (state.generation or {}).get("rebalance_protocol"),
    )
    if cause.EAGER in protocols:
        return cost.stopped(state, step.members, started)
    # It gives up what it is told to once it has the assignment, and re-joins then.
    since = Moment(started.at, earliest_exit(state.interval), step.completed.latest)
    return cost.moved(state, step.members, moved, since)


def _note_least(state: GroupState, step: _Step, started: Moment, waits: cost.Waits | None) -> None:
    """Note what a generation cost at least if it is shown by when it had begun."""
    for number, since in waits or ():
        if state.quiet is not None and since is started:
            sooner = since._replace(latest=max(since.at or 0, state.quiet["by"]))
            state.quiet |= {cost.LEAST: cost.of([(number, sooner)], step.when)[cost.LEAST]}


def _stable(state: GroupState, step: _Step) -> None:
    """Let the leader's assignment be stored: CompletingRebalance is over."""
    for name, when in ((COMPLETING, step.completed), (STABLE, step.when)):
        enter(
            state,
            name,
            when,
            step.record,
            generation=step.generation,
            member_count=len(step.members),
        )


def _fill_assignment(row: Row, step: _Step, before: Row | None, moved: Moves) -> None:
    payload, members = step.record.payload or {}, step.members
    if connect.is_known(members):
        generations.fill_assignment(row, members, moved)
    row["rebalance_protocol"] = cause.rebalance_protocol(payload.get("protocol"), members)
    if _is_connect(payload):
        return
    unassigned = generations.unassigned_topics(members)
    # A static member that comes back may subscribe to others, and nothing is assigned for that
    # (GroupMetadataManager.updateStaticMemberThenRebalanceOrCompleteJoin).
    known = (before or {}).get("subscribed_topics") or ()
    if unassigned is not None and (step.is_first or {*unassigned} <= {*known}):
        row["unassigned_topics"] = unassigned


def _cause(
    state: GroupState, step: _Step, changes: Changes, moved: Moves, since_ms: int | None
) -> tuple[str, str]:
    """Return the cause of a generation with members, and a sentence on it."""
    payload = step.record.payload or {}
    if (
        step.previous_state in (None, EMPTY, DEAD)
        and not state.members
        and not step.previous_generation
    ):
        if step.previous_state is None and step.generation > 1 and step.missing is None:
            return cause.UNKNOWN, cause.FIRST_KNOWN
        count = len(step.members)
        first = f"{count} members" if count > 1 else "member"
        return cause.GROUP_CREATED, f"the first {first} of a new group"
    if step.previous_state == PREPARING and step.follows and not any(changes):
        return cause.CONVERSION, "the rebalance that the return to the classic protocol began"
    is_connect = _is_connect(payload)
    evidence = cause.Evidence(
        before=state.members,
        after=step.members,
        changes=changes,
        protocol=payload.get("protocol"),
        unit="task" if is_connect else "partition",
        moves=moved,
        since_ms=since_ms,
        deleted=state.commits.deleted,
        at=step.completed.at,
        follows=step.follows,
    )
    if is_connect:
        return connect.explain(evidence, follows=step.follows, failed=state.failed or 0)
    return cause.explain(evidence)


def _emptied(changes: Changes) -> tuple[str, str]:
    gone = len(changes.left)
    if not gone:
        return cause.UNKNOWN, "members came and went without a stable generation"
    last = f"{gone} members" if gone > 1 else "member"
    return cause.MEMBER_LEFT, f"the last {last} left or failed"


def _follow(
    state: GroupState, step: _Step, changes: Changes, moved: Moves, *, is_connect: bool
) -> None:
    """Follow who is a member, and who owns what; Connect assigns no partitions of topics."""
    earliest, when, owned = (
        (state.generation or {}).get("join_started_at_min"),
        step.completed,
        step.when,
    )
    if not step.is_first:
        # A static member may have been replaced since: only the record itself shows who is there.
        when = owned = exactly(step.when.latest)
    follow(
        state,
        _with_claims(step, moved),
        step.record,
        when._replace(earliest=earliest),
        generation=step.generation,
        end_cause=LEFT if step.members else EMPTIED,
        replaced=changes.replaced,
        owned=owned,
        has_owners=not is_connect,
    )


def _with_claims(step: _Step, moved: Moves) -> dict[str, Member]:
    """Return the members, with what others were given before they had given it up.

    An assignor whose rebalance takes two steps leaves out of the first what a member still claims;
    that of Kafka's clients did not always (KAFKA-14639). Who claims it has it till the next one.
    Kafka Streams and Connect claim by other means.
    """
    payload, members = step.record.payload or {}, step.members
    if not (moved.moved and step.follows and payload.get("protocol") == cause.COOPERATIVE_STICKY):
        return members
    claims = {m.identity: m for m in _given(payload)}
    held: dict[str, dict[str, list[int]]] = {}
    for part in moved.moved:
        (topic, number), former = partition_of(part), claims.get(moved.former[part])
        if former is not None and number in (former.claimed or {}).get(topic, ()):
            has = held.setdefault(former.member_id, {**(former.assigned or {})})
            has[topic] = [*has.get(topic, ()), number]
    return members | {k: replace(members[k], assigned=has) for k, has in held.items()}


def _created(state: GroupState, record: Record) -> None:
    """Take the record of an empty new group, which the first JoinGroup writes."""
    state.group_type = "classic"
    when = lives.moment(state, record)
    enter(state, EMPTY, when, record, generation=0, member_count=0)
    row = generations.begin(state, record, generation=0, join_completed=when)
    row["cause"] = cause.GROUP_CREATED
    row["cause_detail"] = "the coordinator made the group for its first member"


def _was_cleaned(state: GroupState, at: int | None) -> bool:
    """Return whether the cleaner may have been where records are missing before a time."""
    # It leaves the last that a member commits; markers of transactions look like holes, too.
    pauses = (max(r[2], (at or 0) - r[0]) for r in state.commits.by_member.values())
    return min(pauses, default=_PAUSE_MS) >= _PAUSE_MS


def _replaced(
    state: GroupState, record: Record, members: dict[str, Member], *, is_complete: bool
) -> None:
    """Take the return of a static member: another member id, no rebalance."""
    changes = compare(state.members, members)
    when = lives.moment(state, record)
    if not is_complete and _was_cleaned(state, when.at):
        doubt(state, {old.member_id for old, _ in changes.replaced})  # others may have come between
    row = state.generation
    if row is not None:
        generations.add_replaced(row, generations.replacements(changes))
        row["subscribed_topics"] = generations.subscribed_topics(members) or None
        leader = (record.payload or {}).get("leader")
        if leader:
            row["leader_id"] = leader
    number = (record.payload or {})["generation"]
    why, replaced = REPLACED, changes.replaced
    follow(state, members, record, when, generation=number, end_cause=why, replaced=replaced)
    state.members = members


def _converted_back(
    state: GroupState, record: Record, members: dict[str, Member], when: Moment, *, rebalances: bool
) -> None:
    """Take the group's return from the new protocol: it is classic, and rebalances at once."""
    # Where a static member was replaced by one of the classic protocol, it is Stable and remains so
    # (GroupMetadataManager.convertToClassicGroup).
    number = (record.payload or {})["generation"]
    state.group_type = "classic"
    changes = compare(state.members, members)
    row = generations.begin(
        state,
        record,
        generation=number,
        join_started=when,
        join_completed=when,
        stable_at=None if rebalances else when.at,
    )
    row["protocol_type"] = (record.payload or {}).get("protocol_type")
    row["protocol"] = (record.payload or {}).get("protocol")
    row["cause"] = cause.CONVERSION
    row["cause_detail"] = "the group went back from the new protocol to the classic one"
    generations.fill_members(row, changes, members)
    own, replaced = lives.moment(state, record), changes.replaced
    follow(state, members, record, own, generation=number, end_cause=LEFT, replaced=replaced)
    name = PREPARING if rebalances else STABLE
    enter(state, name, when, record, generation=number, member_count=len(members))
    state.revoking = []
    state.last_owners = {
        partition_key(state.topic_names[topic], partition): gone.identity
        for gone in changes.left
        for topic, partitions in (gone.assigned or {}).items()
        if topic in state.topic_names
        for partition in partitions
    }
    if not rebalances:
        state.classic_since = None
    state.members = members


# -- the parts of a record -----------------------------------------------------------------------


def _members(payload: Row, before: dict[str, Member]) -> dict[str, Member]:
    """Read the members of a record; those that are as before are the same objects."""
    members = {}
    for member in _given(payload):
        known = before.get(member.member_id)
        members[member.member_id] = known if known is member or known == member else member
    return members


def _given(payload: Row) -> list[Member]:
    # A checkpoint has kept the members of the last batch as plain data.
    given = payload.get("members") or ()
    return [m if isinstance(m, Member) else Member(**m) for m in given]


def _running(
    state: GroupState, payload: Row, members: dict[str, Member], *, is_complete: bool
) -> dict[str, Member]:
    """Return workers of Connect with all that they run; other members as they are."""
    if not _is_connect(payload):
        return members
    last = state.interval["generation"] if state.interval is not None else None
    follows = _follows(last, payload["generation"], is_complete=is_complete)
    before = state.members if follows else {}
    return {k: connect.running(m, before.get(k)) for k, m in members.items()}


def _follows(known: int | None, number: int, *, is_complete: bool) -> bool:
    """Return whether no generation that was assigned may be missing before a record."""
    return is_complete or (known is not None and number - known <= 1)


def _is_connect(payload: Row) -> bool:
    return payload.get("protocol_type") == connect.PROTOCOL_TYPE


def _is_written_again(state: GroupState, payload: Row) -> bool:
    """Return whether a record without members tells of the state that the group is known to be in.

    One that became empty later is another group of the same id.
    """
    if current(state) != EMPTY or not _same_generation(state, payload):
        return False
    return _later(state, payload) <= 0


def _is_older(state: GroupState, payload: Row) -> bool:
    """Return whether a record tells of a state that began before the first that is known."""
    return _later(state, payload) < 0


def _is_younger(state: GroupState, payload: Row) -> bool:
    """Return whether a record tells of a state that began after the one that is known."""
    # The coordinator is Stable some time after the record's own, when it has been stored.
    return _later(state, payload) > _PAUSE_MS


def _later(state: GroupState, payload: Row) -> int:
    """Return how much later than the known state the one that a record tells of began.

    In milliseconds; 0 if one of the times is not known.
    """
    since, claimed = in_state_since(state), payload.get("current_state_timestamp")
    return 0 if since is None or claimed is None else claimed - since


def _same_generation(state: GroupState, payload: Row) -> bool:
    return state.interval is not None and state.interval["generation"] == payload["generation"]


def _is_replacement(state: GroupState, payload: Row, members: dict[str, Member]) -> bool:
    """Return whether a record was written for a static member's return, or written again."""
    return (
        current(state) == STABLE
        and _same_generation(state, payload)
        and {m.identity for m in members.values()} == {m.identity for m in state.members.values()}
    )


def _join_completed(
    state: GroupState,
    record: Record,
    members: dict[str, Member],
    when: Moment,
    *,
    is_complete: bool,
) -> Moment:
    """Return when the join phase ended: the record has that time, from value version 2 on."""
    at, own = when.at, record.timestamp
    if not members or at is None:
        return when
    claimed = (record.payload or {}).get("current_state_timestamp")
    if claimed is not None:
        # Both are times of one clock, so that it lies as long before the record as it says.
        moved = claimed if own is None else claimed + at - own
        ended = min(max(moved, state.clock or moved), at)
        if when.is_exact and ended == claimed:
            return exactly(ended)
        is_bound = record.until is None and claimed <= at
        earliest = claimed if is_bound else state.clock
        return Moment(ended, None if earliest is None else min(ended, earliest), at)
    since = in_state_since(state)
    # Commits are refused while the leader assigns, so the phase began after the last of them; but
    # for those of transactions, whose markers take offsets (ClassicGroup.validateOffsetCommit).
    last = state.commits.last if is_complete else None
    known = [t for t in (since, last) if t is not None and t <= at]
    return Moment(at, max(known, default=None), at)


def _missing(known: int | None, number: int, was: str | None, *, is_complete: bool) -> int | None:
    """Count the generations between two records: aborted ones, or lost with their records."""
    if known is not None:
        return max(0, number - known - 1)
    if was == DEAD or is_complete:
        return max(0, number - 1)
    return None


def _fill_leader(row: Row, payload: Row, members: dict[str, Member], before: Row | None) -> None:
    leader = payload.get("leader")
    row["protocol"] = payload.get("protocol")
    row["leader_id"] = leader
    row["leader_client_id"] = members[leader].client_id if leader in members else None
    if before is not None and before["leader_id"] is not None:
        row["leader_changed"] = before["leader_id"] != leader

"""When did PreparingRebalance begin? No record says; what bounds it, and what narrows it.

The rules are Kafka's and its clients'. An empty group waits the broker's initial delay for more
members, and once more if another came while it waited (`InitialDelayedJoin`). A member of a group
that works learns of the rebalance by its next heartbeat, so the join phase lasts about as long as
the slowest of the members that remain takes to send one. Members that have re-joined commit nothing
until the next generation, so a pause that is unusual for a member is a sign, unless all of them
have nothing to commit: then nobody goes on. Who does is waited for. A member that leaves commits
once more before it does; and one that does not poll in time leaves without a word, and comes back
when it is done, so that in a group of such members rebalances begin at any time.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

from timeline.members import client
from timeline.model import GroupState, Member, Row
from timeline.timeline import Moment, earliest_exit, in_state_since

# group.initial.rebalance.delay.ms, as brokers have it unless configured otherwise.
_INITIAL_DELAY_MS = 3_000
# heartbeat.interval.ms of the Java client and of librdkafka, unless configured otherwise.
_HEARTBEAT_MS = 3_000
# With a session timeout too short for that, people set the interval too: to a third of it, as the
# clients' documentation asks at most, down to a tenth. This is the middle of it by ratio.
_SHORT_SESSION_MS = 3 * _HEARTBEAT_MS
_HEARTBEATS_A_SESSION = 5.5
# How many rebalances back the time that members took to learn of one is remembered.
_CYCLES = 8
# A cycle lasts some heartbeats; it takes a client so much longer to send one, and to join.
_SLOWER_MS = 200
# So many cycles show by which heartbeats the members learn of a rebalance.
_SHOWN = 3
# A pause this much longer than the group usually makes between two commits is not its rhythm.
_UNUSUAL_PAUSE = 1.25
# So many pauses show a rhythm.
_PAUSES = 2
# A clock's pause is shorter than usual by this at least, and by so many times what they differ by.
_EXACT_MS = 300
_SPREADS = 4
# So many of the last rebalances with a member that exceeds its time to poll show that it is usual.
_OVERDUE = 3
# Of these, one that committed in the background until it left.
_UNPOLLED = 2
# So many members that re-joined at once show that nobody was waited for.
_TOGETHER = 2
# Such a member has been there for its rebalance timeout at least, and a few batches at most.
_POLLS = (0.9, 5)
# Workers that read of a new configuration at one time join within a fraction of a second: it takes
# them a poll of the config topic.
_AT_ONCE_MS = 120
# Where most exceed it, who comes back begins a rebalance after such a part of the time until the
# first of the others falls silent. No rule of Kafka's says so: of those played, less time is missed
# than by a third, and as little told wrong.
_BEGAN = 4


def first_join(state: GroupState, end: int, member_count: int, missing: int) -> Moment:
    """Estimate when an empty group began to wait for members, from when it stopped to."""
    since = in_state_since(state)
    generation = state.interval["generation"] if state.interval is not None else None
    if (
        state.generation is not None
        and state.generation["cause"] == "group_created"
        and not generation
    ):
        # The record of an empty new group is written by the first JoinGroup itself.
        return Moment(since, earliest_exit(state.interval), end)
    delay = min(state.initial_delay_ms or _INITIAL_DELAY_MS, _INITIAL_DELAY_MS)
    waits = 2 if member_count > 1 else 1
    return _within(state, end - delay * (waits + missing), earliest_exit(state.interval), end)


def rejoin(
    state: GroupState,
    end: int,
    members: dict[str, Member],
    missing: int,
    *,
    is_complete: bool,
    comes_another: bool,
    revoking: Sequence[str] = (),
) -> Moment:
    """Estimate when the members of a working group began to re-join.

    The group before is in force since its interval began; `missing` generations in between were
    aborted. Unless it is complete, a record is missing in between, and neither those who were
    members are known, nor what they committed. `comes_another` is whether a member joined that
    replaces nobody; `revoking` are the members that re-joined because the last generation revoked
    partitions of theirs.
    """
    since = in_state_since(state)
    earliest = earliest_exit(state.interval)
    if is_complete and not missing:
        # Kafka waits no longer than the largest rebalance timeout of any member.
        timeout = _longest_timeout([*state.members.values(), *members.values()])
        if timeout is not None and (earliest is None or end - timeout > earliest):
            earliest = end - timeout
    remaining = len(state.members.keys() & members.keys())
    joined = len(members.keys() - state.members.keys())
    if not missing and len(state.members) == 1 and not joined:
        # The only member re-joined, or left: there was nobody to wait for.
        return Moment(end, earliest, end)
    if revoking and since is not None:
        # They commit as they give them up, and then re-join.
        rhythms = state.commits.by_member
        first = min(rhythms[m][0] if m in rhythms else since for m in revoking)
        return _within(state, first, earliest, end)
    if is_complete and not missing:
        began = _as_polls_were_due(state, end, members, comes_another=comes_another)
        if began is not None:
            return _within(state, began, earliest, end)
    left = len(state.members) - remaining
    silence = _silence(state, end, members, missing, earliest) if is_complete else 0
    if members and not remaining:
        # Members that were replaced while Kafka still waited for them; as often as attempts were
        # given up, if that is why they fell silent.
        lasted = max(_wait(state) * (1 + missing * _stood_still(state, end, missing)), silence)
        return _within(state, end - lasted, earliest, end)
    heartbeat = _heartbeat(state, members.values())
    # Who has to learn of it; of several changes, the first has started it.
    waited_for = remaining if joined or left or missing else remaining - 1
    events = max(waited_for, joined + left) if members else remaining
    lasted = heartbeat * events // (events + 1) + heartbeat * missing
    if members and is_complete and not missing:
        lasted = _since_farewell(state, end, members, heartbeat, lasted)
    lasted = max(lasted, silence)
    if missing and left and not joined:
        # A leader that never assigned: its session ended the generation that was given up.
        lasted = max(lasted, _session_of_gone(state, end, members, heartbeat))
    return _within(state, end - lasted, earliest, end)


def at_once(started: Moment, end: int) -> Moment:
    """Let a join phase last as long as members take that all re-join by themselves."""
    at = None if started.at is None else max(started.at, end - _AT_ONCE_MS)
    return started._replace(at=at)


def learn(state: GroupState, end: int, members: dict[str, Member]) -> None:
    """Note how soon members that remained had learnt that others joined or left.

    In a storm the next rebalance begins at once, and a heartbeat later everybody has re-joined.
    """
    if members:  # those of a job that end together leave nobody who waits
        state.overdue = [*state.overdue, _overdue(state, end, members)][-_CYCLES:]
    began = in_state_since(state)
    if began is None or state.members.keys() == members.keys():
        return
    if state.members.keys() & members.keys():
        state.cycles = [*state.cycles, end - began][-_CYCLES:]


def _heartbeat(state: GroupState, members: Iterable[Member]) -> int:
    """Return the heartbeat interval of the members, as far as it can be guessed."""
    session = max((m.session_timeout_ms or 0 for m in members), default=0) or _SHORT_SESSION_MS
    usual = _HEARTBEAT_MS if session >= _SHORT_SESSION_MS else session / _HEARTBEATS_A_SESSION
    if session > _HEARTBEAT_MS and _are_of(_HEARTBEAT_MS, state.cycles):
        return _HEARTBEAT_MS
    # The shortest but one: one alone may be chance.
    seen = sorted(state.cycles)[:2]
    return min(int(usual), seen[-1]) if seen else int(usual)


def _are_of(heartbeat: int, cycles: list[int]) -> bool:
    """Return whether most cycles ended with a heartbeat."""
    # A member sends them at equal distances, the first one after it was given its assignment. What
    # is a cycle by chance is so once in ten times.
    fitting = [
        -_SLOWER_MS / 2 <= c - round(c / heartbeat) * heartbeat <= _SLOWER_MS
        for c in cycles
        if c >= heartbeat - _SLOWER_MS
    ]
    return len(fitting) >= _SHOWN and sum(fitting) > len(cycles) / 2


def _wait(state: GroupState) -> int:
    """Return how long Kafka waits for members that do not answer: till sessions end, at most."""
    timeouts = [
        min(t for t in (m.session_timeout_ms, m.rebalance_timeout_ms) if t)
        for m in state.members.values()
        if m.session_timeout_ms or m.rebalance_timeout_ms
    ]
    return max(timeouts, default=0)


def _since_farewell(
    state: GroupState, end: int, members: dict[str, Member], heartbeat: int, lasted: int
) -> int:
    """Return how long a rebalance lasted if a member that is gone began it; else what is given."""
    # Clients commit once more before they leave, and the leaving starts the rebalance. One that did
    # so before its time was going; of another, its last commit may have been long before.
    gone = {m: last for m, (last, *_) in state.commits.by_member.items() if m not in members}
    early, since = _rejoined(state, end, gone), end - heartbeat * _UNUSUAL_PAUSE
    left = {m: last + _unnoticed(state.members[m]) for m, last in gone.items()}
    last = [at for m, at in left.items() if at <= end and (m in early or at >= since)]
    if not last:
        return lasted
    # Where somebody joined as well, either may have come first.
    joined = members.keys() - state.members.keys()
    return max(lasted if joined else 0, end - min(last))


def _as_polls_were_due(
    state: GroupState, end: int, members: dict[str, Member], *, comes_another: bool
) -> int | None:
    """Return when a rebalance of members that exceed their time to poll began; None if of others.

    One that exceeded it begins it as it leaves; one that had left before is back as another member
    when it is done, and begins one as it joins.
    """
    since = in_state_since(state)
    if since is None:
        return None
    is_usual = _exceed_polls(state)
    due = min(_polls_due(state, since, end, members), default=end)
    # Within a heartbeat of the end is hardly chance.
    is_due = (since if is_usual else end - _heartbeat(state, members.values())) <= due < end
    if not (is_usual or is_due):
        return None
    stay = {m: r for m, r in state.commits.by_member.items() if m in members}
    young = _young(state, end)
    first = min([due, *(last for last, *_ in stay.values())])
    is_at_once = len(stay) >= _TOGETHER and _are_together(_rejoined(state, end, stay), len(stay))
    if is_due and not comes_another:
        began = due
    elif not comes_another or not is_usual or len(young) <= len(state.members) / 2:
        return None
    elif is_at_once or (len(stay) >= _TOGETHER and end - first <= _HEARTBEAT_MS):
        return None  # they re-joined at once, as in a deployment, or when a session had ended
    else:
        began = since + (first - since) // _BEGAN
    # Who commits as it polls re-joined within a heartbeat; so did who has been there for long.
    polls = stay.keys() - (young if _commit_unpolled(state) and not is_at_once else set())
    return max(began, end - _waited_for_polls(state, end, polls))


def _waited_for_polls(state: GroupState, end: int, member_ids: Container[str]) -> int:
    """Return for how long members that commit as they poll can have waited; `end` without any."""
    rejoined = _rejoined(state, end, member_ids)
    waited = [
        end - rejoined[m] if m in rejoined else max(longest, end - last)
        for m, (last, moments, longest, *_) in state.commits.by_member.items()
        if m in member_ids and (m in rejoined or moments > _PAUSES)
    ]
    return round(_HEARTBEAT_MS * _UNUSUAL_PAUSE) + min(waited, default=end)


def _polls_due(
    state: GroupState, since: int, end: int, members: dict[str, Member]
) -> Iterator[int]:
    """Return by when members that are gone, and had something to commit, had to poll."""
    is_usual = _exceed_polls(state)
    for member_id in _working(state):
        member = state.members[member_id]
        timeout = member.rebalance_timeout_ms
        # That timeout of a worker of Connect is another.
        if member_id in members or not timeout or member.worker is not None:
            continue
        timeout += _unnoticed(member)
        # All polled as they got their assignment; who commits what it has read as it polls, by its
        # last commit, too. Who commits by a clock in the background goes on until it leaves.
        polled = state.commits.by_member.get(member_id, [since])[0]
        is_late = polled < since + timeout <= end < polled + timeout
        beat = _beat_of(state, member_id)
        if is_usual and (_left_unpolled(state, since, member_id) or (is_late and not beat)):
            yield since + timeout
        elif is_usual and beat and _commit_unpolled(state):
            yield max(since + timeout, polled + beat // 2)
        else:
            yield polled + timeout


def _unnoticed(member: Member) -> int:
    """Return for how long Kafka takes a member that has left to be there."""
    # A static member does not leave: its session ends (AbstractCoordinator.maybeLeaveGroup).
    return 0 if member.group_instance_id is None else member.session_timeout_ms or 0


def _left_unpolled(state: GroupState, since: int, member_id: str) -> bool:
    """Return whether a member committed by a clock till its first time to poll was over."""
    due = since + (state.members[member_id].rebalance_timeout_ms or 0)
    last = state.commits.by_member.get(member_id, [due])[0]
    return last < due < last + _beat_of(state, member_id) * _UNUSUAL_PAUSE


def _session_of_gone(
    state: GroupState, end: int, members: dict[str, Member], heartbeat: int
) -> int:
    """Return how long a rebalance lasts in which a session ends of one that is gone; 0 if none."""
    # None did if the state before began too late for that, or if somebody committed in the
    # meantime: nobody can while the leader is to assign.
    sessions = (m.session_timeout_ms or 0 for k, m in state.members.items() if k not in members)
    lasted = max(sessions, default=0) + heartbeat
    since = in_state_since(state)
    last = max(since or 0, state.commits.last or 0)
    return lasted if since is not None and last <= end - lasted + heartbeat else 0


def _silence(
    state: GroupState, end: int, members: dict[str, Member], missing: int, earliest: int | None
) -> int:
    """Return how long a rebalance lasted by those that re-joined first; 0 if none shows it."""
    rejoined = _rejoined(state, end, members)
    first = min(rejoined.values(), default=end)
    changed = members.keys() ^ state.members.keys()
    if rejoined and changed and not _rejoined(state, end, changed):
        # It learnt of it by a heartbeat. All begin theirs with the assignment, so that the first is
        # due after half of one, however many there are. With the same members, one of them has
        # begun it, and who commits as it goes shows when it did.
        first -= _heartbeat(state, members.values()) // 2
    return max(end - first, _pause(state, end, members, missing, earliest))


def _pause(
    state: GroupState, end: int, members: dict[str, Member], missing: int, earliest: int | None
) -> int:
    """Return how long a rebalance lasted by an unusual pause of some that stay; 0 if none is."""
    # Their partitions were committed again and again, and then no more, while those of a member
    # that was waited for were, or till the session of one that is gone was over.
    since = in_state_since(state)
    if since is None:
        return 0
    rhythms = {m: state.commits.by_member.get(m, [since, 1, 0, 0, 0, 0]) for m in _working(state)}
    stay = {m: r for m, r in rhythms.items() if m in members or missing}
    stay = _may_wait(state, end, stay, earliest)
    quiet = [(last, usual, member_id) for member_id, last, usual in _quiet(state, end, stay)]
    if not quiet:
        return _since_one_left(state, end, members)[0]
    first, usual, member_id = min(quiet)
    if missing:
        return end - first if _took_all(state, end, first, missing) else 0
    if len(quiet) == len(stay) and _waited(state, end - first, members):
        return end - first - _on_the_way(state, end, members, member_id)
    # Who has committed nothing at all may have had nothing to commit.
    first, usual, _ = min((q for q in quiet if q[0] > since), default=(end, 0, ""))
    goes_on = max(last for last, *_ in rhythms.values()) - first > _unusual(usual)
    return max(end - first if goes_on else 0, _since_one_left(state, end, members)[0])


def _took_all(state: GroupState, end: int, first: int, missing: int) -> bool:
    """Return whether attempts that were given up took all the time since a member fell silent."""
    # A leader that does not assign is given up when its session or its time to poll is over.
    slack = (state.usual_pause or 0) + _HEARTBEAT_MS * (missing + 1)
    rest = (end - first - missing * timeout for timeout in _timeouts(state))
    return _stood_still(state, end, missing) or any(0 <= ms <= slack for ms in rest)


def _stood_still(state: GroupState, end: int, missing: int) -> bool:
    """Return whether attempts that were given up are why members that fell silent did so.

    Else there may have been nothing to commit: a deployment aborts some within seconds.
    """
    since = in_state_since(state)
    least = min(_timeouts(state), default=0) + _HEARTBEAT_MS
    is_all = since is not None and end - since <= least * (missing + 1)
    return is_all or _second(_before_time(state, end, state.members)) is not None


def _timeouts(state: GroupState) -> set[int]:
    """Return for how long Kafka waits for members that do not answer."""
    members = state.members.values()
    both = (t for m in members for t in (m.session_timeout_ms, m.rebalance_timeout_ms))
    return {timeout for timeout in both if timeout}


def _on_the_way(state: GroupState, end: int, members: dict[str, Member], member_id: str) -> int:
    """Return how long after its last commit a rebalance began that kept a member from the next.

    Who commits at equal distances, and not once more as it re-joins, learns of the rebalance by a
    heartbeat, at any time between the two.
    """
    if member_id in _rejoined(state, end, members):
        return 0
    return max(0, _beat_of(state, member_id) - _heartbeat(state, members.values())) // 2


def _exceed_polls(state: GroupState) -> bool:
    """Return whether members that exceed their time to poll are usual."""
    return sum(map(bool, state.overdue)) >= _OVERDUE


def _commit_unpolled(state: GroupState) -> bool:
    """Return whether members commit in the background, whether they poll or not."""
    return _UNPOLLED in state.overdue


def _since_one_left(
    state: GroupState, end: int, members: dict[str, Member]
) -> tuple[int, str | None, int]:
    """Return how long all waited since a member left, which one, and by when Kafka knew; or 0.

    It had committed again and again, and then no more, while one that is there committed nothing
    either before it re-joined: it was busy, and waited for.
    """
    rhythms = state.commits.by_member
    stay = [r for m, r in rhythms.items() if m in state.members and m in members]
    found: tuple[int, str | None, int] = (0, None, end)
    for member_id, member in state.members.items():
        last, moments, usual, *_ = rhythms.get(member_id, [end, 0, 0])
        # Who does not poll leaves when its time to do so is over; who dies, with its session.
        timeouts = member.rebalance_timeout_ms or 0, member.session_timeout_ms or 0
        noticed = last + round(_unusual(usual)) + timeouts[1]
        if member_id in members or moments <= _PAUSES or not noticed < end <= last + timeouts[0]:
            continue
        behind = [(at - last, pause) for at, _, pause, *_ in stay if at - last > _unusual(usual)]
        if any(pause >= ms for ms, pause in behind) and end - last > found[0]:
            found = end - last, member_id, noticed
    return found


def _quiet(
    state: GroupState, end: int, rhythms: dict[str, list[int]]
) -> Iterator[tuple[str, int, int]]:
    """Return who had not committed for unusually long, since when, and what is usual."""
    for member_id, (last, moments, longest, *_) in rhythms.items():
        usual = longest if moments > _PAUSES else state.beats.get(member_id, state.usual_pause)
        if usual is not None and end - last > _unusual(usual):
            yield member_id, last, usual


def _may_wait(
    state: GroupState, end: int, rhythms: dict[str, list[int]], earliest: int | None
) -> dict[str, list[int]]:
    """Return the commits of who was not silent before the rebalance can have begun.

    Who was hangs, or has nothing to read.
    """
    hung = {m for m, last, usual in _quiet(state, end, rhythms) if last + usual < (earliest or 0)}
    return {m: r for m, r in rhythms.items() if m not in hung}


def _unusual(pause: int) -> float:
    return max(pause, _HEARTBEAT_MS) * _UNUSUAL_PAUSE


def would_show(
    state: GroupState,
    end: int,
    members: dict[str, Member],
    missing: int,
    earliest: int | None,
) -> Row | None:
    """Return what commits behind a join phase would show that it had begun by some time.

    A member that committed again and again fell silent, while one that is there, too, went on; or
    all did, while attempts to rebalance were given up. If its partitions are committed again as
    soon as the group is stable, there was something to commit all the time: it waited. So
    `partitions`, by their hashes, have to be committed `within` so many ms from when the group is
    stable; `by` is when the join phase had begun then, and `last` who re-joined last. It cannot
    have begun before `earliest`.
    """
    rhythms = {m: r for m, r in state.commits.by_member.items() if m in state.members}
    if missing:
        shown = _given_up(state, end, rhythms, missing)
    else:
        shown = _fell_silent(state, end, rhythms, members, earliest)
    if shown is None or shown["by"] < (earliest or 0):
        return None
    if not missing:
        shown["last"] = _last_to_rejoin(state, end, shown["by"], members)
    # What a member that stays has lost to another is committed again, whether it waited or hung.
    stay = ((m, members[k]) for k, m in state.members.items() if k in members)
    moved = {p for old, new in stay for p in old.committing.keys() - new.committing.keys()}
    shown["partitions"] = [p for p in shown["partitions"] if p not in moved]
    return shown


def _last_to_rejoin(state: GroupState, end: int, by: int, members: Container[str]) -> Row | None:
    """Return who re-joined last, and still worked when others had re-joined; None if not known."""
    # Clients commit once more right before they do, and with the last of them the join phase ends;
    # else it is the session of one that is gone which did.
    since = max(by, end - _HEARTBEAT_MS)
    went_on = {m: last for m, (last, *_) in state.commits.by_member.items() if last > since}
    stayed = [m for m in went_on if m in state.members and m in members]
    last = max(stayed, key=went_on.__getitem__, default=None)
    return None if last is None else client(state.members[last])


def _fell_silent(
    state: GroupState,
    end: int,
    rhythms: dict[str, list[int]],
    members: dict[str, Member],
    earliest: int | None,
) -> Row | None:
    """Return what would show that members waited who fell silent, or re-joined together."""
    stay = {m: r for m, r in rhythms.items() if m in members}
    known = {m: r for m, r in stay.items() if r[1] > _PAUSES or m in state.beats}
    quiet = list(_quiet(state, end, _may_wait(state, end, known, earliest)))
    _, first, usual = min(quiet, key=lambda q: q[1], default=("", end, 0))
    if not quiet or max(last for last, *_ in stay.values()) - first <= _unusual(usual):
        _, gone, by = _since_one_left(state, end, members)
        if gone is not None:
            return _shown(state, [gone], by, rhythms[gone][2])
        return _together(state, _before_time(state, end, stay))
    by = min(last + usual for _, last, usual in quiet)
    return _shown(state, [m for m, *_ in quiet], min(by, end), max(usual for *_, usual in quiet))


def _together(state: GroupState, rejoined: dict[str, int]) -> Row | None:
    """Return what would show that members committed before their time as they learnt of it."""
    by = _second(rejoined)
    if by is None:
        return None
    usual = max(state.commits.by_member[m][2] for m in rejoined)
    return _shown(state, list(rejoined), by, usual)


def _are_together(rejoined: dict[str, int], every: int) -> bool:
    """Return whether all of so many re-joined within a heartbeat."""
    times = rejoined.values()
    return len(times) == every and max(times) - min(times) <= _HEARTBEAT_MS


def _second(rejoined: dict[str, int]) -> int | None:
    """Return when the second of some that re-joined did, if that was at once; None if not."""
    # One may commit before its time for another reason, but not two of them within a heartbeat.
    times = sorted(rejoined.values())[:_TOGETHER]
    is_shown = len(times) == _TOGETHER and times[-1] - times[0] <= _HEARTBEAT_MS
    return times[-1] if is_shown else None


def _given_up(
    state: GroupState, end: int, rhythms: dict[str, list[int]], missing: int
) -> Row | None:
    """Return what would show that a group stood still, when attempts to rebalance were given up."""
    if not rhythms:
        return None
    usual = max(longest for _, _, longest, *_ in rhythms.values())
    last = max(last for last, *_ in rhythms.values())
    by = min(last + max(usual, _HEARTBEAT_MS), end)
    if end - last <= _unusual(usual) or not _stood_still(state, end, missing):
        return None
    return _shown(state, list(state.members), by, usual)


def _shown(state: GroupState, member_ids: list[str], by: int, usual: int) -> Row:
    partitions = {p for m in member_ids for p in state.members[m].committing}
    # Who has just got its partitions may take longer to commit than usual.
    sessions = (state.members[m].session_timeout_ms or 0 for m in member_ids)
    within = round(_unusual(max(usual, *sessions)))
    return {"partitions": sorted(partitions), "by": by, "within": within}


def _working(state: GroupState) -> list[str]:
    """Return the members that have something to commit."""
    return [k for k, m in state.members.items() if m.assigned_topics]


def _waited(state: GroupState, ms: int, members: dict[str, Member]) -> bool:
    """Return whether Kafka can have waited so long for members that are gone, or were away."""
    # Where another joined, the session of the former has to end; else a member was too late.
    known = state.members
    gone = [k for k in known if k not in members]
    if any(k not in known for k in members):
        sessions = (known[k].session_timeout_ms or 0 for k in gone or known)
        return ms <= max(sessions, default=-_HEARTBEAT_MS) + _HEARTBEAT_MS
    timeouts = (known[k].rebalance_timeout_ms or 0 for k in gone)
    return abs(ms - max(timeouts, default=0)) <= _HEARTBEAT_MS


def _young(state: GroupState, end: int) -> set[str]:
    """Return the members that have been there for a few of their times to poll at most."""
    joined = {k: row["joined_at"] for k, row in state.sessions.items() if k in state.members}
    most = {k: _POLLS[1] * (state.members[k].rebalance_timeout_ms or 0) for k in joined}
    return {k for k, at in joined.items() if at is not None and end - at <= most[k]}


def _overdue(state: GroupState, end: int, members: dict[str, Member]) -> int:
    """Return whether a member is gone that had been there for about as long as it may not poll.

    `_UNPOLLED` says that it had committed until then, in the background. Another that committed
    later than that counts where members do: else it polled, and something else ended it.
    """
    since, commits = in_state_since(state), state.commits.by_member
    is_usual = state.overdue.count(_UNPOLLED) > 1
    gone = state.members.keys() - members.keys()
    found = 0
    # Who commits before its time as it goes was stopped.
    for member_id in gone - _rejoined(state, end, gone).keys():
        session, member = state.sessions.get(member_id), state.members[member_id]
        joined = None if session is None else session["joined_at"]
        timeout = member.rebalance_timeout_ms
        if joined is None or not timeout or member.worker is not None:
            continue
        least, most = _POLLS
        if least <= (end - joined) / timeout <= most:
            if since is not None and _left_unpolled(state, since, member_id):
                found = _UNPOLLED
            elif is_usual or end - commits.get(member_id, [joined])[0] >= least * timeout:
                found = max(found, 1)
    return found


def _rejoined(state: GroupState, end: int, members: Container[str]) -> dict[str, int]:
    """Return which of the members committed before their time, and when: as they re-joined.

    Where clocks begin with the assignment, that may be what they commit first. No alarm rests on
    this: another process may be configured otherwise.
    """
    early = _before_time(state, end, members)
    if not state.begins_anew:
        return early
    usual = max(state.beats.values(), default=0)
    return early | {
        m: last
        for m, (last, moments, *_, first) in state.commits.by_member.items()
        if m in members
        and last <= end
        and moments == 1
        and first * _UNUSUAL_PAUSE < state.beats.get(m, usual)
    }


def _before_time(state: GroupState, end: int, members: Container[str]) -> dict[str, int]:
    """Return which of the members made a pause too short for them, and until when."""
    # By time they commit at equal distances, and once more before they give partitions up
    # (ConsumerCoordinator.onJoinPrepare). Not all clients count from when they got them anew; and
    # another process may be configured otherwise.
    rhythms = {m: r for m, r in state.commits.by_member.items() if m in members and r[0] <= end}
    return {
        member_id: rhythm[0]
        for member_id, rhythm in rhythms.items()
        if rhythm[1] > 1 and rhythm[4] < _beat_of(state, member_id) - _slack(rhythm)
    }


def _slack(rhythm: list[int]) -> float:
    """Return by how much a member's last pause may be shorter than usual by chance."""
    _, moments, longest, shortest, pause, _ = rhythm
    usual = pause * (_UNUSUAL_PAUSE - 1)
    # A clock is as exact as its pauses are equal, if there were enough of them.
    exact = max(_EXACT_MS, _SPREADS * (longest - shortest))
    return min(usual, exact) if moments > _SHOWN else usual


def _beat(rhythm: list[int]) -> int | None:
    """Return how long a member pauses between two commits, if it is always as long."""
    _, moments, longest, shortest, pause, _ = rhythm
    if moments > _PAUSES:
        return shortest if longest <= shortest * _UNUSUAL_PAUSE else None
    # Two of a clock that begins as the group is stable: by chance they are hardly as long.
    return pause if moments > 1 and 0 < longest - pause <= _SLOWER_MS else None


def _beat_of(state: GroupState, member_id: str) -> int:
    rhythm, known = state.commits.by_member.get(member_id), state.beats.get(member_id, 0)
    return (None if rhythm is None else _beat(rhythm) or _as_others(state, rhythm)) or known


def _as_others(state: GroupState, rhythm: list[int]) -> int | None:
    """Return the time of another's clock, if a member committed first when that was over."""
    # Whoever leaves before it has committed thrice shows no clock of its own.
    *_, first = rhythm
    return next((ms for ms in state.beats.values() if abs(first - ms) <= _SLOWER_MS), None)


def beats(state: GroupState) -> dict[str, int]:
    """Return how long members pause between two commits, of those that always pause as long."""
    seen = [*state.members, *state.commits.by_member]
    return {m: ms for m in seen if (ms := _beat_of(state, m))} or state.beats


def begins_anew(state: GroupState) -> bool:
    """Return whether the clocks by which members commit begin with the assignment."""
    # By chance the first pause is hardly as long as the others. Without any of them, what was known
    # holds.
    shown = [
        abs(first - pause) <= _SLOWER_MS
        for m, (_, moments, *_, first) in state.commits.by_member.items()
        if moments > _PAUSES and m in state.members and (pause := _beat_of(state, m))
    ]
    return all(shown) if shown else state.begins_anew


def usual_pause(state: GroupState) -> int | None:
    """Return the longest pause that most members make between commits; None if not known."""
    rhythms = state.commits.by_member.values()
    pauses = sorted(longest for _, moments, longest, *_ in rhythms if moments > _PAUSES)
    return pauses[len(pauses) // 2] if pauses else state.usual_pause


def _longest_timeout(members: Iterable[Member]) -> int | None:
    timeouts = [m.rebalance_timeout_ms or m.session_timeout_ms for m in members]
    known = [t for t in timeouts if t is not None and t > 0]
    return max(known, default=None)


def _within(state: GroupState, at: int | None, earliest: int | None, latest: int) -> Moment:
    """Return an estimate between two bounds that is no earlier than the state before."""
    since = in_state_since(state)
    known = [t for t in (at, earliest, since) if t is not None]
    at = min(max(known), latest) if at is not None and known else latest
    return Moment(at, None if earliest is None else min(earliest, at), latest)

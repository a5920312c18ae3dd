"""When did PreparingRebalance begin? No record says; what bounds it, and what narrows it.

The rules are Kafka's and its clients'. An empty group waits the broker's initial delay for more
members, and once more if another came while it waited (`InitialDelayedJoin`). A member of a group
that works learns of the rebalance by its next heartbeat, so the join phase lasts about as long as
the slowest of the members that remain takes to send one. Members that have re-joined commit nothing
until the next generation, so a pause that is unusual for the group is a sign; and a member that
leaves commits once more before it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from timeline.timeline import Moment, earliest_exit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from timeline.model import GroupState, Member

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
# Commits of one moment are one round, and a rhythm shows from the third.
_ROUNDS = 3


def first_join(state: GroupState, end: int, member_count: int, missing: int) -> Moment:
    """Estimate when an empty group began to wait for members, from when it stopped to.

    Args:
        state: the group before, empty or not known.
        end: when the join phase ended.
        member_count: members that joined.
        missing: generations in between that no record tells of.
    """
    since = state.interval["started_at"] if state.interval is not None else None
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
    state: GroupState, end: int, members: dict[str, Member], missing: int, *, is_follow_up: bool
) -> Moment:
    """Estimate when the members of a working group began to re-join.

    Args:
        state: the group before, in force since its interval began.
        end: when the join phase ended.
        members: the members after, by id; none if the group became empty.
        missing: generations in between that were aborted.
        is_follow_up: whether the members re-joined because the last generation revoked partitions.
    """
    since = state.interval["started_at"] if state.interval is not None else None
    earliest = earliest_exit(state.interval)
    if not missing:
        # Kafka waits no longer than the largest rebalance timeout of any member.
        timeout = _longest_timeout([*state.members.values(), *members.values()])
        if timeout is not None and (earliest is None or end - timeout > earliest):
            earliest = end - timeout
    if is_follow_up:
        return _within(state, since, earliest, end)
    remaining = len(state.members.keys() & members.keys())
    joined = len(members.keys() - state.members.keys())
    if not missing and len(state.members) == 1 and not joined:
        # The only member re-joined, or left: there was nobody to wait for.
        return Moment(end, earliest, end)
    left = len(state.members) - remaining
    if members and not remaining:
        # Members that were replaced while Kafka still waited for them.
        return _within(state, end - _wait(state) * (1 + missing), earliest, end)
    heartbeat = _heartbeat(state, members.values())
    # Who has to learn of it; of several changes, the first has started it.
    waited_for = remaining if joined or left or missing else remaining - 1
    events = max(waited_for, joined + left) if members else remaining
    lasted = heartbeat * events // (events + 1) + heartbeat * missing
    if members:
        farewell = _farewell(state, end, members, heartbeat)
        if farewell is not None and not missing:
            # Where somebody joined as well, either may have come first.
            lasted = max(lasted, farewell) if joined else farewell
        lasted = max(lasted, _silence(state, end, heartbeat))
    if missing and left and not joined:
        # A leader that never assigned: its session ended the generation that was given up.
        lasted = max(lasted, _session_of_gone(state, end, members, heartbeat))
    return _within(state, end - lasted, earliest, end)


def learn(state: GroupState, end: int, members: dict[str, Member]) -> None:
    """Note how soon members that remained had learnt that others joined or left.

    In a storm the next rebalance begins at once, and a heartbeat later everybody has re-joined.
    """
    began = None if state.interval is None else state.interval["started_at"]
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
    """Return whether most cycles ended with a heartbeat.

    A member sends them at equal distances, the first one after it was given its assignment. What
    is a cycle by chance is so once in ten times.
    """
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


def _farewell(
    state: GroupState, end: int, members: dict[str, Member], heartbeat: int
) -> int | None:
    """Return how long ago a member that is gone had committed, if it did so as it left.

    Clients commit once more before they leave, and the leaving starts the rebalance.
    """
    last = [at for m, at in state.commits.by_member.items() if m not in members]
    if not last or end - min(last) > heartbeat * _UNUSUAL_PAUSE:
        return None
    return end - min(last)


def _session_of_gone(
    state: GroupState, end: int, members: dict[str, Member], heartbeat: int
) -> int:
    """Return how long a rebalance lasts in which the session of a member that is gone ends.

    It is 0 if the state before began too late for that.
    """
    sessions = (m.session_timeout_ms or 0 for k, m in state.members.items() if k not in members)
    lasted = max(sessions, default=0) + heartbeat
    since = None if state.interval is None else state.interval["started_at"]
    return lasted if since is not None and since <= end - lasted + heartbeat else 0


def _silence(state: GroupState, end: int, heartbeat: int) -> int:
    """Return how long nobody had committed, if that is unusual for the group; else 0."""
    usual = usual_pause(state)
    since = state.commits.last
    if since is None and state.interval is not None:
        since = state.interval["started_at"]
    if usual is None or since is None:
        return 0
    silence = int(end - since)
    return silence if silence > max(usual, heartbeat) * _UNUSUAL_PAUSE else 0


def usual_pause(state: GroupState) -> int | None:
    """Return the longest pause between commits that is normal for the group; None if not known."""
    if state.commits.rounds >= _ROUNDS:
        return state.commits.longest_pause
    return state.usual_pause


def _longest_timeout(members: Iterable[Member]) -> int | None:
    timeouts = [m.rebalance_timeout_ms or m.session_timeout_ms for m in members]
    known = [t for t in timeouts if t is not None and t > 0]
    return max(known, default=None)


def _within(state: GroupState, at: int | None, earliest: int | None, latest: int) -> Moment:
    """Return an estimate between two bounds that is no earlier than the state before."""
    since = state.interval["started_at"] if state.interval is not None else None
    known = [t for t in (at, earliest, since) if t is not None]
    at = min(max(known), latest) if at is not None and known else latest
    return Moment(at, None if earliest is None else min(earliest, at), latest)

"""Workers of Kafka Connect: what each one runs, and why their group rebalanced.

From version 1 of its protocol on a worker that joins says what it runs (its allocation), and its
assignment has only what it is to take and to give up (IncrementalCooperativeAssignor,
WorkerCoordinator.onJoinComplete). What a lost worker ran waits until the delay is over that the
assignments name; then all re-join, as they do when they have given something up, and when the
configuration changed (DistributedHerder).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from timeline import cause
from timeline.cause import Evidence
from timeline.generations import Moves
from timeline.model import Member, Row, Tasks, Worker

PROTOCOL_TYPE = "connect"
UNKNOWN_TASKS = ""
"""Stands for tasks that wait where the log does not show which."""
# A leader that has not read as far as another worker does so, and assigns at the second attempt
# (DistributedHerder.handleRebalanceCompleted). If others have read another topic, it never does.
_FAILED = 3


def worker_of(subscription: Row | None, assignment: Row | None) -> Worker | None:
    """Return what a record says of a worker, beside what it is given; None of other members.

    A subscription is None if it cannot be read.
    """
    if subscription is None and assignment is None:
        return None
    said, given = subscription or {}, assignment or {}
    held = said.get("allocation")
    is_unread = subscription is None or (
        held is None and bool(said.get("allocation_bytes") or said.get("allocation_error"))
    )
    allocation: Tasks | None = None
    if (given or said).get("version") == 0:
        allocation = {}  # an assignment of version 0 has all
    elif held is not None:
        allocation = tasks_of(held.get("assignment"))
    elif "allocation" in said and not is_unread:
        allocation = {}
    return Worker(
        allocation=allocation,
        is_unread=is_unread,
        revoked=tasks_of(given.get("revoked")),
        config_offset=said.get("config_offset"),
        error=given.get("error") or 0,
        delay_ms=given.get("delay_ms") or 0,
    )


def tasks_of(parts: Iterable[Row] | None) -> Tasks:
    """Return the tasks of each connector of an assignment."""
    tasks: Tasks = {}
    for part in parts or ():
        tasks.setdefault(part.get("connector") or "", []).extend(part.get("tasks") or ())
    return tasks


def running(member: Member, known: Member | None) -> Member:
    """Return a worker as it is read of a record, with all that it runs.

    It goes on with what it ran in the generation before, which counts where its allocation is not
    known; what is assigned is what it is given.
    """
    worker = member.worker
    if worker is None or member.assigned is None:
        return member
    held = worker["allocation"]
    if held is None and known is not None:
        held = known.assigned
    if held is None:
        return replace(member, assigned=None if worker["is_unread"] else member.assigned)
    if worker["error"]:
        return replace(member, assigned=held)
    left = {c: [t for t in ts if t not in worker["revoked"].get(c, ())] for c, ts in held.items()}
    for connector, tasks in member.assigned.items():
        left[connector] = [*left.get(connector, ()), *tasks]
    # A worker that both keeps and is given a task runs it once.
    return replace(member, assigned={c: list(dict.fromkeys(ts)) for c, ts in left.items() if ts})


def is_known(members: dict[str, Member]) -> bool:
    """Return whether it is known what all workers run; so it is where nobody is one."""
    return not any(m.worker and m.assigned is None for m in members.values())


def delay_ms(members: dict[str, Member]) -> int:
    """Return how long the tasks of lost workers are to wait, from the assignment on."""
    return max((m.worker["delay_ms"] for m in members.values() if m.worker), default=0)


def waiting(
    before: dict[str, int], moved: Moves, members: dict[str, Member], at: int | None
) -> dict[str, int]:
    """Return since when each task waits for the delay to pass; `UNKNOWN_TASKS` if not known which.

    The assignment was in force `at` some time, and the tasks moved from worker to worker.
    """
    if not delay_ms(members) or at is None:
        return {}
    present = {m.identity for m in members.values()}
    lost = [t for t, owner in moved.released.items() if owner not in present]
    # A worker may have given its tasks up itself, and the log may begin while they wait.
    return {task: before.get(task, at) for task in sorted(lost or before or [UNKNOWN_TASKS])}


def wake(before: dict[str, Member], after: dict[str, Member]) -> bool:
    """Return whether workers that stayed re-joined by themselves, and not one after the other.

    All do when they have read a new configuration, when the delay is over that their assignments
    named (DistributedHerder.tick: needsReconfigRebalance, scheduledRebalance), and when the leader
    could not assign.
    """
    return bool(delay_ms(before)) or has_failed(before) or _read_on(before, after) is not None


def fill_waiting(row: Row, members: dict[str, Member], tasks: dict[str, int]) -> None:
    """Put down which tasks nobody runs, and since when; see `waiting`."""
    row["delay_ms"] = delay_ms(members) or None
    if tasks:
        row["waiting_tasks"] = [t for t in tasks if t != UNKNOWN_TASKS] or None
        row["waiting_since"] = min(tasks.values())


def has_failed(members: dict[str, Member]) -> bool:
    """Return whether the leader could not assign, so that all workers ask again."""
    return bool(_errors(members))


def explain(evidence: Evidence, *, follows: bool, failed: int) -> tuple[str, str]:
    """Return the cause of a generation of workers, and a sentence; `follows` as in classic's.

    `failed` is how many assignments before it failed in a row.
    """
    name, text = _cause(evidence, follows=follows, failed=failed)
    return name, text + _remarks(evidence.after)


def _cause(evidence: Evidence, *, follows: bool, failed: int) -> tuple[str, str]:
    before, after = evidence.before, evidence.after
    if not (is_known(before) and is_known(after)):
        evidence = replace(evidence, moves=Moves({}, {}, {}, set()))
    is_back = bool(evidence.moves.returned or evidence.moves.recovered)
    if not before or any(evidence.changes):
        return cause.explain(evidence)
    is_stuck = follows and failed >= _FAILED
    if follows and not is_stuck and (left := _follow_up(evidence)):
        return cause.explain(evidence) if is_back else (cause.COOPERATIVE_FOLLOW_UP, left)
    if read := _read_on(before, after):
        return cause.CONFIGURATION_CHANGED, "; ".join([read, *evidence.new_and_lost()])
    if is_stuck and not is_back:
        text = f"the leader asked again, since {failed} assignments in a row have failed"
        return cause.LEADER_REJOINED, text
    if follows and not is_back and (delay := delay_ms(before) and delay_ms(after)):
        text = f"tasks of lost workers were put off again, by {delay / 1000:,.0f} s"
        return cause.COOPERATIVE_FOLLOW_UP, text
    return cause.explain(evidence)


def _follow_up(evidence: Evidence) -> str | None:
    """Return what the generation before left to this one; None if nothing."""
    before = evidence.before
    revoked = sum(len(t) for m in before.values() if m.worker for t in m.worker["revoked"].values())
    if revoked:
        tasks = f"{revoked} task{'s' if revoked != 1 else ''}"
        return f"workers re-joined when they had stopped {tasks}"
    if _errors(before):
        return "workers re-joined since the generation before assigned nothing"
    if delay_ms(before) and not (delay_ms(evidence.after) or _errors(evidence.after)):
        found = (
            f"; {evidence.number(evidence.moves.appeared)} got an owner"
            if evidence.moves.appeared
            else ""
        )
        return f"the delay for tasks of lost workers was over{found}"
    return None


def _read_on(before: dict[str, Member], after: dict[str, Member]) -> str | None:
    """Return how far workers have read the config topic, if that is further than before."""
    then, now = _offsets(before), _offsets(after)
    if not any(now[k] > then[k] for k in then.keys() & now.keys()):
        return None
    return f"the configuration changed: offset {min(then.values())} to {max(now.values())}"


def _remarks(members: dict[str, Member]) -> str:
    offsets = set(_offsets(members).values())
    said = ""
    if len(offsets) > 1:
        said = f"; the workers had read the configuration to offsets {min(offsets)} to"
        said += f" {max(offsets)}"
    if errors := _errors(members):
        said += f"; assignment error {', '.join(map(str, errors))}"
        said += " (the leader had not read the configuration so far)" if errors == [1] else ""
    return said


def _offsets(members: dict[str, Member]) -> dict[str, int]:
    offsets = {k: m.worker["config_offset"] for k, m in members.items() if m.worker}
    return {k: offset for k, offset in offsets.items() if offset is not None}


def _errors(members: dict[str, Member]) -> list[int]:
    return sorted({m.worker["error"] for m in members.values() if m.worker} - {0})

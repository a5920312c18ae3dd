"""One row per generation: what it took, who was in it, what it moved, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator

from timeline import streams
from timeline.members import Changes, brief, owners_by_partition
from timeline.model import COST, GENERATIONS, GroupState, Member, Record, Row, partition_of
from timeline.timeline import NEVER, Moment, bound_doubt, elapsed

COMPLETE = "complete"
UNKNOWN = "unknown"
# A row that is open is written anew by each run.
_REPLACED = 1_000
# What a column of 32 bits holds; whoever forges a record may begin with any number.
_MOST = 2**31 - 1


def begin(
    state: GroupState,
    record: Record,
    *,
    generation: int | None,
    join_started: Moment = NEVER,
    join_completed: Moment = NEVER,
    stable_at: int | None = None,
    missing: int | None = 0,
    is_complete: bool = True,
) -> Row:
    """End the generation before, and begin the next; the caller adds members, cause and moves."""
    before = state.generation
    # Members of the new protocols have no join phase: an epoch ends with the next.
    end(state, join_started.at if join_completed is NEVER else join_completed.at)
    columns: Row = {
        "generation": generation,
        "previous_generation": None if before is None else before["generation"],
        "aborted_generations": None if missing is None else min(missing, _MOST),
        "aborted_evidence": COMPLETE if is_complete and missing is not None else UNKNOWN,
        "join_started_at": join_started.at,
        "join_started_at_min": join_started.earliest,
        "join_started_at_max": join_started.latest,
        "join_completed_at": join_completed.at,
        "join_completed_at_min": join_completed.earliest,
        "join_completed_at_max": join_completed.latest,
        "stable_at": stable_at,
        "join_ms": elapsed(join_started.at, join_completed.at),
        "sync_ms": elapsed(join_completed.at, stable_at),
        "rebalance_ms": elapsed(join_started.at, stable_at or join_completed.at),
        **dict.fromkeys(COST, 0),
        "member_count": 0,
        **{f"members_{change}": [] for change in ("joined", "left", "replaced")},
        "cause": UNKNOWN,
    }
    row = state.begin_row(GENERATIONS, record, columns)
    state.generation = row
    return row


def end(state: GroupState, at: int | None) -> None:
    """End the open generation, if there is one."""
    if state.generation is not None:
        state.generation["ended_at"] = at
        bound_doubt(state.generation, at)
        state.output.add(GENERATIONS, state.generation)
        state.generation = None


def fill_members(row: Row, changes: Changes, members: dict[str, Member]) -> None:
    """Put down who is in a generation, and what changed since the one before."""
    # Most members have the same of each.
    timeouts = {(m.rebalance_timeout_ms, m.session_timeout_ms) for m in members.values()}
    row["member_count"] = len(members)
    row["rebalance_timeout_ms"] = _longest(rebalance for rebalance, _ in timeouts)
    row["session_timeout_ms"] = _longest(session for _, session in timeouts)
    subscriptions = {m.subscription for m in members.values()} - {None}
    row["subscriptions"] = len(subscriptions) or None
    row["separate_subscriptions"] = _separate(members.values())
    # Members of a streams group name none: its topology has its topics.
    row["subscribed_topics"] = subscribed_topics(members) or None
    row["members_joined"] = [brief(m) for m in changes.joined]
    row["members_left"] = [brief(m) for m in changes.left]
    row["members_replaced"] = replacements(changes)


def _separate(members: Collection[Member]) -> int | None:
    """Return how many parts are left when those with a common topic or process are put together."""
    subscriptions = {m.subscription for m in members}
    if None in subscriptions:
        return None
    parts = _joined(subscriptions)
    if len(parts) > 1:
        parts = _joined([*parts, *_of_processes(members)])
    return len(parts) or None


def _joined(topics: Iterable[Iterable[str] | None]) -> list[set[str]]:
    """Put sets together that have a topic in common."""
    parts: list[set[str]] = []
    for of_one in (set(t) for t in topics if t):
        related = [part for part in parts if not part.isdisjoint(of_one)]
        parts = [part for part in parts if part not in related]
        parts.append(of_one.union(*related))
    return parts


def _of_processes(members: Iterable[Member]) -> Iterator[set[str]]:
    """Yield the topics of each process, which may have a consumer for each of them.

    Clients number the consumers of a process (KafkaConsumer: consumer-GROUP-1, consumer-GROUP-2;
    Spring: PREFIX-0, PREFIX-1). Two processes of a machine would both have the first number.
    """
    processes: dict[tuple[str | None, str], list[Member]] = {}
    for member in members:
        name = (member.client_id or "").rstrip("0123456789")
        processes.setdefault((member.client_host, name), []).append(member)
    for of_one in processes.values():
        if len({m.client_id for m in of_one}) == len(of_one):
            yield {topic for m in of_one for topic in m.subscription or ()}


def _longest(timeouts: Iterable[int | None]) -> int | None:
    return max((t for t in timeouts if t), default=None)


def replacements(changes: Changes) -> list[Row]:
    """Return the members that replaced others, as generations list them."""
    return [{**brief(new), "replaced_member_id": old.member_id} for old, new in changes.replaced]


def add_replaced(row: Row, replaced: list[Row]) -> None:
    """Put down members that came back since; of months without a rebalance, the last ones."""
    row["members_replaced"] = [*row["members_replaced"], *replaced][-_REPLACED:]


class Moves:
    """How the partitions of a group went from one set of members to the next.

    Attributes:
        former: the owner of each partition before, also of those that waited for another.
        owners: the owner of each partition now.
        kept: how many partitions kept their owner.
        gained: partitions that have another owner than before, or had none.
        moved: those whose last owner was another.
        returned: partitions that a generation before took from a member, which is still there, and
            that have an owner now: the first had to revoke them.
        recovered: the same, where the former owner is no longer a member.
        appeared: partitions without owner before that were taken from nobody.
        vanished: partitions that had an owner and have none now.
        released: the last owners of partitions that were taken from them, and have none now.
    """

    def __init__(
        self,
        before: dict[str, str],
        released: dict[str, str],
        after: dict[str, str],
        present: set[str],
        shared: Container[str] = (),
    ) -> None:
        """Compare owners by partition.

        Args:
            before: the owners before.
            released: the last owners of partitions that had none before.
            after: the owners now.
            present: the members now.
            shared: topics of which others had an owner before. A partition of these that had none
                was taken from its last owner, even if that has it again: what two members claim,
                an assignor takes from both (AbstractStickyAssignor.allSubscriptionsEqual).
        """
        self.former = known = {**released, **before}
        self.owners = after
        self.gained = [p for p, owner in after.items() if before.get(p) != owner]
        self.moved = [p for p in self.gained if known.get(p, after[p]) != after[p]]
        self.kept = len(after) - sum(known.get(p) != after[p] for p in self.gained)
        new = [p for p in self.gained if p not in before]
        back = {
            p: released[p]
            for p in new
            if p in released and (released[p] != after[p] or partition_of(p)[0] in shared)
        }
        self.appeared = [p for p in new if p not in back]
        self.returned = [p for p, owner in back.items() if owner in present]
        self.recovered = [p for p, owner in back.items() if owner not in present]
        self.vanished = [p for p in before if p not in after]
        self.released = {p: owner for p, owner in known.items() if p not in after}


def moves(before: dict[str, Member], after: dict[str, Member], released: dict[str, str]) -> Moves:
    """Compare who owns the partitions; `released` has who owned those that wait for another."""
    present, owners = {m.identity for m in after.values()}, owners_by_partition(before)
    # A topic that is gone has no owner of any partition; a connector may lose one of its tasks.
    is_shared = released and len(present) > 1 and not any(m.worker for m in after.values())
    shared = {partition_of(p)[0] for p in owners} if is_shared else ()
    return Moves(owners, released, owners_by_partition(after), present, shared)


def fill_assignment(row: Row, members: dict[str, Member], moved: Moves) -> None:
    """Put down what a generation assigned; nothing if no assignment can be read."""
    if members and all(m.assigned is None for m in members.values()):
        return
    fill_moves(row, moved)
    idle = [m for m in members.values() if m.assigned is not None and not m.assigned_topics]
    if row.get("protocol") == streams.PROTOCOL:
        idle = [m for m in idle if streams.has_no_copies(m)]
    row["idle_members"] = sorted(m.member_id for m in idle)


def fill_moves(row: Row, moved: Moves) -> None:
    """Put down how many partitions have an owner, and how many have another than before."""
    row["assigned_partitions"] = len(moved.owners)
    row["most_partitions"] = max(Counter(moved.owners.values()).values(), default=None)
    row["moved_partitions"] = len(moved.moved)
    comparable = len(moved.moved) + moved.kept
    row["stickiness"] = moved.kept / comparable if comparable else None


def subscribed_topics(members: dict[str, Member]) -> list[str] | None:
    """Return what the members subscribe to; None if that cannot be read, or there are none."""
    # All members have few subscriptions and few lists of topics.
    subscriptions = {m.subscription for m in members.values()}
    if None in subscriptions or not subscriptions:
        return None
    return sorted({topic for topics in subscriptions for topic in topics or ()})


def unowned_partitions(
    members: dict[str, Member], before: Row | None, moved: Moves
) -> list[str] | None:
    """Return what had an owner and has none, of topics of which members own other partitions.

    `before` is the generation before. None if not all subscriptions and assignments can be read.
    """
    subscribed = subscribed_topics(members)
    if subscribed is None or any(m.assigned is None for m in members.values()):
        return None
    lost = {*((before or {}).get("unowned_partitions") or ()), *moved.vanished}
    read = {topic for m in members.values() for topic in m.assigned_topics if topic in subscribed}
    return sorted(p for p in lost if p not in moved.owners and partition_of(p)[0] in read)


def unassigned_topics(members: dict[str, Member]) -> list[str] | None:
    """Return subscribed topics of which no partition is assigned; None if that cannot be read."""
    subscribed = subscribed_topics(members)
    if subscribed is None:
        return None
    owned = {m.assigned_topics for m in members.values()}
    assigned = {topic for topics in owned for topic in topics}
    return [topic for topic in subscribed if topic not in assigned]

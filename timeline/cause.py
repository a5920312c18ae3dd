"""Why a classic group rebalanced, as far as two neighbouring generations tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from timeline import streams
from timeline.generations import Moves
from timeline.members import Changes
from timeline.model import Member, partition_hash, partition_of

GROUP_CREATED = "group_created"
NEW_MEMBER = "new_member"
MEMBER_LEFT = "member_left"
MEMBER_RESTARTED = "member_restarted"
STATIC_MEMBER_REPLACED = "static_member_replaced"
SUBSCRIPTION_CHANGED = "subscription_changed"
PARTITIONS_CHANGED = "partitions_changed"
CONFIGURATION_CHANGED = "configuration_changed"
LEADER_REJOINED = "leader_rejoined"
PROBING = "probing"
COOPERATIVE_FOLLOW_UP = "cooperative_follow_up"
CONVERSION = "conversion"
TOPIC_DELETED = "topic_deleted"
SETTINGS_CHANGED = "settings_changed"
OFFSETS_ALTERED = "offsets_altered"
FAIL_OVER = "coordinator_failover_suspected"
UNKNOWN = "unknown"

FIRST_KNOWN = "the first record of the group that is known"
"""Why nothing is known of the cause."""
EAGER, COOPERATIVE = "eager", "cooperative"

COOPERATIVE_STICKY = "cooperative-sticky"
_TWO_STEPS = (COOPERATIVE_STICKY, streams.PROTOCOL, "compatible", "sessioned")
# probing.rebalance.interval.ms of Kafka Streams, unless configured otherwise: every ten minutes.
_PROBING_MS = 600_000
_PROBING_SLACK_MS = 60_000
_NAMED = 3


@dataclass
class Evidence:
    """What two neighbouring generations show."""

    before: dict[str, Member]  # members of the generation before; empty if the group was
    after: dict[str, Member]  # members now
    changes: Changes  # who joined, left and was replaced
    protocol: str | None  # the assignor chosen now
    unit: str  # what is assigned: partition, or task in Connect
    moves: Moves  # how the partitions went
    since_ms: int | None  # how long the generation before had been stable, None if not known
    deleted: list[int]  # `partition_hash` of partitions that had an owner when their offsets went
    at: int | None = None  # when all had joined
    follows: bool = False  # whether nothing was assigned between the two

    def number(self, partitions: list[str]) -> str:
        """Say how many: ``3 partitions``."""
        return f"{len(partitions)} {self.unit}{'s' if len(partitions) != 1 else ''}"

    def new_and_lost(self) -> list[str]:
        """Say how many partitions are new, and how many have no owner any more."""
        parts = ((self.moves.appeared, "new"), (self.moves.vanished, "without owner"))
        return [f"{self.number(partitions)} {what}" for partitions, what in parts if partitions]


def rebalance_protocol(protocol: str | None, members: dict[str, Member]) -> str | None:
    """Return whether an assignor takes one step (eager) or two (cooperative); None without one."""
    if protocol is None or not members:
        return None
    is_eager = protocol not in _TWO_STEPS or streams.is_eager(members.values())
    return EAGER if is_eager else COOPERATIVE


def explain(evidence: Evidence) -> tuple[str, str]:
    """Return the cause of a generation with members, and a sentence on it."""
    if not evidence.before:
        return NEW_MEMBER, f"{_members(evidence.changes.joined)} joined a group that was empty"
    if any(evidence.changes):
        return membership(evidence.changes)
    if deleted := _deleted(evidence):
        return TOPIC_DELETED, deleted
    if subscribed := resubscribed(evidence.before, evidence.after):
        return SUBSCRIPTION_CHANGED, _other_topics(*subscribed)
    return _unchanged(evidence)


def _unchanged(evidence: Evidence) -> tuple[str, str]:
    """Tell why the same members with the same subscriptions rebalanced."""
    moves, number = evidence.moves, evidence.number
    whose = "revoked by the generation before" if moves.returned else "of members that are gone"
    if back := moves.returned or moves.recovered:
        return COOPERATIVE_FOLLOW_UP, f"{number(back)} {whose} got an owner"
    is_streams, taken = evidence.protocol == streams.PROTOCOL, _taken(evidence)
    lost = f"; {number(taken)} taken from their owners, to be given to others" if taken else ""
    if (taken or not moves.vanished) and not moves.appeared and is_streams:
        due = streams.rejoins_at(evidence.before.values()) if evidence.follows else None
        if due == 0:
            return COOPERATIVE_FOLLOW_UP, f"a member was to re-join at once{lost}"
        if _is_probing(evidence, due):
            moved = f"; {number(moves.moved)} moved" if moves.moved else "; nothing moved"
            return PROBING, f"time to look for tasks that have caught up{lost or moved}"
    if dropped := _dropped(evidence):
        text = f"no member subscribes to {', '.join(dropped)} any more"
        return SUBSCRIPTION_CHANGED, f"{text}; {number(moves.vanished)} without owner"
    if not taken and (parts := evidence.new_and_lost()):
        return PARTITIONS_CHANGED, "same members and subscriptions; " + ", ".join(parts)
    text = "same members and subscriptions; a re-join of the leader starts such a rebalance"
    if moves.moved:
        text += f"; {number(moves.moved)} moved"
    return LEADER_REJOINED, text + lost


def _dropped(evidence: Evidence) -> list[str]:
    """Return topics that lost their owners since nobody subscribes to them.

    A static member that comes back with another subscription makes no rebalance, unless it is the
    leader (GroupMetadataManager.updateStaticMemberThenRebalanceOrCompleteJoin).
    """
    subscriptions = {member.subscription for member in evidence.after.values()}
    if evidence.moves.appeared or None in subscriptions or evidence.unit != "partition":
        return []
    subscribed = {topic for topics in subscriptions for topic in topics or ()}
    lost = {partition_of(p)[0] for p in evidence.moves.vanished}
    return sorted(lost) if lost.isdisjoint(subscribed) else []


def _taken(evidence: Evidence) -> list[str]:
    """Return partitions that were taken from their owners to be given to others.

    That is the first half of a cooperative rebalance. No topic of Kafka's loses some of its
    partitions; one that is gone has none with an owner.
    """
    moves = evidence.moves
    if rebalance_protocol(evidence.protocol, evidence.after) != COOPERATIVE or moves.appeared:
        return []
    owned = {partition_of(p)[0] for p in moves.owners}
    is_to_follow = streams.rejoins_at(evidence.after.values()) == 0
    is_there = all(partition_of(p)[0] in owned for p in moves.vanished)
    return moves.vanished if is_to_follow or is_there else []


def membership(changes: Changes) -> tuple[str, str]:
    """Return the cause of a generation whose members are not those of the one before."""
    joined, left, replaced = changes
    statics = [new for old, new in replaced if old.group_instance_id is not None]
    restarts = [new for old, new in replaced if old.group_instance_id is None]
    told = (
        (joined, "joined"),
        (left, "left or failed"),
        (statics, "replaced a member of the same instance id"),
        (restarts, "came back with the same client id and host"),
    )
    text = "; ".join(f"{_members(members)} {what}" for members, what in told if members)
    if joined:
        return NEW_MEMBER, text
    if left:
        return MEMBER_LEFT, text
    return MEMBER_RESTARTED if restarts else STATIC_MEMBER_REPLACED, text


def resubscribed(
    known: dict[str, Member], after: dict[str, Member]
) -> tuple[Member, Member] | None:
    """Return a member that subscribes to something else, before and after; None if none does."""
    for member_id, member in after.items():
        before = known.get(member_id, member)
        is_known = before.topics is not None and member.topics is not None
        if before.regex != member.regex or (
            is_known and set(before.topics or ()) != set(member.topics or ())
        ):
            return before, member
    return None


def _other_topics(before: Member, member: Member) -> str:
    old, new = set(before.topics or ()), set(member.topics or ())
    parts = [f"added {', '.join(sorted(new - old))}"] if new - old else []
    parts += [f"dropped {', '.join(sorted(old - new))}"] if old - new else []
    return f"{member.client_id or member.member_id} {' and '.join(parts)}"


def without_offsets(partitions: Iterable[str], hashes: Iterable[int]) -> list[str]:
    """Return partitions that had an owner when their offsets went, by `partition_hash`."""
    known = {*hashes}
    return [p for p in partitions if partition_hash(p) in known] if known else []


def _deleted(evidence: Evidence) -> str | None:
    """Return which topics are gone; None without one."""
    # The coordinator keeps the offsets of a topic that is read, unless the topic itself is deleted
    # (OffsetMetadataManager.cleanupExpiredOffsets, onPartitionsDeleted).
    gone = without_offsets(evidence.moves.vanished, evidence.deleted)
    topics = sorted({partition_of(p)[0] for p in gone})
    if not topics:
        return None
    return f"deleted: {', '.join(topics)}; {evidence.number(gone)} without owner"


def _is_probing(evidence: Evidence, due: int | None) -> bool:
    """Return whether a member of Kafka Streams started the rebalance since it was `due`."""
    if due is not None and evidence.at is not None:
        return due <= evidence.at + _PROBING_SLACK_MS
    since, says = evidence.since_ms, any(m.streams for m in evidence.before.values())
    return not says and since is not None and abs(since - _PROBING_MS) <= _PROBING_SLACK_MS


def _members(members: list[Member]) -> str:
    return some(sorted(m.client_id or m.member_id for m in members))


def some(names: Iterable[str]) -> str:
    """Return the first of some names, and how many more there are."""
    given = list(names)
    more = f" and {len(given) - _NAMED} more" if len(given) > _NAMED else ""
    return ", ".join(given[:_NAMED]) + more

"""Who was in a group, and who owned which partition: sessions and ownerships of members."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

from timeline import gaps, tasks
from timeline.model import OWNERS, SESSIONS, GroupState, Member, Record, Row
from timeline.timeline import Moment, bound_doubt, elapsed

LEFT = "left_or_failed"
REPLACED = "static_member_replaced"
RESTARTED = "restarted"
EMPTIED = "group_emptied"
DELETED = "group_deleted"
CONVERTED = "group_converted"

_CLIENT = ("member_id", "group_instance_id", "client_id", "client_host")
_BRIEF = (*_CLIENT, "session_timeout_ms", "rebalance_timeout_ms")


class Changes(NamedTuple):
    """What became of the members between two generations."""

    joined: list[Member]  # members that are new, and replace nobody
    left: list[Member]  # members that are gone, and nobody replaces
    # Pairs of a member that is gone and its successor: the same group instance id, or the same
    # client id on the same host.
    replaced: list[tuple[Member, Member]]


def compare(before: dict[str, Member], after: dict[str, Member]) -> Changes:
    """Compare the members of two generations."""
    gone = {k: m for k, m in before.items() if k not in after}
    new = {k: m for k, m in after.items() if k not in before}
    replaced: list[tuple[Member, Member]] = []
    for identity_of in (_instance, _client):
        if not gone or not new:
            break
        vacant: dict[object, list[str]] = {}
        for member_id, member in gone.items():
            identity = identity_of(member)
            if identity is not None:
                vacant.setdefault(identity, []).append(member_id)
        for member_id, member in list(new.items()):
            left = vacant.get(identity_of(member))
            if left:
                replaced.append((gone.pop(left.pop(0)), new.pop(member_id)))
    return Changes(list(new.values()), list(gone.values()), replaced)


def _instance(member: Member) -> object:
    return member.group_instance_id


def _client(member: Member) -> object:
    if member.group_instance_id is not None or not member.client_id:
        return None
    return (member.client_id, member.client_host)


def follow(
    state: GroupState,
    after: dict[str, Member],
    record: Record,
    when: Moment,
    *,
    generation: int | None,
    end_cause: str,
    replaced: Sequence[tuple[Member, Member]] = (),
    owned: Moment | None = None,
    has_owners: bool = True,
    later: Container[str] = (),
) -> None:
    """End and begin the sessions and ownerships of members that a record tells of.

    Args:
        state: the group before, changed.
        after: the members now.
        record: the record.
        when: when the members changed; the former were certain at its earliest.
        generation: the generation that the new members joined.
        end_cause: why members that nobody replaces are gone.
        replaced: members that are gone and those that replaced them, see `Changes`.
        owned: when the owners changed, if that is not when the members did.
        has_owners: whether they own partitions of topics; workers of Connect do not.
        later: ids of members that join a later generation.
    """
    awaited, at = gaps.awaited(state, when.at), when.at
    gone = [k for k in state.sessions if k not in after and k not in awaited]
    causes = {
        old.member_id: RESTARTED if old.group_instance_id is None else REPLACED
        for old, _ in replaced
    }
    for member_id in gone:
        row = state.sessions.pop(member_id)
        bound_doubt(row, at)
        borne_out = row.get("known_until")
        row |= {
            "left_at": at,
            "left_at_min": when.earliest if borne_out is None else borne_out,
            "end_cause": causes.get(member_id, end_cause),
            "duration_ms": elapsed(row["joined_at"], at),
        }
        state.output.add(SESSIONS, row)
    begun = {"joined_at": at, "joined_at_min": when.earliest}
    for member_id, member in after.items():
        session = state.sessions.get(member_id)
        if session is None:
            session = state.begin_row(SESSIONS, record, brief(member) | begun)
            state.sessions[member_id] = session
        session["known_until"] = None  # an id is of one stay, as a rule: see `modern`
        if generation is not None and member_id not in later:
            session["last_generation"] = generation
            if session["first_generation"] is None:
                session["first_generation"] = generation
    owned_at = at if owned is None else owned.at
    _follow_owners(state, after if has_owners else {}, record, owned_at, generation)


def _follow_owners(
    state: GroupState,
    after: dict[str, Member],
    record: Record,
    at: int | None,
    generation: int | None,
) -> None:
    """Follow who owns what; a member of which the assignment cannot be read owns nothing here."""
    has_ids = state.group_type in ("consumer", "share")
    before = state.owning
    if state.gap.absent:
        after = {**after, **gaps.awaited(state, at)}
    state.owning = after
    # Most members are as they were; what these own is left alone.
    changed = [m for k, m in (before or {}).items() if after.get(k) is not m]
    keys = state.owners if before is None else [key for m in changed for key in m.ownerships]
    same = before or {}
    new = [m for k, m in after.items() if same.get(k) is not m]
    owned = {key for member in new for key in member.ownerships}
    ended = [key for key in keys if key not in owned]
    if state.gap.has_doubts:
        # Who owned a partition before and after need not have owned it in between.
        doubted = {k: r["member_id"] for k, r in state.owners.items() if r.get("known_until")}
        again = {k: m for k, m in doubted.items() if m not in state.gap.absent}
        ended += again
        known = {m.member_id for m in new}
        new += [after[m] for m in dict.fromkeys(again.values()) if m in after and m not in known]
        state.gap.has_doubts = len(again) < len(doubted)
    for key in ended:
        if key in state.owners:
            _end(state, key, at)
    since = {"generation": generation, "valid_from": at}
    for member in new:
        own = {key: of for key, of in member.ownerships.items() if key not in state.owners}
        if not own:
            continue
        client = {name: getattr(member, name) for name in _CLIENT}
        # To copy a row takes far less than to make one.
        row = state.begin_row(OWNERS, record, client | since)
        for key, (topic, partition) in own.items():
            state.owners[key] = row | {
                "topic": state.topic_names.get(topic) if has_ids else topic,
                "topic_id": topic if has_ids else None,
                "topic_partition": partition,
            }


def _end(state: GroupState, key: str, at: int | None) -> None:
    """End an ownership."""
    row = state.owners.pop(key)
    bound_doubt(row, at)
    _name(state, row)
    row["valid_to"] = at
    row["duration_ms"] = elapsed(row["valid_from"], at)
    if is_of_partition(state, row):
        state.output.add(OWNERS, row)


def is_of_partition(state: GroupState, row: Row) -> bool:
    """Return whether the partition of an ownership is known to exist."""
    return tasks.is_there(state.epochs, row["topic"], row["topic_partition"])


def name_topics(state: GroupState) -> None:
    """Put names to the topics of open ownerships that had only an id."""
    for row in state.owners.values():
        _name(state, row)


def _name(state: GroupState, row: Row) -> None:
    if row["topic"] is None:
        row["topic"] = state.topic_names.get(row["topic_id"])


def brief(member: Member) -> Row:
    """Return what generations list of a member."""
    return {name: getattr(member, name) for name in _BRIEF}


def client(member: Member) -> Row:
    """Return who a member is."""
    return {name: getattr(member, name) for name in _CLIENT}


def owners_by_partition(members: dict[str, Member]) -> dict[str, str]:
    """Return the identity of each partition's owner, by `partition_key`; the last one if two do."""
    owners: dict[str, str] = {}
    for member in members.values():
        owners |= member.owning
    return owners

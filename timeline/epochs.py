"""Why a group of the new protocols began an epoch, as far as its records tell.

The coordinator begins one when members come, go, or subscribe to something else, and when topics,
settings or what a streams group has to warm up changed (GroupMetadataManager.consumerGroupHeartbeat
and its siblings). It writes what changed in the same batch, and with each epoch a hash of what it
knows of the topics; up to Kafka 4.0 it wrote what it knew.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from timeline import cause
from timeline.members import Changes
from timeline.model import Epochs, GroupState, Member, Record

CREATED = "the first members of a new group"
_NO_MEMBERS = "the group has no members"
_MISSING = "records of epochs in between are missing"
_NOTHING = "same members and subscriptions; nothing that records tell of has changed"
_TOPICS = "same members and subscriptions; the topics' metadata changed"
_PROFILE = {
    "client_id": "client id",
    "client_host": "address",
    "rack_id": "rack",
    "process_id": "process",
    "user_endpoint": "endpoint",
    "client_tags": "client tags",
    "topology_epoch": "topology",
    "rebalance_timeout_ms": "rebalance timeout",
}
"""What a member of a streams group tells of itself, by the columns of its record."""
PROFILE = frozenset(_PROFILE) - {"client_id", "client_host", "rebalance_timeout_ms"}
"""Those of them that only such members have."""


class Known(NamedTuple):
    """What is known of how an epoch came about, beside the members and what the group is now."""

    before: dict[str, Member]  # the members before it
    epochs: Epochs  # the group before it
    is_upgrade: bool  # whether it converts a classic group
    is_new: bool  # whether a group begins with it
    is_next: bool  # whether no epoch before it may be missing
    batch: list[Record]  # the records that were written with it

    def has(self, kind: str, *, deleted: bool = False) -> bool:
        """Return whether there is a record of a kind among them, or a tombstone of it."""
        return any(r.kind.endswith(kind) and (r.payload is None) == deleted for r in self.batch)


def explain(state: GroupState, changes: Changes, known: Known) -> tuple[str, str]:
    """Return the cause of an epoch, and a sentence on it."""
    if known.is_upgrade:
        return cause.CONVERSION, f"the group went over to the {state.group_type} protocol"
    if not state.members and not any(changes):
        return _without_members(state, known)
    if state.generation is None:
        return (
            (cause.GROUP_CREATED, CREATED) if known.is_new else (cause.UNKNOWN, cause.FIRST_KNOWN)
        )
    if any(changes):
        name, text = cause.membership(changes)
        return name, _both(text, _resolved(state, known))
    if not known.is_next:
        return cause.UNKNOWN, _MISSING
    found = (look(state, known) for look in (_subscription, _metadata, _settings, _next_step))
    return next((told for told in found if told is not None), (cause.UNKNOWN, _NOTHING))


def _without_members(state: GroupState, known: Known) -> tuple[str, str]:
    if known.has("_state_partition_metadata"):
        # GroupMetadataManager.alterShareGroupOffsets, which makes a group that is not there.
        return cause.OFFSETS_ALTERED, "somebody set the group's offsets while it had no members"
    return cause.UNKNOWN, cause.FIRST_KNOWN if state.generation is None else _NO_MEMBERS


def _subscription(state: GroupState, known: Known) -> tuple[str, str] | None:
    """Look for members that subscribe to other topics, and expressions that match others."""
    resolved = _resolved(state, known)
    if subscribed := _resubscribed(known.before, state.members):
        return cause.SUBSCRIPTION_CHANGED, _both(subscribed, resolved)
    if resolved is None:
        return None
    is_first = any(r not in known.epochs.regexes for r in _named(known.batch))
    return cause.SUBSCRIPTION_CHANGED if is_first else cause.PARTITIONS_CHANGED, resolved


def _metadata(state: GroupState, known: Known) -> tuple[str, str] | None:
    """Look for topics of which the coordinator knows something else."""
    before, now = known.epochs.hash, state.epochs.hash
    is_other = before is not None and now is not None and before != now
    is_kept = known.has("_group_partition_metadata")
    if not is_other and not is_kept:
        return None
    # Kafka 4.1 keeps a hash in the place of what 4.0 kept (updateSubscriptionMetadata).
    if before == 0 and known.has("_group_partition_metadata", deleted=True):
        return cause.FAIL_OVER, "a coordinator of a later release keeps a hash of the topics"
    if before and is_kept:
        return cause.FAIL_OVER, "a coordinator of an earlier release keeps no hash of the topics"
    return cause.PARTITIONS_CHANGED, _both(_TOPICS, _topology(state, known))


def _settings(state: GroupState, known: Known) -> tuple[str, str] | None:
    """Look for what clients and admins have set."""
    text = (
        _told_of_itself(known.before, state.members)
        or _topology(state, known)
        or _changed(known.epochs.settings, state.epochs.settings)
    )
    return None if text is None else (cause.SETTINGS_CHANGED, text)


def _next_step(state: GroupState, _: Known) -> tuple[str, str] | None:
    """Look for what the coordinator has left to this epoch."""
    if state.epochs.is_initialized:
        # GroupMetadataManager.initializedAssignmentPending
        return cause.COOPERATIVE_FOLLOW_UP, "partitions that were to be initialized are ready"
    if state.epochs.warming:
        return cause.PROBING, "nothing changed; tasks that have caught up move, one step at a time"
    return None


def _both(text: str, more: str | None) -> str:
    return f"{text}; {more}" if more else text


def _topology(state: GroupState, known: Known) -> str | None:
    """Return what became of the topology of a streams group; None if nothing."""
    now = state.epochs
    if now.topology != known.epochs.topology:
        return f"the topology is that of epoch {now.topology}"
    if now.validated == known.epochs.validated:
        return None
    is_complete = now.validated == now.topology
    return f"{'all' if is_complete else 'not all'} topics of the topology are there"


def _changed(before: dict[str, str] | None, now: dict[str, str] | None) -> str | None:
    """Return which settings of the assignor changed; None if none did, or that is not known."""
    if before is None or now is None or before == now:
        return None
    changed = sorted(k for k in {*before, *now} if before.get(k) != now.get(k))
    return cause.some(f"{k} is {now.get(k)}, not {before.get(k)}" for k in changed)


def _told_of_itself(before: dict[str, Member], now: dict[str, Member]) -> str | None:
    """Return what a member of a streams group says of itself that it did not say before."""
    for member_id, member in now.items():
        old = before.get(member_id, member)
        if old.profile is None or member.profile is None:
            continue
        was, told = {**old.profile, **old.plain()}, {**member.profile, **member.plain()}
        if changed := [name for key, name in _PROFILE.items() if was.get(key) != told.get(key)]:
            return f"{member.client_id or member_id} changed its {cause.some(changed)}"
    return None


def _resubscribed(before: dict[str, Member], now: dict[str, Member]) -> str | None:
    pair = cause.resubscribed(before, now)
    if pair is None:
        return None
    old, member = pair
    name = member.client_id or member.member_id
    if member.regex is not None and member.regex != old.regex:
        return f"{name} subscribes by the expression {member.regex}"
    return f"{name} subscribes to other topics"


def _named(batch: list[Record]) -> list[str]:
    values = (r.payload for r in batch if r.kind.endswith("_group_regular_expression"))
    return [v.get("regular_expression") or "" for v in values if v is not None]


def _resolved(state: GroupState, known: Known) -> str | None:
    """Return which regular expressions match other topics than before; None if none does."""
    told = []
    for regex in _named(known.batch):
        now, before = state.epochs.regexes.get(regex, []), known.epochs.regexes.get(regex)
        new, gone = sorted({*now} - {*(before or ())}), sorted({*(before or ())} - {*now})
        if before is None:
            told.append(f"the expression {regex} was resolved to {cause.some(new) or 'no topic'}")
        elif new or gone:
            parts = [
                f"{what} {cause.some(which)}"
                for what, which in (("", new), ("no more", gone))
                if which
            ]
            told.append(f"the expression {regex} matches {', '.join(parts).strip()}")
    return cause.some(told) or None


def assignor(members: dict[str, Member]) -> str | None:
    """Return the assignor of the coordinator that most members ask for; None if none asks."""
    asked = Counter(m.assignor for m in members.values() if m.assignor is not None)
    most = max(asked.values(), default=0)
    return min((name for name, times in asked.items() if times == most), default=None)

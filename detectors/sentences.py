"""Says in a sentence what an anomaly is."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from detectors.model import Row

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_TRIGGERS = {
    "slow_members": "members that exceed their max.poll.interval.ms",
    "crash_loop": "members that die and are replaced",
    "short_lived_members": "members that leave soon after they joined",
}
_CAUSES = {
    "group_created": "the first members joined",
    "new_member": "a new member joined",
    "member_left": "a member left",
    "member_restarted": "a member restarted",
    "static_member_replaced": "a static member was replaced",
    "subscription_changed": "a member changed its subscription",
    "partitions_changed": "the partitions of a topic changed",
    "configuration_changed": "the configuration of connectors changed",
    "leader_rejoined": "the leader rejoined",
    "topic_deleted": "a topic was deleted",
    "coordinator_failover_suspected": "the coordinator may have changed",
    "unknown": "for an unknown reason",
}
_LONGEST_NAME = 80


def summary(kind: str, evidence: Row) -> str:
    """Return the sentence.

    Args:
        kind: the kind of the anomaly.
        evidence: its evidence, with `subject`, `label`, `ms`, how long it lasted, `of`, the group's
            `name`, and `when`, its `window`.
    """
    return _SENTENCES[kind](evidence)


def name(text: str) -> str:
    """Return a name chosen by a user in printable form, cut to the length of a sentence."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[: _LONGEST_NAME - 1]}…"


def window(start: int, end: int) -> str:
    """Return a time span in UTC, from times in epoch milliseconds; with dates if it has two."""
    first, last = (dt.datetime.fromtimestamp(t / 1000, dt.timezone.utc) for t in (start, end))
    if first.date() != last.date():
        return f"{first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} UTC"
    if f"{first:%H%M%S}" == f"{last:%H%M%S}":
        return f"{first:%H:%M:%S} UTC"
    return f"{first:%H:%M:%S} to {last:%H:%M:%S} UTC"


def duration(ms: float) -> str:
    """Return a length of time in the unit that fits."""
    if ms < _SECOND:
        return f"{ms:.0f} ms"
    if ms < 2 * _MINUTE:
        return f"{ms / _SECOND:.1f} s"
    if ms < 10 * _MINUTE:
        minutes, seconds = divmod(round(ms / _SECOND), 60)
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    if ms < 2 * _HOUR:
        return f"{ms / _MINUTE:.0f} min"
    if ms < 2 * _DAY:
        return f"{ms / _HOUR:.0f} h"
    return f"{ms / _DAY:.0f} days"


def count(number: float, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,.0f} {noun}{'' if number == 1 else 's'}"


def _some(names: list[str], known: float = 0) -> str:
    """Name a few; `known`: how many there are, where not all are listed."""
    rest = max(len(names), known) - 3
    return ", ".join(map(name, names[:3])) + (f" and {rest:,.0f} more" if rest > 0 else "")


def _storm(e: Row) -> str:
    causes = sorted(e.get("causes", {}).items(), key=lambda c: -c[1])
    seen = ", ".join(f"{_CAUSES.get(c, c)} {count(n, 'time')}" for c, n in causes[:3])
    aborted = e["rebalances"] - sum(e.get("causes", {}).values())
    if aborted > 0:
        seen += f", {count(aborted, 'attempt')} aborted"
    cause = f"{_TRIGGERS[e['label']]} ({seen})" if e["label"] in _TRIGGERS else seen
    explained = e.get("explained", 0)
    rest = f"; {count(explained, 'other rebalance')} had such a reason" if explained else ""
    return (
        f"{e['of']} rebalanced {count(e['rebalances'], 'time')} in {duration(e['ms'])}"
        f" ({e['when']}). Cause: {cause}. No deployment or scale-out explains these{rest}."
    )


def _aborted(e: Row) -> str:
    return (
        f"{e['of']} started {count(e['aborted'], 'rebalance')} again before all members had"
        f" finished ({e['when']})."
    )


def _slow(e: Row) -> str:
    parts, steps = [], []
    if e["join_ms"]:
        parts.append(f"members took {duration(e['join_ms'])} at least to join")
        steps.append("what the slowest member does between two polls")
    if e["sync_ms"]:
        parts.append(f"the assignment took up to {duration(e['sync_ms'])}")
        steps.append("the members' logs" if not steps else "its leader")
    return (
        f"{e['of']} had {count(e['rebalances'], 'slow rebalance')} ({e['when']}):"
        f" {', and '.join(parts)}. Look at {' and '.join(steps)}."
    )


def _stuck(e: Row) -> str:
    if e["label"] == "tasks_wait":
        tasks = f"{count(e['waiting'], 'task')} ({_some(e['tasks'])})" if e["waiting"] else "Tasks"
        verb = "has" if e["waiting"] == 1 else "have"
        leader = f"the leader, {name(e['leader'])}" if e["leader"] else "the leader"
        return (
            f"{tasks} of {e['of']} {verb} had no worker for {duration(e['waited_ms'])} since one"
            f" was lost ({e['when']}); the leader was to hand them out after"
            f" {duration(e['delay_ms'])}, and puts them off again. Restart {leader}."
        )
    allowed = f"its members' rebalance timeout allows {duration(e['allowed_ms'])}"
    if e["label"] == "still_rebalancing":
        took = f"has been in {e['state']} for {duration(e['rebalance_ms'])}"
    else:
        took = f"took {duration(e['rebalance_ms'])} to rebalance"
        if e.get("aborted"):
            took += f", with {count(e['aborted'], 'attempt')} aborted"
    return f"{e['of']} {took} ({e['when']}); {allowed}. Look for the member that all wait for."


def _flapping(e: Row) -> str:
    again = "left and rejoined"
    if e["label"] == "restarted":
        again = f"({_some(e['clients'])}) was restarted in its own place"
    return (
        f"Member {name(e['subject'])} of {e['of']} {again} {count(e['returns'], 'time')}"
        f" in {duration(e['ms'])} ({e['when']}). Read its logs at those times."
    )


def _fencing(e: Row) -> str:
    who = f"Two clients of {e['of']} on one machine, both {name(e['clients'][0])}, may share"
    if len(e["clients"]) > 1:
        who = f"{' and '.join(map(name, e['clients'][:2]))} of {e['of']} share"
    return (
        f"{who} group.instance.id {name(e['subject'])}: it was taken over"
        f" {count(e['replacements'], 'time')} in {duration(e['ms'])} ({e['when']})."
        " Give each an id of its own."
    )


def _leader(e: Row) -> str:
    leader = f", {name(e['subject'])}," if e["subject"] else ""
    return (
        f"The leader of {e['of']}{leader} started {count(e['rejoins'], 'rebalance')}"
        f" although no member joined or left ({e['when']})."
    )


def _recreated(e: Row) -> str:
    before, now = e.get("last_group_type"), e.get("group_type")
    is_other = before is not None and now is not None and before != now
    protocol = f" with the {now} protocol instead of the {before} protocol" if is_other else ""
    return (
        f"{e['of']} was deleted or expired at generation {e['last_generation']}, and was created"
        f" again{protocol} ({e['when']})."
    )


def _protocol(e: Row) -> str:
    what = "protocol" if e["label"] == "conversion" else "assignor"
    changes = ", then from ".join(map(name, e["listed_changes"][:3]))
    return f"The {what} of {e['of']} changed from {changes} ({e['when']})."


def _idle(e: Row) -> str:
    return (
        f"{e['idle']:,.0f} of {count(e['member_count'], 'member')} of {e['of']} had no {_unit(e)}"
        f" for {duration(e['ms'])} ({e['when']})."
    )


def _unit(e: Row) -> str:
    return str(e.get("unit") or "partition")


def _orphan(e: Row) -> str:
    if e["label"] == "deleted":
        went = f"; {count(e['partitions'], 'offset')} went with it" if e.get("partitions") else ""
        more = f", and it did so for {duration(e['ms'])} more" if e["ms"] >= _SECOND else ""
        return (
            f"{name(e['subject'])} was deleted while {e['of']} subscribed to it{more}"
            f" ({e['when']}){went}."
        )
    if e["label"] == "abandoned":
        lag = f", {count(e['lag'], 'record')} behind" if e.get("lag") else ""
        return (
            f"{e['of']} holds {count(e.get('partitions', 0), 'offset')} of {name(e['subject'])}"
            f"{lag}, but no member subscribed to it for {duration(e['ms'])} ({e['when']})."
        )
    return (
        f"{e['of']} subscribes to {name(e['subject'])}, but no member was assigned a partition of"
        f" it for {duration(e['ms'])} ({e['when']})."
    )


def _skew(e: Row) -> str:
    return (
        f"One member of {e['of']} owned {count(e['most_partitions'], _unit(e))}; the mean of its"
        f" {count(e['member_count'], 'member')} is {e['mean_partitions']} ({e['when']})."
    )


def _mixed(e: Row) -> str:
    return (
        f"Members of {e['of']} subscribed to {e['subscriptions']} different sets of topics"
        f" ({e['when']})."
    )


def _rewind(e: Row) -> str:
    after = " after a rebalance" if e["label"] == "after_rebalance" else ""
    own = ""
    if remembered := e.get("remembered"):
        own = f", what {_some(remembered)} had committed last as its owner before"
    return (
        f"{e['of']} committed a smaller offset {count(e['rewinds'], 'time')}{after} ({e['when']}),"
        f" {count(e['offsets'], 'offset')} of {count(e['partitions'], 'partition')} in all:"
        f" {_some(e['moves'], e['partitions'])}{own}. These records are read again."
    )


def _jump(e: Row) -> str:
    return (
        f"{e['of']} skipped {count(e['offsets'], 'offset')} in {count(e['jumps'], 'commit')}"
        f" ({e['when']}): {_some(e['moves'])}. Nobody reads so many in that time: look for a seek,"
        " or auto.offset.reset=latest."
    )


def _reset(e: Row) -> str:
    return (
        f"Somebody set offsets of {count(e['partitions'], 'partition')} of {e['of']} {e['label']}"
        f" while it had no members ({e['when']}): {_some(e['resets'], e['partitions'])}."
    )


def _stall(e: Row) -> str:
    known = {
        "records_wait": f"{count(e['lag'], 'record')} waited.",
        "nothing_to_read": "There was nothing to read.",
    }
    waited = known.get(e["label"], "Whether records waited is not known.")
    return (
        f"{e['of']} had members, but committed nothing for {duration(e['pause_ms'])}"
        f" ({e['when']}). {waited}"
    )


def _no_progress(e: Row) -> str:
    return (
        f"{e['of']} committed offset {e['committed_offset']:,} of {name(e['subject'])}"
        f" {count(e['commits'], 'time')} ({e['when']}), while another group was at"
        f" {e['other_offset']:,}."
    )


def _commit_storm(e: Row) -> str:
    return (
        f"{e['of']} committed {count(e['commits'], 'time')} in {duration(e['ms'])} ({e['when']}),"
        f" up to {e['commits_a_partition_and_minute']:,} times per partition and minute."
    )


def _hot(e: Row) -> str:
    return (
        f"Partition {e['subject']} of the offsets topic took {e['share']:.0%} of all commits of an"
        f" hour ({e['when']}), most of them from {name(e['group'])}."
    )


def _stale(e: Row) -> str:
    return (
        f"{e['of']} has had no member and no commit for {duration(e['idle_ms'])}; it still holds"
        f" {count(e['partitions'], 'offset')}."
    )


def _expired(e: Row) -> str:
    text = f"{count(e.get('partitions') or e.get('came_back', 0), 'offset')} of {e['of']} expired"
    if e["label"] == "still_needed":
        return f"{text}, and the group came back ({e['when']}): {_some(e['began_again'])}."
    used = " while it had members" if e["label"] == "group_in_use" else ""
    return f"{text}{used}, {duration(e['idle_ms'])} after the last commit ({e['when']})."


def _coverage(e: Row) -> str:
    why = "deleted from the log" if e["label"] == "truncated" else e["label"]
    was, they = ("was", "it") if e["offsets"] == 1 else ("were", "they")
    return (
        f"{count(e['offsets'], 'offset')} of partition {e['subject']} of the offsets topic {was}"
        f" {why} before {they} could be ingested."
    )


def _cleaner(e: Row) -> str:
    return (
        f"The log cleaner leaves old records in partition {e['subject']} of the offsets topic:"
        f" {e['superseded_share']:.0%} of {count(e['records'], 'record')} that are old enough"
        " are superseded."
    )


def _oversized(e: Row) -> str:
    return f"{e['of']} wrote a {e['record_type']} record of {e['bytes']:,} bytes ({e['when']})."


def _misplaced(e: Row) -> str:
    return (
        f"{count(e['records'], 'record')} of {e['of']} in partition {e['subject']} of the offsets"
        f" topic, while the group's id hashes to partition {e['expected_partition']}."
    )


def _undecodable(e: Row) -> str:
    return (
        f"{count(e['records'], 'record')} in partition {e['subject']} of the offsets topic cannot"
        f" be decoded: {e['error']}"
    )


_SENTENCES: dict[str, Callable[[dict[str, Any]], str]] = {
    "rebalance_storm": _storm,
    "aborted_rebalances": _aborted,
    "slow_rebalance": _slow,
    "stuck_rebalance": _stuck,
    "member_flapping": _flapping,
    "static_member_fencing": _fencing,
    "leader_rejoin_loop": _leader,
    "group_recreated": _recreated,
    "protocol_change": _protocol,
    "idle_members": _idle,
    "orphan_topic": _orphan,
    "assignment_skew": _skew,
    "mixed_subscriptions": _mixed,
    "offset_rewind": _rewind,
    "offset_jump": _jump,
    "offset_reset": _reset,
    "commit_stall": _stall,
    "no_progress": _no_progress,
    "commit_storm": _commit_storm,
    "hot_partition": _hot,
    "stale_group": _stale,
    "offsets_expired": _expired,
    "coverage_gap": _coverage,
    "cleaner_stalled": _cleaner,
    "oversized_record": _oversized,
    "misplaced_record": _misplaced,
    "undecodable_records": _undecodable,
}

KINDS = tuple(_SENTENCES)
"""All kinds of anomalies, the most important first."""

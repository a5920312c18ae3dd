"""Says in a sentence what an anomaly is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from detectors.model import Row

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_TRIGGERS = {
    "slow_members": "members that take longer than their max.poll.interval.ms",
    "crash_loop": "members that die and are replaced",
    "short_lived_members": "members that stay but for moments",
}


def summary(kind: str, told: Row) -> str:
    """Give the sentence.

    Args:
        kind: the kind of the anomaly.
        told: its evidence, with `subject`, `label` and `ms`, how long it lasted.
    """
    return _SENTENCES[kind](told)


def duration(ms: float) -> str:
    """Give a length of time in the unit that fits."""
    if ms < _SECOND:
        return f"{ms:.0f} ms"
    if ms < 2 * _MINUTE:
        return f"{ms / _SECOND:.1f} s"
    if ms < 2 * _HOUR:
        return f"{ms / _MINUTE:.0f} min"
    if ms < 2 * _DAY:
        return f"{ms / _HOUR:.0f} h"
    return f"{ms / _DAY:.0f} days"


def count(number: float, noun: str) -> str:
    """Give a number with its noun."""
    return f"{number:,.0f} {noun}{'' if number == 1 else 's'}"


def _some(names: list[str]) -> str:
    rest = len(names) - 3
    return ", ".join(names[:3]) + (f" and {rest} more" if rest > 0 else "")


def _storm(e: Row) -> str:
    because = f", by {_TRIGGERS[e['label']]}" if e["label"] in _TRIGGERS else ""
    causes = sorted(e.get("causes", {}).items(), key=lambda c: -c[1])
    told = ", ".join(f"{cause} {n:,.0f}" for cause, n in causes[:3])
    number, explained = e["rebalances"], e.get("explained", 0)
    of_all = f"{number:,.0f} of {count(number + explained, 'rebalance')}"
    rebalances = of_all if explained else count(number, "rebalance")
    return (
        f"{rebalances} in {duration(e['ms'])} that no deployment or start"
        f" explains{because} ({told})"
    )


def _aborted(e: Row) -> str:
    return f"{count(e['aborted'], 'rebalance')} began again before the members were done"


def _slow(e: Row) -> str:
    return (
        f"{count(e['rebalances'], 'slow rebalance')}: at most {duration(e['join_ms'])} to join and"
        f" {duration(e['sync_ms'])} to get an assignment"
    )


def _stuck(e: Row) -> str:
    still = f"in {e['state']} for" if e["label"] == "still_rebalancing" else "rebalanced for"
    return (
        f"{still} {duration(e['rebalance_ms'])}, while members may take {duration(e['allowed_ms'])}"
    )


def _flapping(e: Row) -> str:
    return f"{e['subject']} left and came back {count(e['returns'], 'time')} in {duration(e['ms'])}"


def _fencing(e: Row) -> str:
    return (
        f"instance {e['subject']} was taken over {count(e['replacements'], 'time')} in"
        f" {duration(e['ms'])}: two clients may have the same group.instance.id"
    )


def _leader(e: Row) -> str:
    return (
        f"the leader {e['subject']} began {count(e['rejoins'], 'rebalance')} though nobody came or"
        " went"
    )


def _recreated(e: Row) -> str:
    told = f"deleted or expired at generation {e['last_generation']}, and made again"
    before, now = e.get("last_group_type"), e.get("group_type")
    return told if before == now else f"{told} with the {now} protocol instead of the {before} one"


def _protocol(e: Row) -> str:
    what = "the protocol" if e["label"] == "conversion" else "the assignor"
    return f"{what} went from {_some(e['changes_told'])}"


def _idle(e: Row) -> str:
    return (
        f"{e['idle']:,.0f} of {count(e['member_count'], 'member')} had no partition for"
        f" {duration(e['ms'])}"
    )


def _orphan(e: Row) -> str:
    return (
        f"subscribed to {e['subject']}, but no partition of it was assigned for {duration(e['ms'])}"
    )


def _skew(e: Row) -> str:
    return (
        f"one member had {count(e['most_partitions'], 'partition')}, the mean of"
        f" {count(e['member_count'], 'member')} is {e['mean_partitions']}"
    )


def _mixed(e: Row) -> str:
    return f"members subscribed to {e['subscriptions']} different sets of topics"


def _rewind(e: Row) -> str:
    after = " after a rebalance" if e["label"] == "after_rebalance" else ""
    return (
        f"{count(e['rewinds'], 'commit')} went back{after}, by {count(e['offsets'], 'offset')}"
        f" together: {_some(e['moves'])}"
    )


def _jump(e: Row) -> str:
    return (
        f"{count(e['jumps'], 'commit')} skipped {count(e['offsets'], 'offset')}:"
        f" {_some(e['moves'])}"
    )


def _reset(e: Row) -> str:
    return (
        f"offsets of {count(e['partitions'], 'partition')} were set {e['label']} while the group"
        f" had no members: {_some(e['resets'])}"
    )


def _stall(e: Row) -> str:
    known = {
        "records_wait": f", and {count(e['lag'], 'record')} waited",
        "nothing_to_read": "; there was nothing to read",
    }
    told = known.get(e["label"], "; whether records waited is not known")
    return f"members were there, but nothing was committed for {duration(e['pause_ms'])}{told}"


def _no_progress(e: Row) -> str:
    return (
        f"{e['subject']}: committed {e['committed_offset']:,} {count(e['commits'], 'time')}, while"
        f" another group was at {e['other_offset']:,}"
    )


def _commit_storm(e: Row) -> str:
    return (
        f"{count(e['commits'], 'commit')} in {duration(e['ms'])}, up to"
        f" {e['commits_a_partition_and_minute']:,} a partition and minute"
    )


def _hot(e: Row) -> str:
    return (
        f"{e['share']:.0%} of all commits in an hour went to partition {e['subject']} of the log,"
        f" most of them of {e['group']}"
    )


def _stale(e: Row) -> str:
    return (
        f"no member and no commit for {duration(e['idle_ms'])};"
        f" {count(e['partitions'], 'offset')} kept"
    )


def _expired(e: Row) -> str:
    text = f"offsets of {count(e.get('partitions', 0), 'partition')} expired"
    if e["label"] == "still_needed":
        return f"{text}, and the group came back: {_some(e['began_again'])}"
    used = " while the group had members" if e["label"] == "group_in_use" else ""
    return f"{text}{used}, {duration(e['idle_ms'])} after the last commit"


def _coverage(e: Row) -> str:
    return (
        f"{count(e['offsets'], 'offset')} of partition {e['subject']} were {e['label']} before they"
        " could be read"
    )


def _cleaner(e: Row) -> str:
    return (
        f"{e['superseded_share']:.0%} of {count(e['records'], 'record')} of partition"
        f" {e['subject']} that were over a day old had been superseded: the log cleaner has not"
        " removed them"
    )


def _oversized(e: Row) -> str:
    return f"a {e['record_type']} record of {e['bytes']:,} bytes"


def _misplaced(e: Row) -> str:
    return (
        f"{count(e['records'], 'record')} in partition {e['subject']}, where the group does not"
        f" belong: it hashes to {e['expected_partition']}"
    )


def _undecodable(e: Row) -> str:
    return f"{count(e['records'], 'record')} of partition {e['subject']}: {e['error']}"


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
"""Every kind of anomaly there is, by the contract's names."""

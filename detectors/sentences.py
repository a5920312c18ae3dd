"""Says in a sentence what an anomaly is.

A sentence has evidence in braces, ``{name:form}``: a form of `_FORMS`, ``one/many`` words by a
number, or Python's own format. Of ``[alternatives|in|brackets]`` the first counts whose evidence is
there, and says something; ``[name?text]`` asks for a label, or for evidence that it does not show.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

from detectors.model import Row
from schemas.words import count, duration

# By kind, the most important first, and by kind and label where a label has its own sentence.
_SENTENCES = {
    "rebalance_storm": "{of} rebalanced {rebalances:# time} in {ms:duration} ({when}). Cause:"
    " [slow_members?members that leave one to three times their rebalance timeout after they"
    " joined, as those that exceed max.poll.interval.ms do ({causes:causes})|crash_loop?members"
    " that die and are replaced ({causes:causes})|short_lived_members?members that leave soon after"
    " they joined ({causes:causes})|{causes:causes}][, most of them of {clients:some}]."
    " [reconfigured?No group comes to rest like that|No deployment or scale-out explains these;"
    " {explained:# other rebalance} had such a reason|No deployment or scale-out explains these]."
    " [slow_members?If their logs show a poll that took too long, lower max.poll.records, make"
    " processing faster, or raise max.poll.interval.ms, or the session timeout of clients that send"
    " no heartbeat while they work; else look for what ends them|"
    "crash_loop?Look in their logs and exit statuses for why they die|short_lived_members?Find out"
    " what starts and stops them|reconfigured?Find out what changes its topics, subscriptions or"
    " connectors so often|Look in its members' logs for what starts each].",
    "aborted_rebalances": "{of} started {aborted:# rebalance} again before all members had finished"
    " ({when})[, most of them as {clients:some} came and went. Read its logs at those times|. Look"
    " for members that come and go meanwhile].",
    "slow_rebalance": "{of} had {rebalances:# slow rebalance} ({when}): [all waited up to"
    " {sync_ms:duration} for {waited_for:some} to give up partitions. Look at what it does between"
    " two polls, and when partitions are taken from it|its coordinator took {assigned_ms:duration}"
    " to assign. Look whether that broker was away, or is overloaded|all waited"
    " {attempts_ms:duration} at least,"
    " with {aborted:# attempt} aborted, for members to join or for a leader to assign, and went on"
    " without {not_rejoined:some}. Look in their logs for a poll that took too long, or a crash|all"
    " waited {attempts_ms:duration} at least, with {aborted:# attempt} aborted, for members to join"
    " or for a leader to assign. Look at the members' logs|all waited {join_ms:duration} at least"
    " for {not_rejoined:some} to join, and went on without. Look in its log for a poll that took"
    " too long, or a crash|members took {join_ms:duration} at least to join, and the assignment"
    " took up to {sync_ms:duration}. Look at what the slowest member does between two polls and its"
    " leader, {leader:name}|members took {join_ms:duration} at least to join, {rejoined_last:some}"
    " the last. Look at what it does between two polls|members took"
    " {join_ms:duration} at least to join, and the assignment took up to {sync_ms:duration}. Look"
    " at what the slowest member does between two polls and its leader|members took"
    " {join_ms:duration} at least to join. Look at what the slowest member does between two polls,"
    " and whether {left_meanwhile:some}, that left, had died|members took"
    " {join_ms:duration} at least to join. Look at what the slowest member does between two polls|"
    "partitions took {handover_ms:duration} at least from one member to another, and the assignment"
    " took up to {sync_ms:duration}. Look at what the slowest member does when partitions are taken"
    " from it, and at its leader, {leader:name}|partitions took {handover_ms:duration} at least"
    " from one member to another, {rejoined_last:some} the last to join. Look at what it does"
    " between two polls, and when partitions are taken from it|partitions took"
    " {handover_ms:duration} at least from one member to another. Look at what the slowest member"
    " does between two polls, and when partitions are taken from it|"
    "the assignment took up to {sync_ms:duration}. Look in the log of the leader, {leader:name}|"
    "the assignment took up to {sync_ms:duration}. Look at the members' logs].",
    "stuck_rebalance": "{of} took {rebalance_ms:duration} at least to rebalance[, with"
    " {aborted:# attempt} aborted] ({when}); its members' rebalance timeout allows"
    " {allowed_ms:duration}."
    " [by_coordinator?Look at its coordinator, that took most of that to assign|"
    "Look at {waited_for:some}, that all waited for|Look at {rejoined_last:some}, that re-joined"
    " last|Look at {not_rejoined:some}, that all waited for and that did not join again|Look at the"
    " leader, {leader:name}, that was to assign|Look for the member that all wait for].",
    "stuck_rebalance still_rebalancing": "{of} has been in {state} for {rebalance_ms:duration}"
    " at least ({when}); its members' rebalance timeout allows {allowed_ms:duration}."
    " [by_coordinator?Look at its coordinator, that is to assign|Look at the"
    " leader, {leader:name}, that is to assign|Look at {waited_for:some}, that has what others are"
    " to get|Look for the member that all wait for].",
    "stuck_rebalance not_ready": "{of} has been NotReady for {rebalance_ms:duration} ({when}):"
    " topics that its topology reads or needs are not there, or do not fit together. Look which,"
    " by kafka-streams-groups.sh --describe, and create them.",
    "stuck_rebalance never_stable": "{of} did not come to rest for {rebalance_ms:duration}"
    " ({when}): each of {epochs:# epoch} began before all members had got to the one before."
    " [Look at {waited_for:some}, that were waited for, and at|Look at] what starts one rebalance"
    " after the other.",
    "stuck_rebalance tasks_wait": "[{waiting:# task} ({tasks:some})|Tasks] of {of}"
    " {waiting:has/have} had no worker for {waited_ms:duration} since one was lost ({when}); the"
    " leader was to hand them out after {delay_ms:duration}, and puts them off again. Restart the"
    " leader[, {leader:name}].",
    "member_flapping": "Member {subject:name} of {of} [restarted?({clients:some}) was replaced in"
    " its own place|left and rejoined] {returns:# time} in {ms:duration} ({when}). Read its logs at"
    " those times[restarted?, and look for a second client with this group.instance.id, which the"
    " log may not name].",
    "member_flapping polls_too_late": "Member {subject:name} of {of} left {returns:# time} in a row"
    " when its rebalance timeout, {timeout_ms:duration}, was over ({when}), as one does that"
    " exceeds max.poll.interval.ms, and rejoined. Look for a poll that took too long in its log: if"
    " there is one, lower max.poll.records, make processing faster, or raise max.poll.interval.ms;"
    " else find out what ends it.",
    "static_member_fencing": "[{clients:both} of {of} share|Two clients of {of}, of which the log"
    " names {clients:some}, may share] group.instance.id {subject:name}: it was taken over"
    " {replacements:# time} in {ms:duration} ({when}). Give each an id of its own.",
    "leader_rejoin_loop": "{of} rebalanced {rejoins:# time} although no member joined for good or"
    " left ({when}): its leader[, {subject:name},] joined again, or a member came and went before"
    " all had joined. Look for topics whose metadata change back and forth (regular expressions,"
    " brokers of different versions), and for a client that gives up as it joins.",
    "leader_rejoin_loop workers": "{of} rebalanced {rejoins:# time} although no worker joined for"
    " good or left ({when}): its leader[, {subject:name},] asked again, or a worker came and went"
    " before all had joined. Look at group.id and config.storage.topic of all workers (two"
    " clusters in one group never agree), and for a worker that gives up as it joins.",
    "group_recreated": "{of} was deleted or expired at generation {last_generation}, and was"
    " created again[ with the {group_type:unlike last_group_type} protocol instead of the"
    " {last_group_type} protocol] ({when}). Find out who deletes it: it has lost its offsets.",
    "protocol_change": "The [conversion?protocol|assignor] of {of} changed from"
    " {listed_changes:then} ({when}). Where it goes back and forth, two deployments disagree:"
    " finish one.",
    "idle_members nothing_assigned": "No member of {of} had a [{unit}|partition] for {ms:duration}"
    " ({when}), of {member_count:# member}: there is none, or none was assigned. Look which topics"
    " match what they subscribe to.",
    "idle_members never_closed": "{came:# member} of {of} came from {subject:name} one by one in"
    " {came_ms:duration}, and none of them left ({when}): {idle:,.0f} of {member_count:# member}"
    " {idle:has/have} no partition. Look there for an application that makes consumers and never"
    " closes them.",
    "idle_members": "{idle:,.0f} of {member_count:# member} of {of} had no [{unit}|partition] for"
    " {ms:duration} ({when})[, though there are {enough:# partition}: range gives each topic to the"
    " first members]. [enough?Take another assignor, unless it joins these topics|unit?Start fewer"
    " members, or add tasks|Start fewer members, or add partitions].",
    "orphan_topic": "{of} subscribes to {subject:name}, but no member was assigned a partition of"
    " it for {ms:duration} ({when}). Look whether the topic exists, and whether its clients may"
    " describe it.",
    "orphan_topic deleted": "{subject:name} was deleted while {of} subscribed to it[, and it did so"
    " for {ms:lasting} more] ({when})[; {partitions:# offset} went with it][; it was made again,"
    " with id {made_again}: the offsets of the old one mean nothing there]. Ask who deleted it.",
    "orphan_topic abandoned": "{of} [holds {partitions:# offset}|held offsets] of {subject:name}"
    "[, {lag:# record} behind], but no member subscribed to it for {ms:duration} ({when}). Delete"
    " them if nobody needs them, or start a consumer of it.",
    "assignment_skew": "One member of {of} owned {most_partitions:,.0f} [{unit}|partition]"
    "{most_partitions:/s}; the mean of its {member_count:# member} is {mean_partitions} ({when})."
    " [unit?Look in the leader's log for why it balances nothing|Take another assignor, or give its"
    " topics as many partitions each].",
    "mixed_subscriptions": "Members of {of} subscribed to {subscriptions} different sets of topics"
    " ({when}). [nothing_in_common?Some have no topic in common with the others: finish the"
    " deployment if one stands still, or give each application a group.id of its own|Finish the"
    " deployment, or give each application a group.id of its own].",
    "offset_rewind": "{of} committed a smaller offset {rewinds:# time}[after_rebalance? after a"
    " rebalance] ({when}), {offsets:# offset} of {partitions:# partition} in all:"
    " {moves:some partitions}[, what {remembered:some} had committed last as its owner before]."
    " These records are read again: [remembered?upgrade that client|no_members?look for a seek, a"
    " start from an older state, a second job that commits to the group, or a tool that sets its"
    " offsets|look in its logs for a seek, or commits that failed].",
    "offset_jump": "{of} skipped {offsets:# offset} in {jumps:# commit}[after_rebalance? right"
    " after a rebalance] ({when}): {moves:some}."
    " Nobody reads so many in that time: look for a seek, or auto.offset.reset=latest.",
    "offset_reset": "Offsets of {partitions:# partition} of {of} were set {label} while it had no"
    " members ({when}): {resets:some partitions}. Ask who ran a reset, or who let a job with"
    " assign() take the group over: the log does not say.",
    "unread_partition": "{of} stopped committing {unread:some partitions} ({when}) while its other"
    " partitions went on: {waiting:# record} waited at least, as [commits of {others:some} show|the"
    " log's end shows].[ No member owns {no_owner:some} now.| {partitions:It/They}"
    " {partitions:is/are} assigned to {now_owners:some}, and nobody has committed"
    " {partitions:it/them} since.] Restart [no_owner?the group, so that all is assigned anew,|"
    "now_owners?who has {partitions:it/them}|its owner, {owners:some},|the consumer of"
    " {partitions:it/them}] and look in the log there for why nothing is read.",
    "unread_partition no_owner": "No member of {of} owns {unread:some partitions} for {ms:duration}"
    " ({when}), though its {member_count:# member} subscribe to the topic and own other partitions"
    " of it: what comes in there is not read. Restart the member that owned {partitions:it/them},"
    " or the whole group, so that all is assigned anew.",
    "unread_partition never_owned": "No member of {of} has ever got {unread:some partitions} of a"
    " topic of which {member_count:# member} own other partitions ({when}), though {others:some}"
    " commit {partitions:it/them}: the topic has grown, and the group has not seen it. Restart all"
    " of its members, the static ones, too, so that all is assigned anew.",
    "unread_partition no_members": "Nobody has run {of} for {ms_idle:duration} ({when}), and"
    " {waiting:# record} wait in {unread:some partitions}. Start its consumers again, or delete the"
    " group if nobody needs it.",
    "unread_partition before_start": "{of} is to go on in {unread:some partitions} before the log's"
    " start ({when}): {records:# record} were deleted before it read them, and auto.offset.reset"
    " decides where it goes on. Start its consumers, make them faster, or keep the topic longer.",
    "unread_partition beyond_end": "{of} is to go on in {unread:some partitions} {records:# offset}"
    " beyond the log's end ({when}): it will reset, or reads nothing until the log is that long."
    " Look whether the topic was made again or lost its end, and set the offsets.",
    "unread_partition stalled": "{of} commits {unread:some partitions} at the same offset again and"
    " again ({when}), while the log goes on: {records:# record} wait. Look in the log of its"
    " consumer for a record that fails, or whether it paused {partitions:it/them}, and restart it.",
    "unread_partition two_owners": "{of} assigned {unread:some partitions} to {at_once:# member} at"
    " a time ({when}), {owners:some}: each reads {partitions:it/them}, so that each record is"
    " processed {at_once:,.0f} times. Restart these members, and upgrade their clients or change"
    " their assignor.",
    "unread_partition broadcast": "{of} assigned {unread:some partitions} to each of its"
    " {at_once:# member} ({when}), as an assignor of your own does that broadcasts: each record is"
    " processed {at_once:,.0f} times, and the offsets are those of whoever committed last. Look"
    " whether that is meant.",
    "commit_stall": "{of} had members, but committed nothing for {pause_ms:duration} ({when})."
    " [others?{lag:# record} waited at least, as commits of {others:some} show|records_wait?"
    "{lag:# record} waited|nothing_to_read?There was nothing to read|perhaps_markers?No more than"
    " {lag:# offset} followed, which may be markers of transactions|Nothing shows that more records"
    " waited than usual].[records_wait? Restart its members if they hang; a sink may wait for more"
    " records before it commits.]",
    "commit_stall starts_in_vain": "{of} started {starts:# time} and committed nothing ({when}),"
    " while {lag:# record} waited[ at least, as commits of {others:some} show]. Look in its logs"
    " for what ends it before it commits.",
    "no_progress": "{of} committed offset {committed_offset:,} of {subject:name} {commits:# time}"
    " ({when}), while another group was at {other_offset:,}. Look in the log of its consumer for a"
    " record that fails.",
    "commit_storm": "{of} committed {commits:# time} in {ms:duration} ({when}), up to"
    " {commits_a_partition_and_minute:,} times per partition and minute. [perhaps_transactions?"
    "Exactly-once does so by default; whether these are transactions is not known: raise"
    " commit.interval.ms if they are|Have it commit once a batch, not each record].",
    "hot_partition": "Partition {subject} of the offsets topic took {share:.0%} of all commits of"
    " an hour ({when}), most of them from {group:name}. Have it commit less often, or spread groups"
    " by other names.",
    "stale_group": "{of} has had no member and no commit for {idle_ms:duration}; it still holds"
    " {partitions:# offset}. Delete it if nobody needs it.",
    "stale_group one_name": "{groups:# group} named {subject:name} have had no member and no commit"
    " for up to {idle_ms:duration}[, of {made:,} in all]; they still hold {partitions:# offset}. A"
    " client seems to make a group whenever it starts[, {clients:some}]: give it one group.id.",
    "offsets_expired": "{partitions:# offset} of {of} expired[perhaps_deleted? or"
    " {partitions:was/were} deleted][group_in_use? while it had members|not_subscribed?, of topics"
    " that no member subscribes to], {idle_ms:duration} after the last commit ({when})."
    "[group_in_use? Commit partitions without records, too, or raise offsets.retention.minutes.]",
    "offsets_expired deleted": "{partitions:# offset} of {of} {partitions:was/were} deleted"
    " {idle_ms:duration} after the last commit ({when}), while it had no members: somebody deleted"
    " the group, or what it read.",
    "offsets_expired made_again": "{came_back:# offset} of {of} {came_back:was/were} deleted right"
    " after the group had stopped, and it came back ({when}): {began_again:some}. Ask who deleted"
    " the group, or what it read.",
    "offsets_expired still_needed": "[{partitions:# offset}|{came_back:# offset}] of {of} expired"
    "[perhaps_deleted? or {partitions:was/were} deleted], and the group came back ({when}):"
    " {began_again:some}. [perhaps_deleted?Ask who deleted them, or raise|Raise]"
    " offsets.retention.minutes above its longest pause[; unless it, or what the client"
    " asked for, is {within_ms:duration} or less, they did not expire].",
    "coverage_gap": "{offsets:# offset} of partition {subject} of the offsets topic"
    " {offsets:was/were} [truncated?deleted from the log|{label}] before {offsets:it/they} could be"
    " ingested. Run more often.",
    "cleaner_stalled": "The log cleaner leaves old records in partition {subject} of the offsets"
    " topic: {superseded_share:.0%} of {records:# record} that are old enough are superseded. Look"
    " whether its broker's log cleaner thread has died.",
    "oversized_record": "{of} wrote a {record_type} record of {bytes:,} bytes ({when}). Split the"
    " group, or raise max.message.bytes of the offsets topic.",
    "misplaced_record": "{records:# record} of {of} in partition {subject} of the offsets topic,"
    " while the group's id hashes to partition {expected_partition}. Look whether the topic was"
    " given more partitions.",
    "misplaced_record two_coordinators": "Two coordinators serve {of}: one writes to partition"
    " {subject} of the offsets topic ({when}), which has grown, another to {expected_partition},"
    " where it belongs. Members of either do not know of the others[; what the first does is told"
    " beside it, as group {second:name}]. Restart the broker that leads partition {subject}: it"
    " still counts by the old number of partitions.",
    "undecodable_records": "{records:# record} in partition {subject} of the offsets topic cannot"
    " be decoded: {error}. Look at them in silver.quarantine.",
}

KINDS = tuple(kind for kind in _SENTENCES if " " not in kind)
"""All kinds of anomalies, the most important first."""

_CAUSES = {
    "group_created": "the first members joined",
    "new_member": "a new member joined",
    "member_left": "a member left",
    "member_restarted": "a member restarted",
    "static_member_replaced": "a static member was replaced",
    "subscription_changed": "a member changed its subscription",
    "partitions_changed": "the partitions of a topic changed",
    "configuration_changed": "the configuration of connectors changed",
    "settings_changed": "settings of members, topology or assignor changed",
    "offsets_altered": "somebody set the group's offsets",
    # No record tells of a member that comes and goes within one join phase.
    "leader_rejoined": "the leader joined again, or a member came and went meanwhile,",
    "topic_deleted": "a topic was deleted",
    "coordinator_failover_suspected": "the coordinator may have changed",
    "unknown": "for an unknown reason",
}
_SECOND = 1_000
_LONGEST_NAME = 80
_ALTERNATIVES, _EVIDENCE = re.compile(r"\[(.*?)\]"), re.compile(r"\{(\w+)(?::(.*?))?\}")


def summary(kind: str, evidence: Row) -> str:
    """Return the sentence of an anomaly.

    Its evidence has `subject`, `label`, `ms`, how long it lasted, `of`, the group's `name`, and
    `when`, its `window`, as well.
    """
    return filled(_SENTENCES.get(f"{kind} {evidence['label']}") or _SENTENCES[kind], evidence)


def filled(sentence: str, evidence: Row) -> str:
    """Return a sentence with its evidence; `label` is always there."""
    chosen = _ALTERNATIVES.sub(lambda part: _chosen(part[1], evidence), sentence)
    return _EVIDENCE.sub(lambda part: _shown(part[1], part[2] or "", evidence), chosen)


def _chosen(alternatives: str, evidence: Row) -> str:
    for alternative in alternatives.split("|"):
        asked, is_asked, text = alternative.rpartition("?")
        needed = [(asked, "")] if is_asked else _EVIDENCE.findall(alternative)
        if all(
            name == evidence["label"] or (evidence.get(name) and _shown(name, form, evidence))
            for name, form in needed
        ):
            return text
    return ""


def _shown(name: str, form: str, evidence: Row) -> str:
    value, (word, _, given) = evidence[name], form.partition(" ")
    if word in _FORMS:
        return _FORMS[word](value, given, evidence)
    if "/" in word:
        return word.split("/")[int(value != 1)]
    return format(value, word)


def some(names: list[str], known: int = 0) -> str:
    """Name a few; `known` is how many there are, where not all are listed."""
    rest = max(len(names), known) - 3
    return ", ".join(map(name, names[:3])) + (f" and {rest:,.0f} more" if rest > 0 else "")


def _causes(causes: dict[str, int], _: str, evidence: Row) -> str:
    most = sorted(causes.items(), key=lambda c: -c[1])[:3]
    seen = [f"{_CAUSES.get(cause, cause)} {count(n, 'time')}" for cause, n in most]
    if (aborted := evidence["rebalances"] - sum(causes.values())) > 0:
        seen.append(f"{count(aborted, 'attempt')} aborted")
    return ", ".join(seen)


_FORMS: dict[str, Callable[[Any, str, Row], str]] = {
    "#": lambda number, noun, _: count(number, noun),
    "name": lambda text, *_: name(text),
    "some": lambda names, known, evidence: some(names, evidence.get(known, 0)),
    "both": lambda names, *_: " and ".join(map(name, names[:2])) if len(names) > 1 else "",
    "then": lambda names, *_: ", then from ".join(map(name, names[:3])),
    "unlike": lambda text, other, evidence: "" if text == evidence.get(other) else text,
    "duration": lambda ms, *_: duration(ms),
    "lasting": lambda ms, *_: duration(ms) if ms >= _SECOND else "",
    "causes": _causes,
}


def name(text: str) -> str:
    """Return a name chosen by a user in printable form, cut to the length of a sentence.

    A name of blanks stands in quotes.
    """
    shown = "".join(c if c.isprintable() else " " for c in text)
    if not shown.strip():
        return f"'{shown}'"
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[: _LONGEST_NAME - 1]}…"


def window(start: int, end: int) -> str:
    """Return a time span in UTC, from times in epoch milliseconds; with dates if it has two."""
    first, last = (dt.datetime.fromtimestamp(t / 1000, dt.timezone.utc) for t in (start, end))
    if first.date() != last.date():
        return f"{first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} UTC"
    if f"{first:%H%M%S}" == f"{last:%H%M%S}":
        return f"{first:%H:%M:%S} UTC"
    return f"{first:%H:%M:%S} to {last:%H:%M:%S} UTC"

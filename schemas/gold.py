"""The columns of the gold tables: the history of the groups, and what it goes on from."""

from __future__ import annotations

from schemas.columns import ArrayOf, Column, Primitive, StructOf, column

SEVERITIES = INFO, WARNING, CRITICAL = "info", "warning", "critical"
"""How bad an anomaly is; the worse the later."""

STATUSES = OK, WARN, STALL, REWIND, STOP, ERR = "OK", "WARN", "STALL", "REWIND", "STOP", "ERR"
"""Burrow's statuses of a partition's or a group's lag; the worse the later."""

RHYTHM_COMMITS = 5
"""The last commits of a partition that show how often it is committed: four intervals."""

_GROUP = column("group_id", "string", "Id of the group.")
_TYPE = column("group_type", "string", "classic, consumer, share or streams: its protocol then.")
_SETTLED = column(
    "is_settled",
    "boolean",
    "No later record can change the row; false in what is the newest of its group.",
)
HISTORY_RUN = column("history_run", "bigint", "Number of the history run that wrote the row.")


def _record(what: str) -> tuple[Column, ...]:
    return (
        column("record_partition", "int", f"Partition of the record that {what}."),
        column("record_offset", "bigint", f"Offset of the record that {what}."),
        column("record_timestamp", "timestamp", f"Time of the record that {what}."),
    )


_MEMBER = (
    column("member_id", "string", "Member id, given by the coordinator or the client."),
    column("group_instance_id", "string", "Instance id of a static member; null of a dynamic one."),
    column("client_id", "string", "Client id."),
    column("client_host", "string", "Host that the client came from, as the broker saw it."),
)
_TIMEOUTS = (
    column("session_timeout_ms", "bigint", "How long it may be silent; null if unknown."),
    column("rebalance_timeout_ms", "bigint", "How long it may take to re-join; null if unknown."),
)
_IN_GENERATION = (*_MEMBER, *_TIMEOUTS)
_REPLACED = column("replaced_member_id", "string", "The member that it replaced.")


def _known_until(what: str, end: str) -> Column:
    return column(
        "known_until",
        "timestamp",
        "Null where the log bears the whole row out; else the time of the last record that does:"
        f" from then until {end} it is not known whether {what}, since records are missing.",
    )


GROUP_STATES = (
    _GROUP,
    _TYPE,
    column("sequence", "bigint", "Number of the interval in the group's timeline, from 0."),
    column("state", "string", "State, by Kafka's name."),
    column("generation", "int", "Generation or group epoch in force; null when Dead."),
    column("started_at", "timestamp", "When the group entered the state; the best estimate."),
    column(
        "ended_at",
        "timestamp",
        "When it left the state; null while it is in it. Of the last one of a group that may be"
        " gone, until when it is known.",
    ),
    column("started_at_min", "timestamp", "It entered no earlier; null if nothing bounds it."),
    column("started_at_max", "timestamp", "It entered no later."),
    column("duration_ms", "bigint", "Time spent in the state; null while the group is in it."),
    column(
        "evidence", "string", "exact: the log has the time it was entered; bounded: it has not."
    ),
    _known_until("the group was in the state", "ended_at"),
    column(
        "member_count",
        "int",
        "Members of the group; in PreparingRebalance those of the generation before.",
    ),
    *_record("shows that the group was in the state"),
    _SETTLED,
)


GROUP_GENERATIONS = (
    _GROUP,
    _TYPE,
    column("generation", "int", "Generation, or group epoch of the new protocols."),
    column("previous_generation", "int", "The known one before; null for the first."),
    column(
        "aborted_generations",
        "int",
        "Generation numbers since the one before of which no record tells: rebalances that began"
        " again before they were done. An upper bound where the evidence is unknown.",
    ),
    column(
        "aborted_evidence",
        "string",
        "complete: no offset is missing since the record before; unknown: one is.",
    ),
    column(
        "join_started_at",
        "timestamp",
        "When the rebalance began: PreparingRebalance, or the new group epoch; best estimate.",
    ),
    column("join_started_at_min", "timestamp", "It began no earlier; null if nothing bounds it."),
    column("join_started_at_max", "timestamp", "It began no later."),
    column(
        "join_completed_at",
        "timestamp",
        "When all had joined: CompletingRebalance, or the new target assignment; null if that"
        " never came.",
    ),
    column("join_completed_at_min", "timestamp", "All had joined no earlier."),
    column("join_completed_at_max", "timestamp", "All had joined no later."),
    column("stable_at", "timestamp", "When the group became Stable; null if it did not."),
    column(
        "ended_at",
        "timestamp",
        "When the next generation began; null for the newest. Of a group that may be gone, until"
        " when that is known.",
    ),
    column("join_ms", "bigint", "From the start of the rebalance until all had joined."),
    column("sync_ms", "bigint", "From there until Stable."),
    column(
        "rebalance_ms",
        "bigint",
        "From the start of the rebalance until its end; in the new protocols until the next epoch,"
        " if that began before all members had got there.",
    ),
    column(
        "clock_skew_ms",
        "bigint",
        "How far brokers' clocks differ, as the record shows: its time, or that of its state, runs"
        " back behind the record before, or ahead of what follows; null if it shows no difference.",
    ),
    Column(
        "waited_for",
        ArrayOf(StructOf(_MEMBER)),
        "In the new protocols, the member that got to the epoch last, of those that were to; in"
        " classic groups the one that re-joined last, where commits bear out that others waited;"
        " null where no record tells.",
    ),
    column("protocol_type", "string", "Protocol type: consumer, connect, …; null if empty."),
    column("protocol", "string", "Assignor that the members voted for."),
    column(
        "rebalance_protocol",
        "string",
        "eager: members give up all partitions; cooperative: revoke, then assign, in two"
        " generations; incremental: the new protocols.",
    ),
    column("leader_id", "string", "Member that assigns the partitions; null without one."),
    column("leader_client_id", "string", "Its client id."),
    column("leader_changed", "boolean", "Another leader than before; null without one before."),
    column("member_count", "int", "Members of the generation."),
    column("rebalance_timeout_ms", "bigint", "The longest that a member has; null if unknown."),
    column("session_timeout_ms", "bigint", "The longest that a member has; null if unknown."),
    column("subscriptions", "int", "Different sets of topics that members subscribe to."),
    column(
        "separate_subscriptions",
        "int",
        "Parts that members fall into if those with a topic in common are of one, and the consumers"
        " of a process, whose client ids differ by their number; null if that is not known.",
    ),
    Column(
        "subscribed_topics",
        ArrayOf(Primitive("string")),
        "Topics that members subscribe to; null if that is not known, or without members.",
    ),
    Column("members_joined", ArrayOf(StructOf(_IN_GENERATION)), "Members that are new."),
    Column("members_left", ArrayOf(StructOf(_IN_GENERATION)), "Members that are gone."),
    Column(
        "members_replaced",
        ArrayOf(StructOf((*_IN_GENERATION, _REPLACED))),
        "Members that replaced others: the same instance id, or client id and host; of many that"
        " came back without a rebalance, the last 1,000.",
    ),
    column(
        "cause",
        "string",
        "Why: group_created, new_member, member_left, member_restarted, static_member_replaced,"
        " subscription_changed, topic_deleted, partitions_changed, configuration_changed,"
        " settings_changed, leader_rejoined, probing, cooperative_follow_up, conversion,"
        " offsets_altered, coordinator_failover_suspected or unknown.",
    ),
    column("cause_detail", "string", "A sentence on that."),
    column("assigned_partitions", "bigint", "Partitions with an owner; tasks in Connect."),
    column("most_partitions", "bigint", "Partitions of the member with the most."),
    column("moved_partitions", "bigint", "Partitions with another owner than before."),
    column("stickiness", "double", "Share of the partitions owned before that kept their owner."),
    Column(
        "idle_members",
        ArrayOf(Primitive("string")),
        "Members without a partition, and without a task of Kafka Streams to keep a copy of.",
    ),
    Column(
        "unassigned_topics",
        ArrayOf(Primitive("string")),
        "Topics subscribed to of which no partition is assigned; null if that is not known.",
    ),
    Column(
        "unowned_partitions",
        ArrayOf(Primitive("string")),
        "Partitions, as topic/number, that had an owner and have none now, though members subscribe"
        " to their topic and own others of it; null if that is not known.",
    ),
    column(
        "delay_ms",
        "bigint",
        "How long Connect's leader leaves tasks of lost workers alone before it hands them out, or"
        " Kafka Streams warms tasks up before it moves them; null if none wait.",
    ),
    Column(
        "waiting_tasks",
        ArrayOf(Primitive("string")),
        "These tasks, as connector/number, -1 for the connector itself; null if not known.",
    ),
    column("waiting_since", "timestamp", "Since when the first of them has no worker."),
    *_record("tells of the generation"),
    _SETTLED,
    column(
        "cost_member_ms",
        "bigint",
        "What the rebalance cost: for how long members were without partitions of theirs, all of"
        " them together, each by the share of its partitions; null if it is not known.",
    ),
    column("cost_member_ms_min", "bigint", "It cost no less; null if nothing bounds it."),
    column("cost_member_ms_max", "bigint", "It cost no more; null if nothing bounds it."),
    _known_until("it was in force", "ended_at"),
)


MEMBER_SESSIONS = (
    _GROUP,
    _TYPE,
    *_MEMBER,
    *_TIMEOUTS,
    column("first_generation", "int", "First generation with the member."),
    column("last_generation", "int", "Last one, so far."),
    column("joined_at", "timestamp", "When it was a member for certain."),
    column("joined_at_min", "timestamp", "It joined no earlier; null if nothing bounds it."),
    column("left_at", "timestamp", "When it was gone for certain; null while it is a member."),
    column("left_at_min", "timestamp", "It left no earlier."),
    column("duration_ms", "bigint", "From joined_at to left_at."),
    column(
        "end_cause",
        "string",
        "left_or_failed, static_member_replaced, restarted (same client id and host came back),"
        " group_emptied, group_deleted or group_converted; null while it is a member.",
    ),
    _known_until("the member was there", "left_at"),
    *_record("shows the member first"),
    _SETTLED,
)

PARTITION_OWNERS = (
    _GROUP,
    _TYPE,
    column("topic", "string", "Topic; null where the log has only an id that nothing names."),
    column("topic_id", "string", "Topic id as Kafka prints it; null in classic groups."),
    column("topic_partition", "int", "Partition of the topic."),
    *_MEMBER,
    column("generation", "int", "Generation or group epoch in which it got the partition."),
    column("valid_from", "timestamp", "Since when the assignment was in force."),
    column("valid_to", "timestamp", "Till when; null while it is."),
    column("duration_ms", "bigint", "From valid_from to valid_to."),
    _known_until("it owned the partition", "valid_to"),
    *_record("assigned the partition"),
    _SETTLED,
)

OFFSET_PROGRESS = (
    _GROUP,
    column("topic", "string", "Topic."),
    column("topic_partition", "int", "Partition of the topic."),
    column("hour", "timestamp", "The hour, by the records' time; null where they have none."),
    column(
        "first_committed_offset",
        "bigint",
        "First offset that the hour's commits have; one below zero is none to clients.",
    ),
    column(
        "last_committed_offset",
        "bigint",
        "Offset of its last; null if that deleted it, or is below zero.",
    ),
    column("first_commit_at", "timestamp", "Time of the hour's first commit."),
    column("last_commit_at", "timestamp", "Time of its last."),
    column("commits", "bigint", "Commits in the hour."),
    column("tombstones", "bigint", "Deletions of the offset: expired, deleted, topic gone."),
    column("distinct_offsets", "bigint", "Commits of another offset than the commit before."),
    column("rewinds", "bigint", "Commits of a smaller offset than the commit before."),
    column(
        "jumps",
        "bigint",
        "Commits beyond where the partition had been by more than ten times the largest step"
        " before, and by 1,000.",
    ),
    column("no_progress_commits", "bigint", "Commits of the same offset as the commit before."),
    column("rewound_offsets", "bigint", "Offsets that the rewinds went back, together."),
    column("progressed_offsets", "bigint", "Offsets that the other commits went on, together."),
    column("largest_step", "bigint", "Most offsets that one commit went on."),
    column("log_bytes", "bigint", "Bytes of keys and values that the records take in the log."),
    column(
        "unchanged_since",
        "timestamp",
        "Of the longest time, up to a commit of this hour, in which each commit was of one offset:"
        " time of the first of them; null without two such commits.",
    ),
    column("unchanged_until", "timestamp", "Time of the last of them in this hour."),
    column("unchanged_commits", "bigint", "How many they are, up to then."),
    column("unchanged_offset", "bigint", "The offset that they commit."),
    *_record("is the hour's last"),
)

OFFSET_MOVES = (
    _GROUP,
    column("topic", "string", "Topic."),
    column("topic_partition", "int", "Partition of the topic."),
    column(
        "move",
        "string",
        "rewind: to a smaller offset; leap: beyond where it had been by more than 1,000, and more"
        " than ten times the largest step before; deleted: the offset is gone; returned: the first"
        " commit after that; resumed: it went on after more than ten minutes, and more than five"
        " times the partition's rhythm, without a commit.",
    ),
    column("at", "timestamp", "Time of the commit."),
    column("previous_offset", "bigint", "Offset committed before; null if it is not known."),
    column("previous_at", "timestamp", "Time of that commit."),
    column("previous_record_offset", "bigint", "Offset of the record of that commit."),
    column("topic_id", "string", "Topic id of the commit; null before 4.1, and where it deletes."),
    column("previous_topic_id", "string", "Topic id of the commit before."),
    column("committed_offset", "bigint", "Offset committed now; null if it was deleted."),
    column("step", "bigint", "Offsets from the one to the other."),
    column("largest_step_before", "bigint", "Largest step of the partition before; null if none."),
    column("farthest_before", "bigint", "Greatest offset before, since it was deleted last."),
    column(
        "is_complete",
        "boolean",
        "Between the commit before and this one, no offset of the log is missing.",
    ),
    column(
        "last_there_at",
        "timestamp",
        "Of a rewind: time of the last commit of that offset before, among those of its run.",
    ),
    column("last_there_until", "timestamp", "Time of the commit that followed that one."),
    column(
        "rhythm_since",
        "timestamp",
        "Time of the fifth commit before this one; null if there were fewer since its deletion.",
    ),
    column("rhythm_offset", "bigint", "Offset that it committed."),
    *_record("is the commit"),
    HISTORY_RUN,
)

COMMITTED_OFFSETS = (
    _GROUP,
    column("topic", "string", "Topic."),
    column("topic_partition", "int", "Partition of the topic."),
    column(
        "committed_offset",
        "bigint",
        "Offset committed last; null if it was deleted since, or is below zero: none to clients.",
    ),
    column("leader_epoch", "int", "Leader epoch of that commit; null where it has none."),
    column("metadata", "string", "Metadata of that commit."),
    column("topic_id", "string", "Topic id of that commit; null before 4.1."),
    column("committed_at", "timestamp", "Time of that commit, by the broker that handled it."),
    column("is_deleted", "boolean", "The offset was deleted: expired, deleted, topic gone."),
    column("unchanged_since", "timestamp", "Time since which each commit was of that offset."),
    column("unchanged_commits", "bigint", "How many they are."),
    column("largest_step", "bigint", "Most offsets that one commit of the partition went on."),
    column("farthest_offset", "bigint", "Greatest offset committed since it was deleted last."),
    *_record("is the partition's last"),
    Column(
        "recent_commits",
        ArrayOf(
            StructOf(
                (
                    column("committed_offset", "bigint", "Offset committed."),
                    column("committed_at", "timestamp", "Time of the commit."),
                )
            )
        ),
        "The last ten commits, oldest first; those since the offset was deleted, if it was.",
    ),
)

_LOG_START = column(
    "log_start_offset", "bigint", "First offset that the partition's log has; null without a log."
)
_LOG_END = column(
    "log_end_offset",
    "bigint",
    "Offset behind the log's last record (high watermark); null without a log.",
)
_SAMPLED_AT = column("sampled_at", "timestamp", "When the cluster was asked.")
_LAG_RUN = column("lag_run", "bigint", "Number of the lag run; the greatest is the newest.")

LAG = (
    _GROUP,
    column("topic", "string", "Topic."),
    column("topic_partition", "int", "Partition of the topic."),
    column(
        "committed_offset",
        "bigint",
        "Offset committed last, as far as commits were known; null if it is below zero.",
    ),
    column("committed_at", "timestamp", "Time of that commit, by the broker that handled it."),
    _LOG_START,
    _LOG_END,
    column(
        "lag",
        "bigint",
        "From the committed offset to where the log ended at commits_known_until, between samples"
        " as if records had come evenly; exact where lag_min is lag_max, at most that many where"
        " lag_is_bound; 0 if the offset lies beyond the end; null without a log or an offset.",
    ),
    column("lag_min", "bigint", "It was no less at commits_known_until; certain."),
    column("lag_max", "bigint", "It was no more, certain."),
    column(
        "lag_is_bound",
        "boolean",
        "The lag is at most that many, and may be none: no sample of the log's end is as old as"
        " commits_known_until, so that records which came later count. Null without a lag.",
    ),
    column(
        "phantom_lag",
        "bigint",
        "Part of the lag that lies before the log's start: deleted, nobody can read it any more.",
    ),
    column(
        "lag_seconds",
        "double",
        "Time from when the log's end passed the committed offset to commits_known_until, between"
        " samples as if records had come evenly; where lag_seconds_max is null at least that long;"
        " null without an earlier sample; 0 without lag.",
    ),
    column("lag_seconds_min", "double", "It is no less; certain."),
    column("lag_seconds_max", "double", "It is no more, certain; null if no sample tells."),
    column(
        "status",
        "string",
        "By Burrow's rules: OK, WARN, STOP, STALL or REWIND; null without a lag.",
    ),
    column("status_reason", "string", "Why, or why there is no lag."),
    column("group_status", "string", "Of the group as a whole: OK, WARN or ERR."),
    column("window_commits", "int", "Commits that the status rests on: the last, ten at most."),
    column(
        "commits_known_until",
        "timestamp",
        "Until when no commit of the group is missing: sampled_at, or the last commit that was read"
        " of its partition of the offsets topic, if more lies behind it.",
    ),
    _SAMPLED_AT,
    _LAG_RUN,
)

LOG_OFFSETS = (
    column("topic", "string", "Topic."),
    column("topic_partition", "int", "Partition of the topic."),
    _LOG_START,
    _LOG_END,
    _SAMPLED_AT,
    Column(
        "end_samples",
        ArrayOf(
            StructOf(
                (
                    column("sampled_at", "timestamp", "When the cluster was asked."),
                    column("log_end_offset", "bigint", "The log's end then."),
                )
            )
        ),
        "The log's end over time, oldest first: up to 64 samples, further apart the older.",
    ),
    _LAG_RUN,
)

GROUP_CHECKPOINTS = (
    _GROUP,
    column("record_partition", "int", "Partition of the group's records."),
    column("record_offset", "bigint", "Offset of the last record that the history knows."),
    column("group_type", "string", "classic, consumer, share or streams; null before it shows."),
    column("state", "string", "The fold's state as JSON, to go on with."),
    HISTORY_RUN,
    column(
        "rebuilt_run", "bigint", "History run that last rebuilt the group from its first record."
    ),
)

_SEVERITY = column("severity", "string", "info, warning or critical.")


def _proof(which: str) -> tuple[Column, ...]:
    what = f"{which} record that it rests on"
    return (
        column(f"{which}_record_partition", "int", f"Partition of the {what}."),
        column(f"{which}_record_offset", "bigint", f"Offset of the {what}; null without one."),
        column(f"{which}_record_timestamp", "timestamp", f"Time of the {what}."),
    )


ANOMALIES = (
    column("anomaly_id", "string", "Id; the same in every run that finds it."),
    column("kind", "string", "What it is: see docs/anomalies.md."),
    _SEVERITY,
    column("group_id", "string", "Group it is about; null if it is about the log."),
    column("subject", "string", "Member, client, topic or partition; null if it is the group."),
    column("started_at", "timestamp", "When it began."),
    column("ended_at", "timestamp", "Until when it lasted, as far as is known."),
    column("is_open", "boolean", "It may go on: what comes next can extend it."),
    column("label", "string", "What sets it apart from others of its kind; null if nothing."),
    column("summary", "string", "A sentence that says what happened."),
    column("evidence", "string", "Numbers and names it rests on, as JSON."),
    column("thresholds", "string", "Thresholds of its kind that held, as JSON."),
    *_proof("first"),
    *_proof("last"),
    _SETTLED,
)

INCIDENTS = (
    column(
        "incident_id", "string", "Id; the same in every run, however many anomalies come to it."
    ),
    column(
        "cause",
        "string",
        "What is behind it: offsets_set, topic_deleted, topic_grown, silent_partition, coordinator"
        " or client.",
    ),
    column("severity", "string", "info, warning or critical: that of the worst of its anomalies."),
    column(
        "subject",
        "string",
        "Topic, partitions of the offsets topic, or name of the clients; null if it has none.",
    ),
    column("started_at", "timestamp", "When the first of its anomalies began."),
    column("ended_at", "timestamp", "Until when the last of them lasted, as far as is known."),
    column("is_open", "boolean", "One of them may go on."),
    Column("groups", ArrayOf(Primitive("string")), "Its groups, in the order in which they began."),
    column("group_count", "int", "How many they are."),
    Column("anomaly_ids", ArrayOf(Primitive("string")), "Its anomalies, in that order, too."),
    column("anomaly_count", "int", "How many they are."),
    column("summary", "string", "A sentence that says what happened, and what to do."),
    column("evidence", "string", "Numbers and names that bear the cause out, as JSON."),
)

GROUP_HEALTH = (
    _GROUP,
    _TYPE,
    column(
        "health",
        "string",
        "ok, info, warning or critical: its worst open anomaly. What its lag is like is not part of"
        " it, see worst_lag_status.",
    ),
    column("state", "string", "State now; `not known` of a group that may be gone."),
    column("since", "timestamp", "Since when."),
    column("members", "int", "Members now; null if not known."),
    column("rebalances_1h", "bigint", "Rebalances that began in the hour to `as_of`."),
    column("rebalances_24h", "bigint", "The same of 24 hours."),
    column("rebalances_7d", "bigint", "The same of 7 days."),
    column("rebalancing_1h_ms", "bigint", "Time that those of the hour took."),
    column("rebalancing_24h_ms", "bigint", "Time that those of 24 hours took."),
    column("rebalancing_7d_ms", "bigint", "Time that those of 7 days took."),
    column("open_anomalies", "int", "Anomalies that may go on."),
    column("worst_anomaly", "string", "Kind of the worst of them; null without any."),
    column("anomalies_24h", "bigint", "Anomalies of the 24 hours to `as_of`, over or not."),
    column("total_lag", "bigint", "Records behind in all partitions; null if never sampled."),
    column(
        "total_lag_is_bound",
        "boolean",
        "It is at most that many: of one of them nothing else is known. Null if never sampled.",
    ),
    column(
        "worst_lag_status", "string", "Worst status of a partition's lag; null if never sampled."
    ),
    column(
        "lag_status_since",
        "timestamp",
        "Since when it has been that, or another of STALL, REWIND and STOP: the first sample that"
        " shows it, or the last commit before a STOP. Null if it is OK.",
    ),
    column("last_commit_at", "timestamp", "Time of the last commit; null without any."),
    column("as_of", "timestamp", "Time of the log that all of this is as of."),
)

ANOMALIES_RUN = column("anomalies_run", "bigint", "Number of the anomalies run that wrote the row.")

ANOMALY_CHECKPOINTS = (
    _GROUP,
    column("state", "string", "What the detectors remember, as JSON."),
    ANOMALIES_RUN,
)

ALERTS = (
    column("anomaly_id", "string", "The anomaly, or the incident."),
    _SEVERITY,
    column("step", "string", "posting: about to be posted; posted; failed: to be tried again."),
    column("at", "timestamp", "When the step was taken."),
    column(
        "awaits_end",
        "boolean",
        "The end of the anomaly is to be posted, too, since it may go on; false in the post of its"
        " end. Null in rows of releases that posted no end.",
    ),
    column(
        "kind",
        "string",
        "Kind of the anomaly; incident, of an incident; null in rows of older releases.",
    ),
    column(
        "group_id",
        "string",
        "Its group; null if it is of the log or an incident, or in rows as above.",
    ),
)

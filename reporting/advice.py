"""What to do about an anomaly, by kind, or by kind and label; `docs/anomalies.md` has it, too."""

ADVICE = {
    "rebalance_storm": "find out what starts and stops them.",
    "rebalance_storm slow_members": (
        'look for "poll timeout" in their logs; lower `max.poll.records`, make processing faster,'
        " or raise `max.poll.interval.ms`, or the session timeout of clients that send no heartbeat"
        " while they work."
    ),
    "rebalance_storm crash_loop": (
        "find out why members die (their logs, exit status, memory, probes)."
    ),
    "aborted_rebalances": (
        "look for members that come and go during rebalances;"
        " raise `group.initial.rebalance.delay.ms` for starts."
    ),
    "slow_rebalance": (
        "the slowest member's poll decides the join phase, the leader's assignor the sync phase."
    ),
    "stuck_rebalance": (
        "look for a member that does not re-join (`gold.generation_changes` says who was missing)."
    ),
    "stuck_rebalance tasks_wait": (
        "restart the worker that leads; a new leader hands out what nobody runs."
    ),
    "member_flapping": "read its logs at those times: poll interval, session timeout, restarts.",
    "static_member_fencing": "give each client an id of its own: two have the same.",
    "leader_rejoin_loop": (
        "find out why its topics' metadata change back and forth:"
        " regular expressions, brokers of different versions."
    ),
    "leader_rejoin_loop workers": (
        "look at `group.id` and `config.storage.topic` of all workers (two clusters in one group"
        " never agree), and for a worker that gives up as it joins."
    ),
    "group_recreated": (
        "find out who deletes it; it has lost its offsets, and starts by `auto.offset.reset`."
    ),
    "protocol_change": (
        "expected in a migration; more than one an hour: two deployments disagree."
    ),
    "idle_members": "start fewer members, or add partitions.",
    "orphan_topic": (
        "check that the topic exists, and that the client has the ACL `DESCRIBE` on it."
    ),
    "orphan_topic deleted": "ask who deleted it; unread records are gone.",
    "orphan_topic abandoned": (
        "delete these offsets if the application has moved on; otherwise nobody reads the topic."
    ),
    "assignment_skew": (
        "take another assignor than range, or give each topic the same number of partitions."
    ),
    "mixed_subscriptions": "finish the deployment, or give each application a group of its own.",
    "offset_rewind": (
        "expect records to be processed twice; upgrade such a client;"
        " a large step back is usually a seek."
    ),
    "offset_rewind no_members": (
        "look for a start from an older state, a second job that commits to the group, or a tool"
        " that sets its offsets."
    ),
    "offset_jump": (
        "look for a seek, or `auto.offset.reset=latest`: the records in between were not processed."
    ),
    "offset_reset": ("ask who ran a reset: the record says when, from where to where, not who."),
    "unread_partition": (
        "restart the owner; look whether it paused the partition, or still fetches it."
    ),
    "commit_stall": (
        "see why the consumer hangs; without samples of the lag its topic may be idle."
    ),
    "no_progress": "look for a record that cannot be processed.",
    "commit_storm": (
        "commit after a batch, not after each record;"
        " with exactly-once, raise `commit.interval.ms`."
    ),
    "hot_partition": ("rename groups so that they spread, or let the busiest commit less often."),
    "stale_group": "delete it if nobody needs it; otherwise its consumers are down.",
    "offsets_expired": "raise `offsets.retention.minutes`, or commit idle partitions, too.",
    "coverage_gap": "run more often; see `bronze.coverage`.",
    "cleaner_stalled": (
        "look at the broker's log cleaner thread; seen only when much of the log is read at once."
    ),
    "oversized_record": ("fewer members or topics in one group, or a larger `message.max.bytes`."),
    "misplaced_record": (
        "check whether the number of partitions of `__consumer_offsets` was changed."
    ),
    "undecodable_records": (
        "read the reason in `silver.quarantine`; a later release may decode them."
    ),
}

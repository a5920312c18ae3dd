-- What did the group do between two times, and why?
-- An interval belongs to the answer if it began before the end and ended after the start.
SELECT started_at, state, duration_ms AS ms, generation AS gen, cause, cause_detail
FROM gold.timeline
WHERE group_id = 'crash-loop'
  AND started_at < TIMESTAMP '2026-11-21 07:01:30'
  AND coalesce(ended_at, current_timestamp()) > TIMESTAMP '2026-11-21 07:01:00'
ORDER BY sequence;

-- Who owned a partition at that moment?
-- Each group has its own. Without a WHERE this is the assignment of the whole cluster at that time. Where records are
-- missing that may tell of another owner, who it is and since when is null.
SELECT group_id, topic, topic_partition AS partition, client_id, client_host, generation, since
FROM owners_at(TIMESTAMP '2026-11-21 07:01:15')
WHERE topic = 'orders' AND topic_partition = 2
ORDER BY group_id;

-- What changed in one generation?
SELECT change, client_id, member_id, topic, topic_partition AS partition
FROM gold.generation_changes
WHERE group_id = 'crash-loop' AND generation = 5
ORDER BY change, topic, topic_partition;

-- How would the coordinator have answered a heartbeat?
-- With generation 3. A client that logs ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID has missed a rebalance.
SELECT client_id, state, generation, answer
FROM heartbeat_answers_at(TIMESTAMP '2026-11-21 07:01:15', 3)
WHERE group_id = 'crash-loop'
ORDER BY client_id;

-- Which groups rebalance, how often an hour, and why?
SELECT group_id, hour, cause, rebalances, aborted_generations AS aborted, rebalance_ms AS ms
FROM gold.rebalances_per_hour
ORDER BY rebalances DESC, group_id, cause
LIMIT 8;

-- How much of the time did each group stand still?
-- Members of an eager group read nothing while it rebalances, and these all are eager.
SELECT group_id,
  sum(duration_ms) FILTER (WHERE state IN ('PreparingRebalance', 'CompletingRebalance')) AS rebalancing_ms,
  sum(duration_ms) FILTER (WHERE state = 'Stable') AS stable_ms,
  round(100 * try_divide(rebalancing_ms, rebalancing_ms + stable_ms), 1) AS standing_still_percent
FROM gold.group_states
WHERE started_at >= TIMESTAMP '2026-11-21 07:00:00' AND started_at < TIMESTAMP '2026-11-21 08:00:00'
GROUP BY group_id
ORDER BY standing_still_percent DESC;

-- How long was a partition without an owner?
-- An assignment is in force until the next one. What is left: the group had no member, or a cooperative rebalance
-- moved the partition.
SELECT group_id, topic, topic_partition AS partition, valid_to AS owner_gone, next_owner_at,
  unix_millis(next_owner_at) - unix_millis(valid_to) AS ms
FROM (
  SELECT *, lead(valid_from) OVER (
    PARTITION BY cluster, group_id, topic, topic_partition ORDER BY valid_from
  ) AS next_owner_at
  FROM gold.partition_owners
)
WHERE next_owner_at > valid_to AND known_until IS NULL
ORDER BY ms DESC, owner_gone, group_id, partition
LIMIT 6;

-- Which clients come and go?
-- Member sessions of one client id at one host; one for each deployment is normal.
SELECT group_id, client_id, count(*) AS sessions, round(avg(duration_ms) / 1000, 1) AS mean_seconds,
  min(joined_at) AS first_joined, max(left_at) AS last_left
FROM gold.member_sessions
GROUP BY group_id, client_id, client_host
HAVING sessions > 2
ORDER BY sessions DESC, group_id, client_id;

-- Which client commits too often?
-- The log does not say who committed. The owner of the partition at that time did, unless somebody set the offset.
-- The detector `commit_storm` warns from 60 a minute and partition on.
SELECT owners.group_id, owners.client_id, count(*) AS commits,
  count(DISTINCT commits.topic, commits.topic_partition) AS partitions,
  count(DISTINCT date_trunc('minute', commits.record_timestamp)) AS minutes,
  round(count(*) / minutes, 1) AS commits_a_minute
FROM silver.offset_commits AS commits
JOIN gold.partition_owners AS owners
  ON commits.cluster = owners.cluster
  AND commits.group_id = owners.group_id
  AND commits.topic = owners.topic
  AND commits.topic_partition = owners.topic_partition
  AND commits.record_timestamp >= owners.valid_from
  AND (owners.valid_to IS NULL OR commits.record_timestamp < owners.valid_to)
  AND (owners.known_until IS NULL OR commits.record_timestamp <= owners.known_until)
WHERE NOT commits.is_tombstone
GROUP BY owners.group_id, owners.client_id
ORDER BY commits_a_minute DESC, owners.client_id
LIMIT 6;

-- What had the group committed at that moment?
-- Offsets that had been deleted by then are null.
SELECT topic, topic_partition AS partition, max_by(committed_offset, record_offset) AS committed_offset,
  max(record_timestamp) AS committed_at
FROM silver.offset_commits
WHERE group_id = 'crash-loop' AND record_timestamp <= TIMESTAMP '2026-11-21 07:02:00'
GROUP BY topic, topic_partition
ORDER BY topic, topic_partition;

-- What is wrong now, the worst first?
-- docs/anomalies.md says what each kind means, and what to do.
SELECT group_id, severity, kind, subject, label, started_at
FROM gold.anomalies
WHERE is_open AND severity <> 'info'
ORDER BY severity, started_at, group_id, kind, subject
LIMIT 8;

-- Which groups does nobody use?
-- Here: no member, and no commit for 10 seconds. In real life ask for days; Kafka deletes their offsets after seven.
SELECT group_id, state, since, last_commit_at, as_of
FROM gold.group_health
WHERE state = 'Empty' AND last_commit_at < as_of - INTERVAL 10 SECONDS
ORDER BY last_commit_at, group_id;

-- Which partition of __consumer_offsets is the busiest, and when is its segment full?
-- Bytes of keys and values alone; the batches around them take more. A full segment may be compacted:
-- docs/operations.md.
SELECT record_partition AS partition, count(*) AS records, count(DISTINCT group_id) AS groups,
  round(sum(bytes) / 1024, 1) AS kilobytes,
  round(104857600 / (sum(bytes) / (unix_millis(max(at)) - unix_millis(min(at)))) / 86400000, 1) AS days_to_100_mb
FROM (
  SELECT records.record_partition, records.record_timestamp AS at, commits.group_id,
    length(records.key) + coalesce(length(records.value), 0) AS bytes
  FROM bronze.records AS records
  LEFT JOIN silver.offset_commits AS commits
    ON records.cluster = commits.cluster
    AND records.record_partition = commits.record_partition
    AND records.record_offset = commits.record_offset
)
GROUP BY record_partition
ORDER BY records DESC;

-- What did rebalances cost us last week, by cause?
-- In minutes of consumers that were without partitions. No record says when an eager rebalance began, so that the bounds
-- are wide: [states.md](states.md#what-a-rebalance-cost).
SELECT cause, sum(rebalances) AS rebalances, round(sum(cost_member_ms) / 60000, 1) AS consumer_minutes,
  round(sum(cost_member_ms_min) / 60000, 1) AS at_least,
  CASE WHEN every(cost_member_ms_max IS NOT NULL) THEN round(sum(cost_member_ms_max) / 60000, 1) END AS at_most
FROM gold.rebalance_costs
WHERE day >= TIMESTAMP '2026-11-15' AND day < TIMESTAMP '2026-11-22'
GROUP BY cause
ORDER BY consumer_minutes DESC, cause;

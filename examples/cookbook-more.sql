-- Which deployment was it?
-- Generations in which members were replaced, one after the other: a rolling restart.
SELECT generation, join_started_at, cause, cause_detail
FROM gold.group_generations
WHERE cluster = 'classic' AND group_id = 'g-range' AND size(members_replaced) > 0
ORDER BY join_started_at;

-- How long do rebalances take, by assignor and protocol, and how much moves?
-- Stickiness is the share of partitions that kept their owner.
SELECT group_type, coalesce(protocol, '') AS assignor, rebalance_protocol, count(*) AS rebalances,
  CAST(median(rebalance_ms) AS BIGINT) AS median_ms, max(rebalance_ms) AS slowest_ms,
  round(avg(moved_partitions), 1) AS moved, round(avg(stickiness), 2) AS stickiness
FROM gold.group_generations
WHERE cluster IN ('classic', 'modern')
  AND member_count > 0 AND rebalance_protocol IS NOT NULL AND group_type <> 'share'
GROUP BY group_type, assignor, rebalance_protocol
ORDER BY group_type, assignor, rebalance_protocol;

-- Which groups moved to the new protocol, and were their rebalances better there?
-- A group can go back: these two did. Its generations go on with group epochs, and the other way round.
SELECT group_id, group_type, min(join_started_at) AS since, max(join_started_at) AS last_rebalance,
  count(*) AS rebalances, CAST(avg(rebalance_ms) AS BIGINT) AS mean_ms, max(rebalance_ms) AS slowest_ms,
  sum(moved_partitions) AS moved
FROM gold.group_generations
WHERE (cluster, group_id) IN (
  SELECT cluster, group_id FROM gold.group_generations WHERE cause = 'conversion'
)
GROUP BY cluster, group_id, group_type
ORDER BY group_id, since;

-- Who reset my offsets, from where to where?
-- The log says when and what, but not who. Kafka lets offsets be set only while nobody is a member.
SELECT moves.at, moves.topic, moves.topic_partition AS partition, moves.previous_offset AS from_offset,
  moves.committed_offset AS to_offset, moves.step
FROM gold.offset_moves AS moves
JOIN gold.group_states AS states
  ON moves.cluster = states.cluster
  AND moves.group_id = states.group_id
  AND states.state = 'Empty'
  AND moves.at >= states.started_at
  AND (states.ended_at IS NULL OR moves.at < states.ended_at)
WHERE moves.cluster = 'admin' AND moves.group_id = 'simple-reset' AND moves.move IN ('rewind', 'leap')
ORDER BY moves.at, moves.topic, moves.topic_partition;

-- Which groups use static membership?
-- More than one session is a restart, or two clients with one `group.instance.id`.
SELECT group_id, group_instance_id, count(*) AS sessions, count(DISTINCT client_host) AS hosts,
  count(*) FILTER (WHERE end_cause = 'static_member_replaced') AS replaced,
  max(session_timeout_ms) AS session_timeout_ms
FROM gold.member_sessions
WHERE cluster <> 'deleted' AND group_instance_id IS NOT NULL
GROUP BY group_id, group_instance_id
ORDER BY group_id, group_instance_id;

-- Which members had nothing to do, and which topics nobody to read them?
-- For moments, this is how cooperative rebalances go; the detectors `idle_members` and `orphan_topic` wait a minute.
SELECT group_id, generation, member_count AS members, size(idle_members) AS idle,
  array_join(unassigned_topics, ', ') AS topics_without_reader, stable_at
FROM gold.group_generations
WHERE (size(idle_members) > 0 OR size(unassigned_topics) > 0) AND cluster = 'classic'
ORDER BY stable_at, group_id;

-- Which part of the log was never read?
-- What is missing was compacted or deleted before the run, or is not in the files.
SELECT record_partition AS partition, hole.start_offset, hole.end_offset,
  hole.end_offset - hole.start_offset + 1 AS offsets, hole.reason
FROM bronze.coverage LATERAL VIEW explode(holes) AS hole
WHERE cluster = 'compacted'
ORDER BY offsets DESC, partition, hole.start_offset
LIMIT 8;

-- Is every partition read?
-- A row for each partition that nobody reads, or two members read: since when, who owned it, where it stands, how many
-- records wait at least, and whose commits show that; none do if it is the log's end.
SELECT group_id, part.partition, timestamp_millis(part.since) AS since, timestamp_millis(part.until) AS until,
  part.owner, part.committed_offset AS offset, part.waiting, array_join(part.shown_by, ', ') AS shown_by
FROM gold.anomalies
LATERAL VIEW OUTER explode(from_json(evidence, 'by_partition ARRAY<STRUCT<partition STRING, since BIGINT, until BIGINT,
  owner STRING, committed_offset BIGINT, waiting BIGINT, shown_by ARRAY<STRING>>>').by_partition) AS part
WHERE cluster = 'field' AND kind = 'unread_partition'
ORDER BY since, group_id, partition;

-- What was one cause behind many groups?
-- An incident stands for the anomalies of all its groups; its `summary` says what happened, and what to do.
SELECT cause, severity, subject, group_count AS groups, anomaly_count AS anomalies, started_at,
  array_join(slice(groups, 1, 3), ', ') AS first_groups
FROM gold.incidents
WHERE cluster = 'deleted'
ORDER BY started_at, incident_id;

-- One row per member and epoch of a consumer group: how long the member took to get there.
-- The classic protocol leaves no trace of when each member re-joined; see join_ms of its generation.
SELECT
  assignments.cluster,
  assignments.group_id,
  assignments.member_epoch AS generation,
  assignments.member_id,
  sessions.client_id,
  sessions.client_host,
  generations.join_started_at,
  min(assignments.record_timestamp) AS reconciled_at,
  unix_millis(min(assignments.record_timestamp))
    - unix_millis(generations.join_started_at) AS reconcile_ms
FROM silver.consumer_group_current_member_assignment AS assignments
JOIN (
  SELECT *, lead(record_offset) OVER (
    PARTITION BY cluster, group_id, generation, record_partition ORDER BY record_offset
  ) AS made_anew_at
  FROM gold.group_generations
  WHERE group_type = 'consumer'
) AS generations
  ON assignments.cluster = generations.cluster
  AND assignments.group_id = generations.group_id
  AND assignments.member_epoch = generations.generation
  -- Epochs begin again when a group is recreated. A member may get to one that is over already.
  AND assignments.record_partition = generations.record_partition
  AND assignments.record_offset >= generations.record_offset
  AND (generations.made_anew_at IS NULL OR assignments.record_offset < generations.made_anew_at)
LEFT JOIN gold.member_sessions AS sessions
  ON assignments.cluster = sessions.cluster
  AND assignments.group_id = sessions.group_id
  AND assignments.member_id = sessions.member_id
  AND assignments.record_timestamp >= sessions.joined_at
  AND (sessions.left_at IS NULL OR assignments.record_timestamp < sessions.left_at)
WHERE assignments.state = 0
GROUP BY ALL

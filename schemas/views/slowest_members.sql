-- One row per member and group epoch of the new protocols: how long the member took to get there.
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
JOIN gold.group_generations AS generations
  ON assignments.cluster = generations.cluster
  AND assignments.group_id = generations.group_id
  AND assignments.member_epoch = generations.generation
  AND generations.group_type = 'consumer'
LEFT JOIN gold.member_sessions AS sessions
  ON assignments.cluster = sessions.cluster
  AND assignments.group_id = sessions.group_id
  AND assignments.member_id = sessions.member_id
  AND assignments.record_timestamp >= sessions.joined_at
  AND (sessions.left_at IS NULL OR assignments.record_timestamp < sessions.left_at)
WHERE assignments.state = 0
GROUP BY ALL

-- One row per group that nobody is in: since when nobody has been and nobody has committed, and the offsets it holds.
-- unused_since is null where records have no time.
SELECT
  states.cluster,
  states.group_id,
  states.group_type,
  -- Where only bounds of when the last member left are known, the later one.
  greatest(coalesce(states.started_at_max, states.started_at), held.last_commit_at) AS unused_since,
  held.last_commit_at,
  coalesce(held.topics, array()) AS topics,
  coalesce(held.offsets, 0) AS offsets
FROM gold.group_states AS states
LEFT JOIN (
  SELECT cluster, group_id, sort_array(collect_set(topic) FILTER (WHERE NOT is_deleted)) AS topics,
    count_if(NOT is_deleted) AS offsets,
    -- That an offset was deleted is no use of it.
    max(if(is_deleted, committed_at, coalesce(record_timestamp, committed_at))) AS last_commit_at
  FROM gold.committed_offsets GROUP BY cluster, group_id
) AS held ON states.cluster = held.cluster AND states.group_id = held.group_id
WHERE states.ended_at IS NULL AND states.state = 'Empty'

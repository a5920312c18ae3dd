-- One row per group, hour and cause: how many rebalances began, and what they took.
SELECT
  cluster,
  group_id,
  date_trunc('hour', join_started_at) AS hour,
  cause,
  count(*) AS rebalances,
  sum(aborted_generations) AS aborted_generations,
  sum(rebalance_ms) AS rebalance_ms
FROM gold.group_generations
-- A group that is made has not rebalanced.
WHERE join_started_at IS NOT NULL
GROUP BY cluster, group_id, hour, cause

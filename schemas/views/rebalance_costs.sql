-- One row per group, day and cause: how many rebalances began, and what they cost, as cost_member_ms of a generation
-- has it. unknown_costs is the number of those of which that is not known: the sum and cost_member_ms_min are without
-- them, and cost_member_ms_max is null.
SELECT
  cluster,
  group_id,
  date_trunc('day', join_started_at) AS day,
  cause,
  count(*) AS rebalances,
  sum(cost_member_ms) AS cost_member_ms,
  sum(cost_member_ms_min) AS cost_member_ms_min,
  CASE WHEN count(cost_member_ms_max) = count(*) THEN sum(cost_member_ms_max) END AS cost_member_ms_max,
  count(*) - count(cost_member_ms) AS unknown_costs
FROM gold.group_generations
-- A group that is made has not rebalanced.
WHERE join_started_at IS NOT NULL
GROUP BY cluster, group_id, day, cause

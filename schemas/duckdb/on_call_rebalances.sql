-- Who rebalances, and why? One row per group and cause of the last 24 hours of the log.
CREATE VIEW gold.on_call_rebalances AS
SELECT cluster, group_id, cause, sum(rebalances)::BIGINT AS rebalances,
  sum(rebalance_ms)::BIGINT AS rebalance_ms, max(hour) AS last_hour
FROM gold.rebalances_per_hour r
JOIN (SELECT cluster, max(as_of) AS as_of FROM gold.group_health GROUP BY cluster) l USING (cluster)
WHERE hour > l.as_of - INTERVAL 24 HOUR
GROUP BY cluster, group_id, cause
ORDER BY rebalances DESC, group_id, cause

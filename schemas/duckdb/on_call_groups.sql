-- Which groups need somebody? One row per group that is not ok, the worst first, as the report has them.
CREATE VIEW gold.on_call_groups AS
SELECT cluster, group_id, health, state, since, members, rebalances_24h, total_lag, worst_lag_status,
  open_anomalies, worst_anomaly, last_commit_at, as_of
FROM gold.group_health
WHERE health <> 'ok'
ORDER BY list_position(['critical', 'warning', 'info'], health), rebalances_24h DESC,
  rebalances_7d DESC, group_id

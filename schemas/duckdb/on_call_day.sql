-- What happened in the last 24 hours of the log? One row per anomaly, the newest first.
CREATE VIEW gold.on_call_day AS
SELECT a.cluster, a.started_at, a.ended_at, a.is_open, a.severity, a.group_id, a.kind, a.subject,
  a.summary
FROM gold.anomalies a
JOIN (SELECT cluster, max(as_of) AS as_of FROM gold.group_health GROUP BY cluster) l USING (cluster)
WHERE a.is_open OR a.ended_at > l.as_of - INTERVAL 24 HOUR
ORDER BY a.started_at DESC, a.group_id, a.kind

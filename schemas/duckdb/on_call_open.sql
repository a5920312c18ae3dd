-- What is wrong now? One row per anomaly that had not ended at the last run, the worst first.
CREATE VIEW gold.on_call_open AS
SELECT cluster, severity, group_id, kind, subject, started_at AS since,
  last_record_timestamp AS last_seen_at, summary
FROM gold.anomalies
WHERE is_open
ORDER BY list_position(['critical', 'warning', 'info'], severity), last_seen_at DESC, group_id, kind

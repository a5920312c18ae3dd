-- Who reads what now? One row per partition that has an owner; unknown ones are null.
CREATE VIEW gold.on_call_owners AS
SELECT cluster, group_id, topic, topic_partition,
  CASE WHEN known_until IS NULL THEN client_id END AS client_id,
  CASE WHEN known_until IS NULL THEN client_host END AS client_host,
  CASE WHEN known_until IS NULL THEN member_id END AS member_id,
  CASE WHEN known_until IS NULL THEN valid_from END AS since,
  known_until AS not_known_since
FROM gold.partition_owners
WHERE valid_to IS NULL
ORDER BY cluster, group_id, topic, topic_partition

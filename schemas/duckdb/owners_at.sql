-- Whom the last completed assignment gave each partition at a time, as `owners_at` of SQL.
CREATE MACRO gold.owners_at(moment) AS TABLE
SELECT cluster, group_id, topic, topic_partition,
  CASE WHEN is_known THEN member_id END AS member_id,
  CASE WHEN is_known THEN client_id END AS client_id,
  CASE WHEN is_known THEN client_host END AS client_host,
  CASE WHEN is_known THEN generation END AS generation,
  CASE WHEN is_known THEN valid_from END AS since,
  CASE WHEN NOT is_known THEN known_until END AS not_known_since
FROM (
  SELECT *, known_until IS NULL OR known_until >= CAST(moment AS TIMESTAMPTZ) AS is_known
  FROM gold.partition_owners
  WHERE valid_from <= CAST(moment AS TIMESTAMPTZ)
    AND (valid_to IS NULL OR valid_to > CAST(moment AS TIMESTAMPTZ))
)

-- Whom the last completed assignment gave each partition at a time. During a rebalance the members
-- of an eager group read nothing, although this still names the last owner: the timeline has the
-- state.
CREATE OR REPLACE FUNCTION gold.owners_at(at TIMESTAMP)
RETURNS TABLE (
  cluster STRING, group_id STRING, topic STRING, topic_partition INT, member_id STRING,
  client_id STRING, client_host STRING, generation INT, since TIMESTAMP
)
RETURN
  SELECT cluster, group_id, topic, topic_partition, member_id, client_id, client_host, generation,
    valid_from
  FROM gold.partition_owners
  WHERE valid_from <= owners_at.at AND (valid_to IS NULL OR valid_to > owners_at.at)

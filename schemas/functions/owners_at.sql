-- Whom the last completed assignment gave each partition at a time. During a rebalance the members
-- of an eager group read nothing, although this still names the last owner: the timeline has the
-- state. Where records are missing that may tell of another owner, the row names none, and
-- not_known_since is the time of the last record that did.
CREATE OR REPLACE FUNCTION gold.owners_at(at TIMESTAMP)
RETURNS TABLE (
  cluster STRING, group_id STRING, topic STRING, topic_partition INT, member_id STRING,
  client_id STRING, client_host STRING, generation INT, since TIMESTAMP, not_known_since TIMESTAMP
)
RETURN
  SELECT cluster, group_id, topic, topic_partition, if(is_known, member_id, NULL),
    if(is_known, client_id, NULL), if(is_known, client_host, NULL), if(is_known, generation, NULL),
    if(is_known, valid_from, NULL), if(is_known, NULL, known_until)
  FROM (
    SELECT *, known_until IS NULL OR known_until >= owners_at.at AS is_known
    FROM gold.partition_owners
    WHERE valid_from <= owners_at.at AND (valid_to IS NULL OR valid_to > owners_at.at)
  )

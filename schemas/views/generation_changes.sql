-- One row per member that joined, left or was replaced, and per partition that moved, in a generation.
-- replaced_member_id is null where records are missing, so that the last owner is not known.
SELECT cluster, group_id, generation, coalesce(join_completed_at, join_started_at) AS at,
  'member joined' AS change, m.member_id, m.client_id, m.client_host,
  CAST(NULL AS STRING) AS replaced_member_id, CAST(NULL AS STRING) AS topic,
  CAST(NULL AS INT) AS topic_partition
FROM gold.group_generations LATERAL VIEW explode(members_joined) joined AS m
UNION ALL
SELECT cluster, group_id, generation, coalesce(join_completed_at, join_started_at),
  'member left', m.member_id, m.client_id, m.client_host, NULL, NULL, NULL
FROM gold.group_generations LATERAL VIEW explode(members_left) gone AS m
UNION ALL
SELECT cluster, group_id, generation, coalesce(join_completed_at, join_started_at),
  'member replaced', m.member_id, m.client_id, m.client_host, m.replaced_member_id, NULL, NULL
FROM gold.group_generations LATERAL VIEW explode(members_replaced) replaced AS m
UNION ALL
SELECT cluster, group_id, generation, valid_from, 'partition moved', member_id, client_id,
  client_host, if(former.known_until IS NULL, former.member_id, NULL), topic, topic_partition
FROM (
  SELECT *, lag(struct(member_id, known_until)) OVER (
    PARTITION BY cluster, group_id, coalesce(topic, topic_id), topic_partition
    ORDER BY valid_from, record_offset
  ) AS former
  FROM gold.partition_owners
  -- A partition of a share group has many owners at a time.
  WHERE group_type <> 'share'
)
WHERE member_id <> former.member_id

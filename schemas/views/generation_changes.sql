-- One row per member that joined, left or was replaced, and per partition that moved, in a generation.
SELECT cluster, group_id, generation, at, change, member_id, client_id, client_host,
  replaced_member_id, topic, topic_partition
FROM (
  SELECT cluster, group_id, generation, coalesce(join_completed_at, join_started_at) AS at,
    'member joined' AS change, inline(members_joined),
    CAST(NULL AS STRING) AS replaced_member_id, CAST(NULL AS STRING) AS topic,
    CAST(NULL AS INT) AS topic_partition
  FROM gold.group_generations
  UNION ALL
  SELECT cluster, group_id, generation, coalesce(join_completed_at, join_started_at),
    'member left', inline(members_left), NULL, NULL, NULL
  FROM gold.group_generations
  UNION ALL
  SELECT cluster, group_id, generation, coalesce(join_completed_at, join_started_at),
    'member replaced', inline(members_replaced), NULL, NULL
  FROM gold.group_generations
  UNION ALL
  SELECT now.cluster, now.group_id, now.generation, now.valid_from, 'partition moved',
    now.member_id, now.group_instance_id, now.client_id, now.client_host, before.member_id,
    now.topic, now.topic_partition
  FROM gold.partition_owners AS now
  JOIN gold.partition_owners AS before
    ON now.cluster = before.cluster
    AND now.group_id = before.group_id
    AND now.topic = before.topic
    AND now.topic_partition = before.topic_partition
    AND now.valid_from = before.valid_to
    AND now.member_id <> before.member_id
)

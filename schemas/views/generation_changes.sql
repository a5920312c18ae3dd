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
  SELECT cluster, group_id, generation, valid_from, 'partition moved', member_id,
    group_instance_id, client_id, client_host, former_member_id, topic, topic_partition
  FROM (
    SELECT *, lag(member_id) OVER (
      PARTITION BY cluster, group_id, coalesce(topic, topic_id), topic_partition
      ORDER BY valid_from, record_offset
    ) AS former_member_id
    FROM gold.partition_owners
    -- A partition of a share group has many owners at a time.
    WHERE group_type <> 'share'
  )
  WHERE member_id <> former_member_id
)

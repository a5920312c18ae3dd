-- One row per interval that a group spent in a state, with the cause of the rebalance it belongs to.
-- What did a group do between two times: WHERE started_at < B AND coalesce(ended_at, B) > A.
SELECT
  states.cluster,
  states.group_id,
  states.sequence,
  states.started_at,
  states.ended_at,
  states.state,
  states.duration_ms,
  states.generation,
  states.member_count,
  states.evidence,
  states.known_until,
  generations.cause,
  generations.cause_detail
FROM gold.group_states AS states
LEFT JOIN gold.group_generations AS generations
  ON states.cluster = generations.cluster
  AND states.group_id = generations.group_id
  AND states.record_partition = generations.record_partition
  AND CASE
    -- A record of the classic protocol tells of the states up to its generation,
    WHEN states.group_type = 'classic' THEN states.record_offset = generations.record_offset
    -- one of the new protocols of those from its group epoch on.
    ELSE states.generation = generations.generation
      AND states.record_offset >= generations.record_offset
      AND (generations.ended_at IS NULL OR states.started_at < generations.ended_at)
  END

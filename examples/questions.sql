-- What did crash-loop do in that minute, and why?
SELECT started_at, state, duration_ms AS ms, generation AS gen, cause, cause_detail
FROM gold.timeline
WHERE group_id = 'crash-loop'
  AND started_at < TIMESTAMP '2026-11-21 07:01:30'
  AND coalesce(ended_at, current_timestamp()) > TIMESTAMP '2026-11-21 07:01:00'
ORDER BY sequence;

-- Who owned its partitions at that moment?
SELECT topic, topic_partition, client_id, generation, since
FROM owners_at(TIMESTAMP '2026-11-21 07:01:15')
WHERE group_id = 'crash-loop'
ORDER BY topic, topic_partition;

-- Which groups rebalance, how often an hour, and why?
SELECT group_id, hour, cause, rebalances, aborted_generations AS aborted, rebalance_ms AS ms
FROM gold.rebalances_per_hour
ORDER BY rebalances DESC
LIMIT 5;

-- What changed in one generation?
SELECT change, client_id, member_id, topic, topic_partition
FROM gold.generation_changes
WHERE group_id = 'crash-loop' AND generation = 5
ORDER BY change, topic, topic_partition;

-- What would its members have been told on a heartbeat of generation 3 at that moment?
SELECT client_id, state, generation, answer
FROM heartbeat_answers_at(TIMESTAMP '2026-11-21 07:01:15', 3)
WHERE group_id = 'crash-loop';

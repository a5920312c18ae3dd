-- What the coordinator would have answered to a heartbeat of each member of a classic group at a time, if it sent the
-- given generation: NONE, REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID.
-- A member that is not in the result was not known: UNKNOWN_MEMBER_ID. So brokers answer from 2.7.0
-- on; earlier ones said REBALANCE_IN_PROGRESS in CompletingRebalance, too (KAFKA-10134).
-- The answer is null where it is not known whether the member was still there, since records are
-- missing, or whether an attempt to rebalance had been given up by then, which raises the generation.
CREATE OR REPLACE FUNCTION gold.heartbeat_answers_at(at TIMESTAMP, sent_generation INT)
RETURNS TABLE (
  cluster STRING, group_id STRING, member_id STRING, client_id STRING, state STRING,
  generation INT, answer STRING
)
RETURN
  SELECT states.cluster, states.group_id, sessions.member_id, sessions.client_id, states.state,
    states.generation,
    CASE
      WHEN states.state IN ('Empty', 'Dead') THEN 'UNKNOWN_MEMBER_ID'
      WHEN sessions.known_until < heartbeat_answers_at.at THEN NULL
      WHEN heartbeat_answers_at.sent_generation BETWEEN states.generation
        AND states.generation + following.aborted_generations
        AND following.aborted_generations > 0 THEN NULL
      WHEN states.generation <> heartbeat_answers_at.sent_generation THEN 'ILLEGAL_GENERATION'
      WHEN states.state = 'PreparingRebalance' THEN 'REBALANCE_IN_PROGRESS'
      ELSE 'NONE'
    END
  FROM gold.group_states AS states
  JOIN gold.member_sessions AS sessions
    ON states.cluster = sessions.cluster
    AND states.group_id = sessions.group_id
    AND sessions.joined_at <= heartbeat_answers_at.at
    AND (sessions.left_at IS NULL OR sessions.left_at > heartbeat_answers_at.at)
  LEFT JOIN gold.group_generations AS following
    ON states.state = 'PreparingRebalance'
    AND states.cluster = following.cluster
    AND states.group_id = following.group_id
    AND states.started_at = following.join_started_at
    AND states.generation = following.previous_generation
  WHERE states.group_type = 'classic'
    AND states.started_at <= heartbeat_answers_at.at
    AND (states.ended_at IS NULL OR states.ended_at > heartbeat_answers_at.at)

-- The offset that each group had committed of each partition by a time, so that it may go on from there again.
-- committed_offset is null where there was none, or it is not known, and missing says why: not committed by then, deleted
-- by then, records are missing that may tell of another offset, records have no time, or another topic has the name
-- since.
CREATE OR REPLACE FUNCTION gold.offsets_at(at TIMESTAMP)
RETURNS TABLE (
  cluster STRING, group_id STRING, topic STRING, topic_partition INT, committed_offset BIGINT,
  committed_at TIMESTAMP, missing STRING
)
RETURN
  WITH timed AS (
    SELECT *, coalesce(record_timestamp, commit_timestamp) AS time, time <= offsets_at.at AS is_past
    FROM silver.offset_commits
  ), commits AS (
    SELECT cluster, group_id, topic, topic_partition, record_partition,
      max_by(
        struct(time, record_offset AS position, committed_offset, is_tombstone, topic_id),
        record_offset
      ) FILTER (WHERE is_past) AS last,
      max(struct(time, topic_id)) FILTER (WHERE topic_id IS NOT NULL) AS newest,
      bool_and(time IS NULL) AS is_untimed
    FROM timed GROUP BY cluster, group_id, topic, topic_partition, record_partition
  ), places AS (
    -- A topic that grew has a group's records in two partitions.
    SELECT cluster, group_id, topic, topic_partition, max(newest).topic_id AS newest_topic_id,
      bool_and(is_untimed) AS is_untimed,
      max_by(
        struct(
          record_partition AS partition, last.time, last.position, last.committed_offset,
          last.is_tombstone, last.topic_id
        ),
        last.time
      ) AS last
    FROM commits GROUP BY cluster, group_id, topic, topic_partition
  ), ranges AS (
    SELECT cluster, record_partition, ingest_run, from_offset, next_offset, holes
    FROM bronze.coverage
  ), holes AS (
    SELECT cluster, record_partition, from_offset, hole.start_offset, hole.end_offset, hole.reason
    FROM ranges LATERAL VIEW explode(holes) AS hole
    WHERE hole.reason <> 'transaction marker' AND NOT EXISTS (
      SELECT 1 FROM ranges AS later
      WHERE later.cluster = ranges.cluster AND later.record_partition = ranges.record_partition
        AND later.ingest_run > ranges.ingest_run
        AND hole.start_offset BETWEEN later.from_offset AND later.next_offset - 1
    )
    UNION ALL
    SELECT cluster, record_partition, NULL, record_offset, record_offset, 'not decoded'
    FROM silver.quarantine WHERE coalesce(record_type, 0) < 2
  ), reached AS (
    SELECT cluster, record_partition, min(record_offset) AS position
    FROM timed WHERE NOT is_past GROUP BY cluster, record_partition
  ), doubted AS (
    -- The cleaner that left a record of a key has left each later one of it, too, as of when the record was read.
    SELECT DISTINCT places.cluster, group_id, topic, topic_partition
    FROM places
    JOIN holes ON places.cluster = holes.cluster AND holes.record_partition = places.last.partition
      AND holes.end_offset > places.last.position
      AND (holes.reason <> 'compacted' OR holes.from_offset > places.last.position)
    LEFT JOIN reached ON places.cluster = reached.cluster
      AND places.last.partition = reached.record_partition
    WHERE reached.position IS NULL OR holes.start_offset < reached.position
  ), told AS (
    SELECT places.*, CASE
      WHEN is_untimed THEN 'records have no time'
      WHEN last IS NULL THEN 'not committed by then'
      WHEN doubted.cluster IS NOT NULL THEN 'records are missing'
      WHEN last.is_tombstone THEN 'deleted by then'
      WHEN last.topic_id <> newest_topic_id THEN 'another topic has the name since'
    END AS missing
    FROM places LEFT JOIN doubted
      ON places.cluster = doubted.cluster AND places.group_id = doubted.group_id
      AND places.topic = doubted.topic AND places.topic_partition = doubted.topic_partition
  )
  SELECT cluster, group_id, topic, topic_partition,
    if(missing IS NULL, last.committed_offset, NULL), if(missing IS NULL, last.time, NULL), missing
  FROM told

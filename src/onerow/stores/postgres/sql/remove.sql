-- remove: delete the given rows that still have the given version.
-- Differs from sqlite/sql/remove.sql: updates the counters of ended tasks in the same statement.
WITH gone AS (
  DELETE FROM {schema}.task_queue AS t
   USING unnest(%(ids)s, %(versions)s) AS m (task_id, version)
   WHERE t.task_id = m.task_id AND t.version = m.version
  RETURNING t.task_id, t.pipeline, t.type, t.status, t.purged_at
),
counted AS (
  INSERT INTO {schema}.onerow_tally (pipeline, type, status, count)
  SELECT pipeline, type, status, -count(*) FROM gone
   WHERE status IN ('completed', 'failed', 'cancelled') AND purged_at IS NULL
   GROUP BY pipeline, type, status
)
SELECT task_id FROM gone

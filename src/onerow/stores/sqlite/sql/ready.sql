-- ready: the phases that have due tasks; seeks from phase to phase and from priority to priority.
-- Differs from postgres/sql/ready.sql: SQLite has no LATERAL, so pipelines, phases and priorities are separate steps.
WITH RECURSIVE line (pipeline) AS (
  SELECT min(pipeline) FROM task_queue WHERE status = 'waiting' AND awaiting IS NULL
  UNION ALL
  SELECT (SELECT min(t.pipeline) FROM task_queue AS t
           WHERE t.status = 'waiting' AND t.awaiting IS NULL AND t.pipeline > line.pipeline)
    FROM line WHERE line.pipeline IS NOT NULL
),
phase (pipeline, type) AS (
  SELECT line.pipeline, (SELECT min(t.type) FROM task_queue AS t
                          WHERE t.status = 'waiting' AND t.awaiting IS NULL AND t.pipeline = line.pipeline)
    FROM line WHERE line.pipeline IS NOT NULL
  UNION ALL
  SELECT phase.pipeline, (SELECT min(t.type) FROM task_queue AS t
                           WHERE t.status = 'waiting' AND t.awaiting IS NULL AND t.pipeline = phase.pipeline
                             AND t.type > phase.type)
    FROM phase WHERE phase.type IS NOT NULL
),
level (pipeline, type, priority) AS (
  SELECT phase.pipeline, phase.type, (SELECT min(t.priority) FROM task_queue AS t
                                       WHERE t.status = 'waiting' AND t.awaiting IS NULL AND t.pipeline = phase.pipeline
                                         AND t.type = phase.type)
    FROM phase WHERE phase.type IS NOT NULL
  UNION ALL
  SELECT level.pipeline, level.type, (SELECT min(t.priority) FROM task_queue AS t
                                       WHERE t.status = 'waiting' AND t.awaiting IS NULL AND t.pipeline = level.pipeline
                                         AND t.type = level.type AND t.priority > level.priority)
    FROM level WHERE level.priority IS NOT NULL
)
SELECT DISTINCT level.pipeline, level.type FROM level
 WHERE level.priority IS NOT NULL
   AND (EXISTS (SELECT 1 FROM task_queue AS t INDEXED BY task_ready
                 WHERE t.status = 'waiting' AND t.awaiting IS NULL AND t.pipeline = level.pipeline
                   AND t.type = level.type AND t.priority = level.priority AND (t.limit_key <> '') = 0 AND t.run_at <= :by)
     OR EXISTS (SELECT 1 FROM task_queue AS t INDEXED BY task_ready
                 WHERE t.status = 'waiting' AND t.awaiting IS NULL AND t.pipeline = level.pipeline
                   AND t.type = level.type AND t.priority = level.priority AND (t.limit_key <> '') = 1 AND t.run_at <= :by))

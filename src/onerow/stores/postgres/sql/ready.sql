-- ready: the phases that have due tasks.
-- A few index seeks for each phase and priority with waiting tasks; the number of waiting tasks does not matter.
WITH RECURSIVE level (pipeline, type, priority) AS (
  (SELECT t.pipeline, t.type, t.priority::smallint FROM {schema}.task_queue AS t
    WHERE t.status = 'waiting' AND t.awaiting IS NULL
    ORDER BY t.pipeline, t.type, t.priority LIMIT 1)
  UNION ALL
  SELECT next.pipeline, next.type, next.priority FROM level CROSS JOIN LATERAL (
    SELECT t.pipeline, t.type, t.priority::smallint FROM {schema}.task_queue AS t
     WHERE t.status = 'waiting' AND t.awaiting IS NULL
       AND (t.pipeline, t.type, t.priority) > (level.pipeline, level.type, level.priority)
     ORDER BY t.pipeline, t.type, t.priority LIMIT 1
  ) AS next
)
SELECT DISTINCT level.pipeline, level.type FROM level
 WHERE EXISTS (
   SELECT FROM (VALUES (false), (true)) AS kind (keyed) CROSS JOIN LATERAL (
     SELECT FROM {schema}.task_queue AS s
      WHERE s.status = 'waiting' AND s.awaiting IS NULL AND s.pipeline = level.pipeline AND s.type = level.type
        AND s.priority = level.priority AND (s.limit_key <> '') = kind.keyed AND s.run_at <= %(by)s
      LIMIT 1) AS due)

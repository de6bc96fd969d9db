WITH RECURSIVE level (pipeline, phase, priority) AS (
  SELECT place.pipeline, place.phase, (
           SELECT t.priority FROM {{schema}}.task_queue AS t
            WHERE t.status = 'waiting' AND t.awaiting IS NULL AND t.pipeline = place.pipeline AND t.type = place.phase
            ORDER BY t.priority LIMIT 1)
    FROM (VALUES {{places}}) AS place (pipeline, phase)
  UNION ALL
  SELECT level.pipeline, level.phase, (
           SELECT t.priority FROM {{schema}}.task_queue AS t
            WHERE t.status = 'waiting' AND t.awaiting IS NULL AND t.pipeline = level.pipeline AND t.type = level.phase
              AND t.priority > level.priority
            ORDER BY t.priority LIMIT 1)
    FROM level WHERE level.priority IS NOT NULL
)
SELECT (SELECT count(*) FROM (
         SELECT 1 FROM level CROSS JOIN (VALUES (false), (true)) AS kind (keyed) CROSS JOIN LATERAL (
           SELECT 1 FROM {{schema}}.task_queue AS t
            WHERE t.status = 'waiting' AND t.awaiting IS NULL AND t.pipeline = level.pipeline AND t.type = level.phase
              AND t.priority = level.priority AND (t.limit_key <> '') = kind.keyed AND t.run_at <= now()
            ORDER BY t.run_at, t.task_id LIMIT {{bound}}) AS due
         LIMIT {{bound}}) AS ready)
     + (SELECT count(*) FROM {{schema}}.task_queue AS t
         WHERE t.leased_by IS NOT NULL AND (t.pipeline, t.type) IN ({{places}}))

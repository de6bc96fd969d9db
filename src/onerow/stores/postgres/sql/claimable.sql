-- claimable: the number of due tasks of one phase, up to a bound.
-- Differs from due.sql: reads only the index, and counts.
WITH RECURSIVE level (priority) AS (
  (SELECT first.priority FROM {schema}.task_queue AS first
    WHERE first.status = 'waiting' AND first.awaiting IS NULL AND first.pipeline = %(pipeline)s AND first.type = %(phase)s
    ORDER BY first.priority LIMIT 1)
  UNION ALL
  SELECT (SELECT next.priority FROM {schema}.task_queue AS next
           WHERE next.status = 'waiting' AND next.awaiting IS NULL AND next.pipeline = %(pipeline)s
             AND next.type = %(phase)s AND next.priority > level.priority
           ORDER BY next.priority LIMIT 1)
    FROM level WHERE level.priority IS NOT NULL
)
SELECT count(*)
  FROM (
    SELECT 1
      FROM level CROSS JOIN (VALUES (false), (true)) AS kind (keyed) CROSS JOIN LATERAL (
        SELECT s.run_at FROM {schema}.task_queue AS s
         WHERE s.status = 'waiting' AND s.awaiting IS NULL AND s.pipeline = %(pipeline)s AND s.type = %(phase)s
           AND s.priority = level.priority AND (s.limit_key <> '') = kind.keyed AND s.run_at <= %(by)s
         ORDER BY s.run_at, s.task_id LIMIT %(limit)s
      ) AS one
     LIMIT %(limit)s
  ) AS due

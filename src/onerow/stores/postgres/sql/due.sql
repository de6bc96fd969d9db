-- due: read the first due tasks of one phase, in claim order.
-- Differs from claim.sql: nothing is locked or written. SQLite has no such file, because its claim.sql only reads.
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
SELECT t.*
  FROM level CROSS JOIN LATERAL (
    SELECT one.* FROM (VALUES (false), (true)) AS kind (keyed) CROSS JOIN LATERAL (
      SELECT {columns} FROM {schema}.task_queue AS s
       WHERE s.status = 'waiting' AND s.awaiting IS NULL AND s.pipeline = %(pipeline)s AND s.type = %(phase)s
         AND s.priority = level.priority AND (s.limit_key <> '') = kind.keyed AND s.run_at <= %(by)s
       ORDER BY s.run_at, s.task_id LIMIT %(limit)s
    ) AS one
    ORDER BY one.run_at, one.task_id LIMIT %(limit)s
  ) AS t
 LIMIT %(limit)s

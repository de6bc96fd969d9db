-- keys_waiting: the next keys with waiting tasks in a phase, and their priorities; empty while the phase is full.
-- One index seek per key and priority, so that the cost does not depend on the number of waiting tasks.
WITH RECURSIVE place (limit_key, priority, nth) AS (
  SELECT first.limit_key, first.priority, 1
    FROM (SELECT s.limit_key, s.priority FROM {schema}.task_queue AS s
           WHERE s.limit_key <> '' AND s.status = 'waiting' AND s.awaiting IS NULL AND s.pipeline = %(pipeline)s
             AND s.type = %(phase)s AND s.limit_key > %(after)s
           ORDER BY s.limit_key, s.priority LIMIT 1) AS first
   WHERE %(slots)s::bigint IS NULL OR %(slots)s::bigint > (
     SELECT count(*) FROM {schema}.task_queue WHERE leased_by IS NOT NULL AND pipeline = %(pipeline)s AND type = %(phase)s)
  UNION ALL
  SELECT next.limit_key, next.priority, place.nth + 1
    FROM place CROSS JOIN LATERAL (
      SELECT s.limit_key, s.priority FROM {schema}.task_queue AS s
       WHERE s.limit_key <> '' AND s.status = 'waiting' AND s.awaiting IS NULL AND s.pipeline = %(pipeline)s
         AND s.type = %(phase)s AND (s.limit_key, s.priority) > (place.limit_key, place.priority)
       ORDER BY s.limit_key, s.priority LIMIT 1) AS next
   WHERE place.nth < %(most)s
)
SELECT limit_key, priority FROM place

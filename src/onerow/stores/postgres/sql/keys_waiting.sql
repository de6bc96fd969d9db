-- keys_waiting: the next keys with waiting tasks in a phase, and their priorities; empty while the phase is full.
-- One index seek per key and priority, so that the cost does not depend on the number of waiting tasks.
WITH RECURSIVE waiting_key (limit_key, priority, nth) AS (
  SELECT first.limit_key, first.priority, 1
    FROM (SELECT s.limit_key, s.priority FROM {schema}.task_queue AS s
           WHERE s.limit_key <> '' AND s.status = 'waiting' AND s.awaiting IS NULL AND s.pipeline = %(pipeline)s
             AND s.type = %(phase)s AND s.limit_key > %(after)s
           ORDER BY s.limit_key, s.priority LIMIT 1) AS first
   WHERE %(slots)s::bigint IS NULL OR %(slots)s::bigint > (
     SELECT count(*) FROM {schema}.task_queue WHERE leased_by IS NOT NULL AND pipeline = %(pipeline)s AND type = %(phase)s)
  UNION ALL
  {include next_waiting_key} WHERE waiting_key.nth < %(most)s
)
SELECT limit_key, priority FROM waiting_key

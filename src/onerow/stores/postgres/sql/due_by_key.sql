-- due_by_key: the first due tasks of each given (limit_key, priority), for phases with a limit per key.
SELECT one.task_id, one.limit_key
  FROM unnest(%(keys)s::text[], %(priorities)s::smallint[]) AS place (limit_key, priority) CROSS JOIN LATERAL (
    SELECT s.task_id, s.limit_key FROM {schema}.task_queue AS s
     WHERE s.limit_key <> '' AND s.status = 'waiting' AND s.awaiting IS NULL AND s.pipeline = %(pipeline)s
       AND s.type = %(phase)s AND s.limit_key = place.limit_key AND s.priority = place.priority AND s.run_at <= %(by)s
     ORDER BY s.run_at, s.task_id LIMIT %(key_slots)s
  ) AS one

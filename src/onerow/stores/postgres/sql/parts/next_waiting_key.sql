SELECT next.limit_key, next.priority, waiting_key.nth + 1
  FROM waiting_key CROSS JOIN LATERAL (
    SELECT s.limit_key, s.priority FROM {schema}.task_queue AS s
     WHERE s.limit_key <> '' AND s.status = 'waiting' AND s.awaiting IS NULL AND s.pipeline = %(pipeline)s
       AND s.type = %(phase)s AND (s.limit_key, s.priority) > (waiting_key.limit_key, waiting_key.priority)
     ORDER BY s.limit_key, s.priority LIMIT 1) AS next

-- remove: rows that nobody has written to since they were chosen.
DELETE FROM {schema}.task_queue AS t
 USING unnest(%(ids)s, %(versions)s) AS m (task_id, version)
 WHERE t.task_id = m.task_id AND t.version = m.version
RETURNING t.task_id

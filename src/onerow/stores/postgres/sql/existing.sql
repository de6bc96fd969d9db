-- existing: the tasks that conflict with the given ones, by id or else by the unique key they hold.
SELECT m.position, {columns}
  FROM unnest(%(ids)s, %(pipelines)s, %(users)s, %(keys)s) WITH ORDINALITY AS m (id, of_pipeline, of_user, key, position)
 CROSS JOIN LATERAL (
   SELECT * FROM {schema}.task_queue WHERE task_id = m.id
    UNION ALL
   SELECT * FROM {schema}.task_queue AS h WHERE h.pipeline = m.of_pipeline AND h.user_id = m.of_user AND h.held_key = m.key
    LIMIT 1
 ) AS t

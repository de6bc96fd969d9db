-- existing: the tasks that conflict with the given ones, by id or else by the unique key they hold.
SELECT m.place, {columns}
  FROM unnest(%(ids)s, %(pipelines)s, %(users)s, %(keys)s) WITH ORDINALITY AS m (id, line, who, key, place)
 CROSS JOIN LATERAL (
   SELECT * FROM {schema}.task_queue WHERE task_id = m.id
    UNION ALL
   SELECT * FROM {schema}.task_queue AS h WHERE h.pipeline = m.line AND h.user_id = m.who AND h.held_key = m.key
    LIMIT 1
 ) AS t

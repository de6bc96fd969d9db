-- existing_json: the tasks that conflict with the given ones, each as one JSON text.
-- Differs from existing.sql: one text parameter and text results, which every driver supports.
SELECT CAST(json_build_array(m.position, {columns}) AS text)
  FROM json_to_recordset(CAST({given} AS json)) AS m (position bigint, id text, pipeline text, user_id text, key text)
 CROSS JOIN LATERAL (
   SELECT * FROM {schema}.task_queue WHERE task_id = m.id
    UNION ALL
   SELECT * FROM {schema}.task_queue AS h WHERE h.pipeline = m.pipeline AND h.user_id = m.user_id AND h.held_key = m.key
    LIMIT 1
 ) AS t

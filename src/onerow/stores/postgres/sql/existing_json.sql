-- existing_json: the tasks that conflict with the given ones, each as one JSON text.
-- Differs from existing.sql: one text parameter and text results, which every driver supports.
SELECT CAST(json_build_array(m.place, {columns}) AS text)
  FROM json_to_recordset(CAST({given} AS json)) AS m (place bigint, id text, pipeline text, who text, key text)
 CROSS JOIN LATERAL (
   SELECT * FROM {schema}.task_queue WHERE task_id = m.id
    UNION ALL
   SELECT * FROM {schema}.task_queue AS h WHERE h.pipeline = m.pipeline AND h.user_id = m.who AND h.held_key = m.key
    LIMIT 1
 ) AS t

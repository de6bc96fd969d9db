-- remove: deletes the rows whose version has not changed since they were chosen.
DELETE FROM task_queue
 WHERE task_id IN (
   SELECT t.task_id FROM json_each(:rows) AS m
     JOIN task_queue AS t ON t.task_id = json_extract(m.value, '$[0]') AND t.version = json_extract(m.value, '$[1]'))
RETURNING task_id

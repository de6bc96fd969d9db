-- extend: extends the leases whose token still matches.
UPDATE task_queue
   SET leased_until = :until, updated_at = :now, version = version + 1
  FROM json_each(:leases) AS m
 WHERE task_queue.task_id = json_extract(m.value, '$[0]') AND task_queue.token = json_extract(m.value, '$[1]')
   AND task_queue.status = 'processing'
RETURNING task_id, token, version, cancel_requested

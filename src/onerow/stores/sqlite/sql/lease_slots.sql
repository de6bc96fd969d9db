-- lease_slots: leases the chosen tasks to the worker, each with its slots.
UPDATE task_queue
   SET status = 'processing', leased_by = :worker, leased_until = :until, token = token + 1, attempt = attempt + 1,
       started_at = :now, updated_at = :now, version = version + 1,
       slot = json_extract(m.value, '$[1]'), key_slot = json_extract(m.value, '$[2]')
  FROM json_each(:rows) AS m
 WHERE task_queue.rowid = json_extract(m.value, '$[0]')

-- lease: leases the chosen tasks to the worker.
UPDATE task_queue
   SET status = 'processing', leased_by = :worker, leased_until = :until, token = token + 1, attempt = attempt + 1,
       started_at = :now, updated_at = :now, version = version + 1
 WHERE rowid IN (SELECT value FROM json_each(:rows))

-- claim_ids: the given tasks that are due in a phase, in order.
SELECT t.rowid, {columns}
  FROM task_queue AS t
 WHERE t.task_id IN (SELECT value FROM json_each(:ids)) AND t.status = 'waiting' AND t.awaiting IS NULL
   AND t.pipeline = :pipeline AND t.type = :phase AND t.run_at <= :now
 ORDER BY t.priority, t.run_at, t.task_id
 LIMIT :limit

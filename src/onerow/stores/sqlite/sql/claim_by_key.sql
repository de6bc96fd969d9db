-- claim_by_key: the first due tasks of each given (limit_key, priority), for phases with a limit per key.
SELECT t.rowid, {columns}
  FROM json_each(:keys) AS place CROSS JOIN task_queue AS t
 WHERE t.rowid IN (
   SELECT k.rowid FROM task_queue AS k INDEXED BY task_ready_by_key
    WHERE k.limit_key <> '' AND k.status = 'waiting' AND k.awaiting IS NULL AND k.pipeline = :pipeline
      AND k.type = :phase AND k.limit_key = json_extract(place.value, '$[0]')
      AND k.priority = json_extract(place.value, '$[1]') AND k.run_at <= :now
    ORDER BY k.run_at, k.task_id LIMIT :key_slots)

-- claim_by_key: the first due tasks of each key that has room, of a phase that limits its keys.
-- Seeks from (key, priority) to (key, priority), so that a full key or what isn't due costs a step, not all its tasks.
WITH RECURSIVE place (limit_key, priority) AS (
  SELECT * FROM (
    SELECT limit_key, priority FROM task_queue INDEXED BY task_ready_by_key
     WHERE limit_key <> '' AND status = 'waiting' AND awaiting IS NULL AND pipeline = :pipeline AND type = :phase
     ORDER BY limit_key, priority LIMIT 1)
  UNION ALL
  SELECT n.limit_key, n.priority
    FROM place CROSS JOIN task_queue AS n
   WHERE n.rowid = coalesce(
     -- Two seeks, since of (limit_key, priority) > (…) SQLite would seek the key only.
     (SELECT s.rowid FROM task_queue AS s INDEXED BY task_ready_by_key
       WHERE s.limit_key <> '' AND s.status = 'waiting' AND s.awaiting IS NULL AND s.pipeline = :pipeline
         AND s.type = :phase AND s.limit_key = place.limit_key AND s.priority > place.priority
       ORDER BY s.priority LIMIT 1),
     (SELECT s.rowid FROM task_queue AS s INDEXED BY task_ready_by_key
       WHERE s.limit_key <> '' AND s.status = 'waiting' AND s.awaiting IS NULL AND s.pipeline = :pipeline
         AND s.type = :phase AND s.limit_key > place.limit_key
       ORDER BY s.limit_key, s.priority LIMIT 1))
),
room (limit_key, priority, free) AS (
  SELECT limit_key, priority,
         :key_slots - (SELECT count(*) FROM task_queue AS p
                        WHERE p.key_slot IS NOT NULL AND p.pipeline = :pipeline AND p.type = :phase
                          AND p.limit_key = place.limit_key)
    FROM place
)
SELECT t.rowid, {columns}
  FROM room CROSS JOIN task_queue AS t
 WHERE room.free > 0 AND t.rowid IN (
   SELECT k.rowid FROM task_queue AS k INDEXED BY task_ready_by_key
    WHERE k.limit_key <> '' AND k.status = 'waiting' AND k.awaiting IS NULL AND k.pipeline = :pipeline
      AND k.type = :phase AND k.limit_key = room.limit_key AND k.priority = room.priority AND k.run_at <= :now
    ORDER BY k.run_at, k.task_id LIMIT :key_slots)

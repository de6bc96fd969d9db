-- keys_waiting: the next limit_keys with waiting tasks in a phase, and their priorities.
-- Seeks from one (key, priority) to the next, so the cost does not depend on the number of tasks per key.
WITH RECURSIVE place (limit_key, priority) AS (
  SELECT * FROM (
    SELECT limit_key, priority FROM task_queue INDEXED BY task_ready_by_key
     WHERE limit_key <> '' AND status = 'waiting' AND awaiting IS NULL AND pipeline = :pipeline AND type = :phase
       AND limit_key > :after
     ORDER BY limit_key, priority LIMIT 1)
  UNION ALL
  SELECT n.limit_key, n.priority
    FROM place CROSS JOIN task_queue AS n
   WHERE n.rowid = coalesce(
     -- Two seeks, because for (limit_key, priority) > (…) SQLite seeks by key only.
     (SELECT s.rowid FROM task_queue AS s INDEXED BY task_ready_by_key
       WHERE s.limit_key <> '' AND s.status = 'waiting' AND s.awaiting IS NULL AND s.pipeline = :pipeline
         AND s.type = :phase AND s.limit_key = place.limit_key AND s.priority > place.priority
       ORDER BY s.priority LIMIT 1),
     (SELECT s.rowid FROM task_queue AS s INDEXED BY task_ready_by_key
       WHERE s.limit_key <> '' AND s.status = 'waiting' AND s.awaiting IS NULL AND s.pipeline = :pipeline
         AND s.type = :phase AND s.limit_key > place.limit_key
       ORDER BY s.limit_key, s.priority LIMIT 1))
   LIMIT :most
)
SELECT limit_key, priority FROM place

-- claim: the first due tasks of one phase: those without a limit_key, then those with one, each in order.
-- Differs from postgres/sql/claim.sql: reads, then writes, without SKIP LOCKED, since we hold the write lock.
WITH RECURSIVE level (priority) AS (
  SELECT min(priority) FROM task_queue
   WHERE status = 'waiting' AND awaiting IS NULL AND pipeline = :pipeline AND type = :phase
  UNION ALL
  SELECT (SELECT min(priority) FROM task_queue
           WHERE status = 'waiting' AND awaiting IS NULL AND pipeline = :pipeline AND type = :phase
             AND priority > level.priority)
    FROM level WHERE level.priority IS NOT NULL
)
-- The rows come in index order, which a test checks; an ORDER BY would read and sort all due tasks.
SELECT * FROM (
  SELECT t.rowid, {columns}
    FROM level CROSS JOIN task_queue AS t INDEXED BY task_ready
   WHERE t.status = 'waiting' AND t.awaiting IS NULL AND t.pipeline = :pipeline AND t.type = :phase
     AND t.priority = level.priority AND (t.limit_key <> '') = 0 AND t.run_at <= :now
   LIMIT :limit)
UNION ALL
SELECT * FROM (
  SELECT t.rowid, {columns}
    FROM level CROSS JOIN task_queue AS t INDEXED BY task_ready
   WHERE t.status = 'waiting' AND t.awaiting IS NULL AND t.pipeline = :pipeline AND t.type = :phase
     AND t.priority = level.priority AND (t.limit_key <> '') = 1 AND t.run_at <= :now
   LIMIT :keyed)

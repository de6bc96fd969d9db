-- claim: the first due tasks of one phase, in order: first those without a key, then those with one.
-- Differs from postgres/sql/claim.sql: read first, written next, no SKIP LOCKED; SQLite has one writer, and we are it.
WITH RECURSIVE level (priority) AS (
  SELECT min(priority) FROM task_queue
   WHERE status = 'waiting' AND awaiting IS NULL AND pipeline = :pipeline AND type = :phase
  UNION ALL
  SELECT (SELECT min(priority) FROM task_queue
           WHERE status = 'waiting' AND awaiting IS NULL AND pipeline = :pipeline AND type = :phase
             AND priority > level.priority)
    FROM level WHERE level.priority IS NOT NULL
)
-- The loops run in the index's own order; a test holds them to it, since ORDER BY would read all that is due.
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

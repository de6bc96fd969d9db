-- census_waiting: the number of waiting tasks per phase, and the oldest run_at.
-- Seeks from phase to phase and from priority to priority; only the count itself scans an index.
WITH RECURSIVE place (pipeline, type) AS (
  SELECT * FROM (
    SELECT pipeline, type FROM task_queue INDEXED BY task_ready
     WHERE status = 'waiting' AND awaiting IS NULL ORDER BY pipeline, type LIMIT 1)
  UNION ALL
  SELECT n.pipeline, n.type
    FROM place CROSS JOIN task_queue AS n
   WHERE n.rowid = coalesce(
     -- Two seeks, because for (pipeline, type) > (…) SQLite seeks by pipeline only.
     (SELECT s.rowid FROM task_queue AS s INDEXED BY task_ready
       WHERE s.status = 'waiting' AND s.awaiting IS NULL AND s.pipeline = place.pipeline AND s.type > place.type
       ORDER BY s.type LIMIT 1),
     (SELECT s.rowid FROM task_queue AS s INDEXED BY task_ready
       WHERE s.status = 'waiting' AND s.awaiting IS NULL AND s.pipeline > place.pipeline
       ORDER BY s.pipeline, s.type LIMIT 1))
),
level (pipeline, type, priority) AS (
  SELECT pipeline, type,
         (SELECT min(priority) FROM task_queue AS t
           WHERE t.status = 'waiting' AND t.awaiting IS NULL AND t.pipeline = place.pipeline AND t.type = place.type)
    FROM place
  UNION ALL
  SELECT pipeline, type,
         (SELECT min(priority) FROM task_queue AS t
           WHERE t.status = 'waiting' AND t.awaiting IS NULL AND t.pipeline = level.pipeline AND t.type = level.type
             AND t.priority > level.priority)
    FROM level WHERE level.priority IS NOT NULL
)
SELECT pipeline, type,
       (SELECT count(*) FROM task_queue AS c
         WHERE c.status = 'waiting' AND c.awaiting IS NULL AND c.pipeline = level.pipeline AND c.type = level.type
           AND c.priority = level.priority),
       (SELECT min(coalesce(min(a.first, b.first), a.first, b.first))
          FROM (SELECT min(run_at) AS first FROM task_queue AS o
                 WHERE o.status = 'waiting' AND o.awaiting IS NULL AND o.pipeline = level.pipeline
                   AND o.type = level.type AND o.priority = level.priority AND (o.limit_key <> '') = 0) AS a,
               (SELECT min(run_at) AS first FROM task_queue AS o
                 WHERE o.status = 'waiting' AND o.awaiting IS NULL AND o.pipeline = level.pipeline
                   AND o.type = level.type AND o.priority = level.priority AND (o.limit_key <> '') = 1) AS b)
  FROM level WHERE priority IS NOT NULL

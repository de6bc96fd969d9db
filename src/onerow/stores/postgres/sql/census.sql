-- census: count all tasks by pipeline, phase and status. Open tasks from indexes, ended tasks from counter rows.
SELECT pipeline, type, 'waiting' AS status, false AS parked, count(*), min(run_at)
  FROM {schema}.task_queue WHERE status = 'waiting' AND awaiting IS NULL GROUP BY pipeline, type
UNION ALL
SELECT pipeline, type, 'waiting', true, count(*), min(run_at)
  FROM {schema}.task_queue WHERE awaiting IS NOT NULL AND status = 'waiting' GROUP BY pipeline, type
UNION ALL
SELECT pipeline, type, 'processing', false, count(*), NULL
  FROM {schema}.task_queue WHERE status = 'processing' GROUP BY pipeline, type
UNION ALL
SELECT pipeline, type, status, false, sum(count)::bigint, NULL
  FROM {schema}.onerow_tally GROUP BY pipeline, type, status HAVING sum(count) > 0
 ORDER BY 1, 2, 3, 4

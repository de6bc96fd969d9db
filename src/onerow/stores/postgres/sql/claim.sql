-- claim: lease the first due tasks of the given phases.
-- Differs from sqlite/sql/claim.sql: one statement selects and updates, skipping locked rows; = ANY(ARRAY(...)) keeps its plan where IN would not.
WITH {include clock}
UPDATE {schema}.task_queue AS ours
   SET status = (SELECT 'processing'::{schema}.task_status), leased_by = %(worker)s, token = ours.token + 1, attempt = ours.attempt + 1,
       version = ours.version + 1, started_at = (SELECT now FROM clock), updated_at = (SELECT now FROM clock),
       completed_at = NULL,
       leased_until = coalesce((SELECT until FROM clock), (
         SELECT ((SELECT now FROM clock) + w.lease * interval '1 millisecond')::timestamptz(3)
           FROM unnest(%(pipelines)s, %(phases)s, %(leases)s) AS w (pipeline, phase, lease)
          WHERE w.pipeline = ours.pipeline AND w.phase = ours.type LIMIT 1))
 WHERE ours.ctid = ANY (ARRAY(
   SELECT due.ctid
     FROM unnest(%(pipelines)s, %(phases)s, %(limits)s, %(priorities)s, %(run_ats)s, %(ids)s)
          AS want (pipeline, phase, most, priority, run_at, task_id)
    CROSS JOIN LATERAL (
      -- One index seek per priority, so that tasks which are not due yet are not scanned. A low-water mark (priority,
      -- run_at, task_id) is where the last claim ended: the scan starts there and skips the dead versions before it.
      WITH RECURSIVE level (priority) AS (
        SELECT coalesce(want.priority, (
          SELECT first.priority FROM {schema}.task_queue AS first
           WHERE first.status = 'waiting' AND first.awaiting IS NULL AND first.pipeline = want.pipeline
             AND first.type = want.phase
           ORDER BY first.priority LIMIT 1))
        UNION ALL
        SELECT (SELECT next.priority FROM {schema}.task_queue AS next
                 WHERE next.status = 'waiting' AND next.awaiting IS NULL AND next.pipeline = want.pipeline
                   AND next.type = want.phase AND next.priority > level.priority
                 ORDER BY next.priority LIMIT 1)
          FROM level WHERE level.priority IS NOT NULL
      )
      SELECT t.ctid
        FROM level CROSS JOIN LATERAL (
          SELECT one.ctid FROM (VALUES (false), (true)) AS kind (keyed) CROSS JOIN LATERAL (
            SELECT s.ctid, s.run_at, s.task_id FROM {schema}.task_queue AS s
             WHERE s.status = 'waiting' AND s.awaiting IS NULL AND s.pipeline = want.pipeline AND s.type = want.phase
               AND s.priority = level.priority AND (s.limit_key <> '') = kind.keyed
               AND s.run_at <= (SELECT now FROM clock)
               AND (s.run_at, s.task_id) > (
                 CASE WHEN level.priority = want.priority THEN want.run_at ELSE '-infinity' END,
                 CASE WHEN level.priority = want.priority THEN want.task_id ELSE '' END)
             ORDER BY s.run_at, s.task_id LIMIT want.most
               FOR UPDATE SKIP LOCKED
          ) AS one
          ORDER BY one.run_at, one.task_id LIMIT want.most
        ) AS t
       LIMIT want.most
    ) AS due
    LIMIT least(%(limit)s::bigint, current_setting('onerow.left')::bigint)))
RETURNING {columns}

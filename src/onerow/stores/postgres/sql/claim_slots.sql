-- claim_slots: the first due tasks of one phase that find a free slot become ours.
-- Differs from claim.sql: the phase allows only so many at once. The caller holds the phase's advisory lock since an earlier statement.
WITH RECURSIVE clock AS MATERIALIZED (
  SELECT now, (now + %(lease)s::bigint * interval '1 millisecond')::timestamptz(3) AS until
    FROM (SELECT coalesce(%(now)s, date_trunc('milliseconds', clock_timestamp()))::timestamptz(3) AS now OFFSET 0) AS server
),
taken AS MATERIALIZED (
  SELECT slot FROM {schema}.task_queue WHERE leased_by IS NOT NULL AND pipeline = %(pipeline)s AND type = %(phase)s
),
-- After a limit was lowered, those above it run out first: fewer than N may be processing, in slots below N.
room (size) AS MATERIALIZED (
  SELECT greatest(0, least(
           %(limit)s::bigint, current_setting('onerow.left')::bigint, %(slots)s::bigint - (SELECT count(*) FROM taken)))
),
free (slots) AS MATERIALIZED (
  SELECT array_agg(slot ORDER BY slot)
    FROM (SELECT generate_series(0, %(slots)s::integer - 1) AS slot EXCEPT SELECT slot FROM taken) AS open
),
level (priority) AS (
  SELECT (SELECT priority FROM {schema}.task_queue
           WHERE status = 'waiting' AND awaiting IS NULL AND pipeline = %(pipeline)s AND type = %(phase)s
           ORDER BY priority LIMIT 1)
  UNION ALL
  SELECT (SELECT next.priority FROM {schema}.task_queue AS next
           WHERE next.status = 'waiting' AND next.awaiting IS NULL AND next.pipeline = %(pipeline)s
             AND next.type = %(phase)s AND next.priority > level.priority
           ORDER BY next.priority LIMIT 1)
    FROM level WHERE level.priority IS NOT NULL
),
chosen AS MATERIALIZED (
  SELECT array_agg(due.place ORDER BY due.priority, due.run_at, due.task_id) AS places
    FROM (
      SELECT t.* FROM level CROSS JOIN LATERAL (
        SELECT one.* FROM (VALUES (false), (true)) AS kind (keyed) CROSS JOIN LATERAL (
          SELECT s.ctid AS place, s.priority, s.run_at, s.task_id FROM {schema}.task_queue AS s
           WHERE s.status = 'waiting' AND s.awaiting IS NULL AND s.pipeline = %(pipeline)s AND s.type = %(phase)s
             AND s.priority = level.priority AND (s.limit_key <> '') = kind.keyed
             AND s.run_at <= (SELECT now FROM clock)
           ORDER BY s.run_at, s.task_id LIMIT (SELECT size FROM room)
             FOR UPDATE SKIP LOCKED
        ) AS one
        ORDER BY one.run_at, one.task_id LIMIT (SELECT size FROM room)
      ) AS t
      LIMIT (SELECT size FROM room)
    ) AS due
)
UPDATE {schema}.task_queue AS ours
   SET status = (SELECT 'processing'::{schema}.task_status), leased_by = %(worker)s, leased_until = (SELECT until FROM clock),
       token = ours.token + 1, attempt = ours.attempt + 1, version = ours.version + 1, completed_at = NULL,
       started_at = (SELECT now FROM clock), updated_at = (SELECT now FROM clock),
       slot = (SELECT slots FROM free)[array_position((SELECT places FROM chosen), ours.ctid)]
 WHERE ours.ctid = ANY (ARRAY(
   SELECT t.ctid FROM {schema}.task_queue AS t
    WHERE t.ctid = ANY ((SELECT places FROM chosen)::tid[]) AND t.status = 'waiting'
      FOR UPDATE SKIP LOCKED))
RETURNING {columns}

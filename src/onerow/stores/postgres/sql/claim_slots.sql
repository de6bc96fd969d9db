-- claim_slots: lease the first due tasks of one phase, as many as it has free slots.
-- Differs from claim.sql: the phase has a concurrency limit. An earlier statement took the phase's advisory lock.
-- Also returns, for each row, whether all due tasks before it are claimed, and in one row the ids of the processing tasks.
WITH RECURSIVE clock AS MATERIALIZED (
  SELECT now, (now + %(lease)s::bigint * interval '1 millisecond')::timestamptz(3) AS until
    FROM (SELECT coalesce(%(now)s, date_trunc('milliseconds', clock_timestamp()))::timestamptz(3) AS now OFFSET 0) AS server
),
-- The processing tasks. Dead versions stay in every index while a transaction holds an old snapshot, so a claim reads
-- the ids that the last claim saw, and the tasks that started since. (IS TRUE keeps the planner from other indexes.)
taken AS MATERIALIZED (
  SELECT task_id, slot FROM {schema}.task_queue
   WHERE %(since)s::timestamptz IS NULL AND leased_by IS NOT NULL AND pipeline = %(pipeline)s AND type = %(phase)s
  UNION ALL
  SELECT task_id, slot FROM {schema}.task_queue
   WHERE leased_by IS NOT NULL AND pipeline = %(pipeline)s AND type = %(phase)s AND started_at >= %(since)s::timestamptz
  UNION ALL
  SELECT task_id, slot FROM {schema}.task_queue
   WHERE task_id = ANY (%(seen)s) AND (leased_by IS NOT NULL) IS TRUE AND (pipeline = %(pipeline)s) IS TRUE
     AND (type = %(phase)s) IS TRUE AND (started_at < %(since)s::timestamptz) IS TRUE
),
-- After a limit was lowered to N, tasks above it finish first: a claim needs fewer than N processing, and slots below N.
room (size) AS MATERIALIZED (
  SELECT greatest(0, least(
           %(limit)s::bigint, current_setting('onerow.left')::bigint, %(slots)s::bigint - (SELECT count(*) FROM taken)))
),
free (slots) AS MATERIALIZED (
  SELECT array_agg(slot ORDER BY slot)
    FROM (SELECT generate_series(0, %(slots)s::integer - 1) AS slot EXCEPT SELECT slot FROM taken) AS open
),
-- First the tasks after the low-water mark, where the last claim ended; those before it only if too few come after. The
-- priority of the low-water mark is used directly: a seek for it would scan the dead versions that it skips.
look (behind, below, last) AS (
  SELECT true, 32767::smallint, NULL::smallint
  UNION ALL
  SELECT false, %(priority)s::smallint, %(priority)s::smallint WHERE %(priority)s::smallint IS NOT NULL
),
running (ids) AS MATERIALIZED (
  SELECT CASE WHEN count(*) <= %(most_seen)s::bigint THEN coalesce(array_agg(task_id), '{}') END FROM taken
),
chosen AS MATERIALIZED (
  SELECT array_agg(due.place ORDER BY due.priority, due.run_at, due.task_id) AS places,
         (array_agg(due.task_id ORDER BY due.priority, due.run_at, due.task_id))[1] AS first
    FROM (
      SELECT t.* FROM look CROSS JOIN LATERAL (
        WITH RECURSIVE level (priority) AS (
          SELECT coalesce(CASE WHEN look.behind THEN %(priority)s::smallint END, (
                   SELECT first.priority FROM {schema}.task_queue AS first
                    WHERE first.status = 'waiting' AND first.awaiting IS NULL AND first.pipeline = %(pipeline)s
                      AND first.type = %(phase)s AND first.priority < look.below
                    ORDER BY first.priority LIMIT 1), look.last)
          UNION ALL
          SELECT coalesce((SELECT next.priority FROM {schema}.task_queue AS next
                            WHERE next.status = 'waiting' AND next.awaiting IS NULL AND next.pipeline = %(pipeline)s
                              AND next.type = %(phase)s AND next.priority > level.priority AND next.priority < look.below
                            ORDER BY next.priority LIMIT 1), look.last)
            FROM level WHERE level.priority < look.below
        )
        SELECT each.* FROM level CROSS JOIN LATERAL (
          SELECT one.* FROM (VALUES (false), (true)) AS kind (keyed) CROSS JOIN LATERAL (
            SELECT s.ctid AS place, s.priority, s.run_at, s.task_id FROM {schema}.task_queue AS s
             WHERE s.status = 'waiting' AND s.awaiting IS NULL AND s.pipeline = %(pipeline)s AND s.type = %(phase)s
               AND s.priority = level.priority AND (s.limit_key <> '') = kind.keyed
               AND s.run_at <= (SELECT now FROM clock)
               AND (s.run_at, s.task_id) > (
                 CASE WHEN look.behind AND level.priority = %(priority)s::smallint THEN %(run_at)s::timestamptz ELSE '-infinity' END,
                 CASE WHEN look.behind AND level.priority = %(priority)s::smallint THEN %(task_id)s::text ELSE '' END)
               AND (s.run_at, s.task_id) <= (
                 CASE WHEN look.behind OR level.priority < %(priority)s::smallint THEN 'infinity'
                      WHEN level.priority = %(priority)s::smallint THEN %(run_at)s::timestamptz ELSE '-infinity' END,
                 CASE WHEN NOT look.behind AND level.priority = %(priority)s::smallint THEN %(task_id)s::text ELSE '' END)
             ORDER BY s.run_at, s.task_id LIMIT (SELECT size FROM room)
               FOR UPDATE SKIP LOCKED
          ) AS one
          ORDER BY one.run_at, one.task_id LIMIT (SELECT size FROM room)
        ) AS each
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
RETURNING {columns}, true, CASE WHEN ours.task_id = (SELECT first FROM chosen) THEN (SELECT ids FROM running) END

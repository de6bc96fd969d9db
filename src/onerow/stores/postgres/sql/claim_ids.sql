-- claim_ids: lease the given tasks that are due in a phase, within its limits.
-- Differs from claim.sql: the caller gives the ids; limits are optional.
WITH RECURSIVE clock AS MATERIALIZED (
  SELECT now, (now + %(lease)s::bigint * interval '1 millisecond')::timestamptz(3) AS until
    FROM (SELECT coalesce(%(now)s, date_trunc('milliseconds', clock_timestamp()))::timestamptz(3) AS now OFFSET 0) AS server
),
taken AS MATERIALIZED (
  SELECT slot, limit_key, key_slot FROM {schema}.task_queue
   WHERE leased_by IS NOT NULL AND pipeline = %(pipeline)s AND type = %(phase)s
),
-- Tasks of a key are counted by their slots; a task that was claimed while there was no limit per key has none.
stray AS MATERIALIZED (
  SELECT limit_key, count(*) AS many FROM taken WHERE limit_key <> '' AND key_slot IS NULL GROUP BY limit_key
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
candidate AS MATERIALIZED (
  SELECT t.ctid AS place, t.priority, t.run_at, t.task_id, t.limit_key FROM {schema}.task_queue AS t
   WHERE t.task_id = ANY (%(ids)s) AND t.status = 'waiting' AND t.awaiting IS NULL AND t.pipeline = %(pipeline)s
     AND t.type = %(phase)s AND t.run_at <= (SELECT now FROM clock)
),
-- How many more tasks of the key may run, and the rank of each candidate within its key.
ranked AS (
  SELECT c.*, row_number() OVER (PARTITION BY limit_key ORDER BY priority, run_at, task_id) AS nth,
         %(key_slots)s::bigint - (
           SELECT count(*) FROM {schema}.task_queue AS p
            WHERE p.key_slot IS NOT NULL AND p.pipeline = %(pipeline)s AND p.type = %(phase)s
              AND p.limit_key = c.limit_key)
           - coalesce((SELECT many FROM stray WHERE stray.limit_key = c.limit_key), 0) AS open
    FROM candidate AS c
),
chosen AS MATERIALIZED (
  SELECT array_agg(place ORDER BY priority, run_at, task_id) AS places,
         array_agg(key_slot ORDER BY priority, run_at, task_id) AS key_slots
    FROM (
      SELECT r.*, CASE WHEN r.limit_key <> '' THEN (
               SELECT s FROM generate_series(0, %(key_slots)s::integer - 1) AS s
                WHERE NOT EXISTS (
                  SELECT FROM {schema}.task_queue AS p
                   WHERE p.key_slot = s AND p.key_slot IS NOT NULL AND p.pipeline = %(pipeline)s
                     AND p.type = %(phase)s AND p.limit_key = r.limit_key)
                ORDER BY s OFFSET r.nth - 1 LIMIT 1) END AS key_slot
        FROM ranked AS r
       WHERE r.limit_key = '' OR %(key_slots)s::bigint IS NULL OR r.nth <= r.open
       ORDER BY r.priority, r.run_at, r.task_id LIMIT (SELECT size FROM room)
    ) AS admitted
)
UPDATE {schema}.task_queue AS ours
   SET status = (SELECT 'processing'::{schema}.task_status), leased_by = %(worker)s, leased_until = (SELECT until FROM clock),
       token = ours.token + 1, attempt = ours.attempt + 1, version = ours.version + 1, completed_at = NULL,
       started_at = (SELECT now FROM clock), updated_at = (SELECT now FROM clock),
       slot = (SELECT slots FROM free)[array_position((SELECT places FROM chosen), ours.ctid)],
       key_slot = (SELECT key_slots FROM chosen)[array_position((SELECT places FROM chosen), ours.ctid)]
 WHERE ours.ctid = ANY (ARRAY(
   SELECT t.ctid FROM {schema}.task_queue AS t
    WHERE t.ctid = ANY ((SELECT places FROM chosen)::tid[]) AND t.status = 'waiting'
      FOR UPDATE SKIP LOCKED))
RETURNING {columns}

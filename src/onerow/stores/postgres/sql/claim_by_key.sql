-- claim_by_key: lease the first due tasks of one phase whose limit_key has a free slot.
-- Differs from claim_slots.sql: also limits each key. Scans the first due tasks, then a few keys; or only the given keys. Returns the same columns.
WITH RECURSIVE clock AS MATERIALIZED (
  SELECT now, (now + %(lease)s::bigint * interval '1 millisecond')::timestamptz(3) AS until
    FROM (SELECT coalesce(%(now)s, date_trunc('milliseconds', clock_timestamp()))::timestamptz(3) AS now OFFSET 0) AS server
),
-- The processing tasks. Dead versions stay in every index while a transaction holds an old snapshot, so a claim reads
-- the ids that the last claim saw, and the tasks that started since. (IS TRUE keeps the planner from other indexes.)
taken AS MATERIALIZED (
  SELECT task_id, slot, limit_key, key_slot FROM {schema}.task_queue
   WHERE %(since)s::timestamptz IS NULL AND leased_by IS NOT NULL AND pipeline = %(pipeline)s AND type = %(phase)s
  UNION ALL
  SELECT task_id, slot, limit_key, key_slot FROM {schema}.task_queue
   WHERE leased_by IS NOT NULL AND pipeline = %(pipeline)s AND type = %(phase)s AND started_at >= %(since)s::timestamptz
  UNION ALL
  SELECT task_id, slot, limit_key, key_slot FROM {schema}.task_queue
   WHERE task_id = ANY (%(seen)s) AND (leased_by IS NOT NULL) IS TRUE AND (pipeline = %(pipeline)s) IS TRUE
     AND (type = %(phase)s) IS TRUE AND (started_at < %(since)s::timestamptz) IS TRUE
),
-- By key, the slots of processing tasks; null for a task that was claimed while there was no limit per key.
busy (slots) AS MATERIALIZED (
  SELECT jsonb_object_agg(limit_key, slots)
    FROM (SELECT limit_key, jsonb_agg(key_slot) AS slots FROM taken WHERE limit_key <> '' GROUP BY limit_key) AS key
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
-- After a limit was lowered to N, tasks above it finish first: a claim needs fewer than N processing, and slots below N.
room (size) AS MATERIALIZED (
  SELECT greatest(0, least(
           %(limit)s::bigint, current_setting('onerow.left')::bigint, %(slots)s::bigint - (SELECT count(*) FROM taken)))
),
free (slots) AS MATERIALIZED (
  SELECT array_agg(slot ORDER BY slot)
    FROM (SELECT generate_series(0, %(slots)s::integer - 1) AS slot EXCEPT SELECT slot FROM taken) AS open
),
front AS MATERIALIZED (
  SELECT t.* FROM (VALUES (false), (true)) AS kind (keyed) CROSS JOIN LATERAL (
    SELECT one.* FROM look CROSS JOIN LATERAL (
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
        SELECT s.ctid AS place, s.priority, s.run_at, s.task_id, s.limit_key FROM {schema}.task_queue AS s
         WHERE s.status = 'waiting' AND s.awaiting IS NULL AND s.pipeline = %(pipeline)s AND s.type = %(phase)s
           AND s.priority = level.priority AND (s.limit_key <> '') = kind.keyed AND s.run_at <= (SELECT now FROM clock)
           AND (s.run_at, s.task_id) > (
             CASE WHEN look.behind AND level.priority = %(priority)s::smallint THEN %(run_at)s::timestamptz ELSE '-infinity' END,
             CASE WHEN look.behind AND level.priority = %(priority)s::smallint THEN %(task_id)s::text ELSE '' END)
           AND (s.run_at, s.task_id) <= (
             CASE WHEN look.behind OR level.priority < %(priority)s::smallint THEN 'infinity'
                  WHEN level.priority = %(priority)s::smallint THEN %(run_at)s::timestamptz ELSE '-infinity' END,
             CASE WHEN NOT look.behind AND level.priority = %(priority)s::smallint THEN %(task_id)s::text ELSE '' END)
         ORDER BY s.run_at, s.task_id LIMIT (SELECT 2 * size + 50 FROM room)
      ) AS each
    ) AS one
    LIMIT (SELECT CASE WHEN NOT kind.keyed THEN size WHEN cardinality(%(keys)s) = 0 THEN 2 * size + 50 ELSE 0 END FROM room)
  ) AS t
),
-- The last task with a key in `front`, if `front` is full: more may follow.
horizon AS MATERIALIZED (
  SELECT priority, run_at, task_id FROM front WHERE limit_key <> ''
   ORDER BY priority, run_at, task_id OFFSET (SELECT 2 * size + 49 FROM room) LIMIT 1
),
-- Whether too few tasks of `front` may run, so that other keys have to be scanned.
crowded AS MATERIALIZED (
  SELECT (SELECT size FROM room) > (
           SELECT coalesce(sum(CASE WHEN key.limit_key = '' THEN key.many ELSE greatest(0, least(key.many,
                    %(key_slots)s::bigint
                      - coalesce(jsonb_array_length((SELECT slots FROM busy) -> key.limit_key), 0))) END), 0)
             FROM (SELECT limit_key, count(*) AS many FROM front
                    WHERE (priority, run_at, task_id) <= (SELECT priority, run_at, task_id FROM horizon)
                    GROUP BY limit_key) AS key) AS yes
    FROM horizon
),
-- The given keys, or the first few.
place (limit_key, priority, nth) AS (
  (SELECT given.limit_key, given.priority, %(few)s::bigint
     FROM unnest(%(keys)s, %(priorities)s) AS given (limit_key, priority)
   UNION ALL
   SELECT first.limit_key, first.priority, 1
     FROM (SELECT s.limit_key, s.priority FROM {schema}.task_queue AS s
            WHERE s.limit_key <> '' AND s.status = 'waiting' AND s.awaiting IS NULL AND s.pipeline = %(pipeline)s
              AND s.type = %(phase)s
            ORDER BY s.limit_key, s.priority LIMIT 1) AS first
    WHERE (SELECT yes FROM crowded))
  UNION ALL
  SELECT next.limit_key, next.priority, place.nth + 1
    FROM place CROSS JOIN LATERAL (
      SELECT s.limit_key, s.priority FROM {schema}.task_queue AS s
       WHERE s.limit_key <> '' AND s.status = 'waiting' AND s.awaiting IS NULL AND s.pipeline = %(pipeline)s
         AND s.type = %(phase)s AND (s.limit_key, s.priority) > (place.limit_key, place.priority)
       ORDER BY s.limit_key, s.priority LIMIT 1) AS next
   WHERE place.nth < %(few)s::bigint
),
candidate AS MATERIALIZED (
  -- From `front`: tasks with a key, unless the first tasks of all keys are known; tasks without a key, unless they would
  -- overtake a task whose key was not scanned.
  SELECT front.* FROM front CROSS JOIN (SELECT count(*) AS keys FROM place) AS known
   WHERE CASE WHEN front.limit_key <> '' THEN known.keys NOT BETWEEN 1 AND %(few)s::bigint - 1
              ELSE known.keys < %(few)s::bigint OR cardinality(%(keys)s) > 0
                   OR (front.priority, front.run_at, front.task_id) <= (SELECT priority, run_at, task_id FROM horizon) END
  UNION
  SELECT t.* FROM place CROSS JOIN LATERAL (
    SELECT s.ctid AS place, s.priority, s.run_at, s.task_id, s.limit_key FROM {schema}.task_queue AS s
     WHERE s.limit_key <> '' AND s.status = 'waiting' AND s.awaiting IS NULL AND s.pipeline = %(pipeline)s
       AND s.type = %(phase)s AND s.limit_key = place.limit_key AND s.priority = place.priority
       AND s.run_at <= (SELECT now FROM clock)
     ORDER BY s.run_at, s.task_id
     LIMIT greatest(0, %(key_slots)s::bigint
                       - coalesce(jsonb_array_length((SELECT slots FROM busy) -> place.limit_key), 0))
  ) AS t
),
-- How many more tasks of the key may run, and the rank of each candidate within its key.
ranked AS (
  SELECT c.*, row_number() OVER (PARTITION BY limit_key ORDER BY priority, run_at, task_id) AS nth,
         %(key_slots)s::bigint - coalesce(jsonb_array_length((SELECT slots FROM busy) -> c.limit_key), 0) AS open
    FROM candidate AS c
),
chosen AS MATERIALIZED (
  SELECT array_agg(place ORDER BY priority, run_at, task_id) AS places,
         array_agg(key_slot ORDER BY priority, run_at, task_id) AS key_slots,
         (array_agg(task_id ORDER BY priority, run_at, task_id))[1] AS first
    FROM (
      SELECT r.*, CASE WHEN r.limit_key <> '' THEN (
               SELECT s FROM generate_series(0, %(key_slots)s::integer - 1) AS s
                WHERE coalesce((SELECT slots FROM busy) -> r.limit_key @> to_jsonb(s), false) IS FALSE
                ORDER BY s OFFSET r.nth - 1 LIMIT 1) END AS key_slot
        FROM ranked AS r
       WHERE r.limit_key = '' OR %(key_slots)s::bigint IS NULL OR r.nth <= r.open
       ORDER BY r.priority, r.run_at, r.task_id LIMIT (SELECT size FROM room)
    ) AS admitted
),
-- The first task of `front` that is not claimed: the low-water mark must stay before it.
staying AS MATERIALIZED (
  SELECT priority, run_at, task_id FROM front WHERE (place = ANY ((SELECT places FROM chosen)::tid[])) IS NOT TRUE
   ORDER BY priority, run_at, task_id LIMIT 1
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
RETURNING {columns},
  coalesce((ours.priority, ours.run_at, ours.task_id) < (SELECT priority, run_at, task_id FROM staying), true),
  CASE WHEN ours.task_id = (SELECT first FROM chosen) THEN (SELECT ids FROM running) END

-- claim_by_key: lease the first due tasks of one phase whose limit_key has a free slot.
-- Differs from claim_slots.sql: also limits each key. Scans the first due tasks, then a few keys; or only the given keys. Returns the same columns.
WITH RECURSIVE {include clock},
{include processing},
{include free_slots},
{include processing_ids},
{include key_slots_taken},
{include scans},
-- The first due tasks, more than may run, because some keys may be full.
first_due AS MATERIALIZED (
  SELECT t.* FROM (VALUES (false), (true)) AS kind (keyed) CROSS JOIN LATERAL (
    SELECT one.* FROM scan CROSS JOIN LATERAL (
      WITH RECURSIVE {include levels}
      SELECT each.* FROM level CROSS JOIN LATERAL (
        {include due_in_scan} LIMIT (SELECT 2 * size + 50 FROM capacity)
      ) AS each
    ) AS one
    LIMIT (SELECT CASE WHEN NOT kind.keyed THEN size WHEN cardinality(%(keys)s) = 0 THEN 2 * size + 50 ELSE 0 END FROM capacity)
  ) AS t
),
-- The last task with a key in first_due, if first_due is full: more may follow.
last_scanned AS MATERIALIZED (
  SELECT priority, run_at, task_id FROM first_due WHERE limit_key <> ''
   ORDER BY priority, run_at, task_id OFFSET (SELECT 2 * size + 49 FROM capacity) LIMIT 1
),
-- Whether too few tasks of first_due may run, so that other keys have to be scanned.
needs_more_keys (yes) AS MATERIALIZED (
  SELECT (SELECT size FROM capacity) > (
           SELECT coalesce(sum(CASE WHEN key.limit_key = '' THEN key.many ELSE greatest(0, least(key.many,
                    %(key_slots)s::bigint
                      - coalesce(jsonb_array_length((SELECT slots FROM key_slots_taken) -> key.limit_key), 0))) END), 0)
             FROM (SELECT limit_key, count(*) AS many FROM first_due
                    WHERE (priority, run_at, task_id) <= (SELECT priority, run_at, task_id FROM last_scanned)
                    GROUP BY limit_key) AS key)
    FROM last_scanned
),
-- The given keys, or the first few.
waiting_key (limit_key, priority, nth) AS (
  (SELECT given.limit_key, given.priority, %(few)s::bigint
     FROM unnest(%(keys)s, %(priorities)s) AS given (limit_key, priority)
   UNION ALL
   SELECT first.limit_key, first.priority, 1
     FROM (SELECT s.limit_key, s.priority FROM {schema}.task_queue AS s
            WHERE s.limit_key <> '' AND s.status = 'waiting' AND s.awaiting IS NULL AND s.pipeline = %(pipeline)s
              AND s.type = %(phase)s
            ORDER BY s.limit_key, s.priority LIMIT 1) AS first
    WHERE (SELECT yes FROM needs_more_keys))
  UNION ALL
  {include next_waiting_key} WHERE waiting_key.nth < %(few)s::bigint
),
candidate AS MATERIALIZED (
  -- From first_due: tasks with a key, unless the first tasks of all keys are known; tasks without a key, unless they
  -- would overtake a task whose key was not scanned.
  SELECT d.* FROM first_due AS d CROSS JOIN (SELECT count(*) AS keys FROM waiting_key) AS known
   WHERE CASE WHEN d.limit_key <> '' THEN known.keys NOT BETWEEN 1 AND %(few)s::bigint - 1
              ELSE known.keys < %(few)s::bigint OR cardinality(%(keys)s) > 0
                   OR (d.priority, d.run_at, d.task_id) <= (SELECT priority, run_at, task_id FROM last_scanned) END
  UNION
  SELECT t.* FROM waiting_key CROSS JOIN LATERAL (
    SELECT s.ctid AS row_location, s.priority, s.run_at, s.task_id, s.limit_key FROM {schema}.task_queue AS s
     WHERE s.limit_key <> '' AND s.status = 'waiting' AND s.awaiting IS NULL AND s.pipeline = %(pipeline)s
       AND s.type = %(phase)s AND s.limit_key = waiting_key.limit_key AND s.priority = waiting_key.priority
       AND s.run_at <= (SELECT now FROM clock)
     ORDER BY s.run_at, s.task_id
     LIMIT greatest(0, %(key_slots)s::bigint
                       - coalesce(jsonb_array_length((SELECT slots FROM key_slots_taken) -> waiting_key.limit_key), 0))
  ) AS t
),
{include choose_by_key},
-- The first task of first_due that is not claimed: the low-water mark must stay before it.
first_unclaimed AS MATERIALIZED (
  SELECT priority, run_at, task_id FROM first_due
   WHERE (row_location = ANY ((SELECT row_locations FROM chosen)::tid[])) IS NOT TRUE
   ORDER BY priority, run_at, task_id LIMIT 1
)
{include lease_in_slots}, {include key_slot}
{include where_chosen}
RETURNING {columns},
  coalesce((ours.priority, ours.run_at, ours.task_id) < (SELECT priority, run_at, task_id FROM first_unclaimed), true),
  CASE WHEN ours.task_id = (SELECT first FROM chosen) THEN (SELECT ids FROM processing_ids) END

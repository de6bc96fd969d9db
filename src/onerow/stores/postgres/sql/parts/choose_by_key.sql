-- How many more tasks of the key may run, and the rank of each candidate within its key.
ranked AS (
  SELECT c.*, row_number() OVER (PARTITION BY limit_key ORDER BY priority, run_at, task_id) AS nth,
         %(key_slots)s::bigint
           - coalesce(jsonb_array_length((SELECT slots FROM key_slots_taken) -> c.limit_key), 0) AS free_in_key
    FROM candidate AS c
),
chosen AS MATERIALIZED (
  SELECT array_agg(row_location ORDER BY priority, run_at, task_id) AS row_locations,
         array_agg(key_slot ORDER BY priority, run_at, task_id) AS key_slots,
         (array_agg(task_id ORDER BY priority, run_at, task_id))[1] AS first
    FROM (
      SELECT r.*, CASE WHEN r.limit_key <> '' THEN (
               SELECT s FROM generate_series(0, %(key_slots)s::integer - 1) AS s
                WHERE coalesce((SELECT slots FROM key_slots_taken) -> r.limit_key @> to_jsonb(s), false) IS FALSE
                ORDER BY s OFFSET r.nth - 1 LIMIT 1) END AS key_slot
        FROM ranked AS r
       WHERE r.limit_key = '' OR %(key_slots)s::bigint IS NULL OR r.nth <= r.free_in_key
       ORDER BY r.priority, r.run_at, r.task_id LIMIT (SELECT size FROM capacity)
    ) AS admitted
)

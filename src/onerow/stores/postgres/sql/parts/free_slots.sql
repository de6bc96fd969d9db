-- How many tasks this claim may take. After a limit was lowered to N, tasks above it finish first: a claim needs fewer
-- than N processing, and slots below N.
capacity (size) AS MATERIALIZED (
  SELECT greatest(0, least(
           %(limit)s::bigint, current_setting('onerow.left')::bigint, %(slots)s::bigint - (SELECT count(*) FROM processing)))
),
free_slots (numbers) AS MATERIALIZED (
  SELECT array_agg(slot ORDER BY slot)
    FROM (SELECT generate_series(0, %(slots)s::integer - 1) AS slot EXCEPT SELECT slot FROM processing) AS free
)

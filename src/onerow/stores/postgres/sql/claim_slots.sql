-- claim_slots: lease the first due tasks of one phase, as many as it has free slots.
-- Differs from claim.sql: the phase has a concurrency limit. An earlier statement took the phase's advisory lock.
-- Also returns, for each row, whether all due tasks before it are claimed, and in one row the ids of the processing tasks.
WITH RECURSIVE {include clock},
{include processing},
{include free_slots},
{include processing_ids},
{include scans},
chosen AS MATERIALIZED (
  SELECT array_agg(due.row_location ORDER BY due.priority, due.run_at, due.task_id) AS row_locations,
         (array_agg(due.task_id ORDER BY due.priority, due.run_at, due.task_id))[1] AS first
    FROM (
      SELECT t.* FROM scan CROSS JOIN LATERAL (
        WITH RECURSIVE {include levels}
        SELECT each.* FROM level CROSS JOIN LATERAL (
          SELECT one.* FROM (VALUES (false), (true)) AS kind (keyed) CROSS JOIN LATERAL (
            {include due_in_scan} LIMIT (SELECT size FROM capacity) FOR UPDATE SKIP LOCKED
          ) AS one
          ORDER BY one.run_at, one.task_id LIMIT (SELECT size FROM capacity)
        ) AS each
      ) AS t
      LIMIT (SELECT size FROM capacity)
    ) AS due
)
{include lease_in_slots}
{include where_chosen}
RETURNING {columns}, true, CASE WHEN ours.task_id = (SELECT first FROM chosen) THEN (SELECT ids FROM processing_ids) END

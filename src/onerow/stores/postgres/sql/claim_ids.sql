-- claim_ids: lease the given tasks that are due in a phase, within its limits.
-- Differs from claim_by_key.sql: the caller gives the ids; limits are optional.
WITH RECURSIVE {include clock},
{include processing},
{include free_slots},
{include key_slots_taken},
candidate AS MATERIALIZED (
  SELECT t.ctid AS row_location, t.priority, t.run_at, t.task_id, t.limit_key FROM {schema}.task_queue AS t
   WHERE t.task_id = ANY (%(ids)s) AND t.status = 'waiting' AND t.awaiting IS NULL AND t.pipeline = %(pipeline)s
     AND t.type = %(phase)s AND t.run_at <= (SELECT now FROM clock)
),
{include choose_by_key}
{include lease_in_slots}, {include key_slot}
{include where_chosen}
RETURNING {columns}

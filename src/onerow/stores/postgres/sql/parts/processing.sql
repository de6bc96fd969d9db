-- The processing tasks of the phase. Dead versions stay in every index while a transaction holds an old snapshot, so a
-- claim reads the ids that the last claim saw, and the tasks that started since. Without `since` it reads all.
-- (IS TRUE keeps the planner from other indexes.)
processing AS MATERIALIZED (
  SELECT task_id, slot, limit_key, key_slot FROM {schema}.task_queue
   WHERE %(since)s::timestamptz IS NULL AND leased_by IS NOT NULL AND pipeline = %(pipeline)s AND type = %(phase)s
  UNION ALL
  SELECT task_id, slot, limit_key, key_slot FROM {schema}.task_queue
   WHERE leased_by IS NOT NULL AND pipeline = %(pipeline)s AND type = %(phase)s AND started_at >= %(since)s::timestamptz
  UNION ALL
  SELECT task_id, slot, limit_key, key_slot FROM {schema}.task_queue
   WHERE task_id = ANY (%(seen)s) AND (leased_by IS NOT NULL) IS TRUE AND (pipeline = %(pipeline)s) IS TRUE
     AND (type = %(phase)s) IS TRUE AND (started_at < %(since)s::timestamptz) IS TRUE
)

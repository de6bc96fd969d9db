-- swap_remove: delete the rows that still have the version from which the move started, with their output.
-- Differs from swap.sql: tasks that are not stored after their end.
WITH written AS (
  DELETE FROM {schema}.task_queue AS t
   USING unnest({arrays}) WITH ORDINALITY AS m ({names})
   WHERE {same_row} AND t.version = m.version
  RETURNING m.nth, t.task_id
),
-- Most tasks have no output.
sizes AS (
  DELETE FROM {schema}.onerow_log_size AS l WHERE l.task_id = ANY (ARRAY(SELECT task_id FROM written)) RETURNING l.task_id
),
lines AS (
  DELETE FROM {schema}.onerow_log AS l WHERE l.task_id = ANY (ARRAY(SELECT task_id FROM sizes))
){counters}
SELECT CASE WHEN count(*) < %(size)s::bigint THEN coalesce(array_agg(nth), '{}') END FROM written

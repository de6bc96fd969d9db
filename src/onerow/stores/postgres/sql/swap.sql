-- swap: write the moves whose row still has the version from which the move started.
-- Returns NULL if all rows were written, else the positions of those that were.
WITH written AS (
  UPDATE {schema}.task_queue AS t SET {sets}
    FROM unnest({arrays}) WITH ORDINALITY AS m ({names})
   WHERE {same_row} AND t.version = m.version {lease_ended}
  RETURNING m.nth
){counters}
SELECT CASE WHEN count(*) < %(size)s::bigint THEN coalesce(array_agg(nth), '{}') END FROM written

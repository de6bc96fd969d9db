-- tally: merge the counter rows that are not locked, so that few rows have to be read.
WITH gone AS (
  DELETE FROM {schema}.onerow_tally
   WHERE ctid = ANY (ARRAY(SELECT ctid FROM {schema}.onerow_tally LIMIT 50000 FOR UPDATE SKIP LOCKED))
  RETURNING *
)
INSERT INTO {schema}.onerow_tally (pipeline, type, status, count)
SELECT pipeline, type, status, sum(count) FROM gone GROUP BY pipeline, type, status HAVING sum(count) <> 0

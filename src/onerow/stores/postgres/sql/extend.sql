-- extend: leases that are still ours last longer.
-- Differs from sqlite/sql/extend.sql: the server's clock says what time it is.
WITH clock AS MATERIALIZED (
  SELECT coalesce(%(now)s::timestamptz, date_trunc('milliseconds', clock_timestamp())) AS now
)
UPDATE {schema}.task_queue AS t
   SET leased_until = (SELECT now FROM clock) + %(lease)s::bigint * interval '1 millisecond', updated_at = (SELECT now FROM clock),
       version = t.version + 1
  FROM unnest(%(ids)s, %(tokens)s) AS m (task_id, token)
 WHERE t.task_id = m.task_id AND t.token = m.token AND t.status = 'processing'
RETURNING t.task_id, t.token, t.version, t.leased_until, t.cancel_requested

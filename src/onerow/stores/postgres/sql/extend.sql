-- extend: extend the given leases that are still held.
-- Differs from sqlite/sql/extend.sql: uses the server's clock.
WITH clock AS MATERIALIZED (
  SELECT coalesce(%(now)s::timestamptz, date_trunc('milliseconds', clock_timestamp())) AS now
)
UPDATE {schema}.task_queue AS t
   SET leased_until = (SELECT now FROM clock) + %(lease)s::bigint * interval '1 millisecond', updated_at = (SELECT now FROM clock),
       version = t.version + 1
  FROM unnest(%(ids)s, %(tokens)s) AS m (task_id, token)
 WHERE t.task_id = m.task_id AND t.token = m.token AND t.status = 'processing'
RETURNING t.task_id, t.token, t.version, t.leased_until, t.cancel_requested

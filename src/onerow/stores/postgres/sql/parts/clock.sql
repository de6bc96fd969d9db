clock AS MATERIALIZED (
  SELECT now, (now + %(lease)s::bigint * interval '1 millisecond')::timestamptz(3) AS until
    FROM (SELECT coalesce(%(now)s, date_trunc('milliseconds', clock_timestamp()))::timestamptz(3) AS now OFFSET 0) AS server
)

-- For the next claim; NULL if there are too many to remember.
processing_ids (ids) AS MATERIALIZED (
  SELECT CASE WHEN count(*) <= %(most_seen)s::bigint THEN coalesce(array_agg(task_id), '{}') END FROM processing
)

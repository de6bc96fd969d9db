 WHERE ours.ctid = ANY (ARRAY(
   SELECT t.ctid FROM {schema}.task_queue AS t
    WHERE t.ctid = ANY ((SELECT row_locations FROM chosen)::tid[]) AND t.status = 'waiting'
      FOR UPDATE SKIP LOCKED))

-- The due tasks of one priority, with or without a key, on the side of the low-water mark that is scanned.
SELECT s.ctid AS row_location, s.priority, s.run_at, s.task_id, s.limit_key FROM {schema}.task_queue AS s
 WHERE s.status = 'waiting' AND s.awaiting IS NULL AND s.pipeline = %(pipeline)s AND s.type = %(phase)s
   AND s.priority = level.priority AND (s.limit_key <> '') = kind.keyed AND s.run_at <= (SELECT now FROM clock)
   AND (s.run_at, s.task_id) > (
     CASE WHEN scan.after_mark AND level.priority = %(priority)s::smallint THEN %(run_at)s::timestamptz ELSE '-infinity' END,
     CASE WHEN scan.after_mark AND level.priority = %(priority)s::smallint THEN %(task_id)s::text ELSE '' END)
   AND (s.run_at, s.task_id) <= (
     CASE WHEN scan.after_mark OR level.priority < %(priority)s::smallint THEN 'infinity'
          WHEN level.priority = %(priority)s::smallint THEN %(run_at)s::timestamptz ELSE '-infinity' END,
     CASE WHEN NOT scan.after_mark AND level.priority = %(priority)s::smallint THEN %(task_id)s::text ELSE '' END)
 ORDER BY s.run_at, s.task_id

-- The priorities at which tasks wait: one index seek for each, so that tasks which are not due yet are not scanned.
level (priority) AS (
  SELECT coalesce(CASE WHEN scan.after_mark THEN %(priority)s::smallint END, (
           SELECT first.priority FROM {schema}.task_queue AS first
            WHERE first.status = 'waiting' AND first.awaiting IS NULL AND first.pipeline = %(pipeline)s
              AND first.type = %(phase)s AND first.priority < scan.below
            ORDER BY first.priority LIMIT 1), scan.last)
  UNION ALL
  SELECT coalesce((SELECT next.priority FROM {schema}.task_queue AS next
                    WHERE next.status = 'waiting' AND next.awaiting IS NULL AND next.pipeline = %(pipeline)s
                      AND next.type = %(phase)s AND next.priority > level.priority AND next.priority < scan.below
                    ORDER BY next.priority LIMIT 1), scan.last)
    FROM level WHERE level.priority < scan.below
)

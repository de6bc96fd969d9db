-- log_reserve: reserve numbers for new lines of the given tasks; the row locks make concurrent writers wait.
INSERT INTO {schema}.onerow_log_size AS s (task_id, next, lines, size)
SELECT m.task_id, 1 + m.lines, m.lines, m.size FROM unnest(%(ids)s, %(lines)s, %(sizes)s) AS m (task_id, lines, size)
    ON CONFLICT (task_id) DO UPDATE
   SET next = s.next + excluded.lines, lines = s.lines + excluded.lines, size = s.size + excluded.size

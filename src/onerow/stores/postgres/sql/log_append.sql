-- log_append: insert lines with the numbers that log_reserve reserved, counted back from the next number.
INSERT INTO {schema}.onerow_log (task_id, seq, at, phase, attempt, level, text)
SELECT m.task_id, s.next + m.place, m.at, m.phase, m.attempt, m.level, m.text
  FROM unnest(%(ids)s, %(places)s, %(ats)s, %(phases)s, %(attempts)s, %(levels)s, %(texts)s)
       AS m (task_id, place, at, phase, attempt, level, text)
  JOIN {schema}.onerow_log_size AS s ON s.task_id = m.task_id

-- log_trim: delete and count the oldest lines of tasks whose output exceeds its limits.
WITH over AS MATERIALIZED (
  SELECT s.task_id, s.next - 1 - %(most_lines)s::bigint AS last, s.size - %(most_size)s::bigint AS size
    FROM {schema}.onerow_log_size AS s
   WHERE s.task_id = ANY (%(ids)s) AND (s.lines > %(most_lines)s::bigint OR s.size > %(most_size)s::bigint)
),
-- Numbers have no gaps, so the excess lines follow from them; sizes are summed only for a task with too many bytes.
old AS MATERIALIZED (
  SELECT o.task_id, greatest(o.last, (
           SELECT max(l.seq)
             FROM (SELECT seq, sum(octet_length(text)) OVER (ORDER BY seq) - octet_length(text) AS before
                     FROM {schema}.onerow_log WHERE task_id = o.task_id) AS l
            WHERE o.size > 0 AND l.before < o.size)) AS seq
    FROM over AS o
),
gone AS (
  DELETE FROM {schema}.onerow_log AS l USING old WHERE l.task_id = old.task_id AND l.seq <= old.seq
  RETURNING l.task_id, octet_length(l.text) AS size
)
UPDATE {schema}.onerow_log_size AS s
   SET lines = s.lines - g.lines, size = s.size - g.size, dropped = s.dropped + g.lines
  FROM (SELECT task_id, count(*) AS lines, sum(size) AS size FROM gone GROUP BY task_id) AS g
 WHERE s.task_id = g.task_id

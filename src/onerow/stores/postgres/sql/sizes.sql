-- sizes: what the tables and indexes of the schema take on disk, largest first.
-- The number of rows is the planner's estimate; a table's size has its TOAST table, not its indexes.
SELECT
  c.relname,
  CASE c.relkind WHEN 'i' THEN 'index' ELSE 'table' END,
  CASE c.relkind WHEN 'i' THEN pg_relation_size(c.oid) ELSE pg_table_size(c.oid) END AS bytes,
  CASE WHEN c.relkind <> 'i' AND c.reltuples >= 0 THEN c.reltuples::bigint END
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relkind IN ('r', 'i')
ORDER BY bytes DESC, c.relname

-- policies_tables: the tables of the schema and their owners.
SELECT c.relname, r.rolname
  FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace JOIN pg_roles AS r ON r.oid = c.relowner
 WHERE n.nspname = %s AND c.relkind IN ('r', 'p')
 -- The condition for output reads the tasks: first those.
 ORDER BY c.relname <> 'task_queue', c.relname

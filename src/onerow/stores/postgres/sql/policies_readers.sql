-- policies_readers: the roles that read all tasks, and the condition under which others do.
SELECT ARRAY(SELECT rolname FROM pg_roles WHERE (rolsuper OR rolbypassrls) AND rolname NOT LIKE 'pg\_%%' ORDER BY 1)::text[],
       ARRAY(SELECT pg_get_userbyid(role) FROM pg_policy AS p CROSS JOIN unnest(p.polroles) AS role
              WHERE p.polrelid = c.oid AND p.polname = 'onerow_service' ORDER BY 1)::text[],
       ARRAY(SELECT pg_get_userbyid(role) FROM pg_policy AS p CROSS JOIN unnest(p.polroles) AS role
              WHERE p.polrelid = c.oid AND p.polname = 'onerow_tenant' ORDER BY 1)::text[],
       (SELECT pg_get_expr(p.polqual, p.polrelid) FROM pg_policy AS p WHERE p.polrelid = c.oid AND p.polname = 'onerow_tenant')
  FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
 WHERE n.nspname = %(schema)s AND c.relname = 'task_queue'

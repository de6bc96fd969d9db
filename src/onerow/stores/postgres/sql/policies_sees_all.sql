-- policies_sees_all: whether row-level security hides no rows from this role, as from tenants.
SELECT NOT row_security_active(c.oid)
       OR EXISTS (SELECT FROM pg_policy AS p CROSS JOIN unnest(p.polroles) AS role
                   WHERE p.polrelid = c.oid AND p.polname = 'onerow_service' AND (role = 0 OR pg_has_role(role, 'USAGE')))
  FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
 WHERE n.nspname = %(schema)s AND c.relname = 'task_queue'

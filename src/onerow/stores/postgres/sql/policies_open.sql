-- policies_open: one line for each way around row-level security: what, and how to close it.
WITH tables AS (
  SELECT c.oid, c.relname, c.relowner, c.relacl, c.relrowsecurity, c.relforcerowsecurity, format('%%I.%%I', n.nspname, c.relname) AS name
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
   WHERE n.nspname = %(schema)s AND c.relkind IN ('r', 'p')
),
-- Roles for which the policy of service roles was made, superusers and roles with BYPASSRLS read everything by design.
services AS (
  SELECT unnest(p.polroles) AS oid FROM pg_policy AS p JOIN tables AS t ON t.oid = p.polrelid
   WHERE p.polname = 'onerow_service' AND t.relname = 'task_queue'
  UNION SELECT relowner FROM tables
  UNION SELECT oid FROM pg_roles WHERE rolsuper OR rolbypassrls
)
SELECT 1 AS nth, format('%%s has no row-level security', name) AS what, 'onerow pg policies … --apply' AS fix
  FROM tables WHERE NOT relrowsecurity
UNION ALL
SELECT 2, format('row-level security of %%s does not apply to its owner, %%I', name, pg_get_userbyid(relowner)),
       format('ALTER TABLE %%s FORCE ROW LEVEL SECURITY', name)
  FROM tables WHERE relrowsecurity AND NOT relforcerowsecurity
UNION ALL
-- oid 0 is PUBLIC.
SELECT 3, format('policy %%I on %%s lets %%s %%s', p.polname, t.name,
                 CASE WHEN role = 0 THEN 'every role' ELSE quote_ident(pg_get_userbyid(role)) END,
                 CASE p.polcmd WHEN 'r' THEN 'read' WHEN 'a' THEN 'insert' WHEN 'w' THEN 'update' WHEN 'd' THEN 'delete' ELSE 'read and write' END),
       format('DROP POLICY %%I ON %%s', p.polname, t.name)
  FROM pg_policy AS p JOIN tables AS t ON t.oid = p.polrelid CROSS JOIN unnest(p.polroles) AS role
 WHERE p.polpermissive AND p.polname <> 'onerow_service' AND (p.polname <> 'onerow_tenant' OR p.polcmd <> 'r' OR role = 0)
   AND role NOT IN (SELECT oid FROM services)
UNION ALL
-- Every privilege but SELECT: a policy does not stop TRUNCATE, and a foreign key or a trigger of a tenant can tell it which rows exist.
SELECT 4, format('%%s has %%s on %%s', CASE WHEN a.grantee = 0 THEN 'every role' ELSE quote_ident(pg_get_userbyid(a.grantee)) END,
                 string_agg(a.privilege_type, ', ' ORDER BY a.privilege_type), t.name),
       format('REVOKE %%s ON %%s FROM %%s', string_agg(a.privilege_type, ', ' ORDER BY a.privilege_type), t.name,
              CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END)
  FROM tables AS t CROSS JOIN aclexplode(t.relacl) AS a
 WHERE a.grantee NOT IN (SELECT oid FROM services) AND a.privilege_type <> 'SELECT'
 GROUP BY a.grantee, t.name
UNION ALL
SELECT DISTINCT 5, CASE c.relkind WHEN 'm' THEN format('materialized view %%s is a copy of %%s without its policies', c.oid::regclass, t.name)
                   ELSE format('view %%s reads %%s with the rights of its owner, %%I', c.oid::regclass, t.name, pg_get_userbyid(c.relowner)) END,
       CASE c.relkind WHEN 'm' THEN format('REVOKE its SELECT from tenants, or DROP MATERIALIZED VIEW %%s', c.oid::regclass)
            ELSE format('ALTER VIEW %%s SET (security_invoker = true)', c.oid::regclass) END
  FROM pg_depend AS d
  JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
  JOIN pg_class AS c ON c.oid = r.ev_class AND c.relkind IN ('v', 'm')
  JOIN tables AS t ON d.refclassid = 'pg_class'::regclass AND d.refobjid = t.oid
 WHERE (c.relkind = 'm' OR NOT coalesce((SELECT option_value::boolean FROM pg_options_to_table(c.reloptions)
                                          WHERE option_name = 'security_invoker'), false))
   AND EXISTS (SELECT FROM aclexplode(c.relacl) AS a WHERE a.grantee NOT IN (SELECT oid FROM services))
UNION ALL
-- Whoever may execute a trigger function can make a trigger with it on a temporary table. Only superusers make event triggers.
SELECT 6, format('function %%s runs with the rights of its owner, %%I, for %%s', p.oid::regprocedure, pg_get_userbyid(p.proowner),
                 string_agg(CASE WHEN a.grantee = 0 THEN 'every role' ELSE quote_ident(pg_get_userbyid(a.grantee)) END, ', ')),
       format('REVOKE EXECUTE ON FUNCTION %%s FROM PUBLIC', p.oid::regprocedure)
  FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
 CROSS JOIN aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
 WHERE n.nspname = %(schema)s AND p.prosecdef AND p.prorettype <> 'event_trigger'::regtype
   AND a.grantee NOT IN (SELECT oid FROM services)
 GROUP BY p.oid, p.proowner
UNION ALL
SELECT DISTINCT 7, format('role %%I reads as a tenant and is a member of %%I, which reads all tasks', pg_get_userbyid(role), pg_get_userbyid(s.oid)),
       format('REVOKE %%I FROM %%I', pg_get_userbyid(s.oid), pg_get_userbyid(role))
  FROM pg_policy AS p JOIN tables AS t ON t.oid = p.polrelid CROSS JOIN unnest(p.polroles) AS role CROSS JOIN services AS s
 WHERE p.polname = 'onerow_tenant' AND role <> 0 AND pg_has_role(role, s.oid, 'MEMBER')
 ORDER BY 1, 2

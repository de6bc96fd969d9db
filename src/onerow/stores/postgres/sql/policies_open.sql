-- policies_open: one line for each way around row-level security: what, and how to close it.
WITH RECURSIVE tables AS (
  SELECT c.oid, c.relname, c.relowner, c.relacl, c.relrowsecurity, c.relforcerowsecurity, format('%%I.%%I', n.nspname, c.relname) AS name
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
   WHERE n.nspname = %(schema)s AND c.relkind IN ('r', 'p')
),
-- Roles that read everything by design: those for which the policy of service roles was made (oid 0 is PUBLIC, which no command
-- makes a service), and the owner. What belongs to other tables is compared with the table of tasks.
named AS (
  SELECT role AS oid FROM pg_policy AS p JOIN tables AS t ON t.oid = p.polrelid CROSS JOIN unnest(p.polroles) AS role
   WHERE p.polname = 'onerow_service' AND t.relname = 'task_queue' AND role <> 0
  UNION SELECT relowner FROM tables WHERE relname = 'task_queue'
),
unbound AS (SELECT oid FROM pg_roles WHERE rolsuper OR rolbypassrls),
services AS (SELECT oid FROM named UNION SELECT oid FROM unbound),
tenants AS (
  SELECT DISTINCT role AS oid FROM pg_policy AS p JOIN tables AS t ON t.oid = p.polrelid CROSS JOIN unnest(p.polroles) AS role
   WHERE p.polname = 'onerow_tenant' AND role <> 0
),
-- Tenants and their members. A service may be a member, to become a tenant; its own members are not tenants. Before PostgreSQL 16
-- every membership can be used.
members AS (
  SELECT oid FROM tenants
  UNION
  SELECT a.member FROM members AS m JOIN pg_auth_members AS a ON a.roleid = m.oid
   WHERE a.member NOT IN (SELECT oid FROM named)
     AND (coalesce(CAST(to_jsonb(a) ->> 'inherit_option' AS boolean), true)
          OR coalesce(CAST(to_jsonb(a) ->> 'set_option' AS boolean), true))
),
reads AS (
  SELECT DISTINCT r.ev_class AS view, d.refobjid AS relation
    FROM pg_depend AS d JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
   WHERE d.refclassid = 'pg_class'::regclass AND r.ev_class <> d.refobjid
),
views AS (
  SELECT c.oid, c.relname, c.relnamespace, c.relkind, c.relowner, c.relacl,
         c.relkind = 'v' AND coalesce((SELECT option_value::boolean FROM pg_options_to_table(c.reloptions)
                                        WHERE option_name = 'security_invoker'), false) AS invoker
    FROM pg_class AS c WHERE c.relkind IN ('v', 'm')
),
-- Views that read a table, also through other views. `open`: with the rights of an owner. A view with security_invoker reads other
-- views with the rights of the role that asks, who then needs a privilege on those.
readers AS (
  SELECT v.oid, t.oid AS table, NOT v.invoker AS open FROM tables AS t JOIN reads AS r ON r.relation = t.oid JOIN views AS v ON v.oid = r.view
  UNION
  SELECT v.oid, f.table, f.open AND NOT v.invoker FROM readers AS f JOIN reads AS r ON r.relation = f.oid JOIN views AS v ON v.oid = r.view
),
-- What a function's text may name: the tables, also without their schema, and the views with it.
names AS (
  SELECT format('(?n)(^|[^\w."])("?%%s"?\s*\.\s*)?"?%%s($|\W)', %(schema)s, relname) AS pattern FROM tables
   WHERE relname = 'task_queue' OR relname LIKE 'onerow\_%%'
  UNION
  SELECT format('(?n)(^|[^\w"])"?%%s"?\s*\.\s*"?%%s($|\W)', regexp_replace(n.nspname, '(\W)', '\\\1', 'g'),
                regexp_replace(v.relname, '(\W)', '\\\1', 'g'))
    FROM readers AS f JOIN views AS v ON v.oid = f.oid JOIN pg_namespace AS n ON n.oid = v.relnamespace
)
SELECT 1 AS nth, format('%%s has no row-level security', name) AS what, 'onerow pg policies … --apply' AS fix
  FROM tables WHERE NOT relrowsecurity
UNION ALL
SELECT 2, format('row-level security of %%s does not apply to its owner, %%I', name, pg_get_userbyid(relowner)),
       format('ALTER TABLE %%s FORCE ROW LEVEL SECURITY', name)
  FROM tables WHERE relrowsecurity AND NOT relforcerowsecurity
UNION ALL
SELECT 2, format('%%s belongs to %%I and not to the owner of the tasks, and an owner can switch policies off', t.name, pg_get_userbyid(t.relowner)),
       format('ALTER TABLE %%s OWNER TO %%I', t.name, pg_get_userbyid(q.relowner))
  FROM tables AS t JOIN tables AS q ON q.relname = 'task_queue' WHERE t.relowner NOT IN (SELECT oid FROM services)
UNION ALL
SELECT 3, format('policy %%I on %%s lets %%s %%s', p.polname, t.name,
                 CASE WHEN role = 0 THEN 'every role' ELSE quote_ident(pg_get_userbyid(role)) END,
                 CASE p.polcmd WHEN 'r' THEN 'read' WHEN 'a' THEN 'insert' WHEN 'w' THEN 'update' WHEN 'd' THEN 'delete' ELSE 'read and write' END),
       CASE p.polname WHEN 'onerow_service' THEN 'onerow pg policies … --apply' ELSE format('DROP POLICY %%I ON %%s', p.polname, t.name) END
  FROM pg_policy AS p JOIN tables AS t ON t.oid = p.polrelid CROSS JOIN unnest(p.polroles) AS role
 WHERE p.polpermissive AND (p.polname <> 'onerow_tenant' OR p.polcmd <> 'r' OR role = 0)
   AND role NOT IN (SELECT oid FROM services)
UNION ALL
-- Which tasks a tenant reads is the user's choice; what else it reads follows from them.
SELECT 3, format('policy onerow_tenant on %%s lets tenants read it if %%s', t.name, regexp_replace(c.condition, '\s+', ' ', 'g')),
       'onerow pg policies … --apply'
  FROM pg_policy AS p JOIN tables AS t ON t.oid = p.polrelid CROSS JOIN pg_get_expr(p.polqual, p.polrelid) AS c (condition)
 WHERE p.polname = 'onerow_tenant' AND t.relname <> 'task_queue'
   AND regexp_replace(c.condition, '[\s()"]|::text', '', 'g') IS DISTINCT FROM CAST(%(expected)s AS jsonb) ->> t.relname
UNION ALL
-- Every privilege but SELECT: a policy does not stop TRUNCATE, and a foreign key or a trigger of a tenant can tell it which rows exist.
SELECT 4, format('%%s has %%s on %%s', g.grantee, g.privileges, t.name), format('REVOKE %%s ON %%s FROM %%s', g.privileges, t.name, g.revoked)
  FROM tables AS t CROSS JOIN LATERAL (
    SELECT CASE a.grantee WHEN 0 THEN 'every role' ELSE quote_ident(pg_get_userbyid(a.grantee)) END,
           CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END,
           string_agg(a.privilege, ', ' ORDER BY a.privilege)
      FROM (SELECT e.grantee, e.privilege_type, e.privilege_type FROM aclexplode(t.relacl) AS e
            UNION ALL
            SELECT e.grantee, e.privilege_type, format('%%s (%%I)', e.privilege_type, c.attname)
              FROM pg_attribute AS c CROSS JOIN aclexplode(c.attacl) AS e WHERE c.attrelid = t.oid AND NOT c.attisdropped
           ) AS a (grantee, kind, privilege)
     WHERE a.grantee NOT IN (SELECT oid FROM services) AND a.kind <> 'SELECT'
     GROUP BY a.grantee
  ) AS g (grantee, revoked, privileges)
UNION ALL
SELECT 4, format('%%s may create objects in schema %%I', CASE a.grantee WHEN 0 THEN 'every role' ELSE quote_ident(pg_get_userbyid(a.grantee)) END, n.nspname),
       CASE a.grantee WHEN n.nspowner THEN format('ALTER SCHEMA %%I OWNER TO %%I', n.nspname, pg_get_userbyid(q.relowner))
            ELSE format('REVOKE CREATE ON SCHEMA %%I FROM %%s', n.nspname,
                        CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END) END
  FROM pg_namespace AS n JOIN tables AS q ON q.relname = 'task_queue'
 CROSS JOIN aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) AS a
 WHERE n.nspname = %(schema)s AND a.privilege_type = 'CREATE' AND a.grantee NOT IN (SELECT oid FROM services)
   AND a.grantee IS DISTINCT FROM CAST(to_regrole('pg_database_owner') AS oid) -- the owner of the schema `public`
UNION ALL
SELECT DISTINCT 5, CASE v.relkind WHEN 'm' THEN format('materialized view %%s is a copy of %%s without its policies', v.oid::regclass, t.name)
                   ELSE format('view %%s reads %%s with the rights of its owner, %%I', v.oid::regclass, t.name, pg_get_userbyid(v.relowner)) END,
       CASE v.relkind WHEN 'm' THEN format('REVOKE its SELECT from tenants, or DROP MATERIALIZED VIEW %%s', v.oid::regclass)
            ELSE format('ALTER VIEW %%s SET (security_invoker = true)', v.oid::regclass) END
  FROM readers AS f JOIN views AS v ON v.oid = f.oid JOIN tables AS t ON t.oid = f.table
 WHERE f.open
   AND EXISTS (SELECT FROM aclexplode(v.relacl) AS a WHERE a.grantee NOT IN (SELECT oid FROM services)
               UNION ALL
               SELECT FROM pg_attribute AS c CROSS JOIN aclexplode(c.attacl) AS a
                WHERE c.attrelid = v.oid AND a.grantee NOT IN (SELECT oid FROM services))
UNION ALL
-- A role that may execute a trigger function can make a trigger with it on a temporary table. Only superusers make event triggers.
-- Elsewhere only functions count that run with the rights of a service and name a table. The body of BEGIN ATOMIC has dependencies.
SELECT 6, format('%%s %%s runs with the rights of its owner, %%I, for %%s', k.kind, p.oid::regprocedure, pg_get_userbyid(p.proowner),
                 string_agg(CASE a.grantee WHEN 0 THEN 'every role' ELSE quote_ident(pg_get_userbyid(a.grantee)) END, ', ')),
       format('REVOKE EXECUTE ON %%s %%s FROM %%s', upper(k.kind), p.oid::regprocedure,
              string_agg(CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END, ', '))
  FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
 CROSS JOIN aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
 CROSS JOIN (VALUES ('p', 'procedure'), ('f', 'function')) AS k (prokind, kind)
 WHERE p.prosecdef AND p.prorettype <> 'event_trigger'::regtype AND (k.prokind = 'p') = (p.prokind = 'p')
   AND a.grantee NOT IN (SELECT oid FROM services) AND a.grantee <> p.proowner
   AND (n.nspname = %(schema)s
        OR EXISTS (SELECT FROM services AS s WHERE pg_has_role(p.proowner, s.oid, 'USAGE'))
           AND (EXISTS (SELECT FROM names WHERE p.prosrc ~* names.pattern)
                OR EXISTS (SELECT FROM pg_depend AS d
                            WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.refclassid = 'pg_class'::regclass
                              AND d.refobjid IN (SELECT oid FROM tables UNION SELECT oid FROM readers))))
 GROUP BY p.oid, p.proowner, k.kind
UNION ALL
SELECT 7, format('role %%I reads as a tenant and is a member of %%I, which reads all tasks', pg_get_userbyid(m.oid), pg_get_userbyid(s.oid)),
       format('REVOKE %%I FROM %%I', pg_get_userbyid(s.oid), pg_get_userbyid(m.oid))
  FROM members AS m CROSS JOIN services AS s
 WHERE m.oid NOT IN (SELECT oid FROM unbound) AND pg_has_role(m.oid, s.oid, 'MEMBER')
UNION ALL
SELECT 7, format('role %%I reads as a tenant, and policies do not apply to it', r.rolname),
       coalesce((SELECT format('REVOKE %%s FROM %%I', string_agg(DISTINCT quote_ident(pg_get_userbyid(a.roleid)), ', '), r.rolname)
                   FROM pg_auth_members AS a WHERE r.rolsuper AND a.member = r.oid AND a.roleid IN (SELECT oid FROM members)
                 HAVING count(*) > 0),
                format('ALTER ROLE %%I NOSUPERUSER NOBYPASSRLS', r.rolname))
  FROM members AS m JOIN pg_roles AS r ON r.oid = m.oid WHERE m.oid IN (SELECT oid FROM unbound)
UNION ALL
-- Made before the functions were closed: the owner of the table chooses the rows, and so the tasks that are deleted.
SELECT 8, format('trigger %%I on %%s, which belongs to tenant %%I, deletes tasks with the rights of %%I', g.tgname, g.tgrelid::regclass,
                 pg_get_userbyid(c.relowner), pg_get_userbyid(p.proowner)),
       format('DROP TRIGGER %%I ON %%s', g.tgname, g.tgrelid::regclass)
  FROM pg_trigger AS g JOIN pg_proc AS p ON p.oid = g.tgfoid JOIN pg_namespace AS n ON n.oid = p.pronamespace
  JOIN pg_class AS c ON c.oid = g.tgrelid
 WHERE n.nspname = %(schema)s AND p.prosecdef AND NOT g.tgisinternal AND c.relowner IN (SELECT oid FROM members)
 ORDER BY 1, 2

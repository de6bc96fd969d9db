-- policies_former: the roles for which policies were made before, and that are neither services nor tenants any more.
SELECT DISTINCT pg_get_userbyid(role)
  FROM pg_policy AS p JOIN pg_class AS c ON c.oid = p.polrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
 CROSS JOIN unnest(p.polroles) AS role
 WHERE n.nspname = %(schema)s AND p.polname IN ('onerow_service', 'onerow_tenant') AND role <> 0
   AND pg_get_userbyid(role) <> ALL (%(roles)s)
 ORDER BY 1

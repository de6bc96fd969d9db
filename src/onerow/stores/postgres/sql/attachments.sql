-- attachments: the triggers on attached tables with their arguments.
SELECT g.tgrelid::regclass::text, g.tgname, g.tgargs
  FROM pg_trigger AS g JOIN pg_proc AS p ON p.oid = g.tgfoid JOIN pg_namespace AS n ON n.oid = p.pronamespace
 WHERE n.nspname = %(schema)s AND p.proname = 'onerow_row_deleted' AND NOT g.tgisinternal
 ORDER BY 1, 2

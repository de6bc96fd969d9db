-- old_table_bonds: what else in the database depends on a table or is enforced by it, as pairs of kind and description.
SELECT 'referenced', format('%%s (%%s)', c.conrelid::regclass, c.conname) FROM pg_constraint AS c
 WHERE c.contype = 'f' AND c.confrelid = to_regclass(%(name)s) AND c.conrelid <> c.confrelid
UNION ALL
SELECT 'referenced', format('%%s (%%s)', c.conrelid::regclass, c.conname) FROM pg_constraint AS c
 WHERE c.contype = 'f' AND c.confrelid = to_regclass(%(name)s) AND c.conrelid = c.confrelid
UNION ALL
SELECT DISTINCT 'view', r.ev_class::regclass::text FROM pg_depend AS d JOIN pg_rewrite AS r ON r.oid = d.objid
 WHERE d.classid = 'pg_rewrite'::regclass AND d.refobjid = to_regclass(%(name)s) AND r.ev_class <> d.refobjid
UNION ALL
SELECT 'trigger', t.tgname FROM pg_trigger AS t
 WHERE t.tgrelid = to_regclass(%(name)s) AND NOT t.tgisinternal AND t.tgname NOT IN ('onerow_adopt', 'onerow_adopt_all')
UNION ALL
SELECT CASE c.contype WHEN 'f' THEN 'foreign' ELSE 'constraint' END, format('%%s %%s', c.conname, pg_get_constraintdef(c.oid))
  FROM pg_constraint AS c WHERE c.conrelid = to_regclass(%(name)s) AND c.contype IN ('f', 'c', 'x')
UNION ALL
SELECT CASE WHEN i.indisprimary THEN 'primary' WHEN i.indisunique AND i.indpred IS NULL THEN 'unique' ELSE 'index' END,
       coalesce((SELECT string_agg(a.attname, ',' ORDER BY k.nth) FROM unnest(i.indkey) WITH ORDINALITY AS k (num, nth)
                   JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.num), '')
  FROM pg_index AS i WHERE i.indrelid = to_regclass(%(name)s) AND i.indexprs IS NULL
UNION ALL
SELECT 'secured', '' FROM pg_class AS c WHERE c.oid = to_regclass(%(name)s) AND c.relrowsecurity
UNION ALL
SELECT 'children', i.inhrelid::regclass::text FROM pg_inherits AS i WHERE i.inhparent = to_regclass(%(name)s)
UNION ALL
SELECT 'child', i.inhparent::regclass::text FROM pg_inherits AS i WHERE i.inhrelid = to_regclass(%(name)s)
UNION ALL
-- FORCE ROW LEVEL SECURITY: policies apply to the owner too.
SELECT 'filtered', CAST(current_user AS text) FROM pg_class AS c WHERE c.oid = to_regclass(%(name)s) AND row_security_active(c.oid)
UNION ALL
SELECT 'owner', quote_ident(pg_get_userbyid(c.relowner)) FROM pg_class AS c JOIN pg_roles AS r ON r.rolname = current_user
 WHERE c.oid = to_regclass(%(name)s) AND c.relowner <> r.oid

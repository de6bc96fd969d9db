-- shape: one line for each column, setting, index, constraint, trigger and function of a schema.
SELECT format('column %%s.%%s %%s%%s%%s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
              CASE WHEN a.attnotnull THEN ' not null' ELSE '' END, ' ' || pg_get_expr(d.adbin, d.adrelid))
  FROM pg_class AS c
  JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
 WHERE c.relnamespace = to_regnamespace(quote_ident(%(schema)s)) AND c.relkind = 'r'
UNION ALL
SELECT format('settings %%s %%s', relname, reloptions) FROM pg_class
 WHERE relnamespace = to_regnamespace(quote_ident(%(schema)s)) AND relkind = 'r'
UNION ALL
SELECT pg_get_indexdef(indexrelid) || CASE WHEN indisvalid THEN '' ELSE ' (invalid)' END
  FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
 WHERE relnamespace = to_regnamespace(quote_ident(%(schema)s))
UNION ALL
SELECT format('constraint %%s %%s', CASE WHEN contypid <> 0 THEN contypid::regtype::text ELSE conrelid::regclass::text END,
              pg_get_constraintdef(oid)) FROM pg_constraint
 WHERE connamespace = to_regnamespace(quote_ident(%(schema)s)) AND contype <> 'n'
UNION ALL
SELECT pg_get_triggerdef(t.oid) FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
 WHERE c.relnamespace = to_regnamespace(quote_ident(%(schema)s)) AND NOT t.tgisinternal
UNION ALL
SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = to_regnamespace(quote_ident(%(schema)s))

-- old_table_columns: the columns of a table, with their types, defaults and sequences.
-- The types have no length: a cast to char(n), varchar(n) or bit(n) would cut the value.
SELECT a.attname, format_type(a.atttypid, -1), CAST(y.typtype AS text), a.attnotnull,
       CASE WHEN a.attgenerated = '' THEN pg_get_expr(d.adbin, d.adrelid) END, a.attidentity <> '', a.attgenerated <> '',
       pg_get_serial_sequence(%(name)s, a.attname)
  FROM pg_attribute AS a
  JOIN pg_type AS y ON y.oid = a.atttypid
  LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE a.attrelid = to_regclass(%(name)s) AND a.attnum > 0 AND NOT a.attisdropped
 ORDER BY a.attnum

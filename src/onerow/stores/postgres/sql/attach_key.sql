-- attach_key: a table, its kind, its columns, and those that alone identify a row (the primary key first).
SELECT c.oid::regclass::text, c.relkind::text,
       ARRAY(SELECT a.attname FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum)::text[],
       ARRAY(SELECT a.attname FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
              WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indnkeyatts = 1 AND i.indpred IS NULL AND i.indexprs IS NULL
              ORDER BY NOT i.indisprimary, a.attname)::text[]
  FROM pg_class AS c WHERE c.oid = to_regclass(%(table)s)

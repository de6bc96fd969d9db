-- policies_table: row-level security for one table, also for its owner; only service roles write.
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS onerow_service ON {table};
CREATE POLICY onerow_service ON {table} FOR ALL TO {services} USING (true) WITH CHECK (true);
DROP POLICY IF EXISTS onerow_tenant ON {table};
REVOKE ALL ON TABLE {table} FROM PUBLIC;
GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE {table} TO {services};

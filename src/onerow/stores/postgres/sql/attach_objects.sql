-- attach_objects: what every attached table uses; created with the first of them, after its functions (attach_functions).
-- A row of onerow_deleted stands for one statement that deleted rows of an attached table; it lives until the commit.
CREATE TABLE {schema}.onerow_deleted (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  table_name text NOT NULL,
  pipeline   text NOT NULL,
  match      text NOT NULL,
  keys       text[] -- NULL: the table was truncated
);
ALTER TABLE {schema}.onerow_deleted OWNER TO {owner};
ALTER TABLE {schema}.onerow_deleted ENABLE ROW LEVEL SECURITY;
ALTER TABLE {schema}.onerow_deleted FORCE ROW LEVEL SECURITY;
CREATE POLICY onerow_service ON {schema}.onerow_deleted FOR ALL TO {owner} USING (true) WITH CHECK (true);
REVOKE ALL ON {schema}.onerow_deleted FROM PUBLIC;
CREATE CONSTRAINT TRIGGER onerow_delete_tasks AFTER INSERT ON {schema}.onerow_deleted
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.onerow_delete_tasks();

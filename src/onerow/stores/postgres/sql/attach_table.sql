-- attach_table: have a statement that deletes rows of a table record their keys.
CREATE OR REPLACE TRIGGER {trigger} AFTER DELETE ON {table} REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.onerow_row_deleted({arguments});
CREATE OR REPLACE TRIGGER {truncate_trigger} AFTER TRUNCATE ON {table}
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.onerow_row_deleted({arguments});

-- policies_schema: who may use the schema; the tables follow.
-- {services}: roles that read and write everything; {everyone}: these and the tenants.
REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC;
GRANT USAGE ON SCHEMA {schema} TO {everyone};

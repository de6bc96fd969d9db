-- policies_closed: a table of which tenants read nothing.
REVOKE ALL ON TABLE {table} FROM {tenants};

-- policies_tenant: which rows of one table tenants read; their other privileges are revoked.
REVOKE ALL ON TABLE {table} FROM {tenants};
GRANT SELECT ON TABLE {table} TO {tenants};
CREATE POLICY onerow_tenant ON {table} FOR SELECT TO {tenants} USING ({using});

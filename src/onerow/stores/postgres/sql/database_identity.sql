-- database_identity: identify the server and the database of the session, after the given prefix.
-- The start time tells apart servers that were copied from each other; it changes when a server is restarted.
SELECT concat(CAST({given} AS text), extract(epoch FROM pg_postmaster_start_time()), '/', oid, '/', datname)
  FROM pg_database WHERE datname = current_database()

-- schema 2: finds processing tasks without a lease.
-- The index had no entry for a task with the status 'processing' and no holder, so no rescue could find it. Other sessions
-- wait while the table is scanned once. A CHECK that refuses such a task would cost an add 9 % of the server's CPU time.
DROP INDEX {schema}.task_leased;
CREATE INDEX task_leased ON {schema}.task_queue (type, started_at) WHERE leased_by IS NOT NULL OR status = 'processing';

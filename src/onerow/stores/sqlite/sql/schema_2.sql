-- schema 2: finds processing tasks without a lease; notes are JSON.
-- The index had no entry for a task with the status 'processing' and no holder, so no rescue could find it.
DROP INDEX task_leased;
CREATE INDEX task_leased ON task_queue (pipeline, type, leased_until, leased_by)
  WHERE leased_by IS NOT NULL OR status = 'processing';

-- SQLite can't add a CHECK to a table, and renaming one fails in a file with a broken view, so the notes are copied twice.
-- A note that is not JSON was of no use to anyone.
CREATE TABLE onerow_note_old AS SELECT * FROM onerow_note WHERE json_valid(body);
DROP TABLE onerow_note;
CREATE TABLE onerow_note (
  kind       TEXT NOT NULL,
  name       TEXT NOT NULL,
  version    INTEGER NOT NULL,
  body       TEXT NOT NULL CHECK (json_valid(body)),
  updated_at TEXT NOT NULL,
  PRIMARY KEY (kind, name)
) WITHOUT ROWID;
INSERT INTO onerow_note (kind, name, version, body, updated_at)
  SELECT kind, name, version, body, updated_at FROM onerow_note_old;
DROP TABLE onerow_note_old;

-- schema 1: one row per task, small versioned notes, and output lines.
-- Indexes are partial, and few of them look at status: a move costs what the indexes it might touch cost.
-- CHECKs refuse what people write by mistake (a number for a time, JSON of the wrong shape); they are few and cheap, since
-- every insert pays for all of them. A row that can't be read in spite of them is quarantined by whoever meets it.
CREATE TABLE task_queue (
  task_id          TEXT NOT NULL PRIMARY KEY,
  pipeline         TEXT NOT NULL DEFAULT '',
  type             TEXT NOT NULL,
  status           TEXT NOT NULL DEFAULT 'waiting'
                   -- Not IN (…): for that SQLite builds a table in memory, anew with every statement.
                   CHECK (status = 'waiting' OR status = 'processing' OR status = 'completed' OR status = 'failed'
                          OR status = 'cancelled'),
  user_id          TEXT NOT NULL DEFAULT '',
  title            TEXT NOT NULL DEFAULT '',
  parent_id        TEXT,
  priority         INTEGER NOT NULL DEFAULT 0 CHECK (priority BETWEEN -100 AND 100),
  -- Times are text like 2026-11-15T02:29:57.123Z.
  created_at       TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) CHECK (length(created_at) = 24),
  scheduled_time   TEXT CHECK (length(scheduled_time) = 24),
  run_at           TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) CHECK (length(run_at) = 24),
  started_at       TEXT,
  completed_at     TEXT,
  updated_at       TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  elapsed_time     INTEGER,
  awaiting         TEXT,
  cancel_requested INTEGER NOT NULL DEFAULT 0,
  attempt          INTEGER NOT NULL DEFAULT 0,
  retry_count      INTEGER NOT NULL DEFAULT 0,
  max_retries      INTEGER NOT NULL DEFAULT 3,
  own_retries      INTEGER NOT NULL DEFAULT 0,
  retry_base       INTEGER NOT NULL DEFAULT 0,
  crash_count      INTEGER NOT NULL DEFAULT 0,
  generation       INTEGER NOT NULL DEFAULT 0,
  error            TEXT,
  error_class      TEXT,
  leased_by        TEXT,
  leased_until     TEXT,
  token            INTEGER NOT NULL DEFAULT 0 CHECK (token < 2305843009213693952),
  version          INTEGER NOT NULL DEFAULT 1 CHECK (version < 2305843009213693952),
  limit_key        TEXT NOT NULL DEFAULT '',
  slot             INTEGER,
  key_slot         INTEGER,
  unique_key       TEXT,
  unique_for       TEXT,
  held_key         TEXT,
  held_until       TEXT,
  children         INTEGER,
  purged_at        TEXT,
  payload          TEXT NOT NULL DEFAULT 'null' CHECK (json_valid(payload)),
  -- Begins with { or [: comparing costs less than a function.
  results          TEXT NOT NULL DEFAULT '{}' CHECK (results >= '{' AND results < '|'),
  steps            TEXT NOT NULL DEFAULT '{}',
  signals          TEXT NOT NULL DEFAULT '[]',
  progress         TEXT NOT NULL DEFAULT 'null',
  metadata         TEXT NOT NULL DEFAULT '{}',
  logs             TEXT NOT NULL DEFAULT '[]' CHECK (logs >= '[' AND logs < '\')
);

-- The claim's own order: one seek per priority finds what is due, however much stands in front. Tasks with a key stand
-- apart, so that where each key is limited, those without one are found as soon.
CREATE INDEX task_ready ON task_queue (pipeline, type, priority, limit_key <> '', run_at, task_id)
  WHERE status = 'waiting' AND awaiting IS NULL;
-- The same per key, for phases that limit each key.
CREATE INDEX task_ready_by_key ON task_queue (pipeline, type, limit_key, priority, run_at, task_id)
  WHERE limit_key <> '' AND status = 'waiting' AND awaiting IS NULL;
CREATE INDEX task_parked ON task_queue (run_at, pipeline, type) WHERE awaiting IS NOT NULL;
-- Whatever is processing: a few thousand entries at the most, so that rescues and heartbeats may walk them.
CREATE INDEX task_leased ON task_queue (pipeline, type, leased_until, leased_by) WHERE leased_by IS NOT NULL;
-- Limits: a slot has one holder, under any race. Who leaves processing leaves its slots.
CREATE UNIQUE INDEX task_slot ON task_queue (pipeline, type, slot) WHERE slot IS NOT NULL;
CREATE UNIQUE INDEX task_key_slot ON task_queue (pipeline, type, limit_key, key_slot) WHERE key_slot IS NOT NULL;
CREATE UNIQUE INDEX task_unique ON task_queue (pipeline, user_id, held_key) WHERE held_key IS NOT NULL;
CREATE INDEX task_remembered ON task_queue (held_until) WHERE held_until IS NOT NULL;
CREATE INDEX task_child ON task_queue (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX task_ended ON task_queue (completed_at) WHERE completed_at IS NOT NULL;
CREATE INDEX task_erred ON task_queue (completed_at) WHERE error_class IS NOT NULL;
-- What people look at, newest first, all of it or one user's: written once, when the row is added.
CREATE INDEX task_created ON task_queue (created_at, task_id);
CREATE INDEX task_user ON task_queue (user_id, created_at, task_id) WHERE user_id <> '';

CREATE TABLE onerow_note (
  kind       TEXT NOT NULL,
  name       TEXT NOT NULL,
  version    INTEGER NOT NULL,
  body       TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  PRIMARY KEY (kind, name)
) WITHOUT ROWID;

-- How many tasks have ended, and where: kept by those who write, so that nobody has to count them.
CREATE TABLE onerow_tally (
  pipeline TEXT NOT NULL,
  type     TEXT NOT NULL,
  status   TEXT NOT NULL,
  count    INTEGER NOT NULL,
  PRIMARY KEY (pipeline, type, status)
) WITHOUT ROWID;

-- Output: lines that came together stand in one row, seq being the number of the first.
CREATE TABLE onerow_log (
  task_id TEXT NOT NULL,
  seq     INTEGER NOT NULL,
  at      TEXT NOT NULL,
  phase   TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  level   TEXT NOT NULL,
  text    TEXT NOT NULL,
  PRIMARY KEY (task_id, seq)
) WITHOUT ROWID;

-- How much of a task's output is kept: next line's number, lines and characters kept, lines gone.
CREATE TABLE onerow_log_size (
  task_id TEXT PRIMARY KEY NOT NULL,
  next    INTEGER NOT NULL,
  lines   INTEGER NOT NULL,
  size    INTEGER NOT NULL,
  dropped INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- schema 1: one row per task, small versioned notes, and output lines.
-- Indexes are partial, and few of them depend on status, because an update pays for every index that it may touch.
-- CHECKs refuse common mistakes (a number for a time, JSON of the wrong shape); they are few and cheap, since every
-- insert pays for all of them. A row that is unreadable nevertheless is quarantined when an operation finds it.
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
  rescue_count     INTEGER NOT NULL DEFAULT 0,
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

-- The order of a claim: one seek per priority finds the due tasks, however many others wait. Tasks with a limit_key are
-- separate, so that a claim under a limit per key finds tasks without a key at once.
CREATE INDEX task_ready ON task_queue (pipeline, type, priority, limit_key <> '', run_at, task_id)
  WHERE status = 'waiting' AND awaiting IS NULL;
-- The same per limit_key, for phases with a limit per key.
CREATE INDEX task_ready_by_key ON task_queue (pipeline, type, limit_key, priority, run_at, task_id)
  WHERE limit_key <> '' AND status = 'waiting' AND awaiting IS NULL;
CREATE INDEX task_parked ON task_queue (run_at, pipeline, type) WHERE awaiting IS NOT NULL;
-- All processing tasks: at most a few thousand, so rescues and heartbeats may scan them.
CREATE INDEX task_leased ON task_queue (pipeline, type, leased_until, leased_by) WHERE leased_by IS NOT NULL;
-- Limits: each slot has at most one holder, under any race. A task that leaves processing releases its slots.
CREATE UNIQUE INDEX task_slot ON task_queue (pipeline, type, slot) WHERE slot IS NOT NULL;
CREATE UNIQUE INDEX task_key_slot ON task_queue (pipeline, type, limit_key, key_slot) WHERE key_slot IS NOT NULL;
CREATE UNIQUE INDEX task_unique ON task_queue (pipeline, user_id, held_key) WHERE held_key IS NOT NULL;
CREATE INDEX task_remembered ON task_queue (held_until) WHERE held_until IS NOT NULL;
CREATE INDEX task_child ON task_queue (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX task_ended ON task_queue (completed_at) WHERE completed_at IS NOT NULL;
CREATE INDEX task_erred ON task_queue (completed_at) WHERE error_class IS NOT NULL;
-- Lists, newest first, of all tasks or of one user's. Updates never touch these indexes.
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

-- Counters of ended tasks, maintained by every write, so that they need not be counted.
CREATE TABLE onerow_tally (
  pipeline TEXT NOT NULL,
  type     TEXT NOT NULL,
  status   TEXT NOT NULL,
  count    INTEGER NOT NULL,
  PRIMARY KEY (pipeline, type, status)
) WITHOUT ROWID;

-- Output: lines that arrive together are one row; seq is the number of the first.
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

-- The size of each task's output: the next line's number, lines and characters kept, lines dropped.
CREATE TABLE onerow_log_size (
  task_id TEXT PRIMARY KEY NOT NULL,
  next    INTEGER NOT NULL,
  lines   INTEGER NOT NULL,
  size    INTEGER NOT NULL,
  dropped INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

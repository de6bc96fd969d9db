-- schema 1: one row per task, small versioned notes, and output lines.
-- Differs from sqlite/sql/schema_1.sql: times are timestamptz, JSON is json (kept as written, see ADR 0010), keys compare by code point.
CREATE TABLE {schema}.task_queue (
  task_id          text COLLATE "C" PRIMARY KEY,
  pipeline         text COLLATE "C" NOT NULL DEFAULT '',
  type             text COLLATE "C" NOT NULL,
  status           text COLLATE "C" NOT NULL DEFAULT 'waiting'
                   CHECK (status IN ('waiting', 'processing', 'completed', 'failed', 'cancelled')),
  user_id          text COLLATE "C" NOT NULL DEFAULT '',
  title            text NOT NULL DEFAULT '',
  parent_id        text COLLATE "C",
  priority         smallint NOT NULL DEFAULT 0 CHECK (priority BETWEEN -100 AND 100),
  created_at       timestamptz(3) NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
  scheduled_time   timestamptz(3),
  run_at           timestamptz(3) NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
  started_at       timestamptz(3),
  completed_at     timestamptz(3),
  updated_at       timestamptz(3) NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
  elapsed_time     bigint,
  awaiting         text COLLATE "C",
  cancel_requested boolean NOT NULL DEFAULT false,
  attempt          integer NOT NULL DEFAULT 0,
  retry_count      integer NOT NULL DEFAULT 0,
  max_retries      integer NOT NULL DEFAULT 3,
  own_retries      boolean NOT NULL DEFAULT false,
  retry_base       integer NOT NULL DEFAULT 0,
  crash_count      integer NOT NULL DEFAULT 0,
  generation       integer NOT NULL DEFAULT 0,
  error            text,
  error_class      text COLLATE "C",
  leased_by        text COLLATE "C",
  leased_until     timestamptz(3),
  token            bigint NOT NULL DEFAULT 0,
  version          bigint NOT NULL DEFAULT 1,
  limit_key        text COLLATE "C" NOT NULL DEFAULT '',
  slot             integer,
  key_slot         integer,
  unique_key       text COLLATE "C",
  unique_for       text COLLATE "C",
  held_key         text COLLATE "C",
  held_until       timestamptz(3),
  children         integer,
  purged_at        timestamptz(3),
  payload          json NOT NULL DEFAULT 'null',
  results          json NOT NULL DEFAULT '{}',
  steps            json NOT NULL DEFAULT '{}',
  signals          json NOT NULL DEFAULT '[]',
  progress         json NOT NULL DEFAULT 'null',
  metadata         json NOT NULL DEFAULT '{}',
  logs             json NOT NULL DEFAULT '[]'
) WITH (
  -- Room on each page for the next version of a row; and a vacuum that comes early and often, since every move leaves
  -- a dead version behind and a claim walks over those that lie in its way.
  fillfactor = 85,
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 2000,
  autovacuum_analyze_scale_factor = 0.05,
  autovacuum_analyze_threshold = 2000,
  autovacuum_vacuum_cost_delay = 1
);

-- The claim's own order: one seek per priority finds what is due, however much stands in front.
CREATE INDEX task_ready ON {schema}.task_queue (pipeline, type, priority, run_at, task_id)
  WHERE status = 'waiting' AND awaiting IS NULL;
-- The same per key, for phases that limit each key; what has no key is found here too, behind a million that have one.
CREATE INDEX task_ready_by_key ON {schema}.task_queue (pipeline, type, limit_key, priority, run_at, task_id)
  WHERE status = 'waiting' AND awaiting IS NULL;
CREATE INDEX task_parked ON {schema}.task_queue (run_at, task_id) WHERE awaiting IS NOT NULL;
-- Whatever is processing: a few thousand entries at the most, so that limits count and rescues walk them.
CREATE INDEX task_leased ON {schema}.task_queue (pipeline, type, limit_key, leased_until) WHERE leased_by IS NOT NULL;
-- Limits: a slot has one holder, under any race. Who leaves processing leaves its slots.
CREATE UNIQUE INDEX task_slot ON {schema}.task_queue (pipeline, type, slot) WHERE slot IS NOT NULL;
CREATE UNIQUE INDEX task_key_slot ON {schema}.task_queue (pipeline, type, limit_key, key_slot) WHERE key_slot IS NOT NULL;
CREATE UNIQUE INDEX task_unique ON {schema}.task_queue (pipeline, user_id, held_key) WHERE held_key IS NOT NULL;
CREATE INDEX task_remembered ON {schema}.task_queue (held_until) WHERE held_until IS NOT NULL;
CREATE INDEX task_child ON {schema}.task_queue (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX task_ended ON {schema}.task_queue (completed_at, task_id) WHERE completed_at IS NOT NULL;
CREATE INDEX task_erred ON {schema}.task_queue (completed_at, task_id) WHERE error_class IS NOT NULL;
-- Lists by age. What is processing is left out, so that a claim needn't pay; there it is few, and sorted when asked for.
CREATE INDEX task_created ON {schema}.task_queue (created_at, task_id) WHERE leased_by IS NULL;
CREATE INDEX task_user ON {schema}.task_queue (user_id, created_at, task_id) WHERE user_id <> '' AND leased_by IS NULL;

CREATE TABLE {schema}.onerow_note (
  kind       text COLLATE "C" NOT NULL,
  name       text COLLATE "C" NOT NULL,
  version    bigint NOT NULL,
  body       json NOT NULL,
  updated_at timestamptz(3) NOT NULL,
  PRIMARY KEY (kind, name)
) WITH (fillfactor = 50);

CREATE TABLE {schema}.onerow_log (
  task_id text COLLATE "C" NOT NULL,
  seq     bigint NOT NULL,
  at      timestamptz(3) NOT NULL,
  phase   text NOT NULL,
  attempt integer NOT NULL,
  level   text NOT NULL,
  text    text NOT NULL,
  PRIMARY KEY (task_id, seq)
);

-- How much of a task's output is kept: next line's number, lines and bytes kept, lines gone.
CREATE TABLE {schema}.onerow_log_size (
  task_id text COLLATE "C" PRIMARY KEY,
  next    bigint NOT NULL,
  lines   bigint NOT NULL,
  size    bigint NOT NULL,
  dropped bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- One hint per statement, however many rows it adds and whoever adds them.
CREATE FUNCTION {schema}.onerow_wake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('onerow.' || TG_TABLE_SCHEMA, '');
  RETURN NULL;
END
$$;
CREATE TRIGGER onerow_wake AFTER INSERT ON {schema}.task_queue FOR EACH STATEMENT EXECUTE FUNCTION {schema}.onerow_wake();

CREATE TABLE {schema}.onerow_meta (
  key   text COLLATE "C" PRIMARY KEY,
  value bigint NOT NULL
);

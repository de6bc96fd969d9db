-- schema 1: one row per task, small versioned notes, and output lines.
-- Differs from sqlite/sql/schema_1.sql: times are timestamptz, JSON is json (stored unchanged, see ADR 0010), keys are compared by code point.
-- CHECKs are on domains and not on the table: each writing statement parses the table's CHECKs again, which was a tenth
-- of the server's cost of adding one task.
CREATE DOMAIN {schema}.task_status AS text COLLATE "C"
  CHECK (VALUE IN ('waiting', 'processing', 'completed', 'failed', 'cancelled'));
CREATE DOMAIN {schema}.task_priority AS smallint CHECK (VALUE BETWEEN -100 AND 100);
-- Counters that grow with every write stay far below the maximum of bigint: an overflow would fail every statement on that row.
CREATE DOMAIN {schema}.task_writes AS bigint CHECK (VALUE < 2305843009213693952);
CREATE DOMAIN {schema}.task_object AS json CHECK (json_typeof(VALUE) = 'object');
CREATE DOMAIN {schema}.task_list AS json CHECK (json_typeof(VALUE) = 'array');

-- Indexed columns come first, and among them those of fixed width: an update compares each of them in the old and the new
-- row, and to reach a column the server steps over all columns before it.
CREATE TABLE {schema}.task_queue (
  created_at       timestamptz(3) NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
  run_at           timestamptz(3) NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
  priority         {schema}.task_priority NOT NULL DEFAULT 0,
  cancel_requested boolean NOT NULL DEFAULT false,
  status           {schema}.task_status NOT NULL DEFAULT 'waiting',
  -- Half of each page of this index is left free, because a claim doubles its entries; else every page would be split
  -- then, to the same size, and searched for dead entries again and again.
  task_id          text COLLATE "C" PRIMARY KEY WITH (fillfactor = 45),
  pipeline         text COLLATE "C" NOT NULL DEFAULT '',
  type             text COLLATE "C" NOT NULL,
  user_id          text COLLATE "C" NOT NULL DEFAULT '',
  limit_key        text COLLATE "C" NOT NULL DEFAULT '',
  leased_by        text COLLATE "C",
  started_at       timestamptz(3),
  completed_at     timestamptz(3),
  awaiting         text COLLATE "C",
  parent_id        text COLLATE "C",
  slot             integer,
  key_slot         integer,
  held_key         text COLLATE "C",
  held_until       timestamptz(3),
  token            {schema}.task_writes NOT NULL DEFAULT 0,
  version          {schema}.task_writes NOT NULL DEFAULT 1,
  updated_at       timestamptz(3) NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
  leased_until     timestamptz(3),
  scheduled_time   timestamptz(3),
  purged_at        timestamptz(3),
  elapsed_time     bigint,
  attempt          integer NOT NULL DEFAULT 0,
  retry_count      integer NOT NULL DEFAULT 0,
  max_retries      integer NOT NULL DEFAULT 3,
  retry_base       integer NOT NULL DEFAULT 0,
  crash_count      integer NOT NULL DEFAULT 0,
  rescue_count     integer NOT NULL DEFAULT 0,
  generation       integer NOT NULL DEFAULT 0,
  children         integer,
  own_retries      boolean NOT NULL DEFAULT false,
  title            text NOT NULL DEFAULT '',
  error            text,
  error_class      text COLLATE "C",
  unique_key       text COLLATE "C",
  unique_for       text COLLATE "C",
  payload          json NOT NULL DEFAULT 'null',
  results          {schema}.task_object NOT NULL DEFAULT '{}',
  steps            json NOT NULL DEFAULT '{}',
  signals          json NOT NULL DEFAULT '[]',
  progress         json NOT NULL DEFAULT 'null',
  metadata         json NOT NULL DEFAULT '{}',
  logs             {schema}.task_list NOT NULL DEFAULT '[]'
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

-- Claim order: one seek per priority finds the due tasks. Tasks with a limit_key are in a separate range, so that tasks
-- without a key are found as fast when keys are limited.
CREATE INDEX task_ready ON {schema}.task_queue (pipeline, type, priority, (limit_key <> ''), run_at, task_id)
  WHERE status = 'waiting' AND awaiting IS NULL;
-- The same per key, for phases that limit each key.
CREATE INDEX task_ready_by_key ON {schema}.task_queue (pipeline, type, limit_key, priority, run_at, task_id)
  WHERE limit_key <> '' AND status = 'waiting' AND awaiting IS NULL;
CREATE INDEX task_parked ON {schema}.task_queue (run_at, task_id) WHERE awaiting IS NOT NULL;
-- Processing tasks: a few thousand entries at most, which limits and rescues scan. The pipeline is left out, because a
-- claim pays for each compared text, and few pipelines share a phase name. By start time, so that a claim of a limited
-- phase can read what started since the last claim. A heartbeat updates no indexed column.
CREATE INDEX task_leased ON {schema}.task_queue (type, started_at) WHERE leased_by IS NOT NULL;
-- Each worker asks every second which of its tasks are to be cancelled.
CREATE INDEX task_stopping ON {schema}.task_queue (leased_by) WHERE leased_by IS NOT NULL AND cancel_requested;
-- Limits: the unique index allows one holder per slot under any race. A task that stops processing releases its slots.
CREATE UNIQUE INDEX task_slot ON {schema}.task_queue (pipeline, type, slot) WHERE slot IS NOT NULL;
CREATE UNIQUE INDEX task_key_slot ON {schema}.task_queue (pipeline, type, limit_key, key_slot) WHERE key_slot IS NOT NULL;
CREATE UNIQUE INDEX task_unique ON {schema}.task_queue (pipeline, user_id, held_key) WHERE held_key IS NOT NULL;
CREATE INDEX task_remembered ON {schema}.task_queue (held_until) WHERE held_until IS NOT NULL;
CREATE INDEX task_child ON {schema}.task_queue (parent_id, created_at, task_id) WHERE parent_id IS NOT NULL;
CREATE INDEX task_ended ON {schema}.task_queue (completed_at, task_id) WHERE completed_at IS NOT NULL;
-- Failed and cancelled tasks, so that queries for them do not scan a million completed ones.
CREATE INDEX task_missed ON {schema}.task_queue (status, completed_at, task_id) WHERE status IN ('failed', 'cancelled');
-- Lists by age. Processing tasks are left out to make claims cheaper; they are few, so queries sort them.
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

-- Stored output per task: number of the next line, stored lines and bytes, dropped lines.
CREATE TABLE {schema}.onerow_log_size (
  task_id text COLLATE "C" PRIMARY KEY,
  next    bigint NOT NULL,
  lines   bigint NOT NULL,
  size    bigint NOT NULL,
  dropped bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- Counters of ended tasks: each round inserts a row or two when tasks end or are requeued, and workers merge the rows from
-- time to time. (With one row per counter, all workers would wait for the same row lock.)
CREATE TABLE {schema}.onerow_tally (
  pipeline text COLLATE "C" NOT NULL,
  type     text COLLATE "C" NOT NULL,
  status   text COLLATE "C" NOT NULL,
  count    bigint NOT NULL
);

-- One notification per INSERT statement, for any number of rows and any client.
CREATE FUNCTION {schema}.onerow_wake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- As a condition, which is only computed: PERFORM would run a query for it, a twentieth of what an add costs the server.
  IF pg_notify('onerow.' || TG_TABLE_SCHEMA, '') IS NULL THEN
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER onerow_wake AFTER INSERT ON {schema}.task_queue FOR EACH STATEMENT EXECUTE FUNCTION {schema}.onerow_wake();

CREATE TABLE {schema}.onerow_meta (
  key   text COLLATE "C" PRIMARY KEY,
  value bigint NOT NULL
);

-- add: add a task from any language, in the caller's transaction. Reads the published definition, validates what it can
-- without Python, and returns the task's id; if the id or the unique key is taken, the id of the existing task.
CREATE FUNCTION {schema}.add(
  pipeline text, payload jsonb DEFAULT 'null', task_id text DEFAULT NULL, user_id text DEFAULT '',
  title text DEFAULT NULL, run_at timestamptz DEFAULT NULL, priority integer DEFAULT 0, unique_key text DEFAULT NULL,
  unique_for text DEFAULT NULL, limit_key text DEFAULT '', max_retries integer DEFAULT NULL,
  metadata jsonb DEFAULT '{}', parent_id text DEFAULT NULL
) RETURNS text LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  now_is   CONSTANT timestamptz := date_trunc('milliseconds', clock_timestamp());
  millis   CONSTANT bigint := floor(extract(epoch FROM now_is) * 1000);
  far      CONSTANT timestamptz := '9999-12-31T23:59:59.999Z';
  plan     json;
  first    json;
  field    text;
  due      timestamptz := now_is;
  signal   text;
  name     text;
  random   text;
  new_id   text := add.task_id;
  known    record;
BEGIN
  add.user_id := coalesce(add.user_id, '');
  add.limit_key := coalesce(add.limit_key, '');
  SELECT body INTO plan FROM {schema}.onerow_note AS n WHERE n.kind = 'pipeline' AND n.name = add.pipeline;
  IF plan IS NULL THEN
    RAISE EXCEPTION 'no pipeline % in the store', quote_nullable(add.pipeline) USING ERRCODE = '22023',
      HINT = 'Run its worker once, or: onerow publish APP';
  END IF;
  PERFORM {schema}.onerow_check('payload', add.payload);
  PERFORM {schema}.onerow_check('metadata', add.metadata);
  IF jsonb_typeof(add.metadata) <> 'object' THEN
    RAISE EXCEPTION 'metadata must be an object' USING ERRCODE = '22023';
  END IF;
  FOR field IN SELECT json_array_elements_text(coalesce(plan -> 'required', '[]')) LOOP
    IF jsonb_typeof(add.payload) <> 'object' OR NOT add.payload ? field THEN
      RAISE EXCEPTION 'payload has no %; it is required', quote_literal(field) USING ERRCODE = '22023';
    END IF;
  END LOOP;
  IF add.priority IS NULL OR add.priority NOT BETWEEN -100 AND 100 THEN
    RAISE EXCEPTION 'priority must be from -100 to 100 (lower runs first), not %', add.priority USING ERRCODE = '22023';
  END IF;
  IF add.max_retries NOT BETWEEN 0 AND 1000 THEN
    RAISE EXCEPTION 'max_retries must be from 0 to 1000, not %', add.max_retries USING ERRCODE = '22023';
  END IF;
  IF length(add.user_id) > 200 OR length(add.limit_key) > 200
     OR length(coalesce(add.title, '')) > 500 OR length(coalesce(add.unique_key, '')) > 500 THEN
    RAISE EXCEPTION 'user_id and limit_key have at most 200 characters, title and unique_key 500'
      USING ERRCODE = '22023';
  END IF;
  IF add.unique_key = '' OR (add.unique_for IS NOT NULL AND (add.unique_key IS NULL
     OR add.unique_for !~ '^(forever|([0-9]+([.][0-9]+)?(ms|s|m|min|h|d|w))+)$')) THEN
    RAISE EXCEPTION 'unique_for is forever or a time like 7d, and needs a unique_key that is not empty'
      USING ERRCODE = '22023';
  END IF;
  -- The same bound as in Python: a worker must be able to read the row.
  IF add.unique_for <> 'forever' AND (
       SELECT sum(CAST(m[1] AS numeric) * CASE m[3] WHEN 'ms' THEN 0.001 WHEN 's' THEN 1 WHEN 'h' THEN 3600
                                                    WHEN 'd' THEN 86400 WHEN 'w' THEN 604800 ELSE 60 END)
         FROM regexp_matches(add.unique_for, '([0-9]+([.][0-9]+)?)(ms|min|s|m|h|d|w)', 'g') AS m) > 3153600000 THEN
    RAISE EXCEPTION 'unique_for must be under 100 years, not %', quote_literal(add.unique_for) USING ERRCODE = '22023';
  END IF;
  IF add.task_id = '' OR add.task_id ~ '(^\s|\s$|[/[:cntrl:]])' OR length(add.task_id) > 200 THEN
    RAISE EXCEPTION 'task_id % must be printable text without / or outer blanks, at most 200 characters',
      quote_literal(add.task_id) USING ERRCODE = '22023';
  END IF;

  -- Standing before the first phase: when it is due and what it waits for. Times in the payload are read now.
  FOR field IN SELECT p ->> 'field' FROM json_array_elements(plan -> 'phases') AS p WHERE p ->> 'kind' = 'wait_until' LOOP
    -- The zone follows a time of day: the end of a date like 2030-02-03 is not an offset.
    IF add.payload ->> field !~ ':[0-9]{2}([.,][0-9]+)? *(Z|z|[+-][0-9]{2}(:?[0-9]{2})?)$' THEN
      RAISE EXCEPTION 'payload.%: % has no time zone; write it like 2026-11-15T09:00:00Z or 2026-11-15T09:00:00+09:00',
        field, add.payload -> field USING ERRCODE = '22023';
    END IF;
    PERFORM CAST(add.payload ->> field AS timestamptz);
  END LOOP;
  first := plan -> 'phases' -> 0;
  IF first ->> 'kind' = 'wait_until' THEN
    due := coalesce(date_trunc('milliseconds', CAST(add.payload ->> (first ->> 'field') AS timestamptz)), now_is);
  ELSIF first ->> 'kind' = 'wait_for' THEN
    signal := 'signal:' || (first ->> 'signal');
    due := CASE WHEN first ->> 'timeout' IS NULL THEN far ELSE now_is + CAST(first ->> 'timeout' AS interval) END;
  END IF;
  IF signal IS NULL THEN
    due := greatest(due, date_trunc('milliseconds', add.run_at));
  END IF;

  name := coalesce(add.title, plan ->> 'title', '');
  IF add.title IS NULL THEN
    -- Each piece once: a value that looks like a field is not substituted again.
    SELECT coalesce(string_agg(
             CASE WHEN piece[1] !~ '^[{]\w+[}]$' THEN piece[1]
                  WHEN jsonb_typeof(add.payload) <> 'object' THEN ''
                  ELSE coalesce(add.payload ->> btrim(piece[1], '{}'), '') END, '' ORDER BY nth), '')
      INTO name FROM regexp_matches(name, '[{]\w+[}]|[^{]+|[{]', 'g') WITH ORDINALITY AS p (piece, nth);
  END IF;
  IF new_id IS NULL THEN
    -- A UUID of version 7, which sorts by the time it was made.
    random := lpad(to_hex(CAST(extract(epoch FROM now_is) * 1000 AS bigint)), 12, '0')
              || '7' || substr(replace(CAST(gen_random_uuid() AS text), '-', ''), 14);
    new_id := CAST(CAST(random AS uuid) AS text);
  END IF;

  -- A key that was remembered for a time is free when the time is over, whoever notices.
  UPDATE {schema}.task_queue AS t
     SET held_key = NULL, held_until = NULL, version = t.version + 1, updated_at = now_is
   WHERE t.pipeline = add.pipeline AND t.user_id = add.user_id AND t.held_key = add.unique_key AND t.held_until <= now_is;
  FOR try IN 1..10 LOOP
    INSERT INTO {schema}.task_queue (
      task_id, pipeline, type, user_id, title, parent_id, created_at, scheduled_time, run_at, updated_at, priority,
      awaiting, max_retries, own_retries, token, version, limit_key, unique_key, unique_for, held_key, payload, metadata)
    VALUES (
      new_id, add.pipeline, first ->> 'name', add.user_id, left(name, 500), add.parent_id, now_is,
      coalesce(date_trunc('milliseconds', add.run_at), CASE WHEN first ->> 'kind' = 'wait_until' THEN due END), due, now_is, add.priority,
      signal, coalesce(add.max_retries, CAST(first -> 'retry' ->> 'max_retries' AS integer), 3),
      -- A given id may come again after a purge: tokens and versions then go on growing, as time does.
      add.max_retries IS NOT NULL, CASE WHEN add.task_id IS NULL THEN 0 ELSE millis END,
      CASE WHEN add.task_id IS NULL THEN 1 ELSE millis + 1 END,
      add.limit_key, add.unique_key, add.unique_for, add.unique_key,
      CAST(add.payload AS text)::json, CAST(add.metadata AS text)::json)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
      RETURN new_id;
    END IF;
    SELECT t.task_id, t.user_id INTO known FROM {schema}.task_queue AS t WHERE t.task_id = new_id;
    IF FOUND THEN
      IF known.user_id <> add.user_id THEN
        RAISE EXCEPTION 'task_id % is taken', quote_literal(new_id) USING ERRCODE = '22023';
      END IF;
      RETURN new_id;
    END IF;
    SELECT t.task_id INTO known FROM {schema}.task_queue AS t
     WHERE t.pipeline = add.pipeline AND t.user_id = add.user_id AND t.held_key = add.unique_key;
    IF FOUND THEN
      RETURN known.task_id;
    END IF;
  END LOOP;
  RAISE EXCEPTION 'conflicting tasks kept changing; retry the transaction' USING ERRCODE = '40001';
END
$$;

-- onerow_check: raise an error for JSON that is too large or that contains an integer beyond 64 bits.
CREATE FUNCTION {schema}.onerow_check(field text, value jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF value IS NULL THEN
    RAISE EXCEPTION '% must not be NULL; JSON has a null of its own', field USING ERRCODE = '22023';
  END IF;
  IF octet_length(CAST(value AS text)) > 1000000 THEN
    RAISE EXCEPTION '% is % bytes of JSON; at most 1000000', field, octet_length(CAST(value AS text))
      USING ERRCODE = '22023', HINT = 'Store it elsewhere and pass a path or key instead.';
  END IF;
  IF CAST(value AS text) ~ '[0-9]{19}' AND EXISTS (
       SELECT FROM jsonb_path_query(value, 'strict $.** ? (@.type() == "number")') AS n
        WHERE CAST(n AS text) !~ '[.]' AND CAST(n AS numeric) NOT BETWEEN -9223372036854775808 AND 9223372036854775807) THEN
    RAISE EXCEPTION '% holds an integer beyond 64 bits; pass it as text', field USING ERRCODE = '22023';
  END IF;
END
$$;

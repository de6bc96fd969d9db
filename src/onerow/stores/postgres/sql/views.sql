-- views: functions that views over the queue share; created with the first view.
-- Casts that return NULL instead of failing: a view must not fail on a row of another pipeline.
CREATE OR REPLACE FUNCTION {schema}.as_uuid(value text) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN value ~ '^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$' THEN CAST(value AS uuid) END
$$;
-- Indexes hold what these functions return: one that returns something else needs another name, so that views that are
-- not made again keep functions and indexes that agree. as_bigint, as_integer and as_number had these names before.
CREATE OR REPLACE FUNCTION {schema}.as_int8(value text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN value ~ '^-?[0-9]{1,19}$' THEN
           CASE WHEN CAST(value AS numeric) BETWEEN -9223372036854775808 AND 9223372036854775807 THEN CAST(value AS bigint) END
         END
$$;
CREATE OR REPLACE FUNCTION {schema}.as_int4(value text) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN value ~ '^-?[0-9]{1,10}$' THEN
           CASE WHEN CAST(value AS bigint) BETWEEN -2147483648 AND 2147483647 THEN CAST(value AS integer) END
         END
$$;
-- jsonb writes 1e-120 with all its zeros. A number below the smallest double is 0, as on SQLite; one above the largest is NULL.
CREATE OR REPLACE FUNCTION {schema}.as_float8(value text) RETURNS double precision LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN length(value) <= 1000 AND value ~ '^-?[0-9]+([.][0-9]+)?([eE][+-]?0*[0-9]{1,3})?$' THEN
           CASE WHEN abs(CAST(value AS numeric)) < 2.5e-324 THEN 0
                WHEN abs(CAST(value AS numeric)) <= 1.7976931348623158e308 THEN CAST(value AS double precision) END
         END
$$;
CREATE OR REPLACE FUNCTION {schema}.as_boolean(value text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN value IN ('true', 't', '1') THEN true WHEN value IN ('false', 'f', '0') THEN false END
$$;
-- A time without a zone is UTC.
CREATE OR REPLACE FUNCTION {schema}.as_time(value text) RETURNS timestamptz LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
  IF value !~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}' THEN
    RETURN NULL;
  END IF;
  RETURN CAST(CASE WHEN value ~ '(Z|[+-][0-9]{2}(:?[0-9]{2})?)$' THEN value ELSE value || 'Z' END AS timestamptz);
EXCEPTION WHEN data_exception THEN
  RETURN NULL;
END
$$;

-- view_seconds: the seconds of a duration as the column unique_for holds it.
CREATE OR REPLACE FUNCTION {schema}.view_seconds(value text) RETURNS numeric LANGUAGE sql IMMUTABLE AS $$
  SELECT sum(CAST(m[1] AS numeric) * CASE m[3] WHEN 'ms' THEN 0.001 WHEN 's' THEN 1 WHEN 'h' THEN 3600
                                               WHEN 'd' THEN 86400 WHEN 'w' THEN 604800 ELSE 60 END)
    FROM regexp_matches(value, '([0-9]+([.][0-9]+)?)(ms|min|s|m|h|d|w)', 'g') AS m
$$;

-- view_history: the history of a task with one more entry. Beyond 60,000 characters the older half is dropped.
-- The same as core/history.py; a test compares them.
CREATE OR REPLACE FUNCTION {schema}.view_history(logs json, entry jsonb) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  added   CONSTANT text := CAST(jsonb_strip_nulls(entry) AS text);
  kept    text := CAST(logs AS text);
  entries json[];
  gone    integer := 0;
  half    integer;
BEGIN
  IF kept = '[]' THEN
    RETURN CAST('[' || added || ']' AS json);
  END IF;
  IF length(kept) + length(added) < 60000 THEN
    RETURN CAST(left(kept, -1) || ',' || added || ']' AS json);
  END IF;
  entries := ARRAY(SELECT e FROM json_array_elements(logs) AS e) || CAST(added AS json);
  IF entries[1] ->> 'what' = 'dropped' THEN
    gone := CAST(entries[1] ->> 'note' AS integer);
    entries := entries[2:];
  END IF;
  half := cardinality(entries) / 2;
  entries := json_build_object('at', entries[half + 1] ->> 'at', 'what', 'dropped', 'note', CAST(gone + half AS text))
             || entries[half + 1:];
  RETURN array_to_json(entries);
END
$$;

-- view_entry: a history entry; empty values are left out.
CREATE OR REPLACE FUNCTION {schema}.view_entry(
  at timestamptz, what text, phase text, by text, note text, error text DEFAULT '', error_class text DEFAULT ''
) RETURNS jsonb LANGUAGE sql STABLE AS $$
  SELECT jsonb_build_object(
    'at', to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), 'what', what, 'phase', phase,
    'by', nullif(by, ''), 'note', nullif(note, ''), 'error', nullif(error, ''), 'error_class', nullif(error_class, ''))
$$;

-- set_status: give a task another status, as the rules of onerow allow it: cancel, fail by hand, retry.
-- `seen` is the status that the caller has read; if the task has another one by now, nothing is written.
CREATE OR REPLACE FUNCTION {schema}.set_status(
  task_id text, wanted text, error text DEFAULT NULL, by text DEFAULT current_user, note text DEFAULT '',
  seen text DEFAULT NULL
) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  now_is CONSTANT timestamptz := date_trunc('milliseconds', clock_timestamp());
  far    CONSTANT timestamptz := '9999-12-31T23:59:59.999Z';
  task   record;
  plan   json;
  phase  json;
  due    timestamptz := now_is;
  hint   text;
  moved  CONSTANT text := set_status.wanted;
BEGIN
  SELECT t.* INTO task FROM {schema}.task_queue AS t WHERE t.task_id = set_status.task_id FOR UPDATE;
  IF NOT FOUND OR task.purged_at IS NOT NULL THEN
    RAISE EXCEPTION 'there is no task %', set_status.task_id USING ERRCODE = '22023';
  END IF;
  IF set_status.seen IS NOT NULL AND task.status <> set_status.seen THEN
    RAISE EXCEPTION 'task % is % by now', task.task_id, task.status
      USING ERRCODE = '40001', HINT = 'Read it again, then decide.';
  END IF;
  IF moved = 'cancelled' AND task.status = 'processing' THEN
    IF NOT task.cancel_requested THEN
      UPDATE {schema}.task_queue AS t
         SET cancel_requested = true, version = t.version + 1, updated_at = now_is,
             logs = {schema}.view_history(t.logs, {schema}.view_entry(now_is, 'cancel', t.type, by, note))
       WHERE t.task_id = task.task_id;
      PERFORM pg_notify('onerow.{channel}', '');
    END IF;
    RETURN;
  END IF;
  IF (moved = 'cancelled' AND task.status IN ('waiting', 'failed')) OR (moved = 'failed' AND task.status = 'waiting') THEN
    UPDATE {schema}.task_queue AS t
       SET status = moved, awaiting = NULL, completed_at = now_is, version = t.version + 1, updated_at = now_is,
           held_key = CASE WHEN t.unique_for IS NULL THEN NULL ELSE t.held_key END,
           held_until = CASE WHEN t.held_key IS NULL OR t.unique_for IS NULL THEN t.held_until
                             WHEN t.unique_for = 'forever' THEN far
                             ELSE now_is + {schema}.view_seconds(t.unique_for) * interval '1 second' END,
           error = CASE WHEN moved = 'failed' THEN coalesce(nullif(set_status.error, ''), note) ELSE t.error END,
           error_class = CASE WHEN moved = 'failed' THEN 'permanent' ELSE t.error_class END,
           logs = {schema}.view_history(t.logs, CASE WHEN moved = 'failed'
             THEN {schema}.view_entry(now_is, 'fail', t.type, by, note, coalesce(nullif(set_status.error, ''), note), 'permanent')
             ELSE {schema}.view_entry(now_is, 'cancel', t.type, by, note) END)
     WHERE t.task_id = task.task_id;
    INSERT INTO {schema}.onerow_tally (pipeline, type, status, count)
    SELECT task.pipeline, task.type, s, c FROM (VALUES (moved, 1), (CAST(task.status AS text), -1)) AS v (s, c)
     WHERE s <> 'waiting';
    IF task.parent_id IS NOT NULL THEN
      PERFORM pg_notify('onerow.{channel}', '');
    END IF;
    RETURN;
  END IF;
  IF moved = 'waiting' AND task.status = 'failed' THEN
    SELECT body INTO plan FROM {schema}.onerow_note WHERE kind = 'pipeline' AND name = task.pipeline;
    SELECT p INTO phase FROM json_array_elements(plan -> 'phases') AS p WHERE p ->> 'name' = task.type;
    -- Phases that wait for something, and open waits of a handler, need the rules in Python.
    IF phase IS NULL OR coalesce(phase ->> 'kind', 'run') NOT IN ('run', 'batch', 'command')
       OR CAST(task.steps AS text) ~ '"awaiting"' OR task.error_class = 'corrupt' THEN
      RAISE EXCEPTION 'task % can''t be retried by SQL', task.task_id
        USING ERRCODE = '22023', HINT = format('Use: onerow retry %s', task.task_id);
    END IF;
    BEGIN
      UPDATE {schema}.task_queue AS t
         SET status = 'waiting', run_at = due, awaiting = NULL, attempt = 0, crash_count = 0, rescue_count = 0,
             error = NULL, error_class = NULL, started_at = NULL, completed_at = NULL, held_key = t.unique_key,
             held_until = NULL, retry_count = t.retry_count + 1, retry_base = t.retry_count + 1,
             children = CASE WHEN t.children IS NULL THEN NULL ELSE 0 END, version = t.version + 1, updated_at = now_is,
             logs = {schema}.view_history(t.logs, {schema}.view_entry(now_is, 'retry', t.type, by, note))
       WHERE t.task_id = task.task_id;
    EXCEPTION WHEN unique_violation THEN
      RAISE EXCEPTION 'cannot requeue task %: another task holds its unique key %', task.task_id, quote_literal(task.unique_key)
        USING ERRCODE = '23505', HINT = 'Cancel that task or wait until it ends.';
    END;
    INSERT INTO {schema}.onerow_tally (pipeline, type, status, count) VALUES (task.pipeline, task.type, 'failed', -1);
    PERFORM pg_notify('onerow.{channel}', '');
    RETURN;
  END IF;
  hint := CASE
    WHEN moved = 'processing' OR task.status = 'processing'
      THEN 'A lease is taken and ended by the pull API: queue.claim(…), then lease.complete() or lease.fail(…).'
    WHEN task.status = 'cancelled' THEN 'Cancelled is final; add a new task.'
    WHEN moved = 'completed' AND task.status IN ('waiting', 'failed')
      THEN format('Complete it with the lease of the pull API (queue.claim), or by hand: onerow finish %s', task.task_id)
    WHEN moved = 'waiting' AND task.status = 'completed' THEN format('Use: onerow replay %s', task.task_id)
    ELSE format('See what is possible: onerow why %s', task.task_id) END;
  RAISE EXCEPTION 'task % is % and can''t become % by an UPDATE', task.task_id, task.status, moved
    USING ERRCODE = '22023', HINT = hint;
END
$$;

-- view_delete: DELETE of a row of a view. A running task is asked to stop, and a task with children is cancelled; any
-- other is removed with its output. Returns whether the row is gone or will end.
CREATE OR REPLACE FUNCTION {schema}.view_delete(task_id text, note text) RETURNS boolean LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  task record;
BEGIN
  SELECT t.* INTO task FROM {schema}.task_queue AS t WHERE t.task_id = view_delete.task_id FOR UPDATE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  IF task.status = 'processing' OR (task.status = 'waiting' AND (task.children IS NOT NULL OR task.parent_id IS NOT NULL OR task.unique_for IS NOT NULL)) THEN
    PERFORM {schema}.set_status(task.task_id, 'cancelled', note => note);
    RETURN true;
  END IF;
  -- A child stays until its parent has ended, and a task whose key is remembered until the key is free: purge removes them.
  IF EXISTS (SELECT FROM {schema}.task_queue AS p WHERE p.task_id = task.parent_id AND p.status IN ('waiting', 'processing'))
     OR task.held_until > clock_timestamp() THEN
    RETURN false;
  END IF;
  DELETE FROM {schema}.task_queue AS t WHERE t.task_id = task.task_id;
  DELETE FROM {schema}.onerow_log AS l WHERE l.task_id = task.task_id;
  DELETE FROM {schema}.onerow_log_size AS l WHERE l.task_id = task.task_id;
  IF task.status <> 'waiting' THEN
    INSERT INTO {schema}.onerow_tally (pipeline, type, status, count) VALUES (task.pipeline, task.type, task.status, -1);
  END IF;
  RETURN true;
END
$$;

-- view_priority: give a task that has not ended another priority.
CREATE OR REPLACE FUNCTION {schema}.view_priority(task_id text, priority integer, note text) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  now_is CONSTANT timestamptz := date_trunc('milliseconds', clock_timestamp());
BEGIN
  IF view_priority.priority IS NULL OR view_priority.priority NOT BETWEEN -100 AND 100 THEN
    RAISE EXCEPTION 'priority must be from -100 to 100 (lower runs first), not %', view_priority.priority USING ERRCODE = '22023';
  END IF;
  UPDATE {schema}.task_queue AS t
     SET priority = view_priority.priority, version = t.version + 1, updated_at = now_is,
         logs = {schema}.view_history(t.logs, {schema}.view_entry(now_is, 'set_priority', t.type, current_user, note))
   WHERE t.task_id = view_priority.task_id AND t.status IN ('waiting', 'processing');
  IF NOT FOUND THEN
    RAISE EXCEPTION 'task % has ended; only waiting or processing tasks can be given another priority', view_priority.task_id
      USING ERRCODE = '22023';
  END IF;
END
$$;

-- view_reschedule: change when a waiting task is due, or the deadline of a parked one.
CREATE OR REPLACE FUNCTION {schema}.view_reschedule(task_id text, run_at timestamptz, note text) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  now_is CONSTANT timestamptz := date_trunc('milliseconds', clock_timestamp());
  due    CONSTANT timestamptz := date_trunc('milliseconds', coalesce(view_reschedule.run_at, now_is));
BEGIN
  UPDATE {schema}.task_queue AS t
     SET run_at = due, scheduled_time = CASE WHEN t.awaiting IS NULL THEN due ELSE t.scheduled_time END,
         version = t.version + 1, updated_at = now_is,
         logs = {schema}.view_history(t.logs, {schema}.view_entry(now_is, 'reschedule', t.type, current_user, note))
   WHERE t.task_id = view_reschedule.task_id AND t.status = 'waiting';
  IF NOT FOUND THEN
    RAISE EXCEPTION 'task % is not waiting; only waiting tasks can be rescheduled', view_reschedule.task_id
      USING ERRCODE = '22023';
  END IF;
  IF due <= now_is THEN
    PERFORM pg_notify('onerow.{channel}', '');
  END IF;
END
$$;

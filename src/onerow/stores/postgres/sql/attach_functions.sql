-- attach_functions: the functions of attached tables; replaced with each `attach`, so that it repairs what earlier versions made.
-- They run with the rights of the owner of the tables. A role that may execute them could make triggers with them on tables of its own.
-- onerow_row_deleted: record the keys of the rows that a statement deleted. Arguments: key column, pipeline, match.
-- It runs with the rights of the tables' owner, because any role may delete rows of the attached table.
CREATE OR REPLACE FUNCTION {schema}.onerow_row_deleted() RETURNS trigger LANGUAGE plpgsql
  SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  keys text[];
BEGIN
  IF TG_OP = 'DELETE' THEN
    -- Not CAST(… AS text): a cast that the owner of a type made would run its function with the rights of this one.
    -- The text of character(n) has no trailing spaces, as with CAST.
    EXECUTE format('SELECT array_agg(CASE pg_typeof(%1$I) WHEN CAST(''character'' AS regtype) '
                   'THEN rtrim(format(''%%s'', %1$I), '' '') ELSE format(''%%s'', %1$I) END) FROM gone WHERE %1$I IS NOT NULL',
                   TG_ARGV[0]) INTO keys;
    IF keys IS NULL THEN
      RETURN NULL;
    END IF;
  END IF;
  INSERT INTO {schema}.onerow_deleted (table_name, pipeline, match, keys)
  VALUES (CAST(CAST(TG_RELID AS regclass) AS text), TG_ARGV[1], TG_ARGV[2], keys);
  RETURN NULL;
END
$$;
ALTER FUNCTION {schema}.onerow_row_deleted() OWNER TO {owner};
REVOKE ALL ON FUNCTION {schema}.onerow_row_deleted() FROM PUBLIC;

-- onerow_delete_tasks: delete the tasks of deleted rows with their descendants, and ask the running ones to stop.
-- At the commit, so that a long transaction of the user does not block heartbeats with locks on running tasks.
CREATE OR REPLACE FUNCTION {schema}.onerow_delete_tasks() RETURNS trigger LANGUAGE plpgsql
  SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET plan_cache_mode = force_custom_plan AS $$
DECLARE
  now_is  CONSTANT timestamptz := date_trunc('milliseconds', clock_timestamp());
  at      CONSTANT text := to_char(now_is AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');
  path    text[];
  ids     text[];
  parents text[]; -- those that remain and wait for their children
  gone    text[];
  changed bigint;
  stopped bigint;
BEGIN
  DELETE FROM {schema}.onerow_deleted WHERE id = NEW.id;
  IF NEW.match = 'task_id' THEN
    SELECT array_agg(t.task_id) INTO ids FROM {schema}.task_queue AS t
     WHERE t.pipeline = NEW.pipeline AND (NEW.keys IS NULL OR t.task_id = ANY (NEW.keys));
  ELSIF NEW.match = 'user_id' THEN
    -- Running tasks are few and not in the index of users.
    SELECT array_agg(f.task_id) INTO ids FROM (
      SELECT t.task_id FROM {schema}.task_queue AS t
       WHERE t.pipeline = NEW.pipeline AND t.user_id <> '' AND t.leased_by IS NULL
         AND (NEW.keys IS NULL OR t.user_id = ANY (NEW.keys))
      UNION ALL
      SELECT t.task_id FROM {schema}.task_queue AS t
       WHERE t.pipeline = NEW.pipeline AND t.user_id <> '' AND t.leased_by IS NOT NULL
         AND (NEW.keys IS NULL OR t.user_id = ANY (NEW.keys))) AS f;
  ELSIF NEW.match = 'unique_key' THEN
    SELECT array_agg(t.task_id) INTO ids FROM {schema}.task_queue AS t
     WHERE t.pipeline = NEW.pipeline AND t.unique_key IS NOT NULL AND (NEW.keys IS NULL OR t.unique_key = ANY (NEW.keys));
  ELSE
    path := string_to_array(substr(NEW.match, length('payload.') + 1), '.');
    -- With constants, because the index is made for this pipeline and this field. It has the first characters of a value, because an
    -- index row has a limited size.
    EXECUTE format('SELECT array_agg(t.task_id) FROM {schema}.task_queue AS t '
                   'WHERE t.pipeline = %1$L AND left(t.payload #>> %2$L, 200) IS NOT NULL '
                   'AND ($1 IS NULL OR left(t.payload #>> %2$L, 200) = ANY ($2) AND (t.payload #>> %2$L) = ANY ($1))', NEW.pipeline, path)
       INTO ids USING NEW.keys, ARRAY(SELECT left(k.key, 200) FROM unnest(NEW.keys) AS k (key));
  END IF;
  IF ids IS NULL THEN
    RETURN NULL;
  END IF;
  WITH RECURSIVE family AS (
    SELECT unnest(ids) COLLATE "C" AS task_id
    UNION
    SELECT t.task_id FROM family AS f JOIN {schema}.task_queue AS t ON t.parent_id = f.task_id AND t.parent_id IS NOT NULL
  )
  SELECT array_agg(f.task_id) INTO ids FROM family AS f;
  -- From here on no worker claims or settles them. In the order of all other writers, so that none waits for the other.
  PERFORM FROM {schema}.task_queue AS t WHERE t.task_id = ANY (ids) ORDER BY t.task_id FOR UPDATE;
  SELECT coalesce(array_agg(p.task_id), '{}') INTO parents FROM {schema}.task_queue AS p
   WHERE p.status IN ('waiting', 'processing') AND p.task_id <> ALL (ids)
     AND p.task_id = ANY (ARRAY(SELECT t.parent_id FROM {schema}.task_queue AS t WHERE t.task_id = ANY (ids) AND t.parent_id IS NOT NULL));

  UPDATE {schema}.task_queue AS t
     SET cancel_requested = true, version = t.version + 1, updated_at = now_is, logs = {history}
   WHERE t.task_id = ANY (ids) AND t.status = 'processing' AND NOT t.cancel_requested;
  GET DIAGNOSTICS stopped = ROW_COUNT;

  -- A parent that remains counts its children, so that those are cancelled instead.
  WITH kept AS (
    UPDATE {schema}.task_queue AS t
       SET status = 'cancelled', completed_at = now_is, awaiting = NULL, held_key = NULL, version = t.version + 1,
           updated_at = now_is, logs = {history}
     WHERE t.task_id = ANY (ids) AND t.status = 'waiting' AND t.parent_id = ANY (parents)
    RETURNING t.pipeline, t.type
  ),
  counted AS (
    INSERT INTO {schema}.onerow_tally (pipeline, type, status, count)
    SELECT k.pipeline, k.type, 'cancelled', count(*) FROM kept AS k GROUP BY k.pipeline, k.type
  )
  SELECT count(*) INTO changed FROM kept;

  WITH deleted AS (
    DELETE FROM {schema}.task_queue AS t
     WHERE t.task_id = ANY (ids) AND t.status <> 'processing'
       AND (t.parent_id IS NULL OR t.parent_id <> ALL (parents))
    RETURNING t.task_id, t.pipeline, t.type, t.status, t.purged_at
  ),
  counted AS (
    INSERT INTO {schema}.onerow_tally (pipeline, type, status, count)
    SELECT d.pipeline, d.type, d.status, -count(*) FROM deleted AS d
     WHERE d.status IN ('completed', 'failed', 'cancelled') AND d.purged_at IS NULL GROUP BY d.pipeline, d.type, d.status
  )
  SELECT array_agg(d.task_id) INTO gone FROM deleted AS d;
  DELETE FROM {schema}.onerow_log AS l WHERE l.task_id = ANY (gone);
  DELETE FROM {schema}.onerow_log_size AS l WHERE l.task_id = ANY (gone);
  IF stopped + changed > 0 THEN
    PERFORM pg_notify('onerow.' || TG_TABLE_SCHEMA, '');
  END IF;
  RETURN NULL;
END
$$;
ALTER FUNCTION {schema}.onerow_delete_tasks() OWNER TO {owner};
REVOKE ALL ON FUNCTION {schema}.onerow_delete_tasks() FROM PUBLIC;

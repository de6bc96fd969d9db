-- insert_json: insert rows given as one JSON text, which every driver supports.
-- Differs from inserting.py, which sends binary arrays through psycopg.
INSERT INTO {schema}.task_queue ({columns})
SELECT {values} FROM json_to_recordset(CAST({given} AS json)) AS m ({types})
    ON CONFLICT DO NOTHING
RETURNING task_id

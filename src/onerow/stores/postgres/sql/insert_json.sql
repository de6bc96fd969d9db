-- insert_json: new rows given as one JSON text, so that any driver can send them.
-- Differs from the arrays of inserting.py, which only psycopg's binary protocol carries.
INSERT INTO {schema}.task_queue ({columns})
SELECT {values} FROM json_to_recordset(CAST({given} AS json)) AS m ({types})
    ON CONFLICT DO NOTHING
RETURNING task_id

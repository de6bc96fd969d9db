-- By key, the slots of processing tasks; null for a task that was claimed while there was no limit per key.
key_slots_taken (slots) AS MATERIALIZED (
  SELECT jsonb_object_agg(limit_key, slots)
    FROM (SELECT limit_key, jsonb_agg(key_slot) AS slots FROM processing WHERE limit_key <> '' GROUP BY limit_key) AS key
)

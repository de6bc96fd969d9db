UPDATE {schema}.task_queue AS ours
   SET status = (SELECT 'processing'::{schema}.task_status), leased_by = %(worker)s, leased_until = (SELECT until FROM clock),
       token = ours.token + 1, attempt = ours.attempt + 1, version = ours.version + 1, completed_at = NULL,
       started_at = (SELECT now FROM clock), updated_at = (SELECT now FROM clock),
       slot = (SELECT numbers FROM free_slots)[array_position((SELECT row_locations FROM chosen), ours.ctid)]

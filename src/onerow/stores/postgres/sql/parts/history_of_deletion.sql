-- history_of_deletion: the history with one more entry, unless it is full (see core/history.py).
CASE WHEN length(CAST(t.logs AS text)) > 59000 THEN t.logs
     ELSE CAST(CASE WHEN CAST(t.logs AS text) = '[]' THEN '[' ELSE left(CAST(t.logs AS text), -1) || ',' END
               || CAST(json_build_object('at', at, 'what', 'cancel', 'phase', t.type, 'by', 'table ' || NEW.table_name,
                                         'note', 'the row that it belongs to was deleted') AS text) || ']' AS json) END

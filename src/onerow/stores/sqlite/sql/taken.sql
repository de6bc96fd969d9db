-- taken: what is processing in a phase and which slots it holds, whatever the limit was when it was claimed.
SELECT limit_key, slot, key_slot FROM task_queue
 WHERE leased_by IS NOT NULL AND pipeline = :pipeline AND type = :phase

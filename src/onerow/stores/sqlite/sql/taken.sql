-- taken: the processing tasks of a phase and their slots, also those claimed under another limit.
SELECT limit_key, slot, key_slot FROM task_queue
 WHERE leased_by IS NOT NULL AND pipeline = :pipeline AND type = :phase

-- lock_phases: lock the slot assignment of these phases until the transaction ends.
-- A separate statement before the claim: within the claim, the snapshot would be older than the lock, and slots would collide.
SELECT pg_advisory_xact_lock(key) FROM unnest(%(keys)s) AS key

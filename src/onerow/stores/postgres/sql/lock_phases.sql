-- lock_phases: only we hand out slots of these phases until our transaction ends.
-- A statement of its own, before the claim: inside it the snapshot would be older than the lock, and slots would collide.
SELECT pg_advisory_xact_lock(key) FROM unnest(%(keys)s) AS key

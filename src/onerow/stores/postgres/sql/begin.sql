-- begin: apply the settings of this transaction and return the server's time.
-- Every statement has one good plan: index scans and nested loops. Outdated statistics must not make the planner choose another.
-- onerow.left: how many tasks the claims of this transaction may still take in total.
SELECT clock_timestamp(), set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
       set_config('enable_sort', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('jit', 'off', true), set_config('onerow.left', %(left)s, true)

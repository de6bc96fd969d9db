-- begin: the settings of this transaction, and what time it is.
-- Every statement of ours has one right plan: through its index, row by row. Statistics that are old or lie must not talk the planner out of it.
-- onerow.left is how many tasks the claims of this transaction may still take together.
SELECT clock_timestamp(), set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
       set_config('enable_sort', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('jit', 'off', true), set_config('onerow.left', %(left)s, true)

-- claim_counted: a claim that subtracts its tasks from onerow.left, for the next claim in the same transaction.
-- The last claim of a transaction does not use it: materializing the rows to count them costs over 5 percent of a claim.
WITH claimed AS (
{claim}),
left_over AS MATERIALIZED (
  SELECT set_config('onerow.left', (current_setting('onerow.left')::bigint - (SELECT count(*) FROM claimed))::text, true)
)
SELECT claimed.* FROM left_over CROSS JOIN claimed

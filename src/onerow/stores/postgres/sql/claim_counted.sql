-- claim_counted: a claim that others follow in the same transaction leaves them what it didn't take.
-- The last one goes without: keeping its rows to count them costs more than a twentieth of the claim.
WITH claimed AS (
{claim}),
left_over AS MATERIALIZED (
  SELECT set_config('onerow.left', (current_setting('onerow.left')::bigint - (SELECT count(*) FROM claimed))::text, true)
)
SELECT claimed.* FROM left_over CROSS JOIN claimed

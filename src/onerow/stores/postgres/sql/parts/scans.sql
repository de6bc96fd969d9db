-- First scan the tasks after the low-water mark, where the last claim ended; then those before it, if too few come after.
-- The priority of the low-water mark is used directly: a seek for it would read the dead versions that it skips.
scan (after_mark, below, last) AS (
  SELECT true, 32767::smallint, NULL::smallint
  UNION ALL
  SELECT false, %(priority)s::smallint, %(priority)s::smallint WHERE %(priority)s::smallint IS NOT NULL
)

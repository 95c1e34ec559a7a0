-- ?1 name, ?2 owner, ?3 how long it has waited, ?4 for how long the place is kept. The one that has waited longest gets it.
UPDATE {table} SET next_owner = ?2, next_since = {now} - ?3, next_until = {now} + ?4
WHERE name = ?1 AND (next_owner IN ('', ?2) OR next_until <= {now} OR next_since > {now} - ?3)

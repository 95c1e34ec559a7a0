-- ?1 name, ?2 owner.
UPDATE {table} SET next_owner = '', next_since = 0, next_until = 0
WHERE name = ?1 AND next_owner = ?2

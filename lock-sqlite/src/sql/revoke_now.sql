-- ?1 name, ?2 token or NULL, ?3 boot, ?4 now.
DELETE FROM locks
WHERE name = ?1 AND (?2 IS NULL OR token = ?2) AND boot = ?3 AND expires > ?4
RETURNING token

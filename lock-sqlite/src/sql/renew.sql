-- ?1 name, ?2 owner, ?3 boot, ?4 now, ?5 TTL. Never creates and never revives.
UPDATE locks SET expires = ?4 + ?5
WHERE name = ?1 AND owner = ?2 AND boot = ?3 AND expires > ?4
RETURNING token

-- ?1 name, ?2 token or NULL, ?3 boot, ?4 now. The time goes on: nobody enters beside the old holder.
UPDATE locks SET owner = ''
WHERE name = ?1 AND (?2 IS NULL OR token = ?2) AND boot = ?3 AND expires > ?4
RETURNING token

-- ?1 name, ?2 owner, ?3 TTL. Answers 1 if it is renewed. Never creates and never revives.
UPDATE {table} SET expires = {now} + ?3 * LAST_INSERT_ID(1)
WHERE name = ?1 AND owner = ?2 AND expires > {now}

-- ?1 name, ?2 token, ?3 whether any token will do. Answers 1 if it was removed.
UPDATE {table} SET expires = {now} + 0 * LAST_INSERT_ID(1), owner = '', label = ''
WHERE name = ?1 AND (?3 OR token = ?2) AND owner <> '' AND expires > {now}

-- ?1 name, ?2 token, ?3 whether any token will do. Answers 1 if it was revoked. The time goes on: nobody enters beside the old holder.
UPDATE {table} SET owner = IF(LAST_INSERT_ID(1), 'revoked', owner)
WHERE name = ?1 AND (?3 OR token = ?2) AND owner <> '' AND expires > {now}

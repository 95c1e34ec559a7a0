-- ?1 name, ?2 owner. Answers 1 if a live lease ended, 2 if it had expired. The row stays for the next holder.
UPDATE {table} SET
    expires = {now} + 0 * LAST_INSERT_ID(IF(expires > {now}, 1, 2)),
    owner = '',
    label = ''
WHERE name = ?1 AND owner = ?2

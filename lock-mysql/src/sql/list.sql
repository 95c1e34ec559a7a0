-- ?1 and ?2 the ends of the prefix, ?3 the last name of the page before, ?4 how many.
SELECT name, owner, token, expires - {now}, label, since, '', 0, 0
FROM {table}
WHERE owner <> '' AND expires > {now} AND name >= ?1 AND name < ?2 AND name > ?3
ORDER BY name LIMIT ?4

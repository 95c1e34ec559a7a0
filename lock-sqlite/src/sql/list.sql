-- ?1 boot, ?2 now, ?3 and ?4 the ends of the prefix, ?5 the last name of the page before, ?6 how many.
SELECT name, owner, token, expires - ?2, label, since
FROM locks
WHERE boot = ?1 AND expires > ?2 AND name >= ?3 AND name < ?4 AND name > ?5
ORDER BY name LIMIT ?6

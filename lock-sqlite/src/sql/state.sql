-- ?1 name, ?2 boot, ?3 now. One row always: the live lease, and the live place of the next one.
SELECT locks.owner, locks.token, locks.expires - ?3, locks.label, locks.since, next.owner, next.since, next.until - ?3
FROM (SELECT 1)
LEFT JOIN locks ON locks.name = ?1 AND locks.boot = ?2 AND locks.expires > ?3
LEFT JOIN next ON next.name = ?1 AND next.boot = ?2 AND next.until > ?3

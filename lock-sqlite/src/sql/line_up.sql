-- ?1 name, ?2 owner, ?3 boot, ?4 now, ?5 waiting since, ?6 time for which the place is kept. The one that has waited longest gets it.
INSERT INTO next (name, owner, boot, since, until) VALUES (?1, ?2, ?3, ?5, ?4 + ?6)
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, boot = excluded.boot, since = excluded.since, until = excluded.until
WHERE owner = excluded.owner OR boot <> excluded.boot OR until <= ?4 OR since > excluded.since

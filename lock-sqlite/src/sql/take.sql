-- ?1 name, ?2 owner, ?3 boot, ?4 now, ?5 TTL, ?6 label, ?7 UTC. Answers the token if the name is this owner's now, and nothing otherwise.
INSERT INTO locks (name, owner, token, boot, expires, label, since)
SELECT ?1, ?2,
       coalesce((SELECT token + 1 FROM counter), ?7),
       ?3, ?4 + ?5, ?6, ?7
WHERE NOT EXISTS (SELECT 1 FROM next WHERE name = ?1 AND owner <> ?2 AND boot = ?3 AND until > ?4)
   OR EXISTS (SELECT 1 FROM locks WHERE name = ?1 AND owner = ?2 AND boot = ?3 AND expires > ?4)
ON CONFLICT (name) DO UPDATE SET
    -- A retry that meets its own live entry renews it and keeps its token.
    token = CASE WHEN owner = excluded.owner AND boot = excluded.boot AND expires > ?4 THEN token ELSE excluded.token END,
    since = CASE WHEN owner = excluded.owner AND boot = excluded.boot AND expires > ?4 THEN since ELSE excluded.since END,
    owner = excluded.owner,
    boot = excluded.boot,
    expires = excluded.expires,
    label = excluded.label
WHERE owner = excluded.owner OR boot <> excluded.boot OR expires <= ?4
RETURNING token

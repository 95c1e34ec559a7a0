-- ?1 boot, ?2 UTC. The wall clock's microseconds are beyond any token of before, since grants take longer than one.
INSERT INTO counter (id, token, boot) VALUES (1, ?2, ?1)
ON CONFLICT (id) DO UPDATE SET token = max(token, excluded.token), boot = excluded.boot WHERE boot <> excluded.boot

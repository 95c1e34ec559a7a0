-- renew
-- ?1 owners, separated by commas, ?2 TTL; their names follow. No owner is used for two names, so each matches its own row alone. Never creates and
-- never revives.
UPDATE {table} SET expires = {now} + ?2
WHERE expires > {now} AND FIND_IN_SET(owner, ?1) > 0 AND name IN

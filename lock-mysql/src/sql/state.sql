-- The names follow. Whether lease and place live is for the reader to tell, from the time that remains.
SELECT name, owner, token, expires - {now}, label, since, next_owner, next_since - {now}, next_until - {now}
FROM {table} WHERE name IN

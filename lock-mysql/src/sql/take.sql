-- ?1 name, ?2 owner, ?3 TTL, ?4 label. Answers the token by LAST_INSERT_ID if the name is this owner's now, else 0.
-- The assignments are worked off in this order, and a later one sees what an earlier one has set: so the token comes first, the owner
-- second, and from there on "the owner is ?2" says that the name was taken.
INSERT INTO {table} (name, owner, token, expires, label, since, next_owner, next_since, next_until)
VALUES (?1, ?2, LAST_INSERT_ID({now}), {now} + ?3, ?4, {now}, '', 0, 0)
ON DUPLICATE KEY UPDATE
    -- A retry that meets its own live entry keeps its token. A new one is beyond the server's clock too, for a table that was restored.
    token = CASE
        WHEN owner = ?2 AND expires > {now} THEN LAST_INSERT_ID(token)
        WHEN (owner = '' OR expires <= {now}) AND (next_owner IN ('', ?2) OR next_until <= {now})
            THEN LAST_INSERT_ID(GREATEST(token + 1, {now}))
        ELSE token + LAST_INSERT_ID(0) END,
    owner = CASE
        WHEN owner = ?2 AND expires > {now} THEN owner
        WHEN (owner = '' OR expires <= {now}) AND (next_owner IN ('', ?2) OR next_until <= {now}) THEN ?2
        -- An expired entry of its own for which another stands next.
        WHEN owner = ?2 THEN ''
        ELSE owner END,
    expires = IF(owner = ?2, {now} + ?3, expires),
    label = IF(owner = ?2, ?4, label),
    since = IF(owner = ?2, {now}, since),
    next_since = IF(owner = ?2 AND next_owner = ?2, 0, next_since),
    next_until = IF(owner = ?2 AND next_owner = ?2, 0, next_until),
    next_owner = IF(owner = ?2 AND next_owner = ?2, '', next_owner)

-- ?1 name, ?2 owner, ?3 TTL, ?4 label. Answers the token by LAST_INSERT_ID if the name is this owner's now, else 0.
-- The assignments are worked off in this order, and a later one sees what an earlier one has set: so the token comes first, the owner
-- second, and from there on "the owner is the new one" says that the name was taken. VALUES(since) is the present time.
INSERT INTO {table} (name, owner, token, expires, label, since, next_owner, next_since, next_until)
VALUES (?1, ?2, LAST_INSERT_ID({now}), {now} + ?3, ?4, {now}, '', 0, 0)
ON DUPLICATE KEY UPDATE
    -- A retry that meets its own live entry keeps its token. A new one is beyond the server's clock too, for a table that was restored.
    token = CASE
        WHEN owner = VALUES(owner) AND expires > VALUES(since) THEN LAST_INSERT_ID(token)
        WHEN (owner = '' OR expires <= VALUES(since)) AND (next_owner IN ('', VALUES(owner)) OR next_until <= VALUES(since))
            THEN LAST_INSERT_ID(GREATEST(token + 1, VALUES(since)))
        ELSE token + LAST_INSERT_ID(0) END,
    owner = CASE
        WHEN owner = VALUES(owner) AND expires > VALUES(since) THEN owner
        WHEN (owner = '' OR expires <= VALUES(since)) AND (next_owner IN ('', VALUES(owner)) OR next_until <= VALUES(since))
            THEN VALUES(owner)
        -- An expired entry of its own for which another stands next.
        WHEN owner = VALUES(owner) THEN ''
        ELSE owner END,
    expires = IF(owner = VALUES(owner), VALUES(expires), expires),
    label = IF(owner = VALUES(owner), VALUES(label), label),
    since = IF(owner = VALUES(owner), VALUES(since), since),
    next_since = IF(owner = VALUES(owner) AND next_owner = VALUES(owner), 0, next_since),
    next_until = IF(owner = VALUES(owner) AND next_owner = VALUES(owner), 0, next_until),
    next_owner = IF(owner = VALUES(owner) AND next_owner = VALUES(owner), '', next_owner)

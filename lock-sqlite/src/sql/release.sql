-- ?1 name, ?2 owner, ?3 boot, ?4 now. Answers whether the lease was alive.
DELETE FROM locks WHERE name = ?1 AND owner = ?2
RETURNING boot = ?3 AND expires > ?4

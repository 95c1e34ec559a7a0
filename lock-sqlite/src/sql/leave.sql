DELETE FROM next WHERE name = ?1 AND owner = ?2

DELETE FROM next WHERE boot <> ?1 OR until <= ?2

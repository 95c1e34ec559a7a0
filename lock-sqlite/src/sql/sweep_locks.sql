DELETE FROM locks WHERE boot <> ?1 OR expires <= ?2

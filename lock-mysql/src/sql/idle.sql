-- ?1 how long a row must have been idle, ?2 how many.
SELECT name FROM {table} WHERE expires <= {now} - ?1 AND next_until <= {now} - ?1 AND token < {now} LIMIT ?2

-- ?1 how long a row must have been idle; the names follow. A new row's token is the clock's, so one above it must not be forgotten.
DELETE FROM {table} WHERE expires <= {now} - ?1 AND next_until <= {now} - ?1 AND token < {now} AND name IN

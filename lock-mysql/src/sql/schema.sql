-- Layout 1. It is frozen: a change is a new major version. One row a name; it outlives its lease for a while, to carry the token on and
-- because deleting rows and inserting them again makes deadlocks. `owner` is 32 hexadecimal digits, `revoked`, or empty once released.
-- All times are UTC in microseconds, by the server's clock. `next_*` is the one among the processes that gets the name next.
CREATE TABLE IF NOT EXISTS {table} (
    name       VARBINARY(640)  NOT NULL PRIMARY KEY,
    owner      VARCHAR(32)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    token      BIGINT UNSIGNED NOT NULL,
    expires    BIGINT          NOT NULL,
    label      VARCHAR(255)    CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    since      BIGINT          NOT NULL,
    next_owner VARCHAR(32)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    next_since BIGINT          NOT NULL,
    next_until BIGINT          NOT NULL
) ENGINE = InnoDB COMMENT = 'distlock layout 1'

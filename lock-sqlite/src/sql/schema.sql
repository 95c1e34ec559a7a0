-- Version 1 of the layout. It is frozen: a change is a new major version. Idempotent, since two processes may run it at once.
BEGIN IMMEDIATE;

-- One row a lease. `expires` and `until` are microseconds of the boot-time clock, valid for the boot in `boot` alone.
-- `owner` is 32 hexadecimal digits, or empty once revoked. `since` is UTC in microseconds, for showing.
CREATE TABLE IF NOT EXISTS locks (
    name    BLOB    NOT NULL PRIMARY KEY,
    owner   TEXT    NOT NULL,
    token   INTEGER NOT NULL,
    boot    TEXT    NOT NULL,
    expires INTEGER NOT NULL,
    label   TEXT    NOT NULL,
    since   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Who gets the name next: of the processes that wait for it, the one whose request has waited longest.
CREATE TABLE IF NOT EXISTS next (
    name    BLOB    NOT NULL PRIMARY KEY,
    owner   TEXT    NOT NULL,
    boot    TEXT    NOT NULL,
    since   INTEGER NOT NULL,
    until   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The greatest token given for any name, and the boot that last made sure of it.
CREATE TABLE IF NOT EXISTS counter (
    id      INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    token   INTEGER NOT NULL,
    boot    TEXT    NOT NULL
) STRICT;
INSERT OR IGNORE INTO counter (id, token, boot) VALUES (1, 0, '');

-- Triggers, so that a grant is one statement: it cannot be cut in half by whoever drops the future.
CREATE TRIGGER IF NOT EXISTS granted_free AFTER INSERT ON locks BEGIN
    INSERT INTO counter (id, token, boot) VALUES (1, NEW.token, NEW.boot)
    ON CONFLICT (id) DO UPDATE SET token = excluded.token, boot = excluded.boot;
    DELETE FROM next WHERE name = NEW.name AND owner = NEW.owner;
END;
CREATE TRIGGER IF NOT EXISTS granted_expired AFTER UPDATE OF token ON locks WHEN NEW.token > OLD.token BEGIN
    INSERT INTO counter (id, token, boot) VALUES (1, NEW.token, NEW.boot)
    ON CONFLICT (id) DO UPDATE SET token = excluded.token, boot = excluded.boot;
    DELETE FROM next WHERE name = NEW.name AND owner = NEW.owner;
END;

PRAGMA application_id = 1684824939; -- the letters "dlck"
PRAGMA user_version = 1;
COMMIT;

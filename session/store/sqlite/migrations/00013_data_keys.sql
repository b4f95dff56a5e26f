-- +goose Up

-- The keys that values are sealed with, see package sealed: each wrapped by a master key, which the server is given.
-- Proof is an empty value that was sealed with it; used is how many values it may have sealed.
CREATE TABLE data_keys (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    master     TEXT    NOT NULL,
    wrapped    BLOB    NOT NULL,
    proof      BLOB    NOT NULL,
    used       INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

-- When a server was asked to seal all values again, and the first of the data keys that may have sealed them then. Times
-- are nanoseconds since 1970, 0 for none.
CREATE TABLE sealings (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    data_key INTEGER NOT NULL,
    asked_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    result   TEXT    NOT NULL
) STRICT;

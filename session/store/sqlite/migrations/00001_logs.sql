-- +goose Up

-- One row a session. Times are microseconds since 1970, UTC.
CREATE TABLE sessions (
    id         TEXT    NOT NULL PRIMARY KEY,
    created_at INTEGER NOT NULL,
    last_seq   INTEGER NOT NULL DEFAULT 0,
    open_turn  TEXT    NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;

CREATE INDEX sessions_with_open_turn ON sessions (id) WHERE open_turn <> '';

-- The logs. Rows are in the order of their appends, so that a transaction with
-- records of many sessions fills few pages; keyed by (session_id, seq) alone it
-- would touch one page a session, which costs twice to three times as much.
CREATE TABLE records (
    session_id TEXT    NOT NULL REFERENCES sessions (id),
    seq        INTEGER NOT NULL CHECK (seq > 0),
    turn_id    TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    time       INTEGER NOT NULL,
    data       BLOB    NOT NULL,
    PRIMARY KEY (session_id, seq)
) STRICT;

-- State that sessions have in common.
CREATE TABLE shared (
    scope TEXT NOT NULL,
    key   TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (scope, key)
) STRICT, WITHOUT ROWID;

-- One row that Ping writes to, to see whether writing works.
CREATE TABLE probe (
    id      INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    counter INTEGER NOT NULL,
    padding BLOB    NOT NULL
) STRICT;
INSERT INTO probe (id, counter, padding) VALUES (1, 0, x'');

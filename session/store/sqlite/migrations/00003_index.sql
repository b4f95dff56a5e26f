-- +goose Up

-- What is known of a session without its log. Sessions from before have usage and
-- a last turn only once their logs have been read for them: indexed is 0 until then.
ALTER TABLE sessions ADD COLUMN creator TEXT NOT NULL DEFAULT 'local';
ALTER TABLE sessions ADD COLUMN client_ref TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
ALTER TABLE sessions ADD COLUMN usage TEXT NOT NULL DEFAULT '{}';
ALTER TABLE sessions ADD COLUMN last_turn TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN last_status TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN forked_from TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN forked_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN inherited INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN indexed INTEGER NOT NULL DEFAULT 1;

UPDATE sessions SET indexed = 0 WHERE last_seq > purged;

CREATE INDEX sessions_by_creation ON sessions (created_at, id);
CREATE INDEX sessions_by_ref ON sessions (client_ref, created_at, id) WHERE client_ref <> '';
CREATE INDEX sessions_without_index ON sessions (id) WHERE indexed = 0;

-- created_at is the session's, so that those of a label are in the order of lists.
CREATE TABLE labels (
    session_id TEXT    NOT NULL REFERENCES sessions (id),
    key        TEXT    NOT NULL,
    value      TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (session_id, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX labels_by_value ON labels (key, value, created_at, session_id);

-- What can be listed: turns, interactions.
CREATE TABLE entries (
    session_id TEXT    NOT NULL REFERENCES sessions (id),
    kind       TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    turn_id    TEXT    NOT NULL,
    seq        INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    status     TEXT    NOT NULL,
    data       BLOB    NOT NULL,
    PRIMARY KEY (session_id, kind, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX entries_of_session ON entries (session_id, kind, created_at, seq, id);
CREATE INDEX entries_by_time ON entries (kind, created_at, session_id, seq, id);
CREATE INDEX entries_by_status ON entries (kind, status, created_at, session_id, seq, id);

-- What callers have made under keys of their own.
CREATE TABLE keys (
    scope      TEXT NOT NULL,
    name       TEXT NOT NULL,
    content    TEXT NOT NULL,
    session_id TEXT NOT NULL REFERENCES sessions (id),
    id         TEXT NOT NULL,
    PRIMARY KEY (scope, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX keys_of_session ON keys (session_id);

-- +goose Up

CREATE TABLE gestalt_sessions (
    id         TEXT    NOT NULL PRIMARY KEY,
    subject    TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    content    TEXT    NOT NULL,
    request    BLOB    NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    turned_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX gestalt_sessions_key ON gestalt_sessions (subject, key) WHERE key <> '';
CREATE INDEX gestalt_sessions_subject ON gestalt_sessions (subject);

CREATE TABLE gestalt_turns (
    id         TEXT    NOT NULL PRIMARY KEY,
    session_id TEXT    NOT NULL,
    subject    TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    content    TEXT    NOT NULL,
    request    BLOB    NOT NULL,
    trace      TEXT    NOT NULL,
    tools      BLOB    NOT NULL,
    phase      TEXT    NOT NULL,
    message    TEXT    NOT NULL,
    queued     INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    ended_at   INTEGER NOT NULL,
    position   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX gestalt_turns_key ON gestalt_turns (session_id, subject, key) WHERE key <> '';
CREATE INDEX gestalt_turns_session ON gestalt_turns (session_id, created_at);
CREATE INDEX gestalt_turns_open ON gestalt_turns (session_id) WHERE phase IN ('waiting', 'running');

CREATE TABLE gestalt_grants (
    turn_id TEXT NOT NULL PRIMARY KEY,
    secret  TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE gestalt_events (
    turn_id TEXT    NOT NULL,
    seq     INTEGER NOT NULL,
    message TEXT    NOT NULL,
    data    BLOB    NOT NULL,
    PRIMARY KEY (turn_id, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX gestalt_events_message ON gestalt_events (turn_id, message, seq) WHERE message <> '';

-- +goose StatementBegin
CREATE TRIGGER gestalt_deleted AFTER DELETE ON sessions BEGIN
    DELETE FROM gestalt_events WHERE turn_id IN (SELECT id FROM gestalt_turns WHERE session_id = OLD.id)
    ; DELETE FROM gestalt_grants WHERE turn_id IN (SELECT id FROM gestalt_turns WHERE session_id = OLD.id)
    ; DELETE FROM gestalt_turns WHERE session_id = OLD.id
    ; DELETE FROM gestalt_sessions WHERE id = OLD.id
    ; END;
-- +goose StatementEnd

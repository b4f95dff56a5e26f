-- +goose Up

-- When a session last had a new record, and up to which one they are gone.
ALTER TABLE sessions ADD COLUMN updated_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN purged INTEGER NOT NULL DEFAULT 0;

UPDATE sessions SET updated_at = coalesce(
    (SELECT time FROM records WHERE session_id = sessions.id AND seq = sessions.last_seq), created_at);

CREATE INDEX sessions_by_update ON sessions (updated_at) WHERE open_turn = '' AND last_seq > purged;

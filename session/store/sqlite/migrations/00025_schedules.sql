-- +goose Up

-- Prompts that a server starts by itself, see package schedule; what a run starts is an object of the ledger. Times are
-- microseconds since 1970, 0 for none: next_at is that of the next run, due when it is tried.
CREATE TABLE schedules (
    tenant     TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    maker      TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    timing     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    next_at    INTEGER NOT NULL,
    due        INTEGER NOT NULL,
    last_at    INTEGER NOT NULL,
    last_turn  TEXT    NOT NULL,
    last_error TEXT    NOT NULL,
    runs       INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX schedules_due ON schedules (due) WHERE due > 0;

-- +goose Up

-- What a server was asked to erase, see package ledger. Tenant and name are empty when it is over.
CREATE TABLE erasures (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant   TEXT    NOT NULL,
    name     TEXT    NOT NULL,
    trail    INTEGER NOT NULL,
    asked_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    result   TEXT    NOT NULL
) STRICT;
CREATE INDEX erasures_open ON erasures (id) WHERE ended_at = 0;

-- +goose Up

-- The agent that a session was made with, as name@version, '' for none.
ALTER TABLE sessions ADD COLUMN agent TEXT NOT NULL DEFAULT '';

-- Agent trees that callers name, see package ledger: version is the newest one. Times are nanoseconds since 1970, 0 for
-- none.
CREATE TABLE agents (
    tenant      TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    version     INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    archived_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT;
CREATE INDEX agents_by_time ON agents (tenant, created_at, name);

-- Their versions, which do not change.
CREATE TABLE agent_versions (
    tenant     TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    hash       TEXT    NOT NULL,
    content    BLOB    NOT NULL,
    maker      TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, name, version)
) STRICT;

-- What faces keep that no session has, see package ledger.
CREATE TABLE objects (
    tenant  TEXT    NOT NULL,
    face    TEXT    NOT NULL,
    kind    TEXT    NOT NULL,
    id      TEXT    NOT NULL,
    version INTEGER NOT NULL,
    data    BLOB    NOT NULL,
    maker   TEXT    NOT NULL,
    PRIMARY KEY (tenant, face, kind, id)
) STRICT;

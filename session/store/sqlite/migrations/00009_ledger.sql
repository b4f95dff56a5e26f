-- +goose Up

-- The API keys of a server, see package ledger. Times are nanoseconds since 1970, 0 for none.
CREATE TABLE api_keys (
    id         TEXT    NOT NULL PRIMARY KEY,
    sum        BLOB    NOT NULL,
    kind       TEXT    NOT NULL,
    tenant     TEXT    NOT NULL,
    principal  TEXT    NOT NULL,
    role       TEXT    NOT NULL,
    scope      TEXT    NOT NULL,
    note       TEXT    NOT NULL,
    maker      TEXT    NOT NULL,
    via        TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    revoked_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX api_keys_by_kind ON api_keys (kind, expires_at);

-- The audit trail of a server, see package ledger.
CREATE TABLE audit (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    time       INTEGER NOT NULL,
    tenant     TEXT    NOT NULL,
    principal  TEXT    NOT NULL,
    role       TEXT    NOT NULL,
    via        TEXT    NOT NULL,
    origin     TEXT    NOT NULL,
    action     TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    turn_id    TEXT    NOT NULL,
    subject    TEXT    NOT NULL,
    outcome    TEXT    NOT NULL
) STRICT;
CREATE INDEX audit_by_session ON audit (session_id, seq) WHERE session_id <> '';
CREATE INDEX audit_by_time ON audit (time);

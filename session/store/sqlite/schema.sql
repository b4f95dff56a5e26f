-- What the migrations make of an empty database, which Open makes in one transaction. A new migration is added here too;
-- TestSchema compares.

-- Goose's, with the migrations that need not run.
CREATE TABLE goose_db_version (
    id         INTEGER   PRIMARY KEY AUTOINCREMENT,
    version_id INTEGER   NOT NULL,
    is_applied INTEGER   NOT NULL,
    tstamp     TIMESTAMP DEFAULT (datetime('now'))
);
INSERT INTO goose_db_version (version_id, is_applied) VALUES
    (0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1), (9, 1), (10, 1), (11, 1), (12, 1), (13, 1), (14, 1), (15, 1), (16, 1), (17, 1), (18, 1), (19, 1), (20, 1), (21, 1), (22, 1), (23, 1), (24, 1), (25, 1), (26, 1);

CREATE TABLE sessions (
    id          TEXT    NOT NULL PRIMARY KEY,
    created_at  INTEGER NOT NULL,
    last_seq    INTEGER NOT NULL DEFAULT 0,
    open_turn   TEXT    NOT NULL DEFAULT '',
    updated_at  INTEGER NOT NULL DEFAULT 0,
    purged      INTEGER NOT NULL DEFAULT 0,
    creator     TEXT    NOT NULL DEFAULT 'local',
    client_ref  TEXT    NOT NULL DEFAULT '',
    archived    INTEGER NOT NULL DEFAULT 0,
    version     INTEGER NOT NULL DEFAULT 1,
    usage       TEXT    NOT NULL DEFAULT '{}',
    last_turn   TEXT    NOT NULL DEFAULT '',
    last_status TEXT    NOT NULL DEFAULT '',
    forked_from TEXT    NOT NULL DEFAULT '',
    forked_at   INTEGER NOT NULL DEFAULT 0,
    inherited   INTEGER NOT NULL DEFAULT 0,
    indexed     INTEGER NOT NULL DEFAULT 1,
    attempts    INTEGER NOT NULL DEFAULT 0,
    waits       INTEGER NOT NULL DEFAULT 0,
    budget      TEXT    NOT NULL DEFAULT '{}',
    epoch       INTEGER NOT NULL DEFAULT 0,
    tenant      TEXT GENERATED ALWAYS AS
    (CASE instr(id, '/') WHEN 0 THEN '' ELSE substr(id, 1, instr(id, '/') - 1) END) VIRTUAL,
    drop_payloads INTEGER NOT NULL DEFAULT 0,
    metadata TEXT NOT NULL DEFAULT '',
    agent TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_with_open_turn ON sessions (id) WHERE open_turn <> '';

CREATE TABLE records (
    session_id TEXT    NOT NULL REFERENCES sessions (id),
    seq        INTEGER NOT NULL CHECK (seq > 0),
    turn_id    TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    time       INTEGER NOT NULL,
    data       BLOB    NOT NULL,
    sum        INTEGER,
    PRIMARY KEY (session_id, seq)
) STRICT;

CREATE TABLE shared (
    scope TEXT NOT NULL,
    key   TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (scope, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE probe (
    id      INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    counter INTEGER NOT NULL,
    padding BLOB    NOT NULL
) STRICT;
INSERT INTO probe (id, counter, padding) VALUES (1, 0, x'');

CREATE INDEX sessions_by_update ON sessions (updated_at) WHERE open_turn = '' AND last_seq > purged;
CREATE INDEX sessions_by_creation ON sessions (tenant, created_at, id);
CREATE INDEX sessions_by_ref ON sessions (tenant, client_ref, created_at, id) WHERE client_ref <> '';
CREATE INDEX sessions_without_index ON sessions (id) WHERE indexed = 0;

CREATE TABLE labels (
    session_id TEXT    NOT NULL REFERENCES sessions (id),
    key        TEXT    NOT NULL,
    value      TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    tenant     TEXT GENERATED ALWAYS AS
    (CASE instr(session_id, '/') WHEN 0 THEN '' ELSE substr(session_id, 1, instr(session_id, '/') - 1) END) VIRTUAL,
    PRIMARY KEY (session_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX labels_by_value ON labels (tenant, key, value, created_at, session_id);

CREATE TABLE entries (
    session_id TEXT    NOT NULL REFERENCES sessions (id),
    kind       TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    turn_id    TEXT    NOT NULL,
    seq        INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    status     TEXT    NOT NULL,
    data       BLOB    NOT NULL,
    tenant     TEXT GENERATED ALWAYS AS
    (CASE instr(session_id, '/') WHEN 0 THEN '' ELSE substr(session_id, 1, instr(session_id, '/') - 1) END) VIRTUAL,
    PRIMARY KEY (session_id, kind, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX entries_of_session ON entries (session_id, kind, created_at, seq, id);
CREATE INDEX entries_by_time ON entries (kind, tenant, created_at, session_id, seq, id);
CREATE INDEX entries_by_status ON entries (kind, status, tenant, created_at, session_id, seq, id);

CREATE TABLE keys (
    scope      TEXT NOT NULL,
    name       TEXT NOT NULL,
    content    TEXT NOT NULL,
    session_id TEXT NOT NULL REFERENCES sessions (id),
    id         TEXT NOT NULL,
    PRIMARY KEY (scope, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX keys_of_session ON keys (session_id);

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

-- What tenants have spent on model calls, by days of UTC since 1970. Cost is in billionths of a dollar.
CREATE TABLE spent (
    tenant TEXT    NOT NULL,
    day    INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    cost   INTEGER NOT NULL,
    PRIMARY KEY (tenant, day)
) STRICT, WITHOUT ROWID;

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

-- How many sessions a tenant has, by the tenant as it is in the ids of its sessions. Those without a tenant are not
-- counted.
CREATE TABLE session_counts (
    tenant   TEXT    NOT NULL PRIMARY KEY,
    sessions INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

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

-- What a Gestalt host calls sessions and turns, see package gestalt, as far as logs do not say it. Content is the SHA-256
-- of the request, the request is a message of gestalt.provider.v1 without secrets. Times are nanoseconds since 1970, 0
-- for none.
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

-- Phase is waiting (for the host's tools), running, over, or, of a turn that never ran, failed or canceled, with a
-- message. Position is how far its events have numbers, as a seq of the session.
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

-- With what the tools of a turn are called that is not over.
CREATE TABLE gestalt_grants (
    turn_id TEXT NOT NULL PRIMARY KEY,
    secret  TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The events of turns with their numbers; nothing of it is changed. Message is that of a piece of its text.
CREATE TABLE gestalt_events (
    turn_id TEXT    NOT NULL,
    seq     INTEGER NOT NULL,
    message TEXT    NOT NULL,
    data    BLOB    NOT NULL,
    PRIMARY KEY (turn_id, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX gestalt_events_message ON gestalt_events (turn_id, message, seq) WHERE message <> '';

-- What the host has said of a session goes with it.
CREATE TRIGGER gestalt_deleted AFTER DELETE ON sessions BEGIN
    DELETE FROM gestalt_events WHERE turn_id IN (SELECT id FROM gestalt_turns WHERE session_id = OLD.id)
    ; DELETE FROM gestalt_grants WHERE turn_id IN (SELECT id FROM gestalt_turns WHERE session_id = OLD.id)
    ; DELETE FROM gestalt_turns WHERE session_id = OLD.id
    ; DELETE FROM gestalt_sessions WHERE id = OLD.id
    ; END;

-- The event log, which other programs read: see store.Event. Event_id begins with the session in whose log the event
-- is and a hash, by which the event goes with it.
CREATE TABLE agent_eventlog (
    seq           INTEGER PRIMARY KEY AUTOINCREMENT,
    app_name      TEXT NOT NULL,
    user_id       TEXT NOT NULL,
    session_id    TEXT NOT NULL,
    event_id      TEXT NOT NULL UNIQUE,
    branch        TEXT NOT NULL,
    author        TEXT NOT NULL,
    timestamp     TEXT NOT NULL,
    invocation_id TEXT NOT NULL,
    metadata      TEXT NOT NULL
) STRICT;
CREATE INDEX agent_eventlog_session ON agent_eventlog (session_id, seq);
CREATE INDEX agent_eventlog_tenant ON agent_eventlog (substr(session_id, 1, instr(session_id, '/')), seq);

CREATE TRIGGER agent_eventlog_deleted AFTER DELETE ON sessions BEGIN
    DELETE FROM agent_eventlog WHERE event_id >= OLD.id || '#' AND event_id < OLD.id || '$'
    ; END;

-- What others are to be told, see store.Notice and package webhook. State is 0 for one that is to be sent, 1 for one that
-- was given up, 2 for one that was sent and is kept so that it is not made again. Times are microseconds since 1970: due
-- is when it is tried next, since is when it got its state. Holder is who sends it now, '' for nobody.
CREATE TABLE notices (
    id         TEXT    NOT NULL PRIMARY KEY,
    hook       TEXT    NOT NULL,
    event      TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    tenant     TEXT    NOT NULL,
    turn_id    TEXT    NOT NULL,
    subject    TEXT    NOT NULL,
    seq        INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    state      INTEGER NOT NULL DEFAULT 0,
    attempts   INTEGER NOT NULL DEFAULT 0,
    due        INTEGER NOT NULL,
    since      INTEGER NOT NULL,
    holder     TEXT    NOT NULL DEFAULT '',
    error      TEXT    NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
CREATE INDEX notices_due ON notices (hook, state, due);
CREATE INDEX notices_session ON notices (session_id);

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

-- +goose Up

-- What is hot and what is cold of a session are two tables: an append changes heads alone, in place, since none of
-- the columns of its indexes changes with it. Texts are compared byte by byte. Times are microseconds since 1970,
-- UTC. There are no foreign keys: whoever writes to a session holds the lock of its row in heads.

-- The oldest schema that a program must know to use this one. A migration that takes something from older programs
-- raises it.
CREATE TABLE compatible (
    id     integer NOT NULL PRIMARY KEY CHECK (id = 1),
    oldest bigint  NOT NULL
);
INSERT INTO compatible (id, oldest) VALUES (1, 1);

CREATE TABLE sessions (
    id            text COLLATE "C" NOT NULL PRIMARY KEY,
    created_at    bigint           NOT NULL,
    creator       text COLLATE "C" NOT NULL,
    client_ref    text COLLATE "C" NOT NULL,
    metadata      text COLLATE "C" NOT NULL,
    agent         text COLLATE "C" NOT NULL,
    archived      boolean          NOT NULL DEFAULT false,
    version       bigint           NOT NULL DEFAULT 1,
    budget        text COLLATE "C" NOT NULL,
    drop_payloads boolean          NOT NULL,
    forked_from   text COLLATE "C" NOT NULL DEFAULT '',
    forked_at     bigint           NOT NULL DEFAULT 0,
    inherited     bigint           NOT NULL DEFAULT 0,
    tenant        text COLLATE "C" NOT NULL GENERATED ALWAYS AS
        (CASE strpos(id, '/') WHEN 0 THEN '' ELSE substr(id, 1, strpos(id, '/') - 1) END) STORED
);
CREATE INDEX sessions_by_creation ON sessions (tenant, created_at, id);
CREATE INDEX sessions_by_ref ON sessions (tenant, client_ref, created_at, id) WHERE client_ref <> '';

-- Owner, wanted_by and due_at say which replica writes to a session, which one wants to, and when the session is to be
-- taken up.
CREATE TABLE heads (
    id          text COLLATE "C" NOT NULL PRIMARY KEY,
    created_at  bigint           NOT NULL,
    last_seq    bigint           NOT NULL DEFAULT 0,
    open_turn   text COLLATE "C" NOT NULL DEFAULT '',
    updated_at  bigint           NOT NULL,
    purged      bigint           NOT NULL DEFAULT 0,
    attempts    bigint           NOT NULL DEFAULT 0,
    waits       boolean          NOT NULL DEFAULT false,
    epoch       bigint           NOT NULL DEFAULT 0,
    usage       text COLLATE "C" NOT NULL DEFAULT '{}',
    last_turn   text COLLATE "C" NOT NULL DEFAULT '',
    last_status text COLLATE "C" NOT NULL DEFAULT '',
    owner       bigint,
    wanted_by   bigint,
    due_at      timestamptz,
    idle_since  bigint GENERATED ALWAYS AS
        (CASE WHEN open_turn = '' AND last_seq > purged THEN updated_at END) STORED
) WITH (fillfactor = 50);
CREATE INDEX heads_with_open_turn ON heads (id) WHERE open_turn <> '';
CREATE INDEX heads_idle ON heads (idle_since, id) WHERE idle_since IS NOT NULL;
CREATE INDEX heads_by_owner ON heads (owner) WHERE owner IS NOT NULL;
CREATE INDEX heads_due ON heads (due_at) WHERE owner IS NULL AND due_at IS NOT NULL;

-- One row a life of a process, which raises beat.
CREATE TABLE replicas (
    id       bigint           NOT NULL PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name     text COLLATE "C" NOT NULL,
    address  text COLLATE "C" NOT NULL,
    version  text COLLATE "C" NOT NULL,
    beat     bigint           NOT NULL DEFAULT 0,
    draining boolean          NOT NULL DEFAULT false
);

-- The logs. Epoch is that of the append.
CREATE TABLE records (
    session_id text COLLATE "C" NOT NULL,
    seq        bigint           NOT NULL CHECK (seq > 0),
    epoch      bigint           NOT NULL,
    turn_id    text COLLATE "C" NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    time       bigint           NOT NULL,
    data       bytea            NOT NULL,
    PRIMARY KEY (session_id, seq)
);

-- Created_at is the session's, so that those of a label are in the order of lists.
CREATE TABLE labels (
    session_id text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    value      text COLLATE "C" NOT NULL,
    created_at bigint           NOT NULL,
    tenant     text COLLATE "C" NOT NULL GENERATED ALWAYS AS
        (CASE strpos(session_id, '/') WHEN 0 THEN '' ELSE substr(session_id, 1, strpos(session_id, '/') - 1) END) STORED,
    PRIMARY KEY (session_id, key)
);
CREATE INDEX labels_by_value ON labels (tenant, key, value, created_at, session_id);

-- What can be listed: turns, interactions.
CREATE TABLE entries (
    session_id text COLLATE "C" NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    turn_id    text COLLATE "C" NOT NULL,
    seq        bigint           NOT NULL,
    created_at bigint           NOT NULL,
    status     text COLLATE "C" NOT NULL,
    data       bytea            NOT NULL,
    tenant     text COLLATE "C" NOT NULL GENERATED ALWAYS AS
        (CASE strpos(session_id, '/') WHEN 0 THEN '' ELSE substr(session_id, 1, strpos(session_id, '/') - 1) END) STORED,
    PRIMARY KEY (session_id, kind, id)
);
CREATE INDEX entries_of_session ON entries (session_id, kind, created_at, seq, id);
CREATE INDEX entries_by_time ON entries (kind, tenant, created_at, session_id, seq, id);
CREATE INDEX entries_by_status ON entries (kind, status, tenant, created_at, session_id, seq, id);

-- State that sessions have in common. Values are bytes: they come back as they were.
CREATE TABLE shared (
    scope text COLLATE "C" NOT NULL,
    key   text COLLATE "C" NOT NULL,
    value bytea            NOT NULL,
    PRIMARY KEY (scope, key)
);

-- What callers have made under keys of their own.
CREATE TABLE keys (
    scope      text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    content    text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    PRIMARY KEY (scope, name)
);
CREATE INDEX keys_of_session ON keys (session_id);

-- What tenants have spent on model calls, by days of UTC since 1970. Cost is in billionths of a dollar.
CREATE TABLE spent (
    tenant text COLLATE "C" NOT NULL,
    day    bigint           NOT NULL,
    tokens bigint           NOT NULL,
    cost   bigint           NOT NULL,
    PRIMARY KEY (tenant, day)
);

-- How many sessions a tenant has, by the tenant as it is in the ids of its sessions.
CREATE TABLE session_counts (
    tenant   text COLLATE "C" NOT NULL PRIMARY KEY,
    sessions bigint           NOT NULL
);

-- One row that Ping writes to, to see whether writing works.
CREATE TABLE probe (
    id      integer NOT NULL PRIMARY KEY CHECK (id = 1),
    counter bigint  NOT NULL
);
INSERT INTO probe (id, counter) VALUES (1, 0);

-- Where the server has lz4, which compresses at a third of the time.
-- +goose StatementBegin
DO $$
BEGIN
    ALTER TABLE records ALTER COLUMN data SET COMPRESSION lz4;
    ALTER TABLE entries ALTER COLUMN data SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported OR invalid_parameter_value THEN
    RAISE NOTICE 'the server has no lz4';
END
$$;
-- +goose StatementEnd

-- +goose Up

-- What a server keeps beside its sessions, see package ledger. Times are nanoseconds since 1970, 0 for none. Whoever
-- writes here holds the lock of Store.Transact, so numbers are committed in their order.

CREATE TABLE api_keys (
    id         text COLLATE "C" NOT NULL PRIMARY KEY,
    sum        bytea            NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    principal  text COLLATE "C" NOT NULL,
    role       text COLLATE "C" NOT NULL,
    scope      text COLLATE "C" NOT NULL,
    note       text COLLATE "C" NOT NULL,
    maker      text COLLATE "C" NOT NULL,
    via        text COLLATE "C" NOT NULL,
    created_at bigint           NOT NULL,
    expires_at bigint           NOT NULL,
    revoked_at bigint           NOT NULL
);
CREATE INDEX api_keys_by_kind ON api_keys (kind, expires_at);

CREATE TABLE audit (
    seq        bigint           NOT NULL PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    time       bigint           NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    principal  text COLLATE "C" NOT NULL,
    role       text COLLATE "C" NOT NULL,
    via        text COLLATE "C" NOT NULL,
    origin     text COLLATE "C" NOT NULL,
    action     text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    turn_id    text COLLATE "C" NOT NULL,
    subject    text COLLATE "C" NOT NULL,
    outcome    text COLLATE "C" NOT NULL
);
CREATE INDEX audit_by_session ON audit (session_id, seq) WHERE session_id <> '';
CREATE INDEX audit_by_time ON audit (time);

-- Tenant and name are empty when the erasure is over.
CREATE TABLE erasures (
    id       bigint           NOT NULL PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    tenant   text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,
    trail    integer          NOT NULL,
    asked_at bigint           NOT NULL,
    ended_at bigint           NOT NULL,
    result   text COLLATE "C" NOT NULL
);
CREATE INDEX erasures_open ON erasures (id) WHERE ended_at = 0;

-- The keys that values are sealed with, see package sealed: each wrapped by a master key, which the server is given.
-- Proof is an empty value that was sealed with it; used is how many values it may have sealed.
CREATE TABLE data_keys (
    id         bigint           NOT NULL PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    master     text COLLATE "C" NOT NULL,
    wrapped    bytea            NOT NULL,
    proof      bytea            NOT NULL,
    used       bigint           NOT NULL,
    created_at bigint           NOT NULL
);

-- When a server was asked to seal all values again, and the first of the data keys that may have sealed them then.
CREATE TABLE sealings (
    id       bigint           NOT NULL PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    data_key bigint           NOT NULL,
    asked_at bigint           NOT NULL,
    ended_at bigint           NOT NULL,
    result   text COLLATE "C" NOT NULL
);

-- Agent trees that callers name: version is the newest one.
CREATE TABLE agents (
    tenant      text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    version     bigint           NOT NULL,
    created_at  bigint           NOT NULL,
    archived_at bigint           NOT NULL,
    PRIMARY KEY (tenant, name)
);
CREATE INDEX agents_by_time ON agents (tenant, created_at, name);

-- Their versions, which do not change.
CREATE TABLE agent_versions (
    tenant     text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    version    bigint           NOT NULL,
    hash       text COLLATE "C" NOT NULL,
    content    bytea            NOT NULL,
    maker      text COLLATE "C" NOT NULL,
    created_at bigint           NOT NULL,
    PRIMARY KEY (tenant, name, version)
);

-- What faces keep that no session has.
CREATE TABLE objects (
    tenant  text COLLATE "C" NOT NULL,
    face    text COLLATE "C" NOT NULL,
    kind    text COLLATE "C" NOT NULL,
    id      text COLLATE "C" NOT NULL,
    version bigint           NOT NULL,
    data    bytea            NOT NULL,
    maker   text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, face, kind, id)
);

-- +goose Up

-- Of how many turns and streams that a tenant may have at once each replica disposes, see package cluster. They go with
-- the replica. Waits: it has refused one because of the others.
CREATE TABLE tenant_shares (
    tenant  text COLLATE "C" NOT NULL,
    kind    text COLLATE "C" NOT NULL,
    replica bigint           NOT NULL REFERENCES replicas (id) ON DELETE CASCADE,
    amount  bigint           NOT NULL,
    waits   boolean          NOT NULL,
    PRIMARY KEY (tenant, kind, replica)
);
CREATE INDEX tenant_shares_by_replica ON tenant_shares (replica);

-- How many requests of each tenant replicas may still admit, and how many the last one that asked got. It is worth
-- nothing after a few seconds, so that a crash of the database may forget it.
CREATE UNLOGGED TABLE tenant_requests (
    tenant  text COLLATE "C" PRIMARY KEY,
    level   double precision NOT NULL,
    at      timestamptz      NOT NULL,
    granted bigint           NOT NULL
);

-- +goose Up

-- What replicas may spend of the budgets of tenants, see package cluster. They go with the replica, which is removed when
-- no session can be written to any more under an epoch of its own. Waits: a call finds no room because of the others.
CREATE TABLE budget_slices (
    tenant  text COLLATE "C" NOT NULL,
    replica bigint           NOT NULL REFERENCES replicas (id) ON DELETE CASCADE,
    tokens  bigint           NOT NULL,
    cost    bigint           NOT NULL,
    waits   boolean          NOT NULL,
    PRIMARY KEY (tenant, replica)
);
CREATE INDEX budget_slices_by_replica ON budget_slices (replica);

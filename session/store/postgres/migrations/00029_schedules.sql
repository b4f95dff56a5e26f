-- +goose Up

-- Prompts that a server starts by itself, see package schedule; what a run starts is an object of the ledger. Times are
-- microseconds since 1970, 0 for none: next_at is that of the next run, due when it is tried.
CREATE TABLE schedules (
    tenant     text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    maker      text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    timing     text COLLATE "C" NOT NULL,
    created_at bigint           NOT NULL,
    next_at    bigint           NOT NULL,
    due        bigint           NOT NULL,
    last_at    bigint           NOT NULL,
    last_turn  text COLLATE "C" NOT NULL,
    last_error text COLLATE "C" NOT NULL,
    runs       bigint           NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX schedules_due ON schedules (due) WHERE due > 0;

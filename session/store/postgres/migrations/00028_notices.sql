-- +goose Up

-- What others are to be told, see store.Notice and package webhook. State is 0 for one that is to be sent, 1 for one that
-- was given up, 2 for one that was sent and is kept so that it is not made again. Times are microseconds since 1970: due
-- is when it is tried next, since is when it got its state. Holder is who sends it now, '' for nobody.
CREATE TABLE notices (
    id         text COLLATE "C" NOT NULL PRIMARY KEY,
    hook       text COLLATE "C" NOT NULL,
    event      text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    turn_id    text COLLATE "C" NOT NULL,
    subject    text COLLATE "C" NOT NULL,
    seq        bigint           NOT NULL,
    at         bigint           NOT NULL,
    state      bigint           NOT NULL DEFAULT 0,
    attempts   bigint           NOT NULL DEFAULT 0,
    due        bigint           NOT NULL,
    since      bigint           NOT NULL,
    holder     text COLLATE "C" NOT NULL DEFAULT '',
    error      text COLLATE "C" NOT NULL DEFAULT ''
);
CREATE INDEX notices_due ON notices (hook, state, due);
CREATE INDEX notices_session ON notices (session_id);

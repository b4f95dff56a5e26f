-- +goose Up

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

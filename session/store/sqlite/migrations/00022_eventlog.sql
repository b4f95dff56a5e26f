-- +goose Up

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

-- +goose StatementBegin
CREATE TRIGGER agent_eventlog_deleted AFTER DELETE ON sessions BEGIN
    DELETE FROM agent_eventlog WHERE event_id >= OLD.id || '#' AND event_id < OLD.id || '$'
    ; END;
-- +goose StatementEnd

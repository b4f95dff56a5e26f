-- +goose Up

-- What a Gestalt host calls sessions and turns, see package gestalt, as far as logs do not say it. Content is the SHA-256
-- of the request, the request is a message of gestalt.provider.v1 without secrets. Times are nanoseconds since 1970, 0
-- for none.
CREATE TABLE gestalt_sessions (
    id         text COLLATE "C" NOT NULL PRIMARY KEY,
    subject    text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    content    text COLLATE "C" NOT NULL,
    request    bytea            NOT NULL,
    created_at bigint           NOT NULL,
    updated_at bigint           NOT NULL,
    turned_at  bigint           NOT NULL
);
CREATE UNIQUE INDEX gestalt_sessions_key ON gestalt_sessions (subject, key) WHERE key <> '';
CREATE INDEX gestalt_sessions_subject ON gestalt_sessions (subject);

-- Phase is waiting (for the host's tools), running, over, or, of a turn that never ran, failed or canceled, with a
-- message. Position is how far its events have numbers, as a seq of the session.
CREATE TABLE gestalt_turns (
    id         text COLLATE "C" NOT NULL PRIMARY KEY,
    session_id text COLLATE "C" NOT NULL,
    subject    text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    content    text COLLATE "C" NOT NULL,
    request    bytea            NOT NULL,
    trace      text COLLATE "C" NOT NULL,
    tools      bytea            NOT NULL,
    phase      text COLLATE "C" NOT NULL,
    message    text COLLATE "C" NOT NULL,
    queued     boolean          NOT NULL,
    created_at bigint           NOT NULL,
    ended_at   bigint           NOT NULL,
    position   bigint           NOT NULL
);
CREATE UNIQUE INDEX gestalt_turns_key ON gestalt_turns (session_id, subject, key) WHERE key <> '';
CREATE INDEX gestalt_turns_session ON gestalt_turns (session_id, created_at);
CREATE INDEX gestalt_turns_open ON gestalt_turns (session_id) WHERE phase IN ('waiting', 'running');

-- With what the tools of a turn are called that is not over.
CREATE TABLE gestalt_grants (
    turn_id text COLLATE "C" NOT NULL PRIMARY KEY,
    secret  text COLLATE "C" NOT NULL
);

-- The events of turns with their numbers; nothing of it is changed. Message is that of a piece of its text.
CREATE TABLE gestalt_events (
    turn_id text COLLATE "C" NOT NULL,
    seq     bigint           NOT NULL,
    message text COLLATE "C" NOT NULL,
    data    bytea            NOT NULL,
    PRIMARY KEY (turn_id, seq)
);
CREATE INDEX gestalt_events_message ON gestalt_events (turn_id, message, seq) WHERE message <> '';

-- What the host has said of a session goes with it.
-- +goose StatementBegin
CREATE FUNCTION gestalt_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM gestalt_events WHERE turn_id IN (SELECT id FROM gestalt_turns WHERE session_id = OLD.id);
    DELETE FROM gestalt_grants WHERE turn_id IN (SELECT id FROM gestalt_turns WHERE session_id = OLD.id);
    DELETE FROM gestalt_turns WHERE session_id = OLD.id;
    DELETE FROM gestalt_sessions WHERE id = OLD.id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER gestalt_deleted AFTER DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION gestalt_deleted();

-- +goose Up

-- What replicas ask of the owner of a session that they do not reach, see package cluster: to say up to which position
-- observers may follow the log alone, which it does under its epoch, and to let go of the session, which wanted_by has
-- clients for. (heads.wanted_by is not used.) What is older than some seconds is void, so that a crash of the database
-- may forget it.
CREATE UNLOGGED TABLE asks (
    session_id  text COLLATE "C" PRIMARY KEY REFERENCES heads (id) ON DELETE CASCADE,
    followed_at timestamptz,
    settled     bigint NOT NULL DEFAULT 0,
    epoch       bigint NOT NULL DEFAULT 0,
    wanted_by   bigint,
    wanted_at   timestamptz
);

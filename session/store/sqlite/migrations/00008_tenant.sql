-- +goose Up

-- A session of a tenant has the tenant before its id, see package store. Until now only the creator said whose
-- it is: tenant/principal, or the principal alone. A checksum holds the id; records whose session gets another
-- one have none any more.
PRAGMA defer_foreign_keys = ON;

UPDATE records SET sum = NULL,
    session_id = (SELECT substr(s.creator, 1, instr(s.creator, '/')) || s.id FROM sessions s WHERE s.id = session_id)
    WHERE session_id IN (SELECT id FROM sessions WHERE instr(creator, '/') > 0);
UPDATE labels SET
    session_id = (SELECT substr(s.creator, 1, instr(s.creator, '/')) || s.id FROM sessions s WHERE s.id = session_id)
    WHERE session_id IN (SELECT id FROM sessions WHERE instr(creator, '/') > 0);
UPDATE entries SET
    session_id = (SELECT substr(s.creator, 1, instr(s.creator, '/')) || s.id FROM sessions s WHERE s.id = session_id)
    WHERE session_id IN (SELECT id FROM sessions WHERE instr(creator, '/') > 0);
UPDATE keys SET
    session_id = (SELECT substr(s.creator, 1, instr(s.creator, '/')) || s.id FROM sessions s WHERE s.id = session_id)
    WHERE session_id IN (SELECT id FROM sessions WHERE instr(creator, '/') > 0);
UPDATE sessions SET
    forked_from = (SELECT substr(s.creator, 1, instr(s.creator, '/')) || s.id FROM sessions s
        WHERE s.id = sessions.forked_from)
    WHERE forked_from IN (SELECT id FROM sessions WHERE instr(creator, '/') > 0);

-- The state that all shared is each tenant's own from now on.
INSERT INTO shared (scope, key, value)
    SELECT DISTINCT 'app:' || substr(s.creator, 1, instr(s.creator, '/') - 1), a.key, a.value
    FROM shared a CROSS JOIN sessions s WHERE a.scope = 'app' AND instr(s.creator, '/') > 0;

UPDATE sessions SET id = substr(creator, 1, instr(creator, '/')) || id WHERE instr(creator, '/') > 0;

-- Whom a session belongs to: what is before the slash of its id, percent-encoded. Lists are of one tenant,
-- and a page of one costs what it returns however much the others have.
ALTER TABLE sessions ADD COLUMN tenant TEXT GENERATED ALWAYS AS
    (CASE instr(id, '/') WHEN 0 THEN '' ELSE substr(id, 1, instr(id, '/') - 1) END) VIRTUAL;
ALTER TABLE labels ADD COLUMN tenant TEXT GENERATED ALWAYS AS
    (CASE instr(session_id, '/') WHEN 0 THEN '' ELSE substr(session_id, 1, instr(session_id, '/') - 1) END) VIRTUAL;
ALTER TABLE entries ADD COLUMN tenant TEXT GENERATED ALWAYS AS
    (CASE instr(session_id, '/') WHEN 0 THEN '' ELSE substr(session_id, 1, instr(session_id, '/') - 1) END) VIRTUAL;

DROP INDEX sessions_by_creation;
DROP INDEX sessions_by_ref;
DROP INDEX labels_by_value;
DROP INDEX entries_by_time;
DROP INDEX entries_by_status;

CREATE INDEX sessions_by_creation ON sessions (tenant, created_at, id);
CREATE INDEX sessions_by_ref ON sessions (tenant, client_ref, created_at, id) WHERE client_ref <> '';
CREATE INDEX labels_by_value ON labels (tenant, key, value, created_at, session_id);
CREATE INDEX entries_by_time ON entries (kind, tenant, created_at, session_id, seq, id);
CREATE INDEX entries_by_status ON entries (kind, status, tenant, created_at, session_id, seq, id);

-- +goose Up

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

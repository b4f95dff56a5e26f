-- +goose Up

-- How many sessions a tenant has, by the tenant as it is in the ids of its sessions. Those without a tenant are not
-- counted.
CREATE TABLE session_counts (
    tenant   TEXT    NOT NULL PRIMARY KEY,
    sessions INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO session_counts (tenant, sessions)
SELECT tenant, count(*) FROM sessions WHERE tenant <> '' GROUP BY tenant;

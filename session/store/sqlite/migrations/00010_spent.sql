-- +goose Up

-- What tenants have spent on model calls, by days of UTC since 1970. Cost is in billionths of a dollar.
CREATE TABLE spent (
    tenant TEXT    NOT NULL,
    day    INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    cost   INTEGER NOT NULL,
    PRIMARY KEY (tenant, day)
) STRICT, WITHOUT ROWID;

-- +goose Up

-- Whether what tools were given and returned is kept after its turn: 1 if not.
ALTER TABLE sessions ADD COLUMN drop_payloads INTEGER NOT NULL DEFAULT 0;

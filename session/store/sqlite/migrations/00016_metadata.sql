-- +goose Up

-- The JSON text of an object of the caller's own, '' for none.
ALTER TABLE sessions ADD COLUMN metadata TEXT NOT NULL DEFAULT '';

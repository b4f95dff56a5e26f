-- +goose Up

-- A checksum of what a record says and where it belongs, see sumOf. Records from before
-- have none.
ALTER TABLE records ADD COLUMN sum INTEGER;

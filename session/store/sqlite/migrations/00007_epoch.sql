-- +goose Up

-- The highest epoch of an owner that has appended to the session, see store.Batch.
-- Sessions from before have been written by owners without one.
ALTER TABLE sessions ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;

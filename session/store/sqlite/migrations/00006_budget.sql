-- +goose Up

-- What the session may spend, JSON; of sessions from before, no bound.
ALTER TABLE sessions ADD COLUMN budget TEXT NOT NULL DEFAULT '{}';

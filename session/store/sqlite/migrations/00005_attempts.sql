-- +goose Up

-- How often the open turn was made to run without a step forward, and whether it
-- was put aside because it only waits. Of turns that are open now nothing is known:
-- they count from zero.
ALTER TABLE sessions ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN waits INTEGER NOT NULL DEFAULT 0;

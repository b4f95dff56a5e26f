-- +goose Up

-- From here on logs may have records of children of a session (child_spawned and child_reported), which servers from
-- before cannot read.
SELECT 1;

-- +goose Up

-- From here on logs may have records of goals (goal_started and the like), and entries rows of the kind goal, which
-- servers from before cannot read.
SELECT 1;

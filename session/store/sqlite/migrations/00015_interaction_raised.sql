-- +goose Up

-- From here on logs may have records of the kind interaction_raised, which servers from before cannot read.
SELECT 1;

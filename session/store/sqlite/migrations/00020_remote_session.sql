-- +goose Up

-- From here on logs may have records of the kind remote_session, which servers from before cannot read.
SELECT 1;

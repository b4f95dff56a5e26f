-- +goose Up

-- From here on logs may have records of the kind compaction_asked, which servers from before cannot read.
SELECT 1;

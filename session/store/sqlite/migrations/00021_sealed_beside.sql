-- +goose Up

-- From here on the metadata of sessions, agents and objects of faces may be sealed. Servers from before cannot read
-- them, and would remove the data keys that they need.
SELECT 1;

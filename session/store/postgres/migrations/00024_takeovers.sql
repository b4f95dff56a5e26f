-- +goose Up

-- How many sessions a replica has taken over from dead ones in its life, and when it did last, see package cluster.
ALTER TABLE replicas ADD COLUMN takeovers bigint NOT NULL DEFAULT 0, ADD COLUMN took_over_at timestamptz;

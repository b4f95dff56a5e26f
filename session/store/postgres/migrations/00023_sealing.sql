-- +goose Up

-- The oldest data key with which a replica may seal what it writes, see package sealed; NULL if it seals nothing.
ALTER TABLE replicas ADD COLUMN data_key bigint;

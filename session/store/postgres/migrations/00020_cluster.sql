-- +goose Up

-- What package cluster needs: a replica is removed only when it owns nothing, and one that is gone owns nothing again.
ALTER TABLE replicas ADD COLUMN features text[] COLLATE "C" NOT NULL DEFAULT '{}';
ALTER TABLE heads ADD CONSTRAINT heads_owner FOREIGN KEY (owner) REFERENCES replicas (id);

package check

import (
	"context"

	"github.com/apzuk3/agentd/session/store"
)

// snapshots is a store that can hold what it reads still.
type snapshots interface {
	// Snapshot has the reads of f see one state.
	Snapshot(ctx context.Context, f func(context.Context) error) error
}

// integrity is a store that can check its own form.
type integrity interface {
	// Integrity returns what is wrong, a line each.
	Integrity(ctx context.Context) ([]string, error)
}

// orphans is a store that finds what belongs to no session.
type orphans interface {
	// Orphans calls report with what is kept of sessions that do not exist.
	Orphans(ctx context.Context, report func(table, sessionID string, rows int64)) error
}

// identities is a store that lists sessions whose info cannot be read.
type identities interface {
	// IDs returns at most limit ids of sessions above after, in their order.
	IDs(ctx context.Context, after string, limit int) ([]string, error)
}

// extents is a store that counts records without reading them.
type extents interface {
	// Extent returns the first and the last sequence number of a log, and how many records there are.
	Extent(ctx context.Context, id string) (first, last, records int64, err error)
}

// keys is a store that lists the idempotency keys of a session.
type keys interface {
	// Keys returns at most limit keys of a session above after, by scope and name.
	Keys(ctx context.Context, sessionID string, after store.Key, limit int) ([]store.Key, error)
}

// beside is a store of a server that keeps more than sessions.
type beside interface {
	// Beside has report receive what is damaged of it; what report returns ends it.
	Beside(ctx context.Context, report func(error) error) error
}

// scopes is a store that lists the scopes of shared values.
type scopes interface {
	// Scopes returns at most limit scopes above after, in their order.
	Scopes(ctx context.Context, after string, limit int) ([]string, error)
}

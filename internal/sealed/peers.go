package sealed

import (
	"context"
	"log/slog"
)

// Peers are the other processes that seal values in the same database. A process says with which data keys it seals
// before it seals, and looks afterwards whether there is a newer one; who makes a newer one waits for those that have
// said older ones. So a data key is removed only when nobody seals with it. A process that the others have taken for
// dead cannot append to sessions any more; see package cluster.
//
// Its methods may be called from any goroutine.
type Peers interface {
	// Seals says that this process seals with the data key of this number or later ones.
	Seals(ctx context.Context, key uint32) error
	// Await returns nil when all others seal with data keys of this number or later ones, or with none, and what they
	// have written with older ones is in the database. Else it returns an error when ctx ends, or before, that names
	// who does not.
	Await(ctx context.Context, key uint32) error
}

// OpenShared is Open for a database in which others seal as well.
func OpenShared(ctx context.Context, db DB, cfg Config, peers Peers, log *slog.Logger) (*Ring, error) {
	return open(ctx, db, cfg, peers, log)
}

// Lost says that the others have taken this process for dead: what it said of data keys is forgotten. It waits for
// nothing.
func (r *Ring) Lost() { r.lost.Store(true) }

// Follow seals with the newest data key from now on, which another process may have made, and says so. It waits for
// what is sealed meanwhile to be written. A process with Peers calls it often: who replaces a data key waits for it.
func (r *Ring) Follow(ctx context.Context) error {
	if r.peers == nil {
		return nil
	}
	last, err := r.table.last(ctx)
	if err != nil || r.follows(last) {
		return err
	}
	if err := r.again(ctx); err != nil { // before any write waits for this one
		return err
	}
	now, err := r.renew(ctx)
	if err != nil {
		return err
	}
	return r.say(ctx, now)
}

// follows reports whether this process seals with a key and has said so.
func (r *Ring) follows(last uint32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.lost.Load() && r.current != nil && r.current.id == last && r.said == last
}

// renew takes the newest key as the current one. Then nothing that others sealed is about to be written.
func (r *Ring) renew(ctx context.Context) (current uint32, err error) {
	r.using.Lock()
	defer r.using.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current, r.left = nil, 0
	if err := r.reserve(ctx, 1); err != nil {
		return 0, err
	}
	return r.current.id, nil
}

// say says that this process seals with no older keys any more.
func (r *Ring) say(ctx context.Context, key uint32) error {
	if r.peers == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.said == 0 || r.said >= key { // said is 0: what is said next is newer
		return nil
	}
	err := r.peers.Seals(ctx, key)
	if err == nil {
		r.said = key
	}
	return err
}

// begin says with which key this process seals, unless it has said that of this or an older one, and reports whether it
// is still the newest one, so that who made a newer one has heard it. The caller holds mu.
func (r *Ring) begin(ctx context.Context) (newest bool, err error) {
	if r.said != 0 {
		return true, nil
	}
	if err := r.peers.Seals(ctx, r.current.id); err != nil {
		return false, err
	}
	last, err := r.table.last(ctx)
	if err != nil || last != r.current.id {
		return false, err
	}
	r.said = last
	return true, nil
}

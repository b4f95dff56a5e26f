package harness

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/apzuk3/agentd/session/store"
)

// Made returns the sessions that were made, also those without a turn.
func (r *RecordedStore) Made() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ids)
}

// RecordedStore is a store that knows which sessions were made in it.
type RecordedStore struct {
	store.Store
	// Keep has Close leave the store open, so that it can be read afterwards.
	Keep bool

	mu  sync.Mutex
	ids []string // protected by mu
}

// Create implements session.Store.
func (r *RecordedStore) Create(ctx context.Context, s store.NewSession, key *store.Key) error {
	err := r.Store.Create(ctx, s, key)
	if err == nil {
		r.note(s.ID)
	}
	return err
}

// Append implements session.Store.
func (r *RecordedStore) Append(ctx context.Context, b store.Batch) error {
	err := r.Store.Append(ctx, b)
	if err == nil && b.Create != nil {
		r.note(b.SessionID)
	}
	return err
}

// Fork implements session.Store.
func (r *RecordedStore) Fork(ctx context.Context, f store.Fork) error {
	err := r.Store.Fork(ctx, f)
	if err == nil {
		r.note(f.Into.ID)
	}
	return err
}

// note takes note of a session once.
func (r *RecordedStore) note(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.ids, id) {
		r.ids = append(r.ids, id)
	}
}

// Close closes the store below, unless Keep is set.
func (r *RecordedStore) Close() error {
	if r.Keep {
		return nil
	}
	return r.Store.Close()
}

// Started returns the sessions that have begun: a client that leaves at once may
// leave one behind that has no turn.
func (r *RecordedStore) Started(t *testing.T) []string {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.ids), func(id string) bool {
		head, err := r.Head(t.Context(), id)
		if err != nil {
			t.Error(err)
		}
		return head.LastSeq == 0
	})
}

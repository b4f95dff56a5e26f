package retry

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Create makes a session. Its id is random, so that "exists" after a retry is the caller's own session.
func (s *Store) Create(ctx context.Context, n store.NewSession, key *store.Key) error {
	return s.once(ctx, store.ErrSessionExists, func(ctx context.Context) error { return s.raw.Create(ctx, n, key) })
}

// Head reads the head of a session.
func (s *Store) Head(ctx context.Context, id string) (store.Head, error) {
	return withRetries(ctx, s, BeRead, func(ctx context.Context) (store.Head, error) { return s.raw.Head(ctx, id) })
}

// Read reads records of a log.
func (s *Store) Read(ctx context.Context, id string, after int64, limit int) ([]record.Record, error) {
	return withRetries(ctx, s, BeRead, func(ctx context.Context) ([]record.Record, error) {
		return s.raw.Read(ctx, id, after, limit)
	})
}

// Shared reads the keys of a scope.
func (s *Store) Shared(ctx context.Context, scope string) (map[string]json.RawMessage, error) {
	return withRetries(ctx, s, BeRead, func(ctx context.Context) (map[string]json.RawMessage, error) {
		return s.raw.Shared(ctx, scope)
	})
}

// Scopes reads the names of the scopes of shared values.
func (s *Store) Scopes(ctx context.Context, after string, limit int) ([]string, error) {
	return withRetries(ctx, s, BeRead, func(ctx context.Context) ([]string, error) {
		return s.raw.Scopes(ctx, after, limit)
	})
}

// Spent reads what a tenant has spent.
func (s *Store) Spent(ctx context.Context, tenant string, from, to int64) (record.Spent, error) {
	return withRetries(ctx, s, BeRead, func(ctx context.Context) (record.Spent, error) {
		return s.raw.Spent(ctx, tenant, from, to)
	})
}

// Idle reads the heads of sessions that are not used.
func (s *Store) Idle(ctx context.Context, before time.Time, limit int) ([]store.Head, error) {
	return withRetries(ctx, s, BeRead, func(ctx context.Context) ([]store.Head, error) {
		return s.raw.Idle(ctx, before, limit)
	})
}

// Purge is not retried: the next sweep does it.
func (s *Store) Purge(ctx context.Context, id string, lastSeq int64) error {
	err := s.raw.Purge(ctx, id, lastSeq)
	if errors.Is(err, store.ErrFailed) {
		s.fail(err)
	}
	return err
}

// SetShared may be repeated.
func (s *Store) SetShared(ctx context.Context, values []store.SharedValue) error {
	_, err := withRetries(ctx, s, TakeWrites, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.raw.SetShared(ctx, values)
	})
	return err
}

// SetAttempts may be repeated.
func (s *Store) SetAttempts(ctx context.Context, id string, attempts int64, waits bool) error {
	_, err := withRetries(ctx, s, TakeWrites, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.raw.SetAttempts(ctx, id, attempts, waits)
	})
	return err
}

// OpenTurns reads the heads of sessions with an open turn.
func (s *Store) OpenTurns(ctx context.Context, after string, limit int) ([]store.Head, error) {
	return withRetries(ctx, s, BeRead, func(ctx context.Context) ([]store.Head, error) {
		return s.raw.OpenTurns(ctx, after, limit)
	})
}

// once retries a write that cannot be made twice. done is the error of a repeat: after a retry it is
// success.
func (s *Store) once(ctx context.Context, done error, call func(context.Context) error) error {
	tried := false
	_, err := withRetries(ctx, s, TakeWrites, func(ctx context.Context) (struct{}, error) {
		err := call(ctx)
		if tried && errors.Is(err, done) {
			err = nil
		}
		tried = true
		return struct{}{}, err
	})
	return err
}

// Fork makes a session, like Create.
func (s *Store) Fork(ctx context.Context, f store.Fork) error {
	return s.once(ctx, store.ErrSessionExists, func(ctx context.Context) error { return s.raw.Fork(ctx, f) })
}

// Delete removes a session.
func (s *Store) Delete(ctx context.Context, id string, lastSeq int64) error {
	return s.once(ctx, store.ErrNoSession, func(ctx context.Context) error { return s.raw.Delete(ctx, id, lastSeq) })
}

// Update without a version may raise the version by more than one. With a version, a conflict with the
// write of an earlier try is success.
func (s *Store) Update(ctx context.Context, id string, c store.Change) (store.Info, error) {
	tried := false
	return withRetries(ctx, s, TakeWrites, func(ctx context.Context) (store.Info, error) {
		info, err := s.raw.Update(ctx, id, c)
		if tried && c.Version != 0 && errors.Is(err, store.ErrConflict) {
			now, lookErr := s.raw.Info(ctx, id)
			if lookErr != nil {
				return store.Info{}, lookErr
			}
			if now.Version == c.Version+1 && madeIn(c, &now) {
				return now, nil
			}
		}
		tried = true
		return info, err
	})
}

// madeIn reports whether a session is as the change makes it.
func madeIn(c store.Change, i *store.Info) bool {
	for key, value := range c.Labels {
		if i.Labels[key] != value {
			return false
		}
	}
	return (c.ClientRef == nil || *c.ClientRef == i.ClientRef) && (c.Archived == nil || *c.Archived == i.Archived) &&
		(c.Metadata == nil || *c.Metadata == i.Metadata) &&
		(c.Budget == nil || *c.Budget == i.Budget)
}

// Index may be repeated.
func (s *Store) Index(ctx context.Context, b store.Batch, lastSeq int64) error {
	_, err := withRetries(ctx, s, TakeWrites, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.raw.Index(ctx, b, lastSeq)
	})
	return err
}

// Info reads what a store has of a session.
func (s *Store) Info(ctx context.Context, id string) (store.Info, error) {
	return withRetries(ctx, s, BeRead, func(ctx context.Context) (store.Info, error) { return s.raw.Info(ctx, id) })
}

// Sessions reads a list of sessions.
func (s *Store) Sessions(ctx context.Context, q store.InfoQuery) ([]store.Info, error) {
	return withRetries(ctx, s, BeRead, func(ctx context.Context) ([]store.Info, error) {
		return s.raw.Sessions(ctx, q)
	})
}

// Row reads a row of the index.
func (s *Store) Row(ctx context.Context, kind store.RowKind, sessionID, id string) (store.Row, error) {
	return withRetries(ctx, s, BeRead, func(ctx context.Context) (store.Row, error) {
		return s.raw.Row(ctx, kind, sessionID, id)
	})
}

// Rows reads rows of the index.
func (s *Store) Rows(ctx context.Context, q store.RowQuery) ([]store.Row, error) {
	return withRetries(ctx, s, BeRead, func(ctx context.Context) ([]store.Row, error) { return s.raw.Rows(ctx, q) })
}

// Key reads what was made under an idempotency key.
func (s *Store) Key(ctx context.Context, scope, name string) (store.Key, error) {
	return withRetries(ctx, s, BeRead, func(ctx context.Context) (store.Key, error) {
		return s.raw.Key(ctx, scope, name)
	})
}

// Unindexed reads the heads of sessions that have no index.
func (s *Store) Unindexed(ctx context.Context, after string, limit int) ([]store.Head, error) {
	return withRetries(ctx, s, BeRead, func(ctx context.Context) ([]store.Head, error) {
		return s.raw.Unindexed(ctx, after, limit)
	})
}

// Try calls what is not the store's own, with the same retries. what says what cannot be done if it fails.
func (s *Store) Try(ctx context.Context, what string, call func(context.Context) error) error {
	_, err := withRetries(ctx, s, what, func(ctx context.Context) (struct{}, error) { return struct{}{}, call(ctx) })
	return err
}

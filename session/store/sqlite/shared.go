package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/internal/rules"
)

// How much of the shared values is kept in memory: so many scopes, and of each so many bytes of keys and
// values.
const (
	keptScopes = 16
	keptBytes  = 64 << 10
)

// kept holds shared values that were read and not written since. Each turn that starts reads them.
type kept struct {
	mu      sync.Mutex // protects the fields below
	writes  int64      // transactions that have written shared values
	byScope map[string]map[string]json.RawMessage
}

// Shared returns all keys of a scope. The caller owns the result, but for the bytes of the values.
func (s *Store) Shared(ctx context.Context, scope string) (map[string]json.RawMessage, error) {
	if s.writer == nil {
		return s.readShared(ctx, scope)
	}
	values, writes := s.writer.kept.of(scope)
	if values != nil && ctx.Err() == nil && s.isOpen() {
		return values, nil
	}
	values, err := s.readShared(ctx, scope)
	if err != nil {
		return nil, err
	}
	s.writer.kept.keep(scope, values, writes)
	return values, nil
}

func (s *Store) readShared(ctx context.Context, scope string) (map[string]json.RawMessage, error) {
	values, err := view(ctx, s, func(ctx context.Context, r *reads) (map[string]json.RawMessage, error) {
		return r.shared(ctx, scope)
	})
	if err != nil {
		return nil, fmt.Errorf("sqlite: shared values of %q: %w", scope, err)
	}
	return values, nil
}

// Scopes returns the names of scopes; see store.Store.
func (s *Store) Scopes(ctx context.Context, after string, limit int) ([]string, error) {
	if err := rules.CheckLimit(limit); err != nil {
		return nil, err
	}
	names, err := view(ctx, s, func(ctx context.Context, r *reads) ([]string, error) {
		return query(ctx, r.getScopes, func(rows *sql.Rows) (name string, err error) {
			err = rows.Scan(&name)
			return name, err
		}, after, limit)
	})
	if err != nil {
		return nil, fmt.Errorf("sqlite: scopes of shared values: %w", err)
	}
	return names, nil
}

// SetShared writes shared values outside an append; see store.Store.
func (s *Store) SetShared(ctx context.Context, values []store.SharedValue) error {
	err := rules.CheckShared(values)
	if err == nil {
		own := slices.Clone(values)
		n := rules.Size(&store.Batch{Shared: own})
		err = s.write(ctx, n, func(tx *tx) (error, error) { return nil, tx.share(own) })
	}
	if err != nil {
		return fmt.Errorf("sqlite: set shared values: %w", err)
	}
	return nil
}

// share writes shared values, and removes those that have none.
func (t *tx) share(values []store.SharedValue) error {
	t.shared = t.shared || len(values) > 0
	for i := range values {
		v := &values[i]
		var err error
		if v.Value == nil {
			err = write(t.deleteShared, v.Scope, v.Key)
		} else {
			err = write(t.setShared, v.Scope, v.Key, blob(v.Value))
		}
		if err != nil {
			return fmt.Errorf("shared value %q of %q: %w", v.Key, v.Scope, err)
		}
	}
	return nil
}

// written drops all values. The writer calls it after the commit, before it sends the results.
func (k *kept) written() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.writes++
	clear(k.byScope)
}

// of returns a copy of the values of a scope. It returns nil if they must be read, and then the number that
// the caller passes to keep.
func (k *kept) of(scope string) (values map[string]json.RawMessage, writes int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.byScope[scope]), k.writes
}

// keep takes values that were read, unless they may be older than a write.
func (k *kept) keep(scope string, values map[string]json.RawMessage, writes int64) {
	size := 0
	for key, value := range values {
		size += len(key) + len(value)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if writes == k.writes && size <= keptBytes && len(k.byScope) < keptScopes {
		if k.byScope == nil {
			k.byScope = map[string]map[string]json.RawMessage{}
		}
		k.byScope[scope] = maps.Clone(values)
	}
}

func (s *Store) isOpen() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return !s.closed
}

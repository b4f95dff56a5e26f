package session

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/page"
	"github.com/apzuk3/agentd/session/internal/shared"
	"github.com/apzuk3/agentd/session/principal"
)

// SharedState returns the keys that the sessions of a principal share with others, with their scopes, as
// they are now.
func SharedState(ctx context.Context, store interface {
	Shared(ctx context.Context, scope string) (map[string]json.RawMessage, error)
}, owner principal.Principal,
) (map[string]any, error) {
	return shared.Read(ctx, store, shared.ScopesOf(owner), func(string, json.RawMessage) {})
}

// SharedKey is one key of state that sessions share.
type SharedKey struct {
	// Key has its scope, such as app:plan.
	Key string
	// Value is JSON.
	Value json.RawMessage
	// Bytes is the part of the scope's bound that the key takes.
	Bytes int
}

// SharedKeys returns the keys of `app:` and of the principal's own `user:` that have a prefix, sorted by
// name: at most limit of them, fewer if they are large. next is the token of the next page, "" on the
// last one. at is a token of the same prefix, "" for the first page.
func (m *Manager) SharedKeys(
	ctx context.Context, prefix, at string, limit int,
) (keys []SharedKey, next string, err error) {
	hash := page.Hash(struct{ SharedPrefix string }{prefix})
	after, err := page.Read(at, hash)
	if err != nil {
		return nil, "", err
	}
	var all []SharedKey
	_, err = shared.Read(ctx, m.store, shared.ScopesOf(principal.Of(ctx)), func(key string, value json.RawMessage) {
		if strings.HasPrefix(key, prefix) && (after == nil || key > after.ID) {
			all = append(all, SharedKey{Key: key, Value: value, Bytes: shared.KeySize(key, value)})
		}
	})
	if err != nil {
		return nil, "", err
	}
	slices.SortFunc(all, func(a, b SharedKey) int { return cmp.Compare(a.Key, b.Key) })
	bytes := 0
	for _, k := range all {
		if len(keys) == limit || bytes >= page.Bytes {
			return keys, page.Token{Query: hash, ID: keys[len(keys)-1].Key}.String(), nil
		}
		keys, bytes = append(keys, k), bytes+k.Bytes
	}
	return keys, "", nil
}

// RemoveShared removes keys of state that sessions share, and returns those that existed. An error that a
// client may see is of type *fault.Error.
func (m *Manager) RemoveShared(ctx context.Context, keys []string) (removed []string, err error) {
	for i, key := range keys {
		if err := checkShared(fmt.Sprintf("keys[%d]", i), key); err != nil {
			return nil, err
		}
	}
	if err := m.store.Refuses(); err != nil {
		return nil, err
	}
	have := map[string]bool{}
	p := principal.Of(ctx)
	_, err = shared.Read(ctx, m.store, shared.ScopesOf(p), func(key string, _ json.RawMessage) { have[key] = true })
	if err != nil {
		return nil, err
	}
	gone := map[string]any{}
	for _, key := range keys {
		if have[key] {
			gone[key] = nil
		}
	}
	if len(gone) == 0 {
		return nil, nil
	}
	values := shared.ValuesOf(p, gone)
	reserved := m.store.SharedKeys.ReserveUnbounded(values)
	err = m.store.SetShared(ctx, values)
	reserved.Done(err == nil)
	if err != nil {
		return nil, fmt.Errorf("session: remove shared state: %w", err)
	}
	return slices.Sorted(maps.Keys(gone)), nil
}

// SetShared sets keys of `app:`, and of the principal's own `user:`, all or none. A value of nil removes
// its key. An error that a client may see is of type *fault.Error.
func (m *Manager) SetShared(ctx context.Context, state map[string]any) error {
	for _, key := range slices.Sorted(maps.Keys(state)) {
		if err := checkShared("values", key); err != nil {
			return err
		}
	}
	if err := m.store.Refuses(); err != nil {
		return err
	}
	values := shared.ValuesOf(principal.Of(ctx), state)
	reserved, err := m.store.SharedKeys.Reserve(ctx, values)
	if err != nil {
		return err
	}
	err = m.store.SetShared(ctx, values)
	reserved.Done(err == nil)
	if err != nil {
		return fmt.Errorf("session: set shared state: %w", err)
	}
	return nil
}

// checkShared refuses a key that sessions do not share.
func checkShared(field, key string) error {
	if scope := shared.ScopeOf(key); scope != shared.App && scope != shared.User {
		return fault.Errorf(fault.Invalid,
			"%s: %.80q is no key that sessions share: those begin with app: or user:", field, key).
			Breaking(field, fault.RuleRange)
	}
	return nil
}

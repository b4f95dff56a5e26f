package session

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// shared is what a manager knows of the state that sessions have in common: one
// copy for all of them, which nobody changes, read anew after a write. It bounds the
// scopes: what is being written counts until its outcome is known, so that writers at
// the same time do not pass the bound together.
type shared struct {
	store  *patient
	limits *Limits

	mu     sync.Mutex // protects the fields below; taken after a session's
	state  map[string]any
	sizes  map[string]int // of the keys of state, in bytes
	stale  bool           // there was a write since state was read
	writes int64          // that have ended
	coming map[string]use // what writes under way may add, by scope
}

// maxSharedName bounds the name of a key, in bytes: a token of a page holds one.
const maxSharedName = 256

// use is what keys take.
type use struct{ keys, bytes int }

func newShared(store *patient, limits *Limits) *shared {
	return &shared{store: store, limits: limits, stale: true, coming: map[string]use{}}
}

// keySize is how many bytes of its scope's bound a key takes.
func keySize(key string, value json.RawMessage) int {
	return len(strings.TrimPrefix(key, scopeOf(key))) + len(value)
}

// now returns the keys with their scopes. Nobody may change them, nor what they hold.
func (h *shared) now(ctx context.Context) (map[string]any, error) {
	h.mu.Lock()
	state, stale, writes := h.state, h.stale, h.writes
	h.mu.Unlock()
	if !stale {
		return state, nil
	}
	sizes := map[string]int{}
	state, err := sharedState(ctx, h.store, func(key string, value json.RawMessage) { sizes[key] = keySize(key, value) })
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == nil || h.writes == writes {
		h.state, h.sizes, h.stale = state, sizes, h.writes != writes
	}
	return state, nil
}

// reserve refuses values that would take a scope past its bounds. What it lets pass
// counts until done is called with it. A scope that is past its bounds already takes
// what makes it no larger.
func (h *shared) reserve(ctx context.Context, values []SharedValue) (map[string]use, error) {
	if len(values) == 0 {
		return nil, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.stale { // or what was just written would not count
		h.mu.Unlock()
		_, err := h.now(ctx)
		h.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
	have := map[string]use{}
	for key, size := range h.sizes {
		u := have[scopeOf(key)]
		have[scopeOf(key)] = use{u.keys + 1, u.bytes + size}
	}
	grows := map[string]use{}
	for _, v := range values {
		scope := prefixOf(v.Scope)
		if v.Value != nil && len(v.Key) > maxSharedName {
			return nil, Errorf(codeLimit, "state: the name of key %.40q… has %d bytes behind its scope, at most %d are allowed", scope+v.Key, len(v.Key), maxSharedName)
		}
		before, had := h.sizes[scope+v.Key]
		u := grows[scope]
		switch {
		case v.Value == nil && had:
			u.keys, u.bytes = u.keys-1, u.bytes-before
		case v.Value != nil && had:
			u.bytes += keySize(scope+v.Key, v.Value) - before
		case v.Value != nil:
			u.keys, u.bytes = u.keys+1, u.bytes+keySize(scope+v.Key, v.Value)
		}
		grows[scope] = u
	}
	for scope, grow := range grows {
		after := use{have[scope].keys + h.coming[scope].keys + grow.keys, have[scope].bytes + h.coming[scope].bytes + grow.bytes}
		if err := h.limits.fits("the keys of scope "+scope, grow, after, use{h.limits.MaxSharedKeys, h.limits.MaxSharedBytes}); err != nil {
			return nil, err
		}
	}
	for scope, grow := range grows {
		grow = use{max(grow.keys, 0), max(grow.bytes, 0)}
		grows[scope] = grow
		h.coming[scope] = use{h.coming[scope].keys + grow.keys, h.coming[scope].bytes + grow.bytes}
	}
	return grows, nil
}

// done says that what reserve has let pass was written, or never will be.
func (h *shared) done(reserved map[string]use) {
	if reserved == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for scope, grow := range reserved {
		h.coming[scope] = use{h.coming[scope].keys - grow.keys, h.coming[scope].bytes - grow.bytes}
	}
	h.stale = true
	h.writes++
}

// fits refuses what grows past a bound.
func (l *Limits) fits(whose string, grow, after, most use) error {
	switch {
	case grow.keys > 0 && after.keys > most.keys:
		return Errorf(codeLimit, "state: %s would be %d, at most %d are allowed; a null value removes a key", whose, after.keys, most.keys)
	case grow.bytes > 0 && after.bytes > most.bytes:
		return Errorf(codeLimit, "state: %s would take %d bytes as JSON, at most %d are allowed; a null value removes a key", whose, after.bytes, most.bytes)
	}
	return nil
}

// prefixOf is the prefix that keys of a scope of the store have.
func prefixOf(scope string) string {
	if scope == "app" {
		return scopeApp
	}
	return scopeUser
}

// writeState sets keys, and removes those whose value is null.
func writeState(state, delta map[string]any) {
	for k, v := range delta {
		if v == nil {
			delete(state, k)
		} else {
			state[k] = v
		}
	}
}

// ownFitsLocked refuses keys of the session's own that would take it past its bounds.
func (s *Session) ownFitsLocked(delta map[string]any) error {
	var grow use
	for k, v := range delta {
		if scopeOf(k) != "" {
			continue
		}
		before, had := s.sizes[k]
		size := sizeOf(k, v)
		switch {
		case v == nil && had:
			grow.keys, grow.bytes = grow.keys-1, grow.bytes-before
		case v != nil && had:
			grow.bytes += size - before
		case v != nil:
			grow.keys, grow.bytes = grow.keys+1, grow.bytes+size
		}
	}
	after := use{len(s.sizes) + grow.keys, s.stateBytes + grow.bytes}
	return s.limits.fits("the session's own keys", grow, after, use{s.limits.MaxOwnKeys, s.limits.MaxOwnBytes})
}

func sizeOf(key string, v any) int {
	data, err := marshal(v)
	if err != nil {
		return 0 // the record that holds the same value does not marshal either
	}
	return keySize(key, data)
}

// stateFits refuses state that takes the session, or a scope, past its bounds. Nothing is
// reserved.
func (s *Session) stateFits(ctx context.Context, delta map[string]any) error {
	s.mu.Lock()
	err := s.ownFitsLocked(delta)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	reserved, err := s.store.shared.reserve(ctx, sharedValues(delta))
	if err == nil {
		s.store.shared.release(reserved)
	}
	return err
}

// reserveState refuses entries that would take the session, or a scope, past its
// bounds. The end of a turn is not refused for what starts with it.
func (s *Session) reserveState(ctx context.Context, entries []*entry) error {
	for _, e := range entries {
		var own map[string]any
		switch f := e.fact.(type) {
		case *TurnStarted:
			own = f.State
		case *Event:
			own = f.State
		}
		if len(own) == 0 {
			continue
		}
		s.mu.Lock()
		err := s.ownFitsLocked(own)
		s.mu.Unlock()
		if err == nil {
			e.reserved, err = s.store.shared.reserve(ctx, e.shared)
		}
		if err != nil && entries[0].kind == KindTurnEnded {
			err, e.reserved = nil, map[string]use{} // finish has looked before
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// release takes back what reserve has let pass and nobody has written.
func (h *shared) release(reserved map[string]use) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for scope, grow := range reserved {
		h.coming[scope] = use{h.coming[scope].keys - grow.keys, h.coming[scope].bytes - grow.bytes}
	}
}

// SharedKey is one key of state that sessions share.
type SharedKey struct {
	// Key has its scope, such as app:plan.
	Key string
	// Value is JSON.
	Value json.RawMessage
	// Bytes is how many bytes of its scope's bound it takes.
	Bytes int
}

// SharedKeys returns at most limit keys with a prefix, fewer if they are large, by
// name, and the token of the next page, "" on the last one. page is a token of the same
// prefix, "" for the first page.
func (m *Manager) SharedKeys(ctx context.Context, prefix, page string, limit int) (keys []SharedKey, next string, err error) {
	hash := queryHash(struct{ SharedPrefix string }{prefix})
	after, err := readToken(page, hash)
	if err != nil {
		return nil, "", err
	}
	var all []SharedKey
	_, err = sharedState(ctx, m.store, func(key string, value json.RawMessage) {
		if strings.HasPrefix(key, prefix) && (after == nil || key > after.ID) {
			all = append(all, SharedKey{Key: key, Value: value, Bytes: keySize(key, value)})
		}
	})
	if err != nil {
		return nil, "", err
	}
	slices.SortFunc(all, func(a, b SharedKey) int { return cmp.Compare(a.Key, b.Key) })
	bytes := 0
	for _, k := range all {
		if len(keys) == limit || bytes >= pageBytes {
			return keys, token{Query: hash, ID: keys[len(keys)-1].Key}.String(), nil
		}
		keys, bytes = append(keys, k), bytes+k.Bytes
	}
	return keys, "", nil
}

// RemoveShared removes keys of state that sessions share, and returns those that
// there were. Its errors are of type *Error if a client may see them.
func (m *Manager) RemoveShared(ctx context.Context, keys []string) (removed []string, err error) {
	for i, key := range keys {
		if scope := scopeOf(key); scope != scopeApp && scope != scopeUser {
			return nil, Errorf(codeInvalid, "keys[%d]: %.80q is no key that sessions share: those begin with app: or user:", i, key)
		}
	}
	if err := m.store.refuses(); err != nil {
		return nil, err
	}
	have := map[string]bool{}
	if _, err := sharedState(ctx, m.store, func(key string, _ json.RawMessage) { have[key] = true }); err != nil {
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
	if err := m.store.SetShared(ctx, sharedValues(gone)); err != nil {
		return nil, fmt.Errorf("session: remove shared state: %w", err)
	}
	m.store.shared.done(map[string]use{})
	return slices.Sorted(maps.Keys(gone)), nil
}

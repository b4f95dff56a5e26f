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
	sizes  map[string]int    // of the keys of state, in bytes
	stale  bool              // there was a write since state was read
	writes int64             // that have ended
	coming map[string]coming // the keys that writes under way set
}

// coming is what writes under way set a key to.
type coming struct {
	writes int
	bytes  int // of the largest
}

// maxSharedName bounds the name of a key, in bytes: a token of a page holds one.
const maxSharedName = 256

// use is what keys take.
type use struct{ keys, bytes int }

func newShared(store *patient, limits *Limits) *shared {
	return &shared{store: store, limits: limits, stale: true, coming: map[string]coming{}}
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

// sizeLocked is what a key takes, or will when the writes under way are done. A write
// that is done and of which that is not known yet counts once.
func (h *shared) sizeLocked(key string) int { return max(h.sizes[key], h.coming[key].bytes) }

// usesLocked is what the keys of each scope take, writes under way included.
func (h *shared) usesLocked() map[string]use {
	uses := map[string]use{}
	add := func(key string) {
		u := uses[scopeOf(key)]
		uses[scopeOf(key)] = use{u.keys + 1, u.bytes + h.sizeLocked(key)}
	}
	for key := range h.sizes {
		add(key)
	}
	for key := range h.coming {
		if _, stored := h.sizes[key]; !stored {
			add(key)
		}
	}
	return uses
}

// reserve refuses values that would take a scope past its bounds. What it lets pass
// counts until done, or release, is called with the keys that it returns. A scope that
// is past its bounds already takes what makes it no larger.
func (h *shared) reserve(ctx context.Context, values []SharedValue) (keys []string, err error) {
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
	grows := map[string]use{}
	for _, v := range values {
		scope := prefixOf(v.Scope)
		if v.Value != nil && len(v.Key) > maxSharedName {
			return nil, Errorf(codeLimit, "state: the name of key %.40q… has %d bytes behind its scope, at most %d are allowed", scope+v.Key, len(v.Key), maxSharedName).
				Over("state_name_bytes", maxSharedName, len(v.Key))
		}
		grows[scope] = h.growLocked(grows[scope], scope+v.Key, v.Value)
	}
	have := h.usesLocked()
	for scope, grow := range grows {
		after := use{have[scope].keys + grow.keys, have[scope].bytes + grow.bytes}
		if err := h.limits.fits("the keys of scope "+scope, grow, after, use{h.limits.MaxSharedKeys, h.limits.MaxSharedBytes}); err != nil {
			return nil, err
		}
	}
	keys = []string{} // not nil: there is a write to be told of
	for _, v := range values {
		if v.Value == nil {
			continue
		}
		key := prefixOf(v.Scope) + v.Key
		c := h.coming[key]
		h.coming[key] = coming{c.writes + 1, max(c.bytes, keySize(key, v.Value))}
		keys = append(keys, key)
	}
	return keys, nil
}

// growLocked adds to grow what setting a key adds to its scope. What writes under way
// set it to may stand in the end.
func (h *shared) growLocked(grow use, key string, value json.RawMessage) use {
	stored, had := h.sizes[key]
	_, comes := h.coming[key]
	switch {
	case value == nil && had && !comes:
		return use{grow.keys - 1, grow.bytes - stored}
	case value == nil:
		return grow
	case comes:
		return use{grow.keys, grow.bytes + max(keySize(key, value)-h.sizeLocked(key), 0)}
	case had:
		return use{grow.keys, grow.bytes + keySize(key, value) - stored}
	default:
		return use{grow.keys + 1, grow.bytes + keySize(key, value)}
	}
}

// done says that what reserve has let pass was written, or never will be.
func (h *shared) done(reserved []string) {
	if reserved == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.releaseLocked(reserved)
	h.stale = true
	h.writes++
}

// fits refuses what grows past a bound.
func (l *Limits) fits(whose string, grow, after, most use) error {
	switch {
	case grow.keys > 0 && after.keys > most.keys:
		return Errorf(codeLimit, "state: %s would be %d, at most %d are allowed; a null value removes a key", whose, after.keys, most.keys).
			Over("state_keys", most.keys, after.keys)
	case grow.bytes > 0 && after.bytes > most.bytes:
		return Errorf(codeLimit, "state: %s would take %d bytes as JSON, at most %d are allowed; a null value removes a key", whose, after.bytes, most.bytes).
			Over("state_bytes", most.bytes, after.bytes)
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
// bounds. The end of a turn is not refused for what is appended with it.
func (s *Session) reserveState(ctx context.Context, entries []*entry) error {
	ends := slices.ContainsFunc(entries, func(e *entry) bool { return e.kind == KindTurnEnded })
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
		if err != nil && ends {
			err, e.reserved = nil, []string{} // finish or AppendAtEnd has looked before
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// release takes back what reserve has let pass.
func (h *shared) release(reserved []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.releaseLocked(reserved)
}

func (h *shared) releaseLocked(reserved []string) {
	for _, key := range reserved {
		c := h.coming[key]
		if c.writes--; c.writes == 0 {
			delete(h.coming, key)
		} else {
			h.coming[key] = c
		}
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
			return nil, Errorf(codeInvalid, "keys[%d]: %.80q is no key that sessions share: those begin with app: or user:", i, key).
				Breaking(fmt.Sprintf("keys[%d]", i), RuleRange)
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
	m.store.shared.done([]string{})
	return slices.Sorted(maps.Keys(gone)), nil
}

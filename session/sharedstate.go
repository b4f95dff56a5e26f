package session

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// shared is what a manager knows of the state that sessions have in common: one copy
// of each scope for all of them, which nobody changes; a write alone makes the next one of
// it, after several at the same time it is read anew. It bounds the scopes: what is being written counts until its outcome is known, so that
// writers at the same time do not pass the bound together.
type shared struct {
	store  *patient
	limits *Limits

	mu     sync.Mutex              // protects the fields below; taken after a session's
	scopes map[string]*sharedScope // by their names in the store: those in use, and up to mostScopes others
}

// mostScopes is how many scopes are kept that nobody is at work on: each user has one.
const mostScopes = 64

// sharedScope is `app:`, or `user:` of one principal. Its fields but the first two are
// protected by shared.mu.
type sharedScope struct {
	name   string // in the store
	prefix string // of its keys

	users  int // who is at work on it
	state  map[string]any
	sizes  map[string]int    // of the keys of state, in bytes
	stale  bool              // there was a write since state was read
	writes int64             // that have ended
	coming map[string]coming // the keys that writes under way set

	writing int  // writes under way
	mixed   bool // two were at the same time: which of them was first the store alone knows
}

// coming is what writes under way set a key to.
type coming struct {
	writes int
	bytes  int // of the largest
}

// reservation is what reserve has let pass.
type reservation struct {
	scopes map[string]*sharedScope
	values []store.SharedValue
	keys   []reservedKey
}

type reservedKey struct {
	of  *sharedScope
	key string
}

// maxSharedName bounds the name of a key, in bytes: a token of a page holds one.
const maxSharedName = 256

// use is what keys take.
type use struct{ keys, bytes int }

func newShared(store *patient, limits *Limits) *shared {
	return &shared{store: store, limits: limits, scopes: map[string]*sharedScope{}}
}

// keySize is how many bytes of its scope's bound a key takes.
func keySize(key string, value json.RawMessage) int {
	return len(strings.TrimPrefix(key, scopeOf(key))) + len(value)
}

// enterLocked returns a scope, which stays until leaveLocked is called.
func (h *shared) enterLocked(name string) *sharedScope {
	sc := h.scopes[name]
	if sc == nil {
		sc = &sharedScope{name: name, prefix: prefixOf(name), stale: true, coming: map[string]coming{}}
		h.scopes[name] = sc
	}
	sc.users++
	return sc
}

func (h *shared) leaveLocked(sc *sharedScope) {
	sc.users--
	for name, other := range h.scopes {
		if len(h.scopes) <= mostScopes {
			return
		}
		if other.users == 0 {
			delete(h.scopes, name)
		}
	}
}

// now returns the keys of a scope with their prefix. Nobody may change them, nor what
// they hold.
func (h *shared) now(ctx context.Context, name string) (map[string]any, error) {
	sc := lock.Get(&h.mu, func() *sharedScope { return h.enterLocked(name) })
	defer lock.Do(&h.mu, func() { h.leaveLocked(sc) })
	return h.read(ctx, sc)
}

// read is now for who has entered the scope.
func (h *shared) read(ctx context.Context, sc *sharedScope) (map[string]any, error) {
	before := lock.Get(&h.mu, func() sharedScope { return *sc })
	state, writes := before.state, before.writes
	if !before.stale {
		return state, nil
	}
	sizes := map[string]int{}
	state, err := sharedState(ctx, h.store, []string{sc.name}, func(key string, value json.RawMessage) { sizes[key] = keySize(key, value) })
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if sc.state == nil || sc.writes == writes {
		sc.state, sc.sizes, sc.stale = state, sizes, sc.writes != writes
	}
	return state, nil
}

// sizeLocked is what a key takes, or will when the writes under way are done. A write
// that is done and of which that is not known yet counts once.
func (sc *sharedScope) sizeLocked(key string) int { return max(sc.sizes[key], sc.coming[key].bytes) }

// useLocked is what the keys take, writes under way included.
func (sc *sharedScope) useLocked() use {
	var u use
	add := func(key string) { u = use{u.keys + 1, u.bytes + sc.sizeLocked(key)} }
	for key := range sc.sizes {
		add(key)
	}
	for key := range sc.coming {
		if _, stored := sc.sizes[key]; !stored {
			add(key)
		}
	}
	return u
}

// scopesLocked enters the scopes of values.
func (h *shared) scopesLocked(values []store.SharedValue) *reservation {
	r := &reservation{scopes: map[string]*sharedScope{}, values: values}
	for _, v := range values {
		if r.scopes[v.Scope] == nil {
			sc := h.enterLocked(v.Scope)
			sc.writing++
			sc.mixed = sc.mixed || sc.writing > 1
			r.scopes[v.Scope] = sc
		}
	}
	return r
}

// unbounded lets values pass without a look at the bounds. done has to be called.
func (h *shared) unbounded(values []store.SharedValue) *reservation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.scopesLocked(values)
}

// reserve refuses values that would take a scope past its bounds. What it lets pass
// counts until done, or release, is called with what it returns, nil for nothing. A
// scope that is past its bounds already takes what makes it no larger.
func (h *shared) reserve(ctx context.Context, values []store.SharedValue) (_ *reservation, err error) {
	if len(values) == 0 {
		return nil, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.scopesLocked(values)
	defer func() {
		if err != nil {
			h.releaseLocked(r)
		}
	}()
	for sc := r.staleLocked(); sc != nil; sc = r.staleLocked() { // or what was just written would not count
		var err error
		lock.Without(&h.mu, func() { _, err = h.read(ctx, sc) })
		if err != nil {
			return nil, err
		}
	}
	grows := map[string]use{}
	for _, v := range values {
		sc := r.scopes[v.Scope]
		if v.Value != nil && len(v.Key) > maxSharedName {
			return nil, fault.Errorf(fault.LimitExceeded, "state: the name of key %.40q… has %d bytes behind its scope, at most %d are allowed", sc.prefix+v.Key, len(v.Key), maxSharedName).
				Over("state_name_bytes", maxSharedName, len(v.Key))
		}
		grows[v.Scope] = sc.growLocked(grows[v.Scope], sc.prefix+v.Key, v.Value)
	}
	for name, grow := range grows {
		sc := r.scopes[name]
		have := sc.useLocked()
		after := use{have.keys + grow.keys, have.bytes + grow.bytes}
		if err := h.limits.fits("the keys of scope "+sc.prefix, grow, after, use{h.limits.MaxSharedKeys, h.limits.MaxSharedBytes}); err != nil {
			return nil, err
		}
	}
	for _, v := range values {
		if v.Value == nil {
			continue
		}
		sc := r.scopes[v.Scope]
		key := sc.prefix + v.Key
		c := sc.coming[key]
		sc.coming[key] = coming{c.writes + 1, max(c.bytes, keySize(key, v.Value))}
		r.keys = append(r.keys, reservedKey{sc, key})
	}
	return r, nil
}

// staleLocked is a scope that has to be read, nil for none.
func (r *reservation) staleLocked() *sharedScope {
	for _, sc := range r.scopes {
		if sc.stale {
			return sc
		}
	}
	return nil
}

// growLocked adds to grow what setting a key adds to its scope. What writes under way
// set it to may stand in the end.
func (sc *sharedScope) growLocked(grow use, key string, value json.RawMessage) use {
	stored, had := sc.sizes[key]
	_, comes := sc.coming[key]
	switch {
	case value == nil && had && !comes:
		return use{grow.keys - 1, grow.bytes - stored}
	case value == nil:
		return grow
	case comes:
		return use{grow.keys, grow.bytes + max(keySize(key, value)-sc.sizeLocked(key), 0)}
	case had:
		return use{grow.keys, grow.bytes + keySize(key, value) - stored}
	default:
		return use{grow.keys + 1, grow.bytes + keySize(key, value)}
	}
}

// done says that what reserve has let pass was written, or never will be; written is
// false where that is not known.
func (h *shared) done(r *reservation, written bool) {
	if r == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, sc := range r.scopes {
		sc.writes++
		if sc.stale = sc.stale || sc.mixed || !written; !sc.stale {
			sc.stale = !sc.applyLocked(r.values)
		}
	}
	h.releaseLocked(r)
}

// applyLocked has the state be what a write alone has made of it, so that it is not read
// again. It reports false if it cannot tell.
func (sc *sharedScope) applyLocked(values []store.SharedValue) bool {
	state, sizes := maps.Clone(sc.state), maps.Clone(sc.sizes)
	for _, v := range values {
		if v.Scope != sc.name {
			continue
		}
		key := sc.prefix + v.Key
		if v.Value == nil {
			delete(state, key)
			delete(sizes, key)
			continue
		}
		var value any
		if err := logjson.Unmarshal(v.Value, &value); err != nil {
			return false
		}
		state[key], sizes[key] = value, keySize(key, v.Value)
	}
	sc.state, sc.sizes = state, sizes
	return true
}

// fits refuses what grows past a bound.
func (l *Limits) fits(whose string, grow, after, most use) error {
	switch {
	case grow.keys > 0 && after.keys > most.keys:
		return fault.Errorf(fault.LimitExceeded, "state: %s would be %d, at most %d are allowed; a null value removes a key", whose, after.keys, most.keys).
			Over("state_keys", most.keys, after.keys)
	case grow.bytes > 0 && after.bytes > most.bytes:
		return fault.Errorf(fault.LimitExceeded, "state: %s would take %d bytes as JSON, at most %d are allowed; a null value removes a key", whose, after.bytes, most.bytes).
			Over("state_bytes", most.bytes, after.bytes)
	}
	return nil
}

// prefixOf is the prefix that keys of a scope of the store have.
func prefixOf(scope string) string {
	if scope == appScope {
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

// ownFits refuses keys of the session's own that would take it past its bounds.
func (s *Session) ownFits(delta map[string]any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
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
	data, err := logjson.Marshal(v)
	if err != nil {
		return 0 // the record that holds the same value does not marshal either
	}
	return keySize(key, data)
}

// stateFits refuses state that takes the session, or a scope, past its bounds. Nothing is
// reserved.
func (s *Session) stateFits(ctx context.Context, delta map[string]any) error {
	if err := s.ownFits(delta); err != nil {
		return err
	}
	reserved, err := s.store.shared.reserve(ctx, s.sharedValues(delta))
	if err == nil {
		s.store.shared.release(reserved)
	}
	return err
}

// reserveState refuses entries that would take the session, or a scope, past its
// bounds. The end of a turn is not refused for what is appended with it.
func (s *Session) reserveState(ctx context.Context, entries []*entry) error {
	ends := slices.ContainsFunc(entries, func(e *entry) bool { return e.kind == record.KindTurnEnded })
	for _, e := range entries {
		var own map[string]any
		switch f := e.fact.(type) {
		case *record.TurnStarted:
			own = f.State
		case *record.Event:
			own = f.State
		}
		if len(own) == 0 {
			continue
		}
		err := s.ownFits(own)
		if err == nil {
			e.reserved, err = s.store.shared.reserve(ctx, e.shared)
		}
		if err != nil && ends {
			err, e.reserved = nil, s.store.shared.unbounded(e.shared) // finish or AppendAtEnd has looked before
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// release takes back what reserve has let pass; nothing of it was written.
func (h *shared) release(r *reservation) {
	if r == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.releaseLocked(r)
}

func (h *shared) releaseLocked(r *reservation) {
	for _, k := range r.keys {
		c := k.of.coming[k.key]
		if c.writes--; c.writes == 0 {
			delete(k.of.coming, k.key)
		} else {
			k.of.coming[k.key] = c
		}
	}
	for _, sc := range r.scopes {
		if sc.writing--; sc.writing == 0 {
			sc.mixed = false
		}
		h.leaveLocked(sc)
	}
}

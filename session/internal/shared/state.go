// Package shared is the state that sessions have in common: the keys of `app:`, and those of `user:` of
// each principal. It names the scopes, keeps a copy of those in use, bounds what writers that work at the
// same time put into them, and says which keys a principal may write.
//
// It must not know sessions, turns or logs. Of a store it asks one thing, to read a scope; it writes
// nothing: a caller reserves room for values ([State.Reserve]), writes them, and says how that ended
// ([Reservation.Done]).
package shared

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/apzuk3/agentd/session/internal/lock"
)

// mostScopes is how many scopes State keeps that nobody works on: each principal has one.
const mostScopes = 64

// State has one copy of each scope for all sessions. Nobody changes a copy: a write that ran alone makes
// the next one of it, and after writes that ran at the same time the scope is reloaded. Its methods may
// be called from any goroutine.
type State struct {
	reader Reader
	bounds Use

	mu     sync.Mutex        // protects the field below, and scopes and reservations; taken after a session's
	scopes map[string]*scope // by their names in the store: those in use, and up to mostScopes others
}

// New returns the state that a store has. Each scope is held to bounds.
func New(reader Reader, bounds Use) *State {
	return &State{reader: reader, bounds: bounds, scopes: map[string]*scope{}}
}

// Now returns the keys of a scope with their prefix. The caller must change neither the map nor what it
// holds.
func (h *State) Now(ctx context.Context, name string) (map[string]any, error) {
	sc := lock.Get(&h.mu, func() *scope { return h.enterLocked(name) })
	defer lock.Do(&h.mu, func() { h.leaveLocked(sc) })
	return h.read(ctx, sc)
}

// enterLocked returns a scope, which stays until leaveLocked is called.
func (h *State) enterLocked(name string) *scope {
	sc := h.scopes[name]
	if sc == nil {
		sc = newScope(name)
		h.scopes[name] = sc
	}
	sc.users++
	return sc
}

func (h *State) leaveLocked(sc *scope) {
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

// read is Now for a caller that has entered the scope.
func (h *State) read(ctx context.Context, sc *scope) (map[string]any, error) {
	before := lock.Get(&h.mu, func() scope { return *sc })
	state, writes := before.state, before.writes
	if !before.stale {
		return state, nil
	}
	sizes := map[string]int{}
	state, err := Read(ctx, h.reader, []string{sc.name}, func(key string, value json.RawMessage) {
		sizes[key] = KeySize(key, value)
	})
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

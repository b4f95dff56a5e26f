package session

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/store"
)

// The scopes of state keys.
const (
	scopeApp  = "app:"
	scopeUser = "user:"
	scopeTemp = "temp:"
)

// appScope is the name of `app:` in the store.
const appScope = "app"

// userScope is the name of the principal's `user:` keys in the store. A session has
// those of the principal that has made it.
func userScope(p principal.Principal) string { return scopeUser + p.Key() }

// scopesOf are the names of what the principal's sessions share with others.
func scopesOf(p principal.Principal) []string { return []string{appScope, userScope(p)} }

func scopeOf(key string) string {
	for _, p := range []string{scopeApp, scopeUser, scopeTemp} {
		if strings.HasPrefix(key, p) {
			return p
		}
	}
	return ""
}

// sharedValues picks the keys that the session has in common with others.
func (s *Session) sharedValues(state map[string]any) []store.SharedValue {
	return sharedValues(s.madeBy(), state)
}

// madeBy is the principal whose `user:` keys the session has.
func (s *Session) madeBy() principal.Principal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owner
}

// adopt has a session that is not made yet be the principal's whose turn begins: others
// may have wanted to make it under the same id.
func (s *Session) adopt(p principal.Principal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.create != nil {
		made := *s.create
		made.Creator = p.Key()
		s.owner, s.create = p, &made
	}
}

func sharedValues(p principal.Principal, state map[string]any) []store.SharedValue {
	var out []store.SharedValue
	for k, v := range state {
		var scope string
		switch scopeOf(k) {
		case scopeApp:
			scope = appScope
		case scopeUser:
			scope = userScope(p)
		default:
			continue
		}
		var value json.RawMessage // nil removes the key
		if v != nil {
			var err error
			if value, err = logjson.Marshal(v); err != nil {
				continue // the record that holds the same value does not marshal either
			}
		}
		_, key, _ := strings.Cut(k, ":")
		out = append(out, store.SharedValue{Scope: scope, Key: key, Value: value})
	}
	return out
}

// wholeState returns the session's keys together with the shared ones.
func (s *Session) wholeState(ctx context.Context) (map[string]any, error) {
	out := lock.Get(&s.mu, func() map[string]any { return maps.Clone(s.state) })
	for _, scope := range scopesOf(s.madeBy()) {
		shared, err := s.store.shared.now(ctx, scope)
		if err != nil {
			return nil, fmt.Errorf("session %s: %w", s.id, err)
		}
		maps.Copy(out, shared)
	}
	return out, nil
}

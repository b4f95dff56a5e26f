package session

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// The scopes of state keys.
const (
	scopeApp  = "app:"
	scopeUser = "user:"
	scopeTemp = "temp:"
)

// sharedUser is the one user there is while nobody is authenticated.
const sharedUser = "user:local"

func scopeOf(key string) string {
	for _, p := range []string{scopeApp, scopeUser, scopeTemp} {
		if strings.HasPrefix(key, p) {
			return p
		}
	}
	return ""
}

// sharedValues picks the keys that sessions have in common.
func sharedValues(state map[string]any) []SharedValue {
	var out []SharedValue
	for k, v := range state {
		var scope string
		switch scopeOf(k) {
		case scopeApp:
			scope = "app"
		case scopeUser:
			scope = sharedUser
		default:
			continue
		}
		var value json.RawMessage // nil removes the key
		if v != nil {
			var err error
			if value, err = marshal(v); err != nil {
				continue // the record that holds the same value does not marshal either
			}
		}
		_, key, _ := strings.Cut(k, ":")
		out = append(out, SharedValue{Scope: scope, Key: key, Value: value})
	}
	return out
}

// wholeState returns the session's keys together with the shared ones.
func (s *Session) wholeState(ctx context.Context) (map[string]any, error) {
	s.mu.Lock()
	out := maps.Clone(s.state)
	s.mu.Unlock()
	shared, err := s.store.shared.now(ctx)
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", s.id, err)
	}
	maps.Copy(out, shared)
	return out, nil
}

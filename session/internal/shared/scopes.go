package shared

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/store"
)

// The scopes of keys of state, as prefixes of the keys.
const (
	App  = "app:"
	User = "user:"
	Temp = "temp:"
)

// appName is the name of `app:` in the store for principals without a tenant, and begins it for others.
const appName = "app"

// appScope is the name of the `app:` keys of the principal's tenant in the store.
func appScope(p principal.Principal) string {
	if p.Tenant == "" {
		return appName
	}
	return App + url.PathEscape(p.Tenant)
}

// userScope is the name of the principal's `user:` keys in the store.
func userScope(p principal.Principal) string { return User + p.Key() }

// prefixOf is the prefix that keys of a scope of the store have.
func prefixOf(scope string) string {
	if scope == appName || strings.HasPrefix(scope, App) {
		return App
	}
	return User
}

// ScopesOf returns the names, in the store, of the scopes that the principal's sessions share with others.
func ScopesOf(p principal.Principal) []string { return []string{appScope(p), userScope(p)} }

// ScopeOf returns the scope of a key: App, User, Temp, or "" for a key of the session's own.
func ScopeOf(key string) string {
	for _, scope := range []string{App, User, Temp} {
		if strings.HasPrefix(key, scope) {
			return scope
		}
	}
	return ""
}

// ValuesOf picks the shared keys of a state, as the store writes them for a principal. A null value removes
// its key.
func ValuesOf(p principal.Principal, state map[string]any) []store.SharedValue {
	var out []store.SharedValue
	for k, v := range state {
		var scope string
		switch ScopeOf(k) {
		case App:
			scope = appScope(p)
		case User:
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

// Reader is the part of a store that reads the shared keys of one scope.
type Reader interface {
	Shared(ctx context.Context, scope string) (map[string]json.RawMessage, error)
}

// Read returns the keys of scopes as the store has them, with their prefixes. It calls visit with each key
// and its JSON, also with those whose value is null; the result leaves these out.
func Read(
	ctx context.Context, from Reader, scopes []string, visit func(key string, value json.RawMessage),
) (map[string]any, error) {
	out := map[string]any{}
	for _, scope := range scopes {
		prefix := prefixOf(scope)
		values, err := from.Shared(ctx, scope)
		if err != nil {
			return nil, fmt.Errorf("shared state %q: %w", scope, err)
		}
		for k, raw := range values {
			var v any
			if err := logjson.Unmarshal(raw, &v); err != nil {
				return nil, fmt.Errorf("shared state %s%s: %w", prefix, k, err)
			}
			visit(prefix+k, raw)
			if v != nil {
				out[prefix+k] = v
			}
		}
	}
	return out, nil
}

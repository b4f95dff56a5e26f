package session

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/principal"
)

// SharedState returns the keys that the sessions of a principal have in common with
// others, with their scopes, as they are now.
func SharedState(ctx context.Context, store interface {
	Shared(ctx context.Context, scope string) (map[string]json.RawMessage, error)
}, owner principal.Principal,
) (map[string]any, error) {
	return sharedState(ctx, store, scopesOf(owner), func(string, json.RawMessage) {})
}

// sharedState also tells each key and its value, as the store has them. A value of
// null is none.
func sharedState(ctx context.Context, store interface {
	Shared(ctx context.Context, scope string) (map[string]json.RawMessage, error)
}, scopes []string, tell func(key string, value json.RawMessage),
) (map[string]any, error) {
	out := map[string]any{}
	for _, scope := range scopes {
		prefix := prefixOf(scope)
		values, err := store.Shared(ctx, scope)
		if err != nil {
			return nil, fmt.Errorf("shared state %q: %w", scope, err)
		}
		for k, raw := range values {
			var v any
			if err := logjson.Unmarshal(raw, &v); err != nil {
				return nil, fmt.Errorf("shared state %s%s: %w", prefix, k, err)
			}
			tell(prefix+k, raw)
			if v != nil {
				out[prefix+k] = v
			}
		}
	}
	return out, nil
}

package session_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/principal"
)

// More principals than there are scopes in memory, at work at the same time, have their
// own `user:` keys each, and the bounds of one are not those of another.
func TestManyPrincipals(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{MaxSharedKeys: 2})
	var mu sync.Mutex
	seen := map[string]any{}
	f.on(func(_ context.Context, r *session.Run) error {
		mu.Lock()
		defer mu.Unlock()
		seen[r.Spec().Prompt] = r.State()["user:who"]
		return nil
	})
	principals := make([]principal.Principal, 150)
	for i := range principals {
		principals[i] = principal.Principal{ID: fmt.Sprintf("p/%d", i/2), Tenant: []string{"", "a/b"}[i%2]}
	}
	name := func(p principal.Principal) string { return p.Tenant + "|" + p.ID }
	for round := range 2 {
		var wg sync.WaitGroup
		for _, p := range principals {
			wg.Go(func() {
				req := session.Request{Agent: tree(), Prompt: name(p)}
				if round == 0 {
					req.InitialState = map[string]any{"user:who": name(p), "user:more": 1}
				}
				turn, err := f.m.Start(principal.With(t.Context(), p), req)
				if err != nil {
					t.Error(err)
					return
				}
				<-turn.Done()
			})
		}
		wg.Wait()
		for _, p := range principals {
			if seen[name(p)] != name(p) {
				t.Errorf("round %d: %s has the key of %v", round, name(p), seen[name(p)])
			}
		}
		clear(seen)
	}
	full := session.Request{Agent: tree(), Prompt: "x", InitialState: map[string]any{"user:third": 1}}
	if _, err := f.m.Start(principal.With(t.Context(), principals[0]), full); code(err) != limit {
		t.Errorf("a third key: %v", err)
	}
	fresh := principal.Principal{ID: "fresh"}
	if turn, err := f.m.Start(principal.With(t.Context(), fresh), full); err != nil {
		t.Errorf("the first key of another: %v", err)
	} else {
		<-turn.Done()
	}
}

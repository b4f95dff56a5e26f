package storetest

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apzuk3/agentd/session/store"
)

// boundTests are about how many sessions a tenant may have.
var boundTests = []test{
	{"Bound", func(t *testing.T, s store.Store) {
		made := func(id string, most int64) error { return s.Create(t.Context(), ofAtMost(id, most), nil) }
		wantMade(t, made("acme/a", 3), true)
		wantMade(t, s.Append(t.Context(), creating(ofAtMost("acme/b", 3))), true)
		wantMade(t, s.Fork(t.Context(), store.Fork{From: "acme/b", Seq: 1, Into: ofAtMost("acme/c", 3)}), true)

		wantMade(t, made("acme/d", 3), false)
		wantMade(t, s.Append(t.Context(), creating(ofAtMost("acme/d", 3))), false)
		wantMade(t, s.Fork(t.Context(), store.Fork{From: "acme/b", Seq: 1, Into: ofAtMost("acme/d", 3)}), false)
		wantMade(t, s.AppendMany(t.Context(), []store.Batch{creating(ofAtMost("acme/d", 2))})[0], false)
		wantErr(t, "Head of what was refused", headErr(t, s, "acme/d"), store.ErrNoSession)

		// What exists, and what was made before, is no new session.
		wantErr(t, "Create again", made("acme/a", 3), store.ErrSessionExists)
		wantMade(t, s.Append(t.Context(), creating(ofAtMost("acme/b", 3))), true)
		add(t, s, batch("acme/b", events(1, 1)...))

		// Others have bounds of their own, and those without a tenant have none.
		for _, id := range []string{"acme%2Fx/a", "acm/a", "umbrella/a", "a", "b", "acme"} {
			wantMade(t, made(id, 1), true)
		}
		wantMade(t, made("umbrella/b", 1), false)
		wantMade(t, made("umbrella/b", 0), true)

		// A session that is purged is one; one that is removed is none.
		if err := s.Purge(t.Context(), "acme/b", 2); err != nil {
			t.Fatal(err)
		}
		wantMade(t, made("acme/d", 3), false)
		if err := s.Delete(t.Context(), "acme/b", 2); err != nil {
			t.Fatal(err)
		}
		wantMade(t, made("acme/d", 3), true)
		wantMade(t, made("acme/e", 3), false)
	}},
	{"Bound/Key", func(t *testing.T, s store.Store) { // the same request again is told what it has made
		key := &store.Key{Scope: "x", Name: "k", SessionID: "acme/a"}
		wantMade(t, s.Create(t.Context(), ofAtMost("acme/a", 1), key), true)
		again := &store.Key{Scope: "x", Name: "k", SessionID: "acme/b"}
		wantErr(t, "Create with a key that is taken", s.Create(t.Context(), ofAtMost("acme/b", 1), again),
			store.ErrKeyTaken)
	}},
	{"Bound/Concurrent", func(t *testing.T, s store.Store) {
		const most, callers = 10, 64
		var made, refused atomic.Int64
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				n := ofAtMost("acme/"+string(rune('A'+i)), most)
				var err error
				if i%2 == 0 {
					err = s.Create(t.Context(), n, nil)
				} else {
					err = s.Append(t.Context(), creating(n))
				}
				switch {
				case err == nil:
					made.Add(1)
				case n.IsTooMany(err):
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if made.Load() != most || refused.Load() != callers-most {
			t.Errorf("%d sessions were made and %d refused, want %d and %d",
				made.Load(), refused.Load(), most, callers-most)
		}
	}},
}

// ofAtMost is a session of whose tenant there may be so many.
func ofAtMost(id string, most int64) store.NewSession {
	return store.NewSession{ID: id, CreatedAt: epoch, Creator: "somebody", MaxOfTenant: most}
}

// creating is the append that creates a session.
func creating(n store.NewSession) store.Batch {
	b := batch(n.ID, events(0, 1)...)
	b.Create = &n
	return b
}

// wantMade checks that a session was made, or refused because there are too many.
func wantMade(t *testing.T, err error, made bool) {
	t.Helper()
	if made && err != nil {
		t.Errorf("a session within the bound: %v", err)
	}
	if n := (store.NewSession{}); !made && !n.IsTooMany(err) {
		t.Errorf("a session above the bound: %v", err)
	}
}

package storetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/apzuk3/agentd/session/store"
)

// manyTests are the promises about one call that appends to many sessions.
var manyTests = []test{
	{"AppendMany/ToManySessions", func(t *testing.T, s store.Store) {
		const sessions, rounds = 300, 3
		ids := make([]string, sessions)
		for i := range ids {
			ids[i] = fmt.Sprintf("s%03d", i)
		}
		for round := range rounds {
			batches := make([]store.Batch, sessions)
			for i, id := range ids {
				batches[i] = batch(id, events(int64(2*round), 2)...)
				if round == 0 {
					batches[i].Create = new(fresh(id))
				}
			}
			wantNoErrors(t, s.AppendMany(t.Context(), batches), sessions)
			wantNoErrors(t, s.AppendMany(t.Context(), batches), sessions) // a repeat
		}
		for _, id := range ids {
			wantLog(t, s, id, events(0, 2*rounds))
		}
		wantNoErrors(t, s.AppendMany(t.Context(), nil), 0)
	}},
	{"AppendMany/OneThatFailsTakesNoOtherAlong", func(t *testing.T, s store.Store) {
		create(t, s, "a", "b", "c", "d", "e", "keyed", "old")
		keyed := batch("keyed", events(0, 1)...)
		keyed.Key = &store.Key{Scope: "s", Name: "k", SessionID: "keyed"}
		add(t, s, keyed)
		add(t, s, owned(2, "old", events(0, 1)...))
		unknown := events(0, 1)
		unknown[0].Kind = "rumour"
		taken := batch("e", events(0, 1)...)
		taken.Key = &store.Key{Scope: "s", Name: "k", SessionID: "e"}
		first := batch("a", events(0, 1)...)
		first.Key = &store.Key{Scope: "s", Name: "l", SessionID: "a"}
		wants := []struct {
			b    store.Batch
			want error
		}{
			{first, nil},
			{batch("none", events(0, 1)...), store.ErrNoSession},
			{batch("b", events(3, 1)...), store.ErrConflict},
			{batch("c", unknown...), store.ErrMalformed},
			{batch("a", events(1, 1)...), store.ErrMalformed}, // the second of a session
			{owned(1, "old", events(1, 1)...), store.ErrFenced},
			{taken, store.ErrKeyTaken},
			{batch("d", events(0, 2)...), nil},
		}
		var batches []store.Batch
		for _, w := range wants {
			batches = append(batches, w.b)
		}
		errs := s.AppendMany(t.Context(), batches)
		if len(errs) != len(wants) {
			t.Fatalf("AppendMany returned %d errors for %d batches", len(errs), len(wants))
		}
		for i, w := range wants {
			what := fmt.Sprintf("batch %d, to %q", i, w.b.SessionID)
			if w.want == nil && errs[i] != nil {
				t.Fatalf("%s: %v", what, errs[i])
			}
			if w.want != nil {
				wantNamed(t, what, errs[i], w.want)
			}
		}
		wantLog(t, s, "a", events(0, 1))
		wantLog(t, s, "b", nil)
		wantLog(t, s, "c", nil)
		wantLog(t, s, "d", events(0, 2))
		wantLog(t, s, "e", nil)
		wantEpoch(t, s, "old", 2)
		wantErr(t, "Head of no session", headErr(t, s, "none"), store.ErrNoSession)
	}},
	{"AppendMany/BesideAppends", func(t *testing.T, s store.Store) {
		const writers, rounds = 8, 20
		create(t, s, "a", "b", "c")
		var wg sync.WaitGroup
		for range writers {
			wg.Go(func() { // all of them write the same, in the same order
				for n := range int64(rounds) {
					next := events(n, 1)
					errs := s.AppendMany(t.Context(), []store.Batch{batch("a", next...), batch("b", next...)})
					errs = append(errs, s.Append(t.Context(), batch("c", next...)))
					for _, err := range errs {
						if err != nil {
							t.Errorf("append after %d: %v", n, err)
						}
					}
				}
			})
		}
		wg.Wait()
		for _, id := range []string{"a", "b", "c"} {
			wantLog(t, s, id, events(0, rounds))
		}
	}},
	{"AppendMany/CallerKeepsItsSlices", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		mine := events(0, 2)
		batches := []store.Batch{batch("a", mine...)}
		before := slices.Clone(batches)
		wantNoErrors(t, s.AppendMany(t.Context(), batches), 1)
		if batches[0].SessionID != before[0].SessionID || &batches[0].Records[0] != &mine[0] {
			t.Fatal("AppendMany has changed the batches of its caller")
		}
		clear(mine)
		clear(batches)
		wantLog(t, s, "a", events(0, 2))
	}},
}

func wantNoErrors(t testing.TB, errs []error, n int) {
	t.Helper()
	if len(errs) != n {
		t.Fatalf("AppendMany returned %d errors for %d batches", len(errs), n)
	}
	for i, err := range errs {
		if err != nil {
			t.Fatalf("AppendMany, batch %d: %v", i, err)
		}
	}
}

func headErr(t testing.TB, s store.Store, id string) error {
	t.Helper()
	_, err := s.Head(t.Context(), id)
	return err
}

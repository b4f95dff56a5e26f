package storetest

import (
	"testing"

	"github.com/apzuk3/agentd/session/store"
)

// attemptsTests are the promises about what is known of an open turn besides its log.
var attemptsTests = []test{
	{"Attempts/SetAndKept", func(t *testing.T, s store.Store) {
		create(t, s, "a", "b")
		b := batch("a", started(1, "t"))
		b.Attempts = 1
		add(t, s, b)
		wantAttempts(t, s, "a", 1, false)
		for range 2 {
			if err := s.SetAttempts(t.Context(), "a", 2, true); err != nil {
				t.Fatalf("SetAttempts: %v", err)
			}
			wantAttempts(t, s, "a", 2, true)
		}
		add(t, s, batch("a", events(1, 1)...))
		wantAttempts(t, s, "a", 2, false)
		b = batch("a", events(2, 1)...)
		b.Attempts = 1
		add(t, s, b)
		wantAttempts(t, s, "a", 1, false)
		if err := s.SetAttempts(t.Context(), "a", store.AttemptsClosing, false); err != nil {
			t.Fatalf("SetAttempts: %v", err)
		}
		wantAttempts(t, s, "a", store.AttemptsClosing, false)
		wantAttempts(t, s, "b", 0, false)
		wantErr(t, "SetAttempts of no session", s.SetAttempts(t.Context(), "c", 1, false), store.ErrNoSession)
	}},
	{"Attempts/NotOfAFork", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		b := batch("a", started(1, "t"))
		b.Attempts = 1
		add(t, s, b)
		if err := s.Fork(t.Context(), store.Fork{From: "a", Seq: 1, Into: fresh("f"), OpenTurn: "t"}); err != nil {
			t.Fatalf("Fork: %v", err)
		}
		wantAttempts(t, s, "f", 0, false)
		wantAttempts(t, s, "a", 1, false)
	}},
}

// wantAttempts looks in all places where the head of a session is.
func wantAttempts(t testing.TB, s store.Store, id string, attempts int64, waits bool) {
	t.Helper()
	var heads []store.Head
	head, err := s.Head(t.Context(), id)
	if err != nil {
		t.Fatalf("Head: %v", err)
	}
	info, err := s.Info(t.Context(), id)
	if err != nil {
		t.Fatalf("Info: %v", err)
	}
	open, err := s.OpenTurns(t.Context(), "", 10)
	if err != nil {
		t.Fatalf("OpenTurns: %v", err)
	}
	heads = append(heads, head, info.Head)
	for _, h := range open {
		if h.ID == id {
			heads = append(heads, h)
		}
	}
	for _, h := range heads {
		if h.Attempts != attempts || h.Waits != waits {
			t.Errorf("%s has %d attempts, waits %v, want %d, %v", id, h.Attempts, h.Waits, attempts, waits)
		}
	}
}

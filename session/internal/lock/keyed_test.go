package lock_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/apzuk3/agentd/session/internal/lock"
)

func TestKeyed(t *testing.T) {
	var l lock.Keyed[string]
	unlock, err := l.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Lock(t.Context(), "b")
	if err != nil {
		t.Fatalf("another key: %v", err)
	}
	other()
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, err := l.Lock(ctx, "a"); !errors.Is(err, gone) {
		t.Errorf("a key that is held: %v, want the cause", err)
	}
	unlock()
	again, err := l.Lock(t.Context(), "a")
	if err != nil {
		t.Fatalf("a key that was held: %v", err)
	}
	again()
}

// One at a time works under a key.
func TestKeyedConcurrently(t *testing.T) {
	var l lock.Keyed[int]
	counts := [2]int{}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 200 {
				unlock, err := l.Lock(t.Context(), i%2)
				if err != nil {
					t.Error(err)
					return
				}
				counts[i%2]++ // the race detector looks, too
				unlock()
			}
		})
	}
	all.Wait()
	if counts != [2]int{800, 800} {
		t.Errorf("counted %v, want 800 under each key", counts)
	}
}

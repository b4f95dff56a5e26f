package adkbridge

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/session"
)

// TestRequestsOfAllTurns: what all turns send is bounded as a sum, large requests and
// small ones each by themselves; every call is made, also one that is larger than the
// bound.
func TestRequestsOfAllTurns(t *testing.T) {
	const turns = 6
	for name, tc := range map[string]struct{ value, most, bound int }{
		"small":           {500_000, 4_000_000, 3_000_000},
		"large":           {1_500_000, 16_000_000, 4_500_000},
		"above the bound": {1_500_000, 1000, 1_600_000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				models := &crowdModels{}
				r := New(Config{Resolve: models.Resolve, Limits: Limits{AllRequestBytes: tc.most}})
				var wg sync.WaitGroup
				for range turns {
					wg.Go(func() {
						run := newFakeRun(t, crowded(), "go")
						run.state = map[string]any{"k": strings.Repeat("x", tc.value)}
						if err := r.runTurn(t.Context(), run); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				if models.calls != 16*turns {
					t.Errorf("%d calls", models.calls)
				}
				if models.most > tc.bound {
					t.Errorf("%d bytes at a time, at most %d are allowed", models.most, tc.bound)
				}
			})
		})
	}
}

// TestSmallRequestsPass: a small request does not wait for large ones, and one that
// waits frees its room when its turn is stopped.
func TestSmallRequestsPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Config{Resolve: (&crowdModels{}).Resolve, Limits: Limits{AllRequestBytes: 8_000_000}})
		ctx, cancel := context.WithCancelCause(t.Context())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				run := newFakeRun(t, crowded(), "go")
				run.state = map[string]any{"k": strings.Repeat("x", 1_500_000)}
				if err := r.runTurn(ctx, run); err == nil {
					t.Error("it was not stopped")
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		for n := range 3 {
			from := time.Now()
			if err := r.runTurn(t.Context(), newFakeRun(t, llm("a"), fmt.Sprint("go ", n))); err != nil || time.Since(from) != time.Second {
				t.Errorf("a small one took %v: %v", time.Since(from), err)
			}
		}
		cancel(session.ErrSuspended)
		wg.Wait()
		if !r.requests.small.TryAcquire(r.requests.smallRoom) || !r.requests.large.TryAcquire(r.requests.largeRoom) {
			t.Error("room is taken, and no call is under way")
		}
	})
}

package session_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/store"
)

// An append that a timer has begun is over when Shutdown has returned nil: here that of the
// result of a call whose time is over, in a store that is slow.
func TestShutdownWaitsForWhatATimerAppends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &tampered{Store: memory(t)}
		m, err := session.NewManager(session.Config{
			Store: db, Runner: &engine{run: talk}, Limits: limits.Limits{ToolTimeout: time.Second, StopGrace: time.Minute},
		})
		if err != nil {
			t.Fatal(err)
		}
		turn, err := m.Start(t.Context(), session.Request{Prompt: "ask", Agent: tree(), Tools: tools()})
		if err != nil {
			t.Fatal(err)
		}
		w := turn.Watch()
		defer w.Close()
		var appends, slow atomic.Int64
		time.Sleep(500 * time.Millisecond)
		db.tamper(func(ctx context.Context, b store.Batch) error {
			appends.Add(1)
			defer appends.Add(-1)
			slow.Add(1)
			time.Sleep(3 * time.Second)
			return db.Store.Append(ctx, b)
		})
		time.Sleep(time.Second) // the call's time is over
		hard, cancel := context.WithCancel(t.Context())
		cancel()
		if err := m.Shutdown(hard); err != nil {
			t.Error(err)
		}
		if slow.Load() == 0 || appends.Load() != 0 {
			t.Errorf("%d of %d appends are under way", appends.Load(), slow.Load())
		}
	})
}

package session_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/store"
)

// slowly is a store whose appends are there before they are said to be.
type slowly struct {
	store.Store
	mu   sync.Mutex
	gate chan struct{} // protected by mu
}

func (s *slowly) Append(ctx context.Context, b store.Batch) error {
	err := s.Store.Append(ctx, b)
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return err
}

// shut has appends wait after they are made.
func (s *slowly) shut() (open func()) {
	gate := make(chan struct{})
	s.mu.Lock()
	s.gate = gate
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		s.gate = nil
		s.mu.Unlock()
		close(gate)
	}
}

// Between the writing of a turn's start and the moment from which its session
// knows, the turn can be looked at, listed, and deleted with its session.
func TestTurnThatIsJustRecorded(t *testing.T) {
	for name, queued := range map[string]bool{"started": false, "queued": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &slowly{Store: memory(t)}
				f := newFixture(t, store, limits.Limits{})
				f.on(talk)
				id := f.create(session.Names{}).ID
				req := session.Request{SessionID: id, Prompt: "ask", Agent: tree(), Tools: tools()}
				want, rows := index.Running, 1
				if queued {
					await(t, f.start(req).Watch(), isCall)
					req.OnBusy, want, rows = enqueue, index.Pending, 2
				}
				open := store.shut()
				started := make(chan struct{})
				go func() { f.start(req); close(started) }()
				synctest.Wait()
				turns, _, err := f.m.ListTurns(t.Context(), index.TurnQuery{}, "", 9)
				if err != nil || len(turns) != rows || turns[0].Status != want {
					t.Errorf("listed: %+v, %v", turns, err)
				}
				if !queued {
					if turn, err := f.m.Turn(t.Context(), id, ""); err != nil || turn.Status != index.Running {
						t.Errorf("the turn: %+v, %v", turn, err)
					}
				}
				if info, err := f.m.Session(t.Context(), id); err != nil || info.LastIs != index.Running {
					t.Errorf("the session's last turn is %v, %v", info.LastIs, err)
				}
				time.AfterFunc(100*time.Millisecond, open)
				if err := f.m.DeleteSession(t.Context(), id); err != nil {
					t.Errorf("delete: %v", err)
				}
				<-started
			})
		})
	}
}

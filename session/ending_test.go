package session_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// gated is a store whose appends wait for the gate when there is one.
type gated struct {
	store.Store

	mu   sync.Mutex
	gate chan struct{} // protected by mu
}

// shut makes further appends wait until the function it returns is called.
func (g *gated) shut() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	gate := make(chan struct{})
	g.gate = gate
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.gate = nil
		close(gate)
	}
}

func (g *gated) Append(ctx context.Context, b store.Batch) error {
	g.mu.Lock()
	gate := g.gate
	g.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return g.Store.Append(ctx, b)
}

func refusedAs(t *testing.T, err error, text string) {
	t.Helper()
	if code(err) != agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want INVALID_REQUEST with %q", err, text)
	}
}

// A result that arrives while the turn's end is being written does not follow
// it into the log.
func TestNothingFollowsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &gated{Store: memory(t)}
		f := newFixture(t, store, limits.Limits{})
		f.on(func(ctx context.Context, r *session.Run) error {
			_, err := call(ctx, r, "late")
			return err
		})
		turn := f.start(session.Request{})
		w := turn.Watch()
		await(t, w, isCall)
		open := store.shut()
		turn.Cancel("enough")
		synctest.Wait() // the end is being written
		out := "x"
		var late sync.WaitGroup
		late.Go(func() {
			refusedAs(t, turn.SubmitResult(t.Context(), session.ClientResult{CallID: "late", Output: &out}), "is over")
		})
		synctest.Wait()
		open()
		late.Wait()
		follow(t, w)
		recs, err := store.Read(t.Context(), turn.SessionID(), 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		var kinds []record.Kind
		for _, rec := range recs {
			kinds = append(kinds, rec.Kind)
		}
		if got := fmt.Sprint(kinds); got != "[turn_started event turn_ended]" {
			t.Errorf("the log holds %s", got)
		}
	})
}

// What Result says at the end of a run stands: a result on its way counts, and
// a later one is refused.
func TestResultIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &gated{Store: memory(t)}
		f := newFixture(t, store, limits.Limits{})
		var turn *session.Turn
		started := make(chan struct{})
		out := "x"
		var late sync.WaitGroup
		f.on(func(ctx context.Context, r *session.Run) error {
			ev := &record.Event{Path: root}
			for _, id := range []string{"slow", "none"} {
				ev.Calls = append(ev.Calls, record.ToolCall{ID: id, Name: "tool", Path: root})
			}
			if err := add(ctx, r, ev); err != nil {
				return err
			}
			<-started
			open := store.shut()
			var rest sync.WaitGroup
			defer rest.Wait()
			rest.Go(func() {
				if err := turn.SubmitResult(ctx, session.ClientResult{CallID: "slow", Output: &out}); err != nil {
					t.Errorf("answer: %v", err)
				}
			})
			synctest.Wait() // the result is being written
			rest.Go(func() {
				if res, ok := r.Result("slow"); !ok || res.Output == nil || *res.Output != out {
					t.Errorf("the result on its way is %+v, %v", res, ok)
				}
			})
			synctest.Wait()
			open()
			if res, ok := r.Result("none"); ok {
				t.Errorf("nobody has answered, the result is %+v", res)
			}
			late.Go(func() {
				refusedAs(t, turn.SubmitResult(t.Context(), session.ClientResult{CallID: "none", Output: &out}), "too late")
			})
			late.Go(func() { refusedAs(t, turn.CancelCall(t.Context(), "none"), "too late") })
			synctest.Wait() // they wait for the end of the run
			if res, ok := r.Result("none"); ok {
				t.Errorf("a refused answer counts: %+v", res)
			}
			if _, ok := r.Result("unknown"); ok {
				t.Error("an unknown call has a result")
			}
			return nil
		})
		turn = f.start(session.Request{})
		close(started)
		if !end(t, follow(t, turn.Watch())).Completed {
			t.Error("not completed")
		}
		late.Wait()
	})
}

package session_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

// sleeper is an engine whose runs are counted: those that have begun, and those that have not returned.
type sleeper struct{ begun, active atomic.Int32 }

// on has f run turns of the engine run, counted.
func (s *sleeper) on(f *fixture, run func(ctx context.Context, r *session.Run) error) {
	f.on(func(ctx context.Context, r *session.Run) error {
		s.begun.Add(1)
		s.active.Add(1)
		defer s.active.Add(-1)
		return run(ctx, r)
	})
}

// result gives the result of a call.
func result(t *testing.T, turn *session.Turn, id, output string) {
	t.Helper()
	if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: id, Output: &output}); err != nil {
		t.Error(err)
	}
}

// kinds counts the records of a turn's session by what they say.
func (f *fixture) kinds(turn *session.Turn) map[record.Kind]int {
	f.t.Helper()
	kinds := map[record.Kind]int{}
	for _, rec := range f.log(turn.SessionID()) {
		kinds[rec.Kind]++
	}
	return kinds
}

// want holds how many runs of the engine have begun, and how many there are.
func (s *sleeper) want(t *testing.T, begun, active int32) {
	t.Helper()
	synctest.Wait()
	if b, a := s.begun.Load(), s.active.Load(); b != begun || a != active {
		t.Errorf("%d runs of the engine have begun and %d are under way, want %d and %d", b, a, begun, active)
	}
}

// twice is a turn with one response that calls a tool twice.
func twice(ctx context.Context, r *session.Run) error {
	_, err := call(ctx, r, "c1", "c2")
	return err
}

// A turn that only waits lets its engine go, which runs again when a response has all of its results. Its client is
// there all the time and sees nothing of it, nor does the log.
func TestHibernate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		var s sleeper
		s.on(f, twice)
		turn := f.start(session.Request{})
		w := turn.Watch()
		await(t, w, isCall)
		time.Sleep(time.Second)
		s.want(t, 1, 1) // it has three records
		time.Sleep(3 * time.Millisecond)
		s.want(t, 1, 0)
		time.Sleep(time.Minute)
		result(t, turn, "c1", "1")
		s.want(t, 1, 0)
		result(t, turn, "c2", "2")
		s.want(t, 2, 0)
		if e := end(t, follow(t, w)); !e.Completed {
			t.Errorf("the turn ended with %v", e)
		}
		if kinds := f.kinds(turn); kinds[record.KindTurnResumed] > 0 || kinds[record.KindEvent] != 1 || kinds[record.KindToolResult] != 2 {
			t.Errorf("the log has %v", kinds)
		}
	})
}

// A result that comes while the engine returns has it run again, at whatever moment it comes.
func TestHibernateMeetsResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i := range 60 {
			f := newFixture(t, memory(t), limits.Limits{HibernateAfter: time.Second})
			var s sleeper
			s.on(f, func(ctx context.Context, r *session.Run) error {
				_, err := call(ctx, r, "c1")
				if err != nil {
					time.Sleep(time.Duration(i%3) * time.Microsecond) // it takes a while to return
				}
				return err
			})
			turn := f.start(session.Request{})
			w := turn.Watch()
			await(t, w, isCall)
			time.Sleep(time.Second + 2*time.Millisecond + time.Duration(i%5-2)*time.Microsecond)
			result(t, turn, "c1", "1")
			if e := end(t, follow(t, w)); !e.Completed {
				t.Fatalf("round %d: the turn ended with %v", i, e)
			}
			s.want(t, s.begun.Load(), 0)
		}
	})
}

// What ends a turn ends one that hibernates: a cancel, which closes the history by the engine; its time; the time of
// its calls, which settles them; the end of its client, which suspends it; the end of the server.
func TestHibernateEnds(t *testing.T) {
	for name, how := range map[string]struct {
		end  func(t *testing.T, f *fixture, turn *session.Turn, w *session.Watcher)
		want func(*agentdv1.RunResponse_EndResponse) bool
		runs int32
	}{
		"cancel": {func(_ *testing.T, _ *fixture, turn *session.Turn, _ *session.Watcher) {
			turn.Cancel("enough")
		}, func(e *agentdv1.RunResponse_EndResponse) bool {
			return e.GetReason() == "enough" && len(e.GetReceipt().GetCanceledToolCalls()) == 2
		}, 1}, // the fake engine has nothing to close when its context has ended

		"turn timeout": {func(*testing.T, *fixture, *session.Turn, *session.Watcher) {
			time.Sleep(10 * time.Minute)
		}, func(e *agentdv1.RunResponse_EndResponse) bool { return !e.GetCompleted() }, 1},
		"tool timeout": {func(t *testing.T, _ *fixture, turn *session.Turn, _ *session.Watcher) {
			time.Sleep(5 * time.Minute)
		}, func(e *agentdv1.RunResponse_EndResponse) bool { return e.GetCompleted() }, 2},
		"call canceled": {func(t *testing.T, _ *fixture, turn *session.Turn, _ *session.Watcher) {
			for _, id := range []string{"c1", "c2"} {
				if err := turn.CancelCall(t.Context(), id); err != nil {
					t.Error(err)
				}
			}
		}, func(e *agentdv1.RunResponse_EndResponse) bool { return e.GetCompleted() }, 2},
		"no client": {func(t *testing.T, f *fixture, turn *session.Turn, w *session.Watcher) {
			w.Close()
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if kinds := f.kinds(turn); kinds[record.KindTurnResumed] > 0 || kinds[record.KindTurnEnded] > 0 {
				t.Errorf("the log has %v", kinds)
			}
		}, nil, 1},
		"shutdown": {func(t *testing.T, f *fixture, turn *session.Turn, w *session.Watcher) {
			if err := f.m.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := followErr(t, w); code(err) != agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE {
				t.Errorf("the watcher ended with %v", err)
			}
		}, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memory(t), limits.Limits{TurnTimeout: 8 * time.Minute, ToolTimeout: 5 * time.Minute})
				if name == "turn timeout" {
					f = newFixture(t, memory(t), limits.Limits{TurnTimeout: 8 * time.Minute, ToolTimeout: time.Hour})
				}
				var s sleeper
				s.on(f, func(ctx context.Context, r *session.Run) error {
					err := twice(ctx, r)
					if err != nil && !errors.Is(err, session.ErrSuspended) {
						r.Result("c1")
						r.Result("c2")
					}
					return err
				})
				turn := f.start(session.Request{})
				w := turn.Watch()
				await(t, w, isCall)
				time.Sleep(10 * time.Second)
				s.want(t, 1, 0)
				how.end(t, f, turn, w)
				if how.want != nil {
					if e := end(t, follow(t, w)); !how.want(e) {
						t.Errorf("the turn ended with %v", e)
					}
				}
				s.want(t, how.runs, 0)
				<-turn.Done()
			})
		})
	}
}

// While another agent of the turn may work, the engine stays, until it waits too.
func TestHibernateParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		leaf := func(name string) *agentdv1.Agent {
			return &agentdv1.Agent{Name: name, AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: "m"}}}
		}
		both := &agentdv1.Agent{Name: "both", AgentType: &agentdv1.Agent_Parallel{Parallel: &agentdv1.ParallelAgent{
			Agents: []*agentdv1.Agent{leaf("a"), leaf("b")},
		}}}
		var s sleeper
		ask := func(ctx context.Context, r *session.Run, name string) error {
			ev := &record.Event{Path: []string{"both", name}, Calls: []record.ToolCall{
				{ID: name, Name: "tool", Input: []byte(`{}`), Path: []string{"both", name}},
			}}
			if err := add(ctx, r, ev); err != nil {
				return err
			}
			_, err := r.Await(ctx, name)
			return err
		}
		s.on(f, func(ctx context.Context, r *session.Run) error {
			other := make(chan error, 1)
			go func() { other <- ask(ctx, r, "a") }()
			select {
			case <-time.After(time.Minute):
			case <-ctx.Done():
				return errors.Join(context.Cause(ctx), <-other)
			}
			return errors.Join(ask(ctx, r, "b"), <-other)
		})
		turn := f.start(session.Request{Agent: both, Tools: []*agentdv1.Tool{{Name: "tool", Description: "a tool"}}})
		w := turn.Watch()
		await(t, w, isCall)
		time.Sleep(time.Minute / 2)
		s.want(t, 1, 1)
		await(t, w, isCall)
		time.Sleep(10 * time.Second)
		s.want(t, 1, 0)
		result(t, turn, "a", "1")
		s.want(t, 2, 1)
		turn.Cancel("enough")
		follow(t, w)
	})
}

// A turn that waits for a person hibernates as well. An approval offers the call to a client, which does not need the
// engine; the budget counts each model call once.
func TestHibernateApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		var s sleeper
		s.on(f, func(ctx context.Context, r *session.Run) error {
			for i := range 3 {
				id := fmt.Sprint("q", i)
				if _, over := r.ResultNow(id); over {
					continue
				}
				done, err := r.BeginCall(ctx, record.ModelCall{}, nil)
				if err != nil {
					return err
				}
				ev := &record.Event{MessageID: id, Path: root, Usage: &record.Usage{Total: 5, Calls: 1}, Calls: []record.ToolCall{
					{ID: id, Name: "tool", Input: []byte(`{}`), Path: root, Asks: &record.Question{Kind: approval}},
				}}
				err = add(ctx, r, ev)
				done(false)
				if err != nil {
					return err
				}
				if _, err := r.Await(ctx, id); err != nil {
					return err
				}
			}
			return nil
		})
		turn := f.start(session.Request{Budget: record.Budget{ModelCalls: 5}})
		w := turn.Watch()
		for i := range 3 {
			id := fmt.Sprint("q", i)
			await(t, w, isAsked)
			time.Sleep(time.Hour)
			s.want(t, int32(i+1), 0)
			if err := turn.Resolve(t.Context(), id, approve("")); err != nil {
				t.Fatal(err)
			}
			await(t, w, isCall)
			s.want(t, int32(i+1), 0)
			result(t, turn, id, "done")
		}
		if e := end(t, follow(t, w)); !e.Completed {
			t.Errorf("the turn ended with %v", e)
		}
	})
}

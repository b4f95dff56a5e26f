package session_test

import (
	"context"
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

// A turn that waits for a tool has to end when the result cannot be recorded:
// nothing can settle the call any more.
func TestStoreThatFailsOnAnAnswer(t *testing.T) {
	unavailable := agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE
	for name, settle := range map[string]func(*session.Turn, *session.Watcher) error{
		"answer": func(turn *session.Turn, _ *session.Watcher) error {
			return turn.SubmitResult(t.Context(), session.ClientResult{CallID: "c", Output: new("x")})
		},
		"cancel":     func(turn *session.Turn, _ *session.Watcher) error { return turn.CancelCall(t.Context(), "c") },
		"unattended": func(_ *session.Turn, w *session.Watcher) error { w.Unattended("gone"); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			store := &faulty{Store: memory(t)}
			f := newFixture(t, store, limits.Limits{})
			f.on(func(ctx context.Context, r *session.Run) error {
				_, err := call(ctx, r, "c")
				return err
			})
			turn := f.start(session.Request{})
			w := turn.Watch()
			await(t, w, isCall)
			store.before.Store(true)
			if err := settle(turn, w); err != nil && code(err) != unavailable {
				t.Errorf("settle: %v", err)
			}
			got, err := followErr(t, w)
			<-turn.Done()
			if code(err) != unavailable {
				t.Errorf("the watcher read %v, then %v", got, err)
			}
			store.before.Store(false)
			f.on(func(ctx context.Context, r *session.Run) error { return say(ctx, r, "m", root, "again") })
			next := follow(t, f.start(session.Request{SessionID: turn.SessionID()}).Watch())
			if texts(next)["root"] != "again" || !end(t, next).Completed {
				t.Errorf("next turn: %v", next)
			}
		})
	}
}

// TestEnginePanics has the engine panic while turns start: the session and the
// manager stay of use, which the fixture's shutdown shows too.
func TestEnginePanics(t *testing.T) {
	store := memory(t)
	f := newFixture(t, store, limits.Limits{MaxTurns: 1})
	f.check = func(spec *record.Spec) error {
		if spec.Prompt == "panic" {
			panic("check")
		}
		return nil
	}
	f.on(func(ctx context.Context, r *session.Run) error { return say(ctx, r, "m", root, "x") })
	turn := f.start(session.Request{})
	<-turn.Done()
	for _, id := range []string{"", turn.SessionID()} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_, err := f.m.Start(t.Context(), session.Request{SessionID: id, Agent: tree(), Prompt: "panic"})
			t.Errorf("start: %v", err)
		}()
	}
	if got := follow(t, f.start(session.Request{SessionID: turn.SessionID()}).Watch()); !end(t, got).Completed {
		t.Errorf("after the panics: %v", got)
	}
}

// TestInterruptedTurnWhoseRepairPanics has the engine panic over a turn that a
// crash left open.
func TestInterruptedTurnWhoseRepairPanics(t *testing.T) {
	store := &faulty{Store: memory(t)}
	f := newFixture(t, store, limits.Limits{})
	f.on(func(context.Context, *session.Run) error {
		store.before.Store(true) // the end is not recorded
		return nil
	})
	turn := f.start(session.Request{})
	<-turn.Done()
	store.before.Store(false)
	e := &panicky{engine: f.engine}
	m, err := session.NewManager(session.Config{Store: store, Runner: e})
	if err != nil {
		t.Fatal(err)
	}
	f.on(func(ctx context.Context, r *session.Run) error { return say(ctx, r, "m", root, "x") })
	next, err := m.Start(t.Context(), session.Request{SessionID: turn.SessionID(), Prompt: "go on"})
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	if got := follow(t, next.Watch()); !end(t, got).Completed || !strings.Contains(texts(got)["root"], "x") {
		t.Errorf("next turn: %v", got)
	}
	if err := m.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// panicky panics where an engine makes an interrupted turn's history valid.
type panicky struct{ *engine }

func (e *panicky) Run(ctx context.Context, r *session.Run) error {
	if ctx.Err() != nil {
		panic("repair")
	}
	return e.engine.Run(ctx, r)
}

// TestLogThatCannotBeRead has the engine panic over a record: each request for
// the session is an error of ours, none waits for ever.
func TestLogThatCannotBeRead(t *testing.T) {
	store := memory(t)
	f := newFixture(t, store, limits.Limits{})
	f.on(func(ctx context.Context, r *session.Run) error { return say(ctx, r, "m", root, "x") })
	turn := f.start(session.Request{})
	<-turn.Done()
	m, err := session.NewManager(session.Config{Store: store, Runner: illiterate{f.engine}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := m.Start(t.Context(), session.Request{SessionID: turn.SessionID(), Prompt: "x"}); err == nil || code(err) != 0 {
			t.Errorf("start: %v, want an internal error", err)
		}
	}
	if err := m.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// illiterate panics over every event.
type illiterate struct{ *engine }

func (illiterate) Decode([]byte) (*record.Event, error) { panic("what is this?") }

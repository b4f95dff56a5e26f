package session_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// slowToClose takes a second to make the history of a turn valid that is stopped.
type slowToClose struct{ *engine }

func (e slowToClose) Run(ctx context.Context, r *session.Run) error {
	if ctx.Err() != nil {
		r.Result("c-" + r.TurnID())
		time.Sleep(time.Second)
		return context.Cause(ctx)
	}
	return e.engine.Run(ctx, r)
}

// TestCallsOfATurnThatIsBeingClosed: whoever closes a suspended turn, what others do
// about it meanwhile comes to an end, and so does the turn.
func TestCallsOfATurnThatIsBeingClosed(t *testing.T) {
	for name, closes := range map[string]func(f *fixture, turn *session.Turn) error{
		"cancel": func(f *fixture, turn *session.Turn) error {
			return f.m.CancelTurn(f.t.Context(), turn.SessionID(), "", "enough")
		},
		"delete": func(f *fixture, turn *session.Turn) error { return f.m.DeleteSession(f.t.Context(), turn.SessionID()) },
		"another prompt": func(f *fixture, turn *session.Turn) error {
			next, err := f.m.Start(f.t.Context(), session.Request{SessionID: turn.SessionID(), Prompt: "say", OnBusy: interrupt})
			if err == nil {
				next.Cancel("")
			}
			return err
		},
		"a handle": func(_ *fixture, turn *session.Turn) error { turn.Cancel("enough"); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &engine{}
				m, err := session.NewManager(session.Config{Store: memory(t), Runner: slowToClose{e}})
				if err != nil {
					t.Fatal(err)
				}
				f := &fixture{engine: e, t: t, m: m}
				f.on(talk)
				turn := f.start(session.Request{Prompt: "ask"})
				<-turn.Done() // suspended
				begun := time.Now()
				closed := make(chan error, 1)
				go func() { closed <- closes(f, turn) }()
				time.Sleep(500 * time.Millisecond)
				now, w, attachErr := m.Attach(t.Context(), session.AttachRequest{SessionID: turn.SessionID()})
				err = m.CancelCall(t.Context(), session.AttachRequest{SessionID: turn.SessionID(), TurnID: turn.ID()}, "c-"+turn.ID())
				if err != nil && code(err) == 0 {
					t.Errorf("cancel call: %v", err)
				}
				if attachErr == nil {
					w.Close()
					<-now.Done()
				}
				if err := <-closed; err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if took := time.Since(begun); took > 10*time.Second {
					t.Errorf("it took %v", took)
				}
				if err := m.DeleteSession(t.Context(), turn.SessionID()); err != nil && code(err) != agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND {
					t.Errorf("delete: %v", err)
				}
				if err := m.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestCloseThatFails: a suspended turn that could not be closed waits as before.
func TestCloseThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &tampered{Store: memory(t)}
		e := &engine{}
		m, err := session.NewManager(session.Config{Store: db, Runner: slowToClose{e}})
		if err != nil {
			t.Fatal(err)
		}
		f := &fixture{engine: e, t: t, m: m}
		f.on(talk)
		turn := f.start(session.Request{Prompt: "ask"})
		<-turn.Done()
		db.tamper(always(store.ErrFull))
		if err := m.CancelTurn(t.Context(), turn.SessionID(), "", "enough"); code(err) != unavailable {
			t.Errorf("cancel: %v", err)
		}
		db.tamper(nil)
		if err := m.CancelCall(t.Context(), session.AttachRequest{SessionID: turn.SessionID()}, "c-"+turn.ID()); err != nil {
			t.Errorf("cancel call: %v", err)
		}
		_, w := f.attach(session.AttachRequest{SessionID: turn.SessionID()})
		if !end(t, follow(t, w)).Completed {
			t.Error("not completed")
		}
		if err := m.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestCancelOfAQueuedTurnEnds, with an error if that cannot be written; and the session
// is of use as soon as the store is, whoever still holds the one that broke.
func TestCancelOfAQueuedTurnEnds(t *testing.T) {
	for name, how := range map[string]error{"full": store.ErrFull, "fails": errBlip} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &tampered{Store: memory(t)}
				f := newFixture(t, store, limits.Limits{StorePatience: 5 * time.Second})
				stubborn := make(chan struct{})
				f.on(func(ctx context.Context, r *session.Run) error {
					err := talk(ctx, r)
					if ctx.Err() != nil {
						<-stubborn // an engine that does not stop at once
					}
					return err
				})
				running := f.start(session.Request{Prompt: "ask"})
				w := running.Watch()
				await(t, w, isCall)
				queued := f.start(session.Request{SessionID: running.SessionID(), Prompt: "say", OnBusy: enqueue})
				store.tamper(always(how))
				if err := f.m.CancelTurn(t.Context(), running.SessionID(), queued.ID(), "no"); code(err) != unavailable {
					t.Errorf("cancel: %v", err)
				}
				store.tamper(nil)
				w.Close()
				time.Sleep(time.Second)
				info, err := f.m.Turn(t.Context(), running.SessionID(), queued.ID())
				if err != nil || info.Status != index.Pending {
					t.Errorf("the queued turn is %v, %v", info.Status, err)
				}
				f.on(talk)
				again, w := f.attach(session.AttachRequest{SessionID: running.SessionID(), Tools: []string{"tool"}})
				close(stubborn)
				answer(t, again)
				if !end(t, follow(t, w)).Completed {
					t.Error("not completed")
				}
				synctest.Wait() // until the queued turn is started
				_, w = f.attach(session.AttachRequest{SessionID: running.SessionID(), TurnID: queued.ID()})
				if !end(t, follow(t, w)).Completed {
					t.Error("the queued turn is not completed")
				}
			})
		})
	}
}

// TestTurnThatIsHeldForLong is of use after it was suspended, and after it was resumed
// by another client, whether or not its session stayed in memory.
func TestTurnThatIsHeldForLong(t *testing.T) {
	for _, resumed := range []bool{false, true} {
		for name, does := range map[string]func(turn *session.Turn) error{
			"answer": func(turn *session.Turn) error {
				return turn.SubmitResult(context.Background(), session.ClientResult{CallID: "c-" + turn.ID(), Output: new("ok")})
			},
			"cancel call": func(turn *session.Turn) error { return turn.CancelCall(context.Background(), "c-"+turn.ID()) },
			"cancel":      func(turn *session.Turn) error { turn.Cancel("enough"); return nil },
			"resolve": func(turn *session.Turn) error {
				return turn.Resolve(context.Background(), "c-"+turn.ID(), record.Resolution{Decision: record.Approve})
			},
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFixture(t, memory(t), limits.Limits{})
					f.on(func(ctx context.Context, r *session.Run) error {
						if name != "resolve" {
							return talk(ctx, r)
						}
						n, err := eventsOf(ctx, r)
						id := "c-" + r.TurnID()
						if err == nil && n == 0 {
							err = add(ctx, r, &record.Event{Path: root, Calls: []record.ToolCall{
								{ID: id, Name: "tool", Input: []byte("{}"), Path: root, Asks: &record.Question{Kind: approval}},
							}})
						}
						if err == nil {
							_, err = r.Await(ctx, id)
						}
						return err
					})
					turn := f.start(session.Request{Prompt: "ask"})
					<-turn.Done()
					if resumed {
						_, w := f.attach(session.AttachRequest{SessionID: turn.SessionID()})
						defer w.Close()
					}
					if err := does(turn); err != nil {
						t.Fatalf("resumed=%v: %v", resumed, err)
					}
					if name == "resolve" {
						if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "c-" + turn.ID(), Output: new("ok")}); err != nil {
							t.Errorf("the call that was approved: %v", err)
						}
					}
					synctest.Wait()
					info, err := f.m.Turn(t.Context(), turn.SessionID(), turn.ID())
					if err != nil || info.End == nil || info.End.Completed == (name == "cancel") {
						t.Errorf("resumed=%v: it is %v with %+v, %v", resumed, info.Status, info.End, err)
					}
					if name == "answer" {
						if err := does(turn); err != nil {
							t.Errorf("the same answer again: %v", err)
						}
					}
					if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "c-" + turn.ID(), Output: new("late")}); err == nil || errors.Is(err, context.Canceled) {
						t.Errorf("another answer: %v", err)
					}
				})
			})
		}
	}
}

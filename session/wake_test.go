package session_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/store"
)

// The result that a turn waits for comes while the turn is being suspended: the turn
// resumes, with nobody there.
func TestAnswerWhileTheTurnIsPutAside(t *testing.T) {
	for name, tc := range map[string]struct {
		engine func(context.Context, *session.Run) error
		asked  func(*fixture, *session.Watcher)
		answer func(*fixture, *session.Turn) error
	}{
		"resolution": {
			curious,
			func(f *fixture, w *session.Watcher) { await(f.t, w, isAsked) },
			func(f *fixture, turn *session.Turn) error {
				_, err := f.m.Resolve(f.t.Context(), session.AttachRequest{SessionID: turn.SessionID()}, "q1", reply("so"))
				return err
			},
		},
		"tool result": {
			talk,
			func(f *fixture, w *session.Watcher) { await(f.t, w, isCall) },
			func(f *fixture, turn *session.Turn) error {
				answers := []session.ClientResult{{CallID: "c-" + turn.ID(), Output: new("so")}}
				errs, err := f.m.SubmitResults(f.t.Context(), session.AttachRequest{SessionID: turn.SessionID()}, answers)
				return errors.Join(append(errs, err)...)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memory(t), limits.Limits{IdleTurn: time.Minute})
				leave := make(chan struct{})
				f.on(func(ctx context.Context, r *session.Run) error {
					err := tc.engine(ctx, r)
					if errors.Is(context.Cause(ctx), session.ErrSuspended) {
						<-leave // it takes its time
					}
					return err
				})
				turn := f.start(session.Request{Prompt: "ask"})
				w := turn.Watch()
				tc.asked(f, w)
				w.Close()
				time.Sleep(time.Minute)
				synctest.Wait()
				done := make(chan error, 1)
				go func() { done <- tc.answer(f, turn) }()
				synctest.Wait()
				close(leave)
				if err := <-done; err != nil {
					t.Errorf("answer: %v", err)
				}
				time.Sleep(time.Minute)
				if info, err := f.m.Turn(t.Context(), turn.SessionID(), turn.ID()); err != nil || info.Status != index.Succeeded {
					t.Errorf("afterwards it is %+v, %v", info, err)
				}
			})
		})
	}
}

// A result that was taken while the store is full resumes its turn when it is written,
// with nobody there.
func TestAnswerThatWaitsForSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &tampered{Store: memory(t)}
		f := newFixture(t, db, limits.Limits{IdleTurn: time.Minute})
		f.on(talk)
		turn := f.start(session.Request{Prompt: "ask"})
		w := turn.Watch()
		await(t, w, isCall)
		w.Close()
		db.tamper(always(store.ErrFull))
		answers := []session.ClientResult{{CallID: "c-" + turn.ID(), Output: new("so")}}
		errs, err := f.m.SubmitResults(t.Context(), session.AttachRequest{SessionID: turn.SessionID()}, answers)
		if err := errors.Join(append(errs, err)...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		db.tamper(nil)
		time.Sleep(time.Hour)
		if info, err := f.m.Turn(t.Context(), turn.SessionID(), turn.ID()); err != nil || info.Status != index.Succeeded {
			t.Errorf("afterwards it is %+v, %v", info, err)
		}
	})
}

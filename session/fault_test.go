package session_test

import (
	"context"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
)

// A turn that waits for a tool has to end when the answer cannot be recorded:
// nothing can settle the call any more.
func TestStoreThatFailsOnAnAnswer(t *testing.T) {
	unavailable := agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE
	for name, settle := range map[string]func(*session.Turn) error{
		"answer": func(turn *session.Turn) error {
			return turn.Answer(t.Context(), session.Answer{CallID: "c", Output: new("x")})
		},
		"cancel":     func(turn *session.Turn) error { return turn.CancelCall(t.Context(), "c") },
		"unattended": func(turn *session.Turn) error { turn.Unattended("gone"); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			store := &faulty{Store: memory(t)}
			f := newFixture(t, store, session.Limits{})
			f.on(func(ctx context.Context, r *session.Run) error {
				_, err := call(ctx, r, "c")
				return err
			})
			turn := f.start(session.Request{})
			w := turn.Watch()
			await(t, w, isCall)
			store.before.Store(true)
			if err := settle(turn); err != nil && code(err) != unavailable {
				t.Errorf("settle: %v", err)
			}
			got := follow(t, w)
			<-turn.Done()
			if e := end(t, got); e.Completed || got[len(got)-2].GetError().GetCode() != unavailable {
				t.Errorf("the turn ended with %v", got)
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

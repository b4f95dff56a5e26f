package session_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

// closingRun opens a call, seals it as a run does that ends, and then ends with the
// server, or, once fail is closed, with an end that the store refuses.
func closingRun(sealed chan<- struct{}, fail <-chan struct{}) func(context.Context, *session.Run) error {
	return func(ctx context.Context, r *session.Run) error {
		ev := &record.Event{MessageID: "m", Path: root, Calls: []record.ToolCall{{ID: "c", Name: "tool", Path: root, Input: []byte("{}")}}}
		if err := add(ctx, r, ev); err != nil {
			return err
		}
		if _, ok := r.Result("c"); ok {
			return errors.New("the call has a result")
		}
		close(sealed)
		select {
		case <-ctx.Done():
		case <-fail:
		}
		return errors.New("the model is gone")
	}
}

// TestAnswerBesideASuspend: a run seals a call and is then suspended. The call takes its
// result, which waits until the suspension is known. The next server has the result.
func TestAnswerBesideASuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory(t)
		f := newFixture(t, store, limits.Limits{})
		sealed := make(chan struct{})
		f.on(closingRun(sealed, nil))
		turn := f.start(session.Request{})
		<-sealed
		said := make(chan error, 1)
		go func() {
			said <- turn.SubmitResult(context.Background(), session.ClientResult{CallID: "c", Output: new("42")})
		}()
		synctest.Wait()
		select {
		case err := <-said:
			t.Fatalf("the answer is refused before the turn has ended: %v", err)
		default:
		}
		stopped, stop := context.WithCancel(t.Context())
		stop()
		if err := f.m.Shutdown(stopped); err != nil {
			t.Fatal(err)
		}
		err := <-said
		recs, rerr := store.Read(t.Context(), turn.SessionID(), 0, 100)
		if rerr != nil {
			t.Fatal(rerr)
		}
		stored := recs[len(recs)-1].Kind == record.KindToolResult
		if err == nil != stored {
			t.Errorf("Answer returned %v, and the result is stored: %v", err, stored)
		}
		if e, ok := errors.AsType[*fault.Error](err); err != nil && (!ok || !e.Retryable()) {
			t.Errorf("got %v, want nil or an error after which the client answers again", err)
		}
	})
}

// TestAnswerBesideAnEnd: the same call of a turn that ends takes no result.
func TestAnswerBesideAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		sealed, fail := make(chan struct{}), make(chan struct{})
		f.on(closingRun(sealed, fail))
		turn := f.start(session.Request{})
		<-sealed
		said := make(chan error, 1)
		go func() {
			said <- turn.SubmitResult(context.Background(), session.ClientResult{CallID: "c", Output: new("42")})
		}()
		synctest.Wait()
		close(fail)
		if err := <-said; code(err) != agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST {
			t.Errorf("got %v, want INVALID_REQUEST: the turn is over", err)
		}
		<-turn.Done()
	})
}

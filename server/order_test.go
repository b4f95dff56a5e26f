package server_test

import (
	"bytes"
	"context"
	"slices"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session"
)

// slow starts no turn until nobody wants one any more.
type slow struct{ starting chan struct{} }

func (s slow) Start(ctx context.Context, _ session.Request) (*session.Turn, error) {
	s.starting <- struct{}{}
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func (s slow) Attach(ctx context.Context, _ session.AttachRequest) (*session.Turn, *session.Watcher, error) {
	_, err := s.Start(ctx, session.Request{})
	return nil, nil, err
}

// A client that leaves, or whose deadline passes, while its turn is being
// started is no fault of the server.
func TestClientThatLeavesAtTheStart(t *testing.T) {
	starting := make(chan struct{}, 1)
	f := serve(t, engine{run: talk}, server.Config{Sessions: slow{starting}})
	t.Run("deadline", func(t *testing.T) {
		c := f.open(t.Context(), t)
		c.RequestHeader().Set("Connect-Timeout-Ms", "50")
		c.send(execute())
		<-starting
		msgs := c.rest()
		if len(msgs) != 1 || msgs[0].GetError().GetCode() != agentdv1.ErrorCode_ERROR_CODE_TIMEOUT {
			t.Errorf("got %s, want TIMEOUT", show(msgs))
		}
	})
	t.Run("disconnect", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := f.open(ctx, t)
		c.send(execute())
		<-starting
		cancel()
		_ = c.CloseRequest()
		_ = c.CloseResponse()
	})
	f.stop()
	if log := f.log.Bytes(); bytes.Contains(log, []byte("ERROR\"")) || !bytes.Contains(log, []byte("disconnected")) {
		t.Errorf("the log must tell of a disconnect and of no fault: %s", log)
	}
}

// When a turn fails, its error stands right before EndResponse, so that clients
// can tell it from refusals of what they have sent.
func TestFailureStandsBeforeTheEnd(t *testing.T) {
	f := serve(t, engine{run: func(ctx context.Context, run *session.Run) error {
		if _, err := ask(ctx, run, "call"); err != nil {
			return err
		}
		return session.Errorf(agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED, "enough for today")
	}}, server.Config{})
	for range 50 {
		c := f.run(t)
		c.until(isCall)
		c.send(answer("call", "x"))
		for range 10 { // refused, while the turn fails
			if c.Send(answer("nothing", "x")) != nil {
				break
			}
		}
		msgs := c.toEnd()
		lastOf(t, msgs)
		errors := slices.DeleteFunc(slices.Clone(msgs), func(m *agentdv1.RunResponse) bool { return !isError(m) })
		if got := msgs[len(msgs)-2].GetError(); got.GetCode() != agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED {
			t.Fatalf("after %d errors EndResponse follows %v", len(errors), got)
		}
	}
}

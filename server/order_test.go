package server_test

import (
	"context"
	"slices"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
)

// When a turn fails, its error comes right before EndResponse, which distinguishes it
// from refusals of messages.
func TestFailureBeforeEnd(t *testing.T) {
	f := serve(t, engine{run: func(ctx context.Context, run *session.Run) error {
		if _, err := ask(ctx, run, "call"); err != nil {
			return err
		}
		return fault.Errorf(agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED, "enough for today")
	}}, server.Config{})
	for range 50 {
		c := f.run(t)
		c.until(isCall)
		c.send(toolResult("call", "x"))
		for range 10 { // refused, while the turn fails
			if c.Send(toolResult("nothing", "x")) != nil {
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

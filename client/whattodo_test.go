package client

import (
	"errors"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/google/go-cmp/cmp"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// TestOutageWaitsAsAsked: what the server asks to wait comes before the random wait,
// and ends the tries when there is not so much time.
func TestOutageWaitsAsAsked(t *testing.T) {
	now := time.Now()
	out := outage{policy: ReconnectPolicy{MaxElapsed: 10 * time.Second, Base: time.Second, Cap: time.Second}}
	if delay, ok := out.next(now, 3*time.Second); !ok || delay <= 3*time.Second || delay > 4*time.Second {
		t.Errorf("waits %v, %v", delay, ok)
	}
	if delay, ok := out.next(now.Add(8*time.Second), 3*time.Second); ok {
		t.Errorf("waits %v past its time", delay)
	}
}

func TestErrorSaysWhatToDo(t *testing.T) {
	got := fromResponse(&agentdv1.RunResponse_ErrorResponse{
		Code: agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED, Message: "too long", SessionId: "s", TurnId: "t",
		RetryAfter: durationpb.New(1500 * time.Millisecond),
		Violations: []*agentdv1.FieldViolation{{Field: "execute.user_prompt", Rule: "range"}},
		Limit:      &agentdv1.ExceededLimit{Name: "prompt_bytes", Value: 10, Received: 11},
	})
	want := &Error{
		Code: ErrLimitExceeded, Message: "too long", SessionID: "s", TurnID: "t",
		RetryAfter: 1500 * time.Millisecond, Violations: []Violation{{"execute.user_prompt", "range"}},
		Limit: &ExceededLimit{"prompt_bytes", 10, 11},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the error differs (-want +got):\n%s", diff)
	}
	busy := connect.NewError(connect.CodeUnavailable, errors.New("full"))
	busy.Meta().Set("Retry-After", "7")
	if e := fromTransport(busy); e.RetryAfter != 7*time.Second {
		t.Errorf("a proxy's Retry-After is %v", e.RetryAfter)
	}
}

package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// older is a server that knows the first version of the protocol and idempotency keys, and
// refuses the fields that came later, by name, as docs/errors.md says. It counts the runs.
func older(runs *atomic.Int32) script {
	return func(_ context.Context, s *peer) error {
		runs.Add(1)
		if field := later(s.first.ProtoReflect(), ""); field != "" {
			return s.send(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_Error{Error: &agentdv1.RunResponse_ErrorResponse{
				Code:       agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST,
				Message:    fmt.Sprintf("this server does not know %#q; it is older than the client, or the name is misspelled", field),
				Violations: []*agentdv1.FieldViolation{{Field: field, Rule: "unknown"}},
			}}})
		}
		return steps(s.started, func() error { return s.text("ok", true, "root") }, func() error { return s.end(true, "") })
	}
}

// later is the path of a field that the first version did not have, "" for none.
func later(m protoreflect.Message, at string) (found string) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		path := strings.TrimPrefix(at+"."+string(fd.Name()), ".")
		switch {
		case fd.Number() >= 10 && fd.Name() != "idempotency_key":
			found = path
		case fd.Message() == nil || fd.IsMap() || !strings.HasPrefix(string(fd.Message().FullName()), "agentd.v1."):
		case fd.IsList():
			for i := range v.List().Len() {
				if found == "" {
					found = later(v.List().Get(i).Message(), fmt.Sprintf("%s[%d]", path, i))
				}
			}
		default:
			found = later(v.Message(), path)
		}
		return found == ""
	})
	return found
}

// TestOlderServer: a run of the first version works against a server that knows no more. What a
// later option asks for is refused by name, at once and for good, and nothing has run: a server
// that skipped it would do what the caller has ruled out.
func TestOlderServer(t *testing.T) {
	var runs atomic.Int32
	c := dial(t, serve(t, older(&runs)))
	if r, err := c.Do(t.Context(), llm(), "hi"); err != nil || r.Text != "ok" {
		t.Fatalf("a run without options: %v, %v", r, err)
	}
	for field, opt := range map[string]client.RunOption{
		"execute.create":             client.WithSessionOrNew("s"),
		"execute.on_busy":            client.WithOnBusy(client.OnBusyInterrupt),
		"execute.on_disconnect":      client.WithOnDisconnect(client.OnDisconnectCancel, 0),
		"execute.budget":             client.WithBudget(client.Budget{ModelCalls: 1}),
		"execute.turn_id":            client.WithTurnID("t"),
		"execute.raw_payloads":       client.WithRawPayloads(),
		"execute.initial_state_json": client.WithInitialState(map[string]int{"n": 1}),
	} {
		t.Run(field, func(t *testing.T) {
			before := runs.Load()
			_, err := c.Do(t.Context(), llm(), "hi", opt)
			failure, ok := errors.AsType[*client.Error](err)
			if !ok || failure.Code != client.ErrInvalidRequest || failure.Retryable || !strings.Contains(failure.Message, "older than the client") {
				t.Fatalf("got %v, want it refused", err)
			}
			if len(failure.Violations) != 1 || failure.Violations[0] != (client.Violation{Field: field, Rule: "unknown"}) {
				t.Errorf("violations %v, want %s", failure.Violations, field)
			}
			if n := runs.Load() - before; n != 1 {
				t.Errorf("%d requests, want one", n)
			}
		})
	}
	t.Run("attach", func(t *testing.T) {
		for _, err := range c.Attach(t.Context(), "s", client.Observe()) {
			failure, ok := errors.AsType[*client.Error](err)
			if !ok || failure.Code != client.ErrInvalidRequest || len(failure.Violations) != 1 || failure.Violations[0].Field != "attach" {
				t.Errorf("got %v, want it refused", err)
			}
		}
	})
}

package client_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// counted are messages as a server sends them that counts them.
func counted(seq int64, m *agentdv1.RunResponse) *agentdv1.RunResponse {
	m.Seq, m.TurnId = seq, "e-1"
	return m
}

func beginning() *agentdv1.RunResponse {
	return counted(1, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_Execute{Execute: &agentdv1.RunResponse_ExecuteResponse{SessionId: "s"}}})
}

func failing(code agentdv1.ErrorCode) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_Error{Error: &agentdv1.RunResponse_ErrorResponse{SessionId: "s", Code: code, Message: "because"}}}
}

func ending(reason string) *agentdv1.RunResponse {
	return counted(9, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_End{End: &agentdv1.RunResponse_EndResponse{SessionId: "s", Reason: &reason}}})
}

// A turn that somebody else has ended did not fail by what the server refused to
// take from this client at that moment.
func TestRefusalIsNotWhyATurnEnded(t *testing.T) {
	url := serve(t, func(_ context.Context, s *peer) error {
		return steps(
			func() error { return s.send(beginning()) },
			func() error { return s.send(failing(agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST)) },
			func() error { return s.send(ending("interrupted by a new turn")) },
		)
	})
	refused, reason := false, ""
	for event, err := range dial(t, url).Run(t.Context(), llm(), "hi") {
		switch {
		case err != nil:
			t.Fatal(err)
		case event.Error != nil:
			refused = true
		case event.End != nil:
			reason = event.End.Reason
		}
	}
	if !refused || reason != "interrupted by a new turn" {
		t.Errorf("refused %v, ended with %q", refused, reason)
	}
}

// What a turn has failed with stays that, also when the connection is lost before
// the end and the next one begins with a refusal.
func TestRefusalDoesNotHideWhyATurnFailed(t *testing.T) {
	var streams atomic.Int32
	url := serve(t, func(_ context.Context, s *peer) error {
		if streams.Add(1) == 1 {
			return steps(
				func() error { return s.send(beginning()) },
				func() error { return s.send(counted(8, failing(agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE))) },
				func() error { return connect.NewError(connect.CodeUnavailable, errors.New("gone")) },
			)
		}
		return steps(
			func() error { return s.send(failing(agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST)) },
			func() error { return s.send(ending("because")) },
		)
	})
	var failed *client.Error
	for _, err := range dial(t, url, quick).Run(t.Context(), llm(), "hi") {
		if err != nil && !errors.As(err, &failed) {
			t.Fatal(err)
		}
	}
	if failed == nil || !errors.Is(failed, client.ErrModelUnavailable) || streams.Load() != 2 {
		t.Errorf("failed with %v after %d streams", failed, streams.Load())
	}
}

package fault

import (
	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/keytext"
)

// Response returns the protocol's message for the error, about a session.
func (e *Error) Response(sessionID string) *agentdv1.RunResponse {
	out := &agentdv1.RunResponse_ErrorResponse{
		SessionId: keytext.Hide(sessionID),
		Code:      e.Code,
		Message:   keytext.Hide(e.Message),
		Retryable: e.Retryable(),
		TurnId:    keytext.Hide(e.TurnID),
	}
	if e.RetryAfter > 0 {
		out.RetryAfter = durationpb.New(e.RetryAfter)
	}
	for _, v := range e.Violations {
		out.Violations = append(out.Violations, &agentdv1.FieldViolation{Field: keytext.Hide(v.Field), Rule: v.Rule})
	}
	if l := e.Limit; l != nil {
		out.Limit = &agentdv1.ExceededLimit{Name: l.Name, Value: l.Value, Received: l.Received}
	}
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_Error{Error: out}}
}

// Package agentd is a driver of backends that are agentd themselves. It is not for users of agentd.
//
// The names of sessions and turns are made of the caller's key, and a turn has an idempotency key: what is sent twice
// happens once, and nothing has to be looked for.
package agentd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/remote"
	"github.com/apzuk3/agentd/session/fault"
)

const (
	// maxMessage is how large a message of the backend may be, in bytes.
	maxMessage = 32 << 20
	// maxBatch is about how large a message of results is, in bytes: servers take 4 MiB.
	maxBatch = 2 << 20
	// toolTimeout is the longest time for a tool that the protocol has: the caller's own time holds.
	toolTimeoutSeconds = 86400
)

// Driver is a remote.Pusher.
type Driver struct {
	stub agentdv1connect.SessionServiceClient
}

var _ remote.Pusher = (*Driver)(nil)

// New returns the driver of a backend at a URL. key is sent as a bearer token. A nil transport is one of its own.
func New(base, key string, transport http.RoundTripper) *Driver {
	if transport == nil {
		transport = http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one, see net/http
	}
	client := &http.Client{
		Transport:     bearer{transport, key},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &Driver{stub: agentdv1connect.NewSessionServiceClient(client, strings.TrimRight(base, "/"),
		connect.WithReadMaxBytes(maxMessage))}
}

// bearer adds a token to each request.
type bearer struct {
	http.RoundTripper
	key string
}

func (b bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	if b.key != "" {
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer "+b.key)
	}
	return b.RoundTripper.RoundTrip(req)
}

// Check implements remote.Driver.
func (*Driver) Check(s remote.Spec) error {
	if s.Model == "" {
		return errors.New("the model is missing: name one that the backend has")
	}
	return nil
}

// Provision implements remote.Driver: the tree goes with each turn, so that nothing is made.
func (*Driver) Provision(_ context.Context, name string, _ remote.Spec) (string, error) {
	return name, nil
}

// Open implements remote.Driver: the first turn makes the session.
func (*Driver) Open(_ context.Context, s remote.Session, _ bool) (string, error) {
	return "remote-" + s.Key.ID(), nil
}

// turnID is the id of the turn of the present message.
func turnID(s remote.Session) string { return fmt.Sprintf("m%d-%s", s.Message, s.Key.ID()) }

// Close implements remote.Driver.
func (d *Driver) Close(ctx context.Context, s remote.Session) error {
	if s.Over {
		return nil
	}
	_, err := d.stub.CancelTurn(ctx, connect.NewRequest(&agentdv1.CancelTurnRequest{
		SessionId: s.ID, TurnId: turnID(s), Reason: "the agent of another server is over",
	}))
	e, ok := errors.AsType[*remote.Error](failed(ctx, err))
	if ok && (e.Code == fault.NotFound || e.Code == fault.SessionNotFound || e.Code == fault.Precondition) {
		return nil // it has not begun, or has ended
	}
	return failed(ctx, err)
}

// Send implements remote.Pusher.
func (d *Driver) Send(ctx context.Context, s remote.Session, in remote.Input) error {
	if in.Message != "" { // a turn that waits gives way to the next message, and so do its calls
		return d.start(ctx, s, in.Message)
	}
	for results := in.Results; len(results) > 0; {
		req := &agentdv1.SubmitToolResultsRequest{SessionId: s.ID, TurnId: turnID(s)}
		for size := 0; len(results) > 0 && (size == 0 || size+len(results[0].Text) <= maxBatch); results = results[1:] {
			size += len(results[0].Text)
			req.Results = append(req.Results, resultOf(results[0]))
		}
		resp, err := d.stub.SubmitToolResults(ctx, connect.NewRequest(req))
		if err != nil {
			return failed(ctx, err)
		}
		for _, r := range resp.Msg.GetRefused() {
			return &remote.Error{Code: r.GetError().GetCode(),
				Message: "it refused the result of a call: " + remote.Cut(r.GetError().GetMessage())}
		}
	}
	return nil
}

func resultOf(r remote.Result) *agentdv1.RunRequest_ToolCallResponse {
	out := &agentdv1.RunRequest_ToolCallResponse{ToolCallId: r.Call.ID, ToolName: r.Call.Name}
	if r.Error {
		out.Result = &agentdv1.RunRequest_ToolCallResponse_Error{Error: r.Text}
	} else {
		out.Result = &agentdv1.RunRequest_ToolCallResponse_Output{Output: r.Text}
	}
	return out
}

// start starts the turn of a message.
func (d *Driver) start(ctx context.Context, s remote.Session, message string) error {
	name := s.Agent // the caller's name of the agent, and eight digits
	if len(name) > 64 {
		name = name[len(name)-64:]
	}
	llm := &agentdv1.LlmAgent{Model: s.Spec.Model, Instruction: s.Spec.Instruction}
	req := &agentdv1.RunRequest_ExecuteRequest{
		Agent:     &agentdv1.Agent{Name: name, AgentType: &agentdv1.Agent_Llm{Llm: llm}},
		SessionId: &s.ID, Create: true, UserPrompt: message, TurnId: turnID(s), IdempotencyKey: turnID(s),
		OnDisconnect: agentdv1.OnDisconnect_ON_DISCONNECT_CONTINUE, OnBusy: agentdv1.OnBusy_ON_BUSY_INTERRUPT,
		ToolTimeout: &durationpb.Duration{Seconds: toolTimeoutSeconds},
	}
	for _, t := range s.Spec.Tools {
		llm.ToolNames = append(llm.ToolNames, t.Name)
		tool := &agentdv1.Tool{Name: t.Name, Description: t.Description}
		if len(t.Schema) > 0 {
			tool.InputSchema = new(string(t.Schema))
		}
		req.Tools = append(req.Tools, tool)
	}
	_, err := d.stub.CreateTurn(ctx, connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: req}))
	return failed(ctx, err)
}

// List implements remote.Pusher: a stream begins at the cursor.
func (*Driver) List(context.Context, remote.Session, func(remote.Event) error) error { return nil }

// failed translates an error of the backend.
func failed(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	e := &remote.Error{Code: agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE, Message: remote.Cut(err.Error())}
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok {
		e.Temporary = true
		return e
	}
	for _, detail := range ce.Details() {
		if value, err := detail.Value(); err == nil {
			if said, ok := value.(*agentdv1.RunResponse_ErrorResponse); ok {
				return &remote.Error{Code: codeOf(said.GetCode()), Message: remote.Cut(said.GetMessage()),
					Temporary: said.GetRetryable()}
			}
		}
	}
	switch ce.Code() {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeAborted, connect.CodeResourceExhausted,
		connect.CodeUnknown, connect.CodeCanceled:
		e.Temporary = true
	case connect.CodeUnauthenticated, connect.CodePermissionDenied:
		e.Code = agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED
	case connect.CodeNotFound:
		e.Code = fault.NotFound
	case connect.CodeFailedPrecondition:
		e.Code = fault.Precondition
	}
	return e
}

// codeOf is what a code of the backend is to our own callers: its refusal of our key is not one of theirs.
func codeOf(code agentdv1.ErrorCode) agentdv1.ErrorCode {
	switch code {
	case agentdv1.ErrorCode_ERROR_CODE_UNAUTHENTICATED, agentdv1.ErrorCode_ERROR_CODE_PERMISSION_DENIED:
		return agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED
	default:
		return code
	}
}

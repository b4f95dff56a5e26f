package cli_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/cli"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a daemon whose answers a test has written down. What is not set is
// unimplemented.
type fake struct {
	agentdv1connect.UnimplementedSessionServiceHandler
	// watch serves the streams of WatchTurn, one after the other; the last one
	// serves those that follow, too.
	watch []func(*agentdv1.WatchTurnRequest, func(...*agentdv1.RunResponse)) error
	// sessions are those of WatchSession.
	sessions []sessionStream
	status   agentdv1.InteractionStatus // of all interactions
	refuse   *agentdv1.RunResponse_ErrorResponse
	answers  chan *agentdv1.RunRequest_ToolCallResponse
	said     chan *agentdv1.ResolveInteractionRequest
	cancel   chan *agentdv1.CancelTurnRequest
	resolve  func(context.Context, *agentdv1.ResolveInteractionRequest) error // nil: takes all
	submit   func(*agentdv1.RunRequest_ToolCallResponse) error                // nil: takes all
	create   func(context.Context, *agentdv1.CreateTurnRequest) error         // nil: takes all

	mu      sync.Mutex // protects the fields below
	streams int
	watched []*agentdv1.WatchTurnRequest
	cursors []string // of WatchSession
}

func dial(t *testing.T, f *fake) *cli.Conn {
	t.Helper()
	f.answers = make(chan *agentdv1.RunRequest_ToolCallResponse, 16)
	f.said = make(chan *agentdv1.ResolveInteractionRequest, 16)
	f.cancel = make(chan *agentdv1.CancelTurnRequest, 1)
	mux := http.NewServeMux()
	mux.Handle(agentdv1connect.NewSessionServiceHandler(f))
	s := httptest.NewServer(mux)
	c, err := cli.Dial(s.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	return c
}

func (f *fake) CreateTurn(ctx context.Context, r *connect.Request[agentdv1.CreateTurnRequest]) (*connect.Response[agentdv1.CreateTurnResponse], error) {
	if f.create != nil {
		if err := f.create(ctx, r.Msg); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(&agentdv1.CreateTurnResponse{Turn: &agentdv1.Turn{Id: "t1", SessionId: "s1"}}), nil
}

func (f *fake) WatchTurn(_ context.Context, r *connect.Request[agentdv1.WatchTurnRequest], s *connect.ServerStream[agentdv1.WatchTurnResponse]) error {
	f.mu.Lock()
	serve := f.watch[min(f.streams, len(f.watch)-1)]
	f.streams++
	f.watched = append(f.watched, r.Msg)
	f.mu.Unlock()
	return serve(r.Msg, func(events ...*agentdv1.RunResponse) {
		for _, e := range events {
			_ = s.Send(&agentdv1.WatchTurnResponse{Event: e})
		}
	})
}

func (f *fake) SubmitToolResults(_ context.Context, r *connect.Request[agentdv1.SubmitToolResultsRequest]) (*connect.Response[agentdv1.SubmitToolResultsResponse], error) {
	out := &agentdv1.SubmitToolResultsResponse{}
	for _, a := range r.Msg.GetResults() {
		if f.refuse != nil {
			out.Refused = append(out.Refused, &agentdv1.RefusedToolResult{ToolCallId: a.GetToolCallId(), Error: f.refuse})
		}
		f.answers <- a
		if f.submit != nil {
			if err := f.submit(a); err != nil {
				return nil, err
			}
		}
	}
	return connect.NewResponse(out), nil
}

func (f *fake) GetInteraction(_ context.Context, r *connect.Request[agentdv1.GetInteractionRequest]) (*connect.Response[agentdv1.GetInteractionResponse], error) {
	return connect.NewResponse(&agentdv1.GetInteractionResponse{Interaction: &agentdv1.Interaction{Id: r.Msg.GetInteractionId(), Status: f.status}}), nil
}

func (f *fake) ResolveInteraction(ctx context.Context, r *connect.Request[agentdv1.ResolveInteractionRequest]) (*connect.Response[agentdv1.ResolveInteractionResponse], error) {
	f.said <- r.Msg
	if f.resolve != nil {
		if err := f.resolve(ctx, r.Msg); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(&agentdv1.ResolveInteractionResponse{}), nil
}

func (f *fake) CancelTurn(_ context.Context, r *connect.Request[agentdv1.CancelTurnRequest]) (*connect.Response[agentdv1.CancelTurnResponse], error) {
	f.cancel <- r.Msg
	return connect.NewResponse(&agentdv1.CancelTurnResponse{}), nil
}

// refused is how a daemon refuses a call.
func refused(code connect.Code, what *agentdv1.RunResponse_ErrorResponse) error {
	err := connect.NewError(code, errors.New(what.GetMessage()))
	if d, failed := connect.NewErrorDetail(what); failed == nil {
		err.AddDetail(d)
	}
	return err
}

// at gives an event its place.
func at(seq int64, event *agentdv1.RunResponse) *agentdv1.RunResponse {
	event.Seq, event.TurnId = seq, "t1"
	return event
}

func says(path []string, text string, opts ...string) *agentdv1.RunResponse {
	c := &agentdv1.RunResponse_OutputChunk{AgentPath: path, Content: text}
	for _, o := range opts {
		c.Last = c.Last || o == "last"
		c.IsThought = c.IsThought || o == "thought"
	}
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_OutputChunk_{OutputChunk: c}}
}

func calls(id, tool, input string, path ...string) *agentdv1.RunResponse {
	if path == nil {
		path = []string{"root", "a"}
	}
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCall{ToolCall: &agentdv1.RunResponse_ToolCallRequest{
		ToolCallId: id, ToolName: tool, ToolInput: input, AgentPath: path,
	}}}
}

func fails(code agentdv1.ErrorCode, text string) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_Error{Error: &agentdv1.RunResponse_ErrorResponse{Code: code, Message: text}}}
}

func ends(completed bool) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_End{End: &agentdv1.RunResponse_EndResponse{
		Completed: completed, UsageSummary: &agentdv1.UsageSummary{LlmCalls: 2, EstimatedCost: 0.0123, TotalUsage: &agentdv1.TokenUsage{TotalTokens: 1234}},
	}}}
}

func requested(i *agentdv1.Interaction) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_InteractionRequested{InteractionRequested: &agentdv1.InteractionRequested{Interaction: i}}}
}

func resolved(i *agentdv1.Interaction) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_InteractionResolved{InteractionResolved: &agentdv1.InteractionResolved{Interaction: i}}}
}

func heartbeat() *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_Heartbeat{Heartbeat: &agentdv1.RunResponse_HeartbeatResponse{}}}
}

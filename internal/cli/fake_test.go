package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/cli"
	"github.com/apzuk3/agentd/internal/toolcmd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a daemon whose answers a test has written down. What is not set is
// unimplemented.
type fake struct {
	agentdv1connect.UnimplementedSessionServiceHandler
	// watch serves the streams of Run, one after the other; the last one serves those that
	// follow, too.
	watch []stream
	// sessions are those of WatchSession.
	sessions []sessionStream
	status   agentdv1.InteractionStatus // of all interactions
	refuse   *agentdv1.RunResponse_ErrorResponse
	results  chan *agentdv1.RunRequest_ToolCallResponse
	said     chan *agentdv1.ResolveInteractionRequest
	cancel   chan *agentdv1.CancelTurnRequest
	resolve  func(context.Context, *agentdv1.ResolveInteractionRequest) error // nil: takes all
	create   func(context.Context, *agentdv1.CreateTurnRequest) error         // nil: takes all

	mu      sync.Mutex // protects the fields below
	streams int
	watched []*agentdv1.AttachRequest
	cursors []string // of WatchSession
}

func dial(t *testing.T, f *fake) *cli.Conn {
	t.Helper()
	s := httptest.NewUnstartedServer(f.handler())
	s.Config.Protocols = protocols()
	s.Start()
	c, err := cli.Dial(s.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	return c
}

// handler serves the fake, which is ready for one test.
func (f *fake) handler() http.Handler {
	f.results = make(chan *agentdv1.RunRequest_ToolCallResponse, 16)
	f.said = make(chan *agentdv1.ResolveInteractionRequest, 16)
	f.cancel = make(chan *agentdv1.CancelTurnRequest, 1)
	mux := http.NewServeMux()
	mux.Handle(agentdv1connect.NewSessionServiceHandler(f))
	mux.Handle(agentdv1connect.NewAgentdHandler(f))
	return mux
}

// protocols is HTTP/2 without TLS.
func protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

func (f *fake) CreateTurn(ctx context.Context, r *connect.Request[agentdv1.CreateTurnRequest]) (*connect.Response[agentdv1.CreateTurnResponse], error) {
	if f.create != nil {
		if err := f.create(ctx, r.Msg); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(&agentdv1.CreateTurnResponse{Turn: &agentdv1.Turn{Id: "t1", SessionId: "s1"}}), nil
}

func (f *fake) GetSession(context.Context, *connect.Request[agentdv1.GetSessionRequest]) (*connect.Response[agentdv1.GetSessionResponse], error) {
	return connect.NewResponse(&agentdv1.GetSessionResponse{Session: &agentdv1.Session{Id: "s1"}}), nil
}

// Run serves a stream on which a client attaches. It answers heartbeats, and takes or
// refuses results of tools.
func (f *fake) Run(_ context.Context, s *connect.BidiStream[agentdv1.RunRequest, agentdv1.RunResponse]) error {
	first, err := s.Receive()
	if err != nil {
		return err
	}
	var sending sync.Mutex // protects over, and is held to send
	var over bool
	send := func(events ...*agentdv1.RunResponse) {
		sending.Lock()
		defer sending.Unlock()
		if over {
			return
		}
		for _, e := range events {
			_ = s.Send(e)
		}
	}
	go func() { // ends with the stream
		for {
			m, err := s.Receive()
			switch a := m.GetToolCallResponse(); {
			case err != nil:
				return
			case m.GetHeartbeat() != nil:
				send(heartbeat())
			case a != nil:
				f.results <- a
				if f.refuse != nil && a.GetError() == "" {
					e := proto.CloneOf(f.refuse)
					e.ToolCallId = a.GetToolCallId()
					send(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_Error{Error: e}})
				}
			}
		}
	}()
	f.mu.Lock()
	serve := f.watch[min(f.streams, len(f.watch)-1)]
	f.streams++
	f.watched = append(f.watched, first.GetAttach())
	f.mu.Unlock()
	err = serve(first.GetAttach(), send)
	sending.Lock()
	defer sending.Unlock()
	over = true
	return err
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

// tree is what turns run; the fake does not look at it.
var tree = client.LLM("a", "m")

// tools are programs as tools, by name.
func tools(t *testing.T, programs map[string]toolcmd.Command) *client.ToolSet {
	t.Helper()
	set := client.NewToolSet()
	for name, program := range programs {
		if err := cli.AddTool(set, &agentdv1.Tool{Name: name, Description: "does it"}, program); err != nil {
			t.Fatal(err)
		}
	}
	return set
}

func approve(input string) *agentdv1.Resolution {
	said := client.Approve()
	if input != "" {
		said.ToolInput = json.RawMessage(input)
	}
	return said.Proto()
}

func deny(reason string) *agentdv1.Resolution { return client.Deny(reason).Proto() }

func answer(text string) *agentdv1.Resolution { return client.Answer(text).Proto() }

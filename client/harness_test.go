package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

const session = "s-1"

// script is what the fake server does in one Run. An error it
// returns is a transport error, except for io.EOF: the client has left.
type script func(ctx context.Context, s *peer) error

// peer is the fake server's end of a stream.
type peer struct {
	stream  *connect.BidiStream[agentdv1.RunRequest, agentdv1.RunResponse]
	execute *agentdv1.RunRequest_ExecuteRequest // nil: it attaches
	attach  *agentdv1.AttachRequest
	first   *agentdv1.RunRequest // which holds either
}

func (f script) Run(ctx context.Context, stream *connect.BidiStream[agentdv1.RunRequest, agentdv1.RunResponse]) error {
	first, err := stream.Receive()
	if err != nil {
		return err
	}
	s := &peer{stream: stream, execute: first.GetExecute(), attach: first.GetAttach(), first: first}
	if s.execute == nil && s.attach == nil {
		return s.fail(agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "execute or attach must come first", false)
	}
	if err := f(ctx, s); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// serve starts the fake server on a loopback port.
func serve(t *testing.T, f script) string {
	t.Helper()
	return start(t, f, false).URL
}

func start(t *testing.T, f script, tls bool) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(agentdv1connect.NewAgentdHandler(f))
	srv := httptest.NewUnstartedServer(mux)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	if tls {
		srv.EnableHTTP2 = true
		srv.Config.Protocols.SetHTTP2(true)
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	return srv
}

// dial returns a client whose connections end with the test.
func dial(t *testing.T, url string, opts ...client.Option) *client.Client {
	t.Helper()
	c := client.New(url, opts...)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func (s *peer) send(m *agentdv1.RunResponse) error { return s.stream.Send(m) }

func (s *peer) started() error {
	return s.send(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_Execute{
		Execute: &agentdv1.RunResponse_ExecuteResponse{SessionId: session},
	}})
}

func (s *peer) text(content string, last bool, path ...string) error {
	return s.send(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_OutputChunk_{
		OutputChunk: &agentdv1.RunResponse_OutputChunk{SessionId: session, AgentPath: path, Content: content, Last: last},
	}})
}

func (s *peer) call(id, tool, input string) error {
	return s.send(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCall{
		ToolCall: &agentdv1.RunResponse_ToolCallRequest{
			SessionId: session, ToolCallId: id, ToolName: tool, ToolInput: input, AgentPath: []string{"root"},
		},
	}})
}

func (s *peer) cancelTool(id, reason string) error {
	return s.send(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCallCanceled{
		ToolCallCanceled: &agentdv1.ToolCallCanceled{SessionId: session, ToolCallId: id, Reason: reason},
	}})
}

func (s *peer) state(t *testing.T, values map[string]any) error {
	t.Helper()
	delta, err := structpb.NewStruct(values)
	if err != nil {
		return err
	}
	return s.send(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_StateUpdate_{
		StateUpdate: &agentdv1.RunResponse_StateUpdate{SessionId: session, StateDelta: delta},
	}})
}

func (s *peer) fail(code agentdv1.ErrorCode, message string, retryable bool) error {
	return s.send(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_Error{
		Error: &agentdv1.RunResponse_ErrorResponse{SessionId: session, Code: code, Message: message, Retryable: retryable},
	}})
}

// end sends EndResponse and waits for the client's half-close, as agentd does.
func (s *peer) end(completed bool, reason string) error {
	end := &agentdv1.RunResponse_EndResponse{SessionId: session, Completed: completed, UsageSummary: usage()}
	if reason != "" {
		end.Reason = &reason
	}
	if err := s.send(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_End{End: end}}); err != nil {
		return err
	}
	for {
		if _, err := s.receive(); err != nil {
			return err
		}
	}
}

func usage() *agentdv1.UsageSummary {
	return &agentdv1.UsageSummary{TotalUsage: &agentdv1.TokenUsage{TotalTokens: 7}, LlmCalls: 1}
}

// receive returns the next message that is no heartbeat, and replies to heartbeats.
func (s *peer) receive() (*agentdv1.RunRequest, error) {
	for {
		m, err := s.stream.Receive()
		if err != nil || m.GetHeartbeat() == nil {
			return m, err
		}
		if err := s.send(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_Heartbeat{
			Heartbeat: &agentdv1.RunResponse_HeartbeatResponse{SessionId: session},
		}}); err != nil {
			return nil, err
		}
	}
}

// toolResult returns the next result of a tool.
func (s *peer) toolResult() (*agentdv1.RunRequest_ToolCallResponse, error) {
	m, err := s.receive()
	if err != nil {
		return nil, err
	}
	if m.GetToolCallResponse() == nil {
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("want a tool answer, got %v", m))
	}
	return m.GetToolCallResponse(), nil
}

// llm returns a tree of one agent.
func llm(tools ...string) *agentdv1.Agent {
	return &agentdv1.Agent{Name: "root", AgentType: &agentdv1.Agent_Llm{
		Llm: &agentdv1.LlmAgent{Model: "echo", ToolNames: tools},
	}}
}

func mustAdd(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("adding a tool: %v", err)
	}
}

// steps runs what it is given until one fails.
func steps(fs ...func() error) error {
	for _, f := range fs {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// as is what an event says if it is of type T, else nil.
func as[T client.EventData](event *client.Event) T {
	data, _ := event.Data.(T)
	return data
}

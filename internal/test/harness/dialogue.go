package harness

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
)

// IsEnd reports whether m ends a turn.
func IsEnd(m *agentdv1.RunResponse) bool { return m.GetEnd() != nil }

// ToolResponse returns the message that says r about a call.
func ToolResponse(id string, r *agentdv1.RunRequest_ToolCallResponse) *agentdv1.RunRequest {
	r.ToolCallId = id
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_ToolCallResponse_{ToolCallResponse: r}}
}

// Protocols are the protocols that clients speak.
var Protocols = map[string][]connect.ClientOption{
	"connect": nil, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()},
}

// RawClient sends and receives the messages of Run themselves.
type RawClient struct {
	T   *testing.T
	Run agentdv1connect.AgentdClient
}

// Dialogue is what a stream has brought.
type Dialogue struct {
	*Observer
	Msgs []*agentdv1.RunResponse
}

// Talk carries a stream: it sends first, then what react returns for each message.
// If react is nil, it closes the client's side at once.
func (r RawClient) Talk(
	first *agentdv1.RunRequest, react func(*agentdv1.RunResponse) []*agentdv1.RunRequest,
) *Dialogue {
	r.T.Helper()
	s := r.Run.Run(r.T.Context())
	defer func() { _ = s.CloseResponse() }()
	if err := s.Send(first); err != nil {
		r.T.Fatal(err)
	}
	if react == nil {
		_ = s.CloseRequest()
		react = func(*agentdv1.RunResponse) []*agentdv1.RunRequest { return nil }
	}
	d := &Dialogue{Observer: NewObserver(1)}
	for {
		m, err := s.Receive()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			r.T.Fatalf("the stream must end cleanly: %v, after %v", err, d.Msgs)
		}
		d.See(m)
		d.Msgs = append(d.Msgs, m)
		for _, answer := range react(m) {
			if err := s.Send(answer); err != nil {
				r.T.Fatal(err)
			}
		}
		if m.GetEnd() != nil || d.Session == "" {
			_ = s.CloseRequest()
		}
	}
	for _, f := range d.Faults {
		r.T.Error(f)
	}
	if d.Session != "" && d.End == nil {
		r.T.Fatalf("no EndResponse: %v", d.Msgs)
	}
	keepStream(r.T, d.Msgs)
	return d
}

// Completed checks that a turn completed with the given text of each agent.
func (r RawClient) Completed(d *Dialogue, text map[string]string) {
	r.T.Helper()
	if !d.End.GetCompleted() || fmt.Sprint(d.Text) != fmt.Sprint(text) {
		r.T.Errorf("text %q, want %q; end %v, errors %v", d.Text, text, d.End, d.Errors)
	}
}

// Refused checks that a stream brought one error alone, which holds the texts.
func (r RawClient) Refused(d *Dialogue, code agentdv1.ErrorCode, text ...string) {
	r.T.Helper()
	if len(d.Msgs) != 1 || len(d.Errors) != 1 || d.Errors[0].GetCode() != code {
		r.T.Fatalf("got %v, want one error %v", d.Msgs, code)
	}
	for _, want := range text {
		if !strings.Contains(d.Errors[0].GetMessage(), want) {
			r.T.Errorf("message %q does not name %q", d.Errors[0].GetMessage(), want)
		}
	}
}

// Attach returns the message that attaches to a turn, "" for the session's last one,
// after a position, nil for its beginning.
func Attach(session, turn string, after *int64, tools ...*agentdv1.Tool) *agentdv1.RunRequest {
	at := &agentdv1.AttachRequest{SessionId: session, TurnId: turn, AfterSeq: after}
	for _, tool := range tools {
		at.ToolNames = append(at.ToolNames, tool.GetName())
	}
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Attach{Attach: at}}
}

// StartTurn returns the message that starts a turn in a new session.
func StartTurn(agent *agentdv1.Agent, tools ...string) *agentdv1.RunRequest {
	ex := &agentdv1.RunRequest_ExecuteRequest{Agent: agent, UserPrompt: "go"}
	for _, name := range tools {
		ex.Tools = append(ex.Tools, Tool(name))
	}
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: ex}}
}

// ScriptedAgent returns an agent whose model is a script.
func ScriptedAgent(name, script string, tools ...string) *agentdv1.Agent {
	return LLMAgent(name, "scripted/"+script, "", tools...)
}

// ToolResult returns the message that answers a call; without output it has no result.
func ToolResult(id, output string) *agentdv1.RunRequest {
	a := &agentdv1.RunRequest_ToolCallResponse{ToolCallId: id}
	if output != "" {
		a.Result = &agentdv1.RunRequest_ToolCallResponse_Output{Output: output}
	}
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_ToolCallResponse_{ToolCallResponse: a}}
}

// Cancel returns the message that cancels a call, or the turn if id is nil.
func Cancel(id *string) *agentdv1.RunRequest {
	cancel := &agentdv1.RunRequest_CancelRequest{ToolCallId: id}
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Cancel{Cancel: cancel}}
}

// OnCall returns a reaction to tool calls alone.
func OnCall(
	react func(*agentdv1.RunResponse_ToolCallRequest) []*agentdv1.RunRequest,
) func(*agentdv1.RunResponse) []*agentdv1.RunRequest {
	return func(m *agentdv1.RunResponse) []*agentdv1.RunRequest {
		if m.GetToolCall() == nil {
			return nil
		}
		return react(m.GetToolCall())
	}
}

// AnswerAll returns a reaction that answers each call with the same output.
func AnswerAll(output string) func(*agentdv1.RunResponse) []*agentdv1.RunRequest {
	return OnCall(func(c *agentdv1.RunResponse_ToolCallRequest) []*agentdv1.RunRequest {
		return []*agentdv1.RunRequest{ToolResult(c.GetToolCallId(), output)}
	})
}

// Answered reports whether c holds the result of a call.
func Answered(c *genai.Content) bool {
	return len(c.Parts) > 0 && c.Parts[0].FunctionResponse != nil
}

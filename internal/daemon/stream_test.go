package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
)

// runStream is a client's side of a Run stream, whatever the client.
type runStream interface {
	Send(*agentdv1.RunRequest) error
	Receive() (*agentdv1.RunResponse, error)
	CloseRequest() error
}

// foreign is a stream of a gRPC client that is not ours.
type foreign struct{ grpc.ClientStream }

func (s foreign) Send(m *agentdv1.RunRequest) error { return s.SendMsg(m) }
func (s foreign) CloseRequest() error               { return s.CloseSend() }
func (s foreign) Receive() (*agentdv1.RunResponse, error) {
	m := &agentdv1.RunResponse{}
	return m, s.RecvMsg(m)
}

// dialer opens a stream, and says how to let go of it as a client that dies.
type dialer func(t *testing.T) (s runStream, drop func())

func connectDialer(hc *http.Client, url string, opts ...connect.ClientOption) dialer {
	return func(t *testing.T) (runStream, func()) {
		ctx, cancel := context.WithCancel(t.Context())
		s := agentdv1connect.NewAgentdClient(hc, url, opts...).Run(ctx)
		return s, func() {
			cancel()
			_ = s.CloseRequest()
			_ = s.CloseResponse()
		}
	}
}

func grpcDialer(t *testing.T, addr string) dialer {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return func(t *testing.T) (runStream, func()) {
		ctx, cancel := context.WithCancel(t.Context())
		s, err := conn.NewStream(ctx, bidi, agentdv1connect.AgentdRunProcedure)
		if err != nil {
			t.Fatal(err)
		}
		return foreign{s}, cancel
	}
}

// talk is a client with one stream. What it has received is in got.
type talk struct {
	t    *testing.T
	s    runStream
	drop func()
	got  []*agentdv1.RunResponse
}

func (dial dialer) open(t *testing.T, first *agentdv1.RunRequest) *talk {
	t.Helper()
	c := &talk{t: t}
	c.s, c.drop = dial(t)
	c.send(first)
	return c
}

func (c *talk) send(m *agentdv1.RunRequest) {
	c.t.Helper()
	if err := c.s.Send(m); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

// next receives a message, nil at the end of the stream.
func (c *talk) next() *agentdv1.RunResponse {
	c.t.Helper()
	m, err := c.s.Receive()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		c.t.Fatalf("receive: %v after %s", err, show(c.got))
	}
	c.got = append(c.got, m)
	return m
}

// until receives up to a message that is fit, and returns it.
func (c *talk) until(fit func(*agentdv1.RunResponse) bool) *agentdv1.RunResponse {
	c.t.Helper()
	for {
		m := c.next()
		if m == nil {
			c.t.Fatalf("the stream ended: %s", show(c.got))
		}
		if fit(m) {
			return m
		}
	}
}

// rest receives to the end of the stream, and returns the results of the calls that it receives.
// It returns the last message.
func (c *talk) rest() *agentdv1.RunResponse {
	c.t.Helper()
	for {
		m := c.next()
		switch {
		case m == nil:
			c.drop()
			return c.got[len(c.got)-1]
		case m.GetToolCall() != nil:
			c.send(resultFor(m.GetToolCall()))
		case m.GetEnd() != nil:
			if err := c.s.CloseRequest(); err != nil {
				c.t.Fatal(err)
			}
		}
	}
}

func (c *talk) session() string { return c.got[0].GetExecute().GetSessionId() }

// seq is the position of the last message received.
func (c *talk) seq() int64 {
	for _, m := range slices.Backward(c.got) {
		if m.GetSeq() != 0 {
			return m.GetSeq()
		}
	}
	return 0
}

// resultFor is what every tool of these tests says.
func resultFor(call *agentdv1.RunResponse_ToolCallRequest) *agentdv1.RunRequest {
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_ToolCallResponse_{ToolCallResponse: &agentdv1.RunRequest_ToolCallResponse{
		ToolCallId: call.GetToolCallId(), ToolName: call.GetToolName(),
		Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: "result of " + call.GetToolName()},
	}}}
}

// attach is the message that attaches to a session's last turn; without a
// position when seq is negative.
func attach(sessionID string, seq int64, tools ...*agentdv1.Tool) *agentdv1.RunRequest {
	at := &agentdv1.AttachRequest{SessionId: sessionID}
	for _, tool := range tools {
		at.ToolNames = append(at.ToolNames, tool.GetName())
	}
	if seq >= 0 {
		at.AfterSeq = &seq
	}
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Attach{Attach: at}}
}

func isCall(m *agentdv1.RunResponse) bool   { return m.GetToolCall() != nil }
func isNotice(m *agentdv1.RunResponse) bool { return m.GetToolCallAnnounced() != nil }
func isText(m *agentdv1.RunResponse) bool   { return m.GetOutputChunk() != nil }
func isError(m *agentdv1.RunResponse) bool  { return m.GetError() != nil }

func show(msgs []*agentdv1.RunResponse) string {
	var b strings.Builder
	for _, m := range msgs {
		fmt.Fprintf(&b, "\n\t%v", m)
	}
	return b.String()
}

// story is what messages say, whoever received them and however they were cut:
// chunks of one message that follow each other are one, a request for a tool is
// a notice of it, and a repeated request is none.
func story(t *testing.T, msgs []*agentdv1.RunResponse) []string {
	t.Helper()
	var joined []*agentdv1.RunResponse
	var seq int64
	for _, m := range msgs {
		if m.GetSeq() == 0 || m.GetSeq() == seq && m.GetToolCall() != nil {
			continue
		}
		if m.GetSeq() <= seq {
			t.Errorf("position %d after %d: %v", m.GetSeq(), seq, m)
		}
		seq = m.GetSeq()
		m = proto.CloneOf(m)
		m.Replayed = false
		if c := m.GetToolCall(); c != nil {
			m.Response = &agentdv1.RunResponse_ToolCallAnnounced{ToolCallAnnounced: &agentdv1.ToolCallAnnounced{
				SessionId: c.GetSessionId(), ToolCallId: c.GetToolCallId(), ToolName: c.GetToolName(), ToolInput: c.GetToolInput(), AgentPath: c.GetAgentPath(),
			}}
		}
		if n := len(joined); n > 0 && oneMessage(joined[n-1].GetOutputChunk(), m.GetOutputChunk()) {
			c := joined[n-1].GetOutputChunk()
			c.Content += m.GetOutputChunk().GetContent()
			joined[n-1].Seq = m.GetSeq()
			continue
		}
		joined = append(joined, m)
	}
	var out []string
	for _, m := range joined {
		data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%v %x", m, data))
	}
	return out
}

func oneMessage(a, b *agentdv1.RunResponse_OutputChunk) bool {
	return a.GetMessageId() != "" && a.GetMessageId() == b.GetMessageId() && a.GetIsThought() == b.GetIsThought()
}

// text is what an agent has said, without thoughts. A message that is repeated
// after a retract starts over.
func text(msgs []*agentdv1.RunResponse, agent string) string {
	var order []string
	pieces, repeated := map[string]string{}, map[string]bool{}
	for _, m := range msgs {
		if m.GetMessageRetracted() != nil {
			for id := range pieces {
				repeated[id] = true
			}
		}
		c := m.GetOutputChunk()
		if c.GetContent() == "" || c.GetAgentPath()[len(c.GetAgentPath())-1] != agent {
			continue
		}
		id := c.GetMessageId()
		if _, ok := pieces[id]; !ok {
			order = append(order, id)
			pieces[id] = ""
		}
		if repeated[id] {
			pieces[id], repeated[id] = "", false
		}
		if !c.GetIsThought() {
			pieces[id] += c.GetContent()
		}
	}
	var b strings.Builder
	for _, id := range order {
		b.WriteString(pieces[id])
	}
	return b.String()
}

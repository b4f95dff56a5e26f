package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/apzuk3/agentd/adkbridge"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// follower is a client that follows one turn over several streams and servers.
type follower struct {
	t      *testing.T
	stream *connect.BidiStreamForClient[agentdv1.RunRequest, agentdv1.RunResponse]
	drop   func() // lets go of the stream
	got    []*agentdv1.RunResponse
	tools  []*agentdv1.Tool
	asked  map[string]int   // how often a call was asked for, by name
	parts  []*agentdv1.Part // of the prompt, and of each answer
	state  *structpb.Struct // of each answer
}

// open opens a stream to a server; with an agent it starts a turn, without one it
// attaches.
func (f *follower) open(s *served, agent *agentdv1.Agent) {
	f.t.Helper()
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	ctx, cancel := context.WithCancel(f.t.Context())
	f.stream = agentdv1connect.NewAgentdClient(&http.Client{Transport: tr}, s.url).Run(ctx)
	f.drop = func() {
		cancel()
		_ = f.stream.CloseRequest()
		_ = f.stream.CloseResponse()
		tr.CloseIdleConnections()
	}
	f.t.Cleanup(f.drop)
	if agent != nil {
		f.send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: &agentdv1.RunRequest_ExecuteRequest{
			Agent: agent, Tools: f.tools, UserPrompt: "go", UserParts: f.parts, OnDisconnect: agentdv1.OnDisconnect_ON_DISCONNECT_CONTINUE,
		}}})
		return
	}
	at := &agentdv1.AttachRequest{SessionId: f.session()}
	for _, tool := range f.tools {
		at.ToolNames = append(at.ToolNames, tool.GetName())
	}
	for _, m := range slices.Backward(f.got) {
		if m.GetSeq() != 0 {
			at.AfterSeq = new(m.GetSeq())
			break
		}
	}
	f.send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Attach{Attach: at}})
}

func (f *follower) send(m *agentdv1.RunRequest) {
	f.t.Helper()
	if err := f.stream.Send(m); err != nil {
		f.t.Fatalf("send: %v", err)
	}
}

func (f *follower) sendResult(call *agentdv1.RunResponse_ToolCallRequest) {
	f.t.Helper()
	f.send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_ToolCallResponse_{ToolCallResponse: &agentdv1.RunRequest_ToolCallResponse{
		ToolCallId: call.GetToolCallId(), Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: "result of " + call.GetToolName()},
		Parts: f.parts, StateDelta: f.state,
	}}})
}

// until receives up to a message that is fit, and returns it.
func (f *follower) until(fit func(*agentdv1.RunResponse) bool) *agentdv1.RunResponse {
	f.t.Helper()
	for {
		m, err := f.stream.Receive()
		if err != nil {
			f.t.Fatalf("receive: %v after %v", err, f.got)
		}
		f.got = append(f.got, m)
		if call := m.GetToolCall(); call != nil {
			f.asked[call.GetToolName()]++
		}
		if fit(m) {
			return m
		}
	}
}

// flushed waits until the answers that were sent are in the log: the server takes
// the messages of a stream one after the other.
func (f *follower) flushed() {
	f.t.Helper()
	f.send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Heartbeat{Heartbeat: &agentdv1.RunRequest_HeartbeatRequest{}}})
	f.until(func(m *agentdv1.RunResponse) bool { return m.GetHeartbeat() != nil })
}

// end answers what is asked for up to the end of the turn.
func (f *follower) end() *agentdv1.RunResponse_EndResponse {
	f.t.Helper()
	for {
		m := f.until(func(m *agentdv1.RunResponse) bool { return m.GetToolCall() != nil || m.GetEnd() != nil })
		if m.GetEnd() != nil {
			f.drop()
			return m.GetEnd()
		}
		f.sendResult(m.GetToolCall())
	}
}

// suspended receives what the server says when it stops: the turn is not over.
func (f *follower) suspended() {
	f.t.Helper()
	e := f.until(func(m *agentdv1.RunResponse) bool { return m.GetError() != nil || m.GetEnd() != nil }).GetError()
	if e.GetCode() != agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE || !e.GetRetryable() || !strings.Contains(e.GetMessage(), "after_seq") {
		f.t.Errorf("got %v, want UNAVAILABLE with what to do", e)
	}
	if err := f.stream.CloseRequest(); err != nil {
		f.t.Fatal(err)
	}
	if m, err := f.stream.Receive(); !errors.Is(err, io.EOF) {
		f.t.Errorf("got %v, %v, want a clean end", m, err)
	}
}

// lost waits for the stream to break, as it does when the server is killed.
func (f *follower) lost() {
	f.t.Helper()
	for {
		m, err := f.stream.Receive()
		if errors.Is(err, io.EOF) {
			f.t.Fatal("a stream that broke must not look complete")
		}
		if err != nil {
			f.drop()
			return
		}
		f.got = append(f.got, m)
	}
}

func (f *follower) session() string { return f.got[0].GetExecute().GetSessionId() }

// text is what was said: a message that is said again after a retract starts
// over.
func (f *follower) text() string {
	var order []string
	pieces, repeated := map[string]string{}, map[string]bool{}
	for _, m := range f.got {
		if m.GetMessageRetracted() != nil {
			for id := range pieces {
				repeated[id] = true
			}
		}
		c := m.GetOutputChunk()
		if c.GetContent() == "" {
			continue
		}
		id := c.GetMessageId()
		if _, ok := pieces[id]; !ok {
			order = append(order, id)
		}
		if repeated[id] {
			pieces[id], repeated[id] = "", false
		}
		pieces[id] += c.GetContent()
	}
	var b strings.Builder
	for _, id := range order {
		b.WriteString(pieces[id])
	}
	return b.String()
}

// records reads the log of a session whose server has ended: how many model
// calls and results of tools it holds, and whether the turn is over.
func records(t *testing.T, dir, sessionID string) (modelCalls, results int, ended bool) {
	t.Helper()
	store, err := sqlite.Open(t.Context(), filepath.Join(dir, "agentd.db"), sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	log, err := store.Read(t.Context(), sessionID, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	engine := adkbridge.New(adkbridge.Config{})
	for _, rec := range log {
		switch rec.Kind {
		case record.KindEvent:
			ev, err := engine.Decode(rec.Data)
			if err != nil {
				t.Fatal(err)
			}
			if ev.Usage != nil {
				modelCalls++
			}
		case record.KindToolResult:
			results++
		case record.KindTurnEnded:
			ended = true
		default: // says nothing of either
		}
	}
	return modelCalls, results, ended
}

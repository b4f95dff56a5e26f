package server_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/record"
)

// A panic, and an error that is none of the client's business, are an internal
// error without a word of what they say.
func TestSessionServiceFaults(t *testing.T) {
	for name, fault := range map[string]faulty{"panic": {}, "error": {err: errors.New("disk at /secret/path is on fire")}} {
		f := serve(t, engine{run: talk}, server.Config{Sessions: fault})
		c := agentdv1connect.NewSessionServiceClient(f.hc, f.url)
		_, err := c.CancelTurn(t.Context(), connect.NewRequest(&agentdv1.CancelTurnRequest{SessionId: "s", TurnId: "t"}))
		if name == "panic" {
			// Turns gives nothing without an error; Start panics.
			_, err = c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: execute().GetExecute()}))
		}
		if connect.CodeOf(err) != connect.CodeInternal || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "fault") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A stream of WatchTurn on which nothing happens has heartbeats, counts as one of
// the streams, and ends when the server stops.
func TestWatchTurnIsKeptAlive(t *testing.T) {
	f := serve(t, engine{run: hold}, server.Config{HeartbeatEvery: time.Millisecond, MaxStreams: 1})
	c := agentdv1connect.NewSessionServiceClient(f.hc, f.url)
	created, err := c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: execute().GetExecute()}))
	if err != nil {
		t.Fatal(err)
	}
	watch := func() *connect.ServerStreamForClient[agentdv1.WatchTurnResponse] {
		s, err := c.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: created.Msg.GetTurn().GetSessionId()}))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := watch()
	for beats := 0; beats < 3 && s.Receive(); {
		if s.Msg().GetEvent().GetHeartbeat() != nil {
			beats++
		}
	}
	second := watch()
	if second.Receive() || connect.CodeOf(second.Err()) != connect.CodeUnavailable {
		t.Errorf("a stream too many: %v, %v", second.Msg(), second.Err())
	}
	_ = second.Close()
	f.stop()
	var last *agentdv1.RunResponse
	for s.Receive() {
		last = s.Msg().GetEvent()
	}
	if s.Err() != nil || last.GetError().GetCode() != agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE {
		t.Errorf("the stream ended with %v, %v", last, s.Err())
	}
	_ = s.Close()
}

// A client learns that it is attached before the first event.
func TestWatchTurnSendsHeadersAtOnce(t *testing.T) {
	f := serve(t, engine{run: hold}, server.Config{HeartbeatEvery: time.Hour})
	c := agentdv1connect.NewSessionServiceClient(f.hc, f.url)
	created, err := c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: execute().GetExecute()}))
	if err != nil {
		t.Fatal(err)
	}
	id := created.Msg.GetTurn().GetSessionId()
	listed, err := c.ListTurnEvents(t.Context(), connect.NewRequest(&agentdv1.ListTurnEventsRequest{SessionId: id}))
	if err != nil {
		t.Fatal(err)
	}
	events := listed.Msg.GetEvents()
	last := events[len(events)-1].GetSeq()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // only if the reply does not come
	defer cancel()
	s, err := c.WatchTurn(ctx, connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: id, AfterSeq: &last}))
	if err != nil {
		t.Fatal(err)
	}
	if s.ResponseHeader().Get("Content-Type") == "" || ctx.Err() != nil {
		t.Error("nothing was answered")
	}
	_ = s.Close()
}

// A stream has heartbeats, too, while all that happens is hidden by its filter.
func TestFilteredStreamIsKeptAlive(t *testing.T) {
	f := serve(t, engine{run: func(ctx context.Context, run *session.Run) error {
		for ctx.Err() == nil {
			run.Delta(record.Delta{MessageID: "m1", Path: root, Text: "hm", Thought: true})
			time.Sleep(100 * time.Microsecond)
		}
		return context.Cause(ctx)
	}}, server.Config{HeartbeatEvery: 5 * time.Millisecond})
	c := agentdv1connect.NewSessionServiceClient(f.hc, f.url)
	created, err := c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: execute().GetExecute()}))
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{
		SessionId: created.Msg.GetTurn().GetSessionId(), Display: true, Visibility: agentdv1.Display_VISIBILITY_PUBLIC,
	}))
	if err != nil {
		t.Fatal(err)
	}
	for beats := 0; beats < 3 && s.Receive(); {
		e := s.Msg().GetEvent()
		if e.GetOutputChunk() != nil {
			t.Fatalf("not hidden: %v", e)
		}
		if e.GetHeartbeat() != nil {
			beats++
		}
		if e.GetDisplay().GetVisibility() != agentdv1.Display_VISIBILITY_PUBLIC {
			t.Errorf("shown without a display: %v", e)
		}
	}
	f.stop()
	var last *agentdv1.RunResponse
	for s.Receive() {
		last = s.Msg().GetEvent()
	}
	if s.Err() != nil || last.GetError().GetCode() != agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE || last.GetDisplay().GetKind() != agentdv1.Display_KIND_ERROR {
		t.Errorf("the stream ended with %v, %v", last, s.Err())
	}
	_ = s.Close()
}

// A server without Config.Capabilities reports the protocol's own limits.
func TestCapabilitiesOfAnyServer(t *testing.T) {
	f := serve(t, engine{run: talk}, server.Config{MaxMessageBytes: 1 << 16})
	c := agentdv1connect.NewSessionServiceClient(f.hc, f.url)
	got, err := c.GetCapabilities(t.Context(), connect.NewRequest(&agentdv1.GetCapabilitiesRequest{}))
	if err != nil || got.Msg.GetMaxMessageBytes() != 1<<16 || got.Msg.GetMaxPromptBytes() != 1<<20 || len(got.Msg.GetProviders()) != 0 {
		t.Errorf("capabilities: %v, %v", got, err)
	}
	models, err := c.ListModels(t.Context(), connect.NewRequest(&agentdv1.ListModelsRequest{}))
	if err != nil || len(models.Msg.GetModels()) != 0 {
		t.Errorf("models: %v, %v", models, err)
	}
}

// Unary requests are bounded like messages of a stream.
func TestSessionServiceLimits(t *testing.T) {
	f := serve(t, engine{run: talk}, server.Config{MaxMessageBytes: 1 << 10})
	resp, err := f.hc.Post(f.url+agentdv1connect.SessionServiceGetTurnProcedure, "application/json", strings.NewReader(`{"sessionId":"`+strings.Repeat("x", 2<<10)+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusTooManyRequests { // Connect's for RESOURCE_EXHAUSTED
		t.Errorf("a request that is too large: %s", resp.Status)
	}
}

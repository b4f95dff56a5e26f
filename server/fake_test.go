package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// engine is a session.Runner that runs a function.
type engine struct {
	check func(*record.Spec, session.Keys) error
	run   func(context.Context, *session.Run) error
	wrap  func(store.Store) store.Store // what its sessions are kept in; may be nil
}

func (e engine) Check(_ context.Context, spec *record.Spec, keys session.Keys) error {
	if e.check == nil {
		return nil
	}
	return e.check(spec, keys)
}

func (engine) CheckState(*record.Spec, map[string]any) error { return nil }

func (engine) CheckInput(*record.Spec, string, json.RawMessage) error { return nil }

func (engine) Decode(data []byte) (*record.Event, error) {
	ev := &record.Event{}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber() // as adkbridge does
	return ev, dec.Decode(ev)
}

func (e engine) Run(ctx context.Context, run *session.Run) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return e.run(ctx, run)
}

var root = []string{"root"}

// emit appends an event.
func emit(ctx context.Context, run *session.Run, ev *record.Event) error {
	data, err := json.Marshal(ev)
	if err == nil {
		_, err = run.Append(ctx, data, ev)
	}
	return err
}

// say streams a text and completes its message.
func say(ctx context.Context, run *session.Run, id string, words ...string) error {
	var text string
	for _, w := range words {
		run.Delta(record.Delta{MessageID: id, Path: root, Text: w})
		text += w
	}
	return emit(ctx, run, &record.Event{
		MessageID: id, Path: root, Text: text, Marks: run.Marks(id),
		Usage: &record.Usage{Prompt: 2, Completion: 3, Total: 5, Calls: 1},
	})
}

// ask calls tools together and returns what came of them, in order.
func ask(ctx context.Context, run *session.Run, ids ...string) ([]record.ToolResult, error) {
	ev := &record.Event{Path: root}
	for _, id := range ids {
		ev.Calls = append(ev.Calls, record.ToolCall{ID: id, Name: "tool", Input: json.RawMessage(`{"n":1}`), Path: root})
	}
	if err := emit(ctx, run, ev); err != nil {
		return nil, err
	}
	var out []record.ToolResult
	for _, id := range ids {
		res, err := run.Await(ctx, id)
		if err != nil {
			return nil, err
		}
		out = append(out, res)
	}
	return out, nil
}

// talk is a turn that says one thing.
func talk(ctx context.Context, run *session.Run) error {
	return say(ctx, run, "m1", "hel", "lo ", run.Spec().Prompt)
}

// hold is a turn that says one thing and waits to be stopped.
func hold(ctx context.Context, run *session.Run) error {
	if err := say(ctx, run, "m1", "working"); err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// fixture is a served Server.
type fixture struct {
	srv   *server.Server
	hc    *http.Client
	url   string
	log   *logBuffer // the line of a stream comes after it has ended
	stop  func()
	pipes *testdaemon.Listener // nil on a network
}

// serveOn serves a runner on a listener. All of it ends with the test, or with
// stop.
func serveOn(t testing.TB, l net.Listener, e engine, cfg server.Config) *fixture {
	t.Helper()
	f := &fixture{log: &logBuffer{}}
	cfg.Logger = slog.New(slog.NewJSONHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	kept, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var in store.Store = kept
	if e.wrap != nil {
		in = e.wrap(kept)
	}
	mgr, err := session.NewManager(session.Config{
		Store: in, Runner: e, Logger: cfg.Logger,
		// The engines of these tests do not replay.
		Limits: limits.Limits{StopGrace: 5 * time.Second, ToolTimeout: 2 * time.Hour, HibernateAfter: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Sessions == nil {
		cfg.Sessions = mgr
	}
	if f.srv, err = server.New(cfg); err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	hs := &http.Server{Handler: f.srv.Handler(), Protocols: protocols, ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelWarn)}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = hs.Serve(l)
	}()
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	f.url = "http://" + l.Addr().String()
	if pipes, ok := l.(*testdaemon.Listener); ok {
		f.pipes = pipes
		tr.DialContext = pipes.DialContext
	}
	f.hc = &http.Client{Transport: tr}
	f.stop = sync.OnceFunc(func() {
		streams := f.srv.Streams()
		f.srv.Drain()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := errors.Join(mgr.Shutdown(ctx), kept.Close()); err != nil {
			t.Error(err)
		}
		<-f.srv.Drained()
		tr.CloseIdleConnections()
		if streams > 0 { // the last frames of a stream are written after its handler
			_ = hs.Shutdown(context.Background())
		}
		_ = hs.Close()
		<-served
	})
	t.Cleanup(f.stop)
	return f
}

// serve serves a runner on a loopback port.
func serve(t testing.TB, e engine, cfg server.Config) *fixture {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, l, e, cfg)
}

// conversation is a client's side of one stream.
type conversation struct {
	t *testing.T
	*connect.BidiStreamForClient[agentdv1.RunRequest, agentdv1.RunResponse]
}

func (f *fixture) open(ctx context.Context, t *testing.T, opts ...connect.ClientOption) *conversation {
	t.Helper()
	c := agentdv1connect.NewAgentdClient(f.hc, f.url, opts...)
	return &conversation{t, c.Run(ctx)}
}

// run opens a stream and starts a turn.
func (f *fixture) run(t *testing.T, opts ...connect.ClientOption) *conversation {
	t.Helper()
	c := f.open(t.Context(), t, opts...)
	c.send(execute())
	return c
}

func (c *conversation) send(msgs ...*agentdv1.RunRequest) {
	c.t.Helper()
	for _, m := range msgs {
		if err := c.Send(m); err != nil {
			c.t.Fatalf("send: %v", err)
		}
	}
}

// next receives one message.
func (c *conversation) next() *agentdv1.RunResponse {
	c.t.Helper()
	msg, err := c.Receive()
	if err != nil {
		c.t.Fatalf("receive: %v", err)
	}
	return msg
}

// until receives up to a message that is fit, and returns all of them.
func (c *conversation) until(fit func(*agentdv1.RunResponse) bool) []*agentdv1.RunResponse {
	c.t.Helper()
	var out []*agentdv1.RunResponse
	for {
		out = append(out, c.next())
		if fit(out[len(out)-1]) {
			return out
		}
	}
}

// rest closes the client's side and receives all up to a clean end.
func (c *conversation) rest() []*agentdv1.RunResponse {
	c.t.Helper()
	if err := c.CloseRequest(); err != nil {
		c.t.Fatalf("close request: %v", err)
	}
	var out []*agentdv1.RunResponse
	for {
		msg, err := c.Receive()
		if err != nil {
			if !errorIsEOF(err) {
				c.t.Fatalf("the stream must end cleanly, got %v after %s", err, show(out))
			}
			if err := c.CloseResponse(); err != nil {
				c.t.Fatalf("close response: %v", err)
			}
			return out
		}
		out = append(out, msg)
	}
}

// toEnd receives up to EndResponse, then closes the client's side, as clients
// do.
func (c *conversation) toEnd() []*agentdv1.RunResponse {
	c.t.Helper()
	return append(c.until(isEnd), c.rest()...)
}

func errorIsEOF(err error) bool { return errors.Is(err, io.EOF) }

func isEnd(m *agentdv1.RunResponse) bool   { return m.GetEnd() != nil }
func isError(m *agentdv1.RunResponse) bool { return m.GetError() != nil }
func isCall(m *agentdv1.RunResponse) bool  { return m.GetToolCall() != nil }
func isText(m *agentdv1.RunResponse) bool  { return m.GetOutputChunk() != nil }

// isSaid matches the event after the text of a response.
func isSaid(m *agentdv1.RunResponse) bool { return m.GetModelCallEnded() != nil }

func show(msgs []*agentdv1.RunResponse) string {
	var s string
	for _, m := range msgs {
		s += fmt.Sprintf("\n\t%v", m)
	}
	return s
}

func execute() *agentdv1.RunRequest {
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: &agentdv1.RunRequest_ExecuteRequest{
		Agent: &agentdv1.Agent{Name: "root", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: "echo"}}},
		Tools: []*agentdv1.Tool{{Name: "tool", Description: "a tool"}}, UserPrompt: "world",
	}}}
}

func heartbeat() *agentdv1.RunRequest {
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Heartbeat{Heartbeat: &agentdv1.RunRequest_HeartbeatRequest{}}}
}

func cancelTurn() *agentdv1.RunRequest {
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Cancel{Cancel: &agentdv1.RunRequest_CancelRequest{}}}
}

func cancelCall(id string) *agentdv1.RunRequest {
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Cancel{Cancel: &agentdv1.RunRequest_CancelRequest{ToolCallId: &id}}}
}

func end(reason string) *agentdv1.RunRequest {
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_End{End: &agentdv1.RunRequest_EndRequest{Reason: &reason}}}
}

func toolResult(id, output string) *agentdv1.RunRequest {
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_ToolCallResponse_{ToolCallResponse: &agentdv1.RunRequest_ToolCallResponse{
		ToolCallId: id, Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: output},
	}}}
}

func toolFailure(id string) *agentdv1.RunRequest {
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_ToolCallResponse_{ToolCallResponse: &agentdv1.RunRequest_ToolCallResponse{
		ToolCallId: id,
	}}}
}

// logBuffer is a log that handlers write and a test reads.
type logBuffer struct {
	mu sync.Mutex // protects b
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// Bytes returns what the log has now.
func (l *logBuffer) Bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.b.Bytes())
}

func (l *logBuffer) String() string { return string(l.Bytes()) }

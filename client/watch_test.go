package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
)

// account is what events of a session say, however their text is cut: that of a
// message stands where it is completed.
func account(t *testing.T, events []*client.Event) (out []string) {
	t.Helper()
	texts := map[string]string{}
	for _, e := range events {
		if e.OutputChunk != nil && e.OutputChunk.MessageID != "" {
			texts[e.OutputChunk.MessageID] += e.OutputChunk.Content
			continue
		}
		if isConnection(e) {
			continue
		}
		m := e.Proto()
		if m.Replayed = false; e.SessionID == "" || (e.Cursor == "") != (e.Seq == 0) {
			t.Errorf("event %+v of session %q has the cursor %q", e.Data, e.SessionID, e.Cursor)
		}
		data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		done := ""
		if c := as[*client.MessageCompleted](e); c != nil {
			done = texts[c.MessageID]
		}
		out = append(out, fmt.Sprintf("%d %T %s %x", e.Seq, e.Data, done, data))
	}
	return out
}

// upTo watches a session until so many turns have ended.
func upTo(ctx context.Context, s *client.Session, turns int, opts ...client.WatchOption) (events []*client.Event, err error) {
	for event, err := range s.Watch(ctx, opts...) {
		if err != nil {
			return events, err
		}
		events = append(events, event)
		if event.End != nil {
			if turns--; turns == 0 {
				break
			}
		}
	}
	return events, nil
}

// longScript has texts that a server sends in pieces, and state.
const longScript = `answers:
  - when: {user: "long"}
    text: "{{last_user}}"
  - when: {user: "fail"}
    error: {kind: blocked, message: not that}
  - when: {}
    text: "heard {{last_user}}"`

// A session is watched across its turns, whoever starts them, and what was watched is
// what is stored.
func TestWatchSession(t *testing.T) {
	d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"clerk": longScript}})
	c := d.Client()
	mine := c.NewSession(client.LLM("clerk", "scripted/clerk"))
	long := "long " + strings.Repeat("word ", 20_000)
	if _, err := mine.Send(t.Context(), "first", client.WithInitialState(map[string]any{"a": 1})); err != nil {
		t.Fatal(err)
	}
	theirs := d.Client().Session(mine.ID())
	watched := make(chan []*client.Event, 1)
	begun := make(chan struct{})
	go func() {
		var events []*client.Event
		for event, err := range theirs.Watch(t.Context()) {
			if err != nil {
				t.Errorf("watch: %v", err)
				break
			}
			if events = append(events, event); event.End != nil && len(events) > 0 {
				select {
				case <-begun:
				default:
					close(begun)
				}
			}
			if event.End != nil && event.Error == nil && strings.Contains(textOf(events), "heard last") {
				break
			}
		}
		watched <- events
	}()
	await(t, begun, "end of the first turn")
	for _, prompt := range []string{long, "fail", "last"} {
		if _, err := mine.Send(t.Context(), prompt); (err != nil) != (prompt == "fail") {
			t.Fatalf("%.10s: %v", prompt, err)
		}
	}
	events := await(t, watched, "end of the last turn")
	stored := all(t, theirs.Events(t.Context()))
	if got, want := account(t, events), account(t, stored); !slices.Equal(got, want) {
		t.Errorf("watched %d, stored %d", len(got), len(want))
	}
	failed := slices.ContainsFunc(events, func(e *client.Event) bool { return e.Error != nil && e.Error.Code == client.ErrContentBlocked })
	if !failed || !strings.Contains(textOf(events), long) {
		t.Errorf("failed: %v, text of %d bytes", failed, len(textOf(events)))
	}
	// From each cursor on it is the same in both ways.
	for i := 0; i < len(stored); i += 5 {
		from := client.WithCursor(stored[i].Cursor)
		rest := all(t, theirs.Events(t.Context(), from))
		if want := account(t, stored[i+1:]); !slices.Equal(account(t, rest), want) {
			t.Errorf("behind event %d there are %d events, want %d", i, len(rest), len(want))
		}
		if ends := len(slices.DeleteFunc(slices.Clone(rest), func(e *client.Event) bool { return e.End == nil })); ends > 0 {
			second, err := upTo(t.Context(), theirs, ends, from)
			if err != nil || !slices.Equal(account(t, second), account(t, rest)) {
				t.Errorf("behind event %d: %v, %d events watched, want %d", i, err, len(second), len(rest))
			}
		}
	}
	if _, err := upTo(t.Context(), c.Session("nobody"), 1); !errors.Is(err, client.ErrSessionNotFound) {
		t.Errorf("an unknown session: %v", err)
	}
	if _, err := upTo(t.Context(), theirs, 1, client.WithCursor("none")); !errors.Is(err, client.ErrInvalidRequest) {
		t.Errorf("a cursor of nobody: %v", err)
	}
	made := must[*client.SessionInfo](t)(c.CreateSession(t.Context(), client.NewSessionInfo{}))
	for _, err := range c.Session(made.ID).Events(t.Context(), client.WithCursor(stored[0].Cursor)) {
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != client.ErrInvalidRequest || len(e.Violations) != 1 || e.Violations[0].Field != "cursor" {
			t.Errorf("a cursor of another session: %+v", err)
		}
	}
}

// A watch ends when its session is deleted, also an idle one, and with its context.
func TestWatchEnds(t *testing.T) {
	d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"clerk": longScript}})
	c := d.Client()
	s := c.NewSession(client.LLM("clerk", "scripted/clerk"))
	if _, err := s.Send(t.Context(), "hi"); err != nil {
		t.Fatal(err)
	}
	for event, err := range s.Watch(t.Context()) {
		if err != nil {
			if !errors.Is(err, client.ErrSessionNotFound) {
				t.Errorf("the watch of a deleted session: %v", err)
			}
			break
		}
		if event.End != nil {
			if err := s.Delete(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	s = c.NewSession(client.LLM("clerk", "scripted/clerk"))
	if _, err := s.Send(t.Context(), "hi"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	last := error(nil)
	for event, err := range s.Watch(ctx) {
		if last = err; err == nil && event.End != nil {
			cancel()
		}
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("the watch of a context that has ended: %v", last)
	}
}

// Connections that are cut after any number of bytes lose nothing and repeat nothing,
// on each protocol, and over HTTP/1.1.
func TestWatchCutAtAnyByte(t *testing.T) {
	d := agentdtest.Start(t, agentdtest.Config{
		Addr:    "127.0.0.1:0",
		Scripts: map[string]string{"clerk": longScript},
	})
	s := d.Client().NewSession(client.LLM("clerk", "scripted/clerk"))
	for _, prompt := range []string{"one", "long " + strings.Repeat("word ", 8_000), "fail", "three"} {
		_, _ = s.Send(t.Context(), prompt)
	}
	want := account(t, all(t, s.Events(t.Context())))
	old := &http.Transport{Protocols: new(http.Protocols)}
	old.Protocols.SetHTTP1(true)
	for name, opts := range map[string][]client.Option{
		"connect": {quick}, "grpc": {quick, client.WithGRPC()}, "grpc-web": {quick, client.WithGRPCWeb()},
		"HTTP/1.1": {quick, client.WithHTTPClient(&http.Client{Transport: old})},
	} {
		t.Run(name, func(t *testing.T) {
			lost := 0
			for seed := range uint64(3) {
				proxy := newCutter(t, strings.TrimPrefix(d.URL, "http://"), 600, rand.New(rand.NewPCG(seed, 1)))
				events, err := upTo(t.Context(), dial(t, proxy, opts...).Session(s.ID()), 4)
				if got := account(t, events); err != nil || !slices.Equal(got, want) {
					t.Fatalf("seed %d: %v, got %d events, want %d", seed, err, len(got), len(want))
				}
				for _, e := range events {
					if as[*client.ConnectionLost](e) != nil {
						lost++
					}
				}
			}
			if lost == 0 {
				t.Error("no connection was cut")
			}
		})
	}
}

// A watch continues, and a cursor is good, when the server is another one on the same
// store; a turn that is started there is seen.
func TestWatchAcrossARestart(t *testing.T) {
	dir := t.TempDir()
	s := newDaemonWith(t, newPuppet(), agentdtest.Config{Addr: "127.0.0.1:0", DataDir: dir})
	c, w := s.client(t)
	chat := c.NewSession(actor())
	s.will(t, reply{text: "one"})
	first, err := chat.Send(t.Context(), "go")
	if err != nil || first.Text != "one" {
		t.Fatal(first, err)
	}
	before := all(t, chat.Events(t.Context()))
	watching := make(chan *client.Event, tailSize)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		var last error
		for event, err := range chat.Watch(ctx) {
			if last = err; err == nil {
				watching <- event
			}
		}
		done <- last
	}()
	var events []*client.Event
	until := func(is func(*client.Event) bool) {
		t.Helper()
		for {
			e := await(t, watching, "such event")
			if events = append(events, e); is(e) {
				return
			}
		}
	}
	until(func(e *client.Event) bool { return e.End != nil })
	w.lead("") // others may get the port
	if err := s.d.Close(); err != nil {
		t.Fatal(err)
	}
	until(func(e *client.Event) bool { return as[*client.ConnectionLost](e) != nil })
	next := newDaemonWith(t, s.puppet, agentdtest.Config{Addr: "127.0.0.1:0", DataDir: dir})
	w.lead(strings.TrimPrefix(next.d.URL, "http://"))
	until(func(e *client.Event) bool { return as[*client.ConnectionRestored](e) != nil })
	s.will(t, reply{text: "two"})
	if result, err := chat.Send(t.Context(), "again"); err != nil || result.Text != "two" {
		t.Fatal(result, err)
	}
	until(func(e *client.Event) bool { return e.End != nil })
	cancel()
	if err := await(t, done, "end of the watch"); !errors.Is(err, context.Canceled) {
		t.Errorf("the watch ended with %v", err)
	}
	stored := all(t, chat.Events(t.Context()))
	if !slices.Equal(account(t, events), account(t, stored)) || textOf(events) != "onetwo" {
		t.Errorf("watched %q in %d events, stored %d", textOf(events), len(events), len(stored))
	}
	after := all(t, chat.Events(t.Context(), client.WithCursor(before[len(before)-1].Cursor)))
	if got := textOf(after); got != "two" || len(before)+len(after) != len(stored) {
		t.Errorf("behind a cursor of the first server: %q, %d and %d of %d events", got, len(before), len(after), len(stored))
	}
}

// A server that stays away is given up, or not looked for at all.
func TestWatchIsAbandoned(t *testing.T) {
	s := newDaemon(t)
	c, w := s.client(t, client.WithReconnect(client.ReconnectPolicy{MaxElapsed: 200 * time.Millisecond, Base: time.Millisecond, Cap: 10 * time.Millisecond}))
	chat := c.NewSession(actor())
	s.will(t, reply{text: "one"})
	if _, err := chat.Send(t.Context(), "go"); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	var last error
	for event, err := range chat.Watch(t.Context()) {
		switch {
		case err != nil:
			last = err
		case isConnection(event):
			kinds = append(kinds, strings.TrimPrefix(fmt.Sprintf("%T", event.Data), "*client."))
		case event.End != nil:
			w.cut()
		}
	}
	if !errors.Is(last, client.ErrUnavailable) || !slices.Equal(kinds, []string{"ConnectionLost", "ConnectionAbandoned"}) {
		t.Errorf("it ended with %v after %v", last, kinds)
	}
	w.mend()
	c, w = s.client(t, client.WithReconnect(client.ReconnectPolicy{Off: true}))
	for event, err := range c.Session(chat.ID()).Watch(t.Context()) {
		if last = err; err == nil && isConnection(event) {
			t.Errorf("told %+v", event.Data)
		}
		if err == nil && event.End != nil {
			w.cut()
		}
	}
	if e, ok := errors.AsType[*client.Error](last); !ok || e.Code != client.ErrUnavailable || e.SessionID != chat.ID() {
		t.Errorf("without reconnects it ends with %+v", last)
	}
}

// stories is a session service that sends one story to each stream; the connection of all
// but the last one breaks.
type stories struct {
	agentdv1connect.UnimplementedSessionServiceHandler
	streams [][]*agentdv1.WatchSessionResponse
	asked   atomic.Pointer[[]string] // the cursors, in order
}

func (s *stories) WatchSession(
	ctx context.Context, r *connect.Request[agentdv1.WatchSessionRequest], stream *connect.ServerStream[agentdv1.WatchSessionResponse],
) error {
	asked := append(slices.Clone(*s.asked.Load()), r.Msg.GetCursor())
	s.asked.Store(&asked)
	story := s.streams[min(len(asked), len(s.streams))-1]
	for _, m := range story {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	if len(asked) >= len(s.streams) {
		<-ctx.Done()
	}
	return connect.NewError(connect.CodeUnavailable, errors.New("broken"))
}

func atCursor(seq int64, cursor string, m *agentdv1.RunResponse) *agentdv1.WatchSessionResponse {
	m.Seq, m.TurnId = seq, "t"
	return &agentdv1.WatchSessionResponse{Event: m, Cursor: cursor}
}

// An event that comes in pieces has its place with the last one: pieces before it that
// are repeated are not yielded twice. A call that nobody can run is reported once.
func TestWatchPieces(t *testing.T) {
	text := func(seq int64, cursor, content string) *agentdv1.WatchSessionResponse {
		return atCursor(seq, cursor, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_OutputChunk_{
			OutputChunk: &agentdv1.RunResponse_OutputChunk{Content: content, MessageId: "m"},
		}})
	}
	unserved := func() *agentdv1.WatchSessionResponse {
		return atCursor(0, "", &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCallUnserved{
			ToolCallUnserved: &agentdv1.ToolCallUnserved{ToolCallId: "c"},
		}})
	}
	beat := atCursor(0, "", &agentdv1.RunResponse{Response: &agentdv1.RunResponse_Heartbeat{}})
	fake := &stories{streams: [][]*agentdv1.WatchSessionResponse{
		{beat, text(1, "one", "a"), unserved(), text(0, "", "b")},
		{beat, unserved(), text(0, "", "b"), text(0, "", "c")},
		{beat, unserved(), text(0, "", "b"), text(0, "", "c"), text(2, "two", "d")},
	}}
	fake.asked.Store(&[]string{})
	mux := http.NewServeMux()
	mux.Handle(agentdv1connect.NewSessionServiceHandler(fake))
	srv := httptest.NewUnstartedServer(mux)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	t.Cleanup(srv.Close)
	var got []string
	for event, err := range dial(t, srv.URL, quick).Session("s").Watch(t.Context(), client.WithCursor("zero")) {
		if err != nil {
			t.Fatal(err)
		}
		if e := event.OutputChunk; e != nil {
			got = append(got, e.Content)
		} else {
			got = append(got, strings.TrimPrefix(fmt.Sprintf("%T", event.Data), "*client."))
		}
		if event.Cursor == "two" {
			break
		}
	}
	want := []string{"a", "ToolCallUnserved", "ConnectionLost", "ConnectionRestored", "ConnectionLost", "ConnectionRestored", "b", "c", "d"}
	if !slices.Equal(got, want) || !slices.Equal(*fake.asked.Load(), []string{"zero", "one", "one"}) {
		t.Errorf("got %q, asked behind %q", got, *fake.asked.Load())
	}
}

package server_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/record"
)

// works is a turn of so many rounds of so many tool calls, each with a text.
func works(rounds, calls int) engine {
	return engine{run: func(ctx context.Context, run *session.Run) error {
		for r := range rounds {
			id := fmt.Sprintf("m%d", r)
			err := emit(ctx, run, &record.Event{
				MessageID: id, Path: root, Text: "a \"word\"", Model: "served with sk-ant-api03-0123456789abcdefghijklmnopqrstuvwxyz",
				Usage: &record.Usage{Prompt: 2, Completion: 3, Total: 5, Calls: 1},
			})
			if err != nil {
				return err
			}
			var ids []string
			for c := range calls {
				ids = append(ids, fmt.Sprintf("c%d-%d", r, c))
			}
			if _, err := ask(ctx, run, ids...); err != nil {
				return err
			}
		}
		return nil
	}}
}

// answered runs a turn whose client answers its calls, all but the last so many, and returns its session.
func (f *fixture) answered(t testing.TB, calls, left int) string {
	t.Helper()
	c := agentdv1connect.NewAgentdClient(f.hc, f.url).Run(t.Context())
	if err := c.Send(execute()); err != nil {
		t.Fatal(err)
	}
	id := ""
	for n := 0; ; {
		m, err := c.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if e := m.GetExecute(); e != nil {
			id = e.GetSessionId()
		}
		if call := m.GetToolCall(); call != nil {
			if n++; n <= calls-left {
				if err := c.Send(toolResult(call.GetToolCallId(), `{"says":"é"}`)); err != nil {
					t.Fatal(err)
				}
			}
			if left > 0 && n == calls {
				return id // the client stays
			}
		}
		if isEnd(m) {
			if err := c.CloseRequest(); err != nil {
				t.Fatal(err)
			}
			return id
		}
	}
}

// watched returns the first so many messages of a turn as somebody who watches it receives them.
func (f *fixture) watched(t testing.TB, req *agentdv1.WatchTurnRequest, n int, opts ...connect.ClientOption) (out []*agentdv1.RunResponse) {
	t.Helper()
	req.AfterSeq = new(int64)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := agentdv1connect.NewSessionServiceClient(f.hc, f.url, opts...).WatchTurn(ctx, connect.NewRequest(req))
	if err != nil {
		t.Fatal(err)
	}
	for len(out) < n && s.Receive() {
		if m := s.Msg().GetEvent(); m.GetHeartbeat() == nil {
			out = append(out, m)
		}
	}
	if len(out) < n {
		t.Fatalf("%d messages, want %d: %v", len(out), n, s.Err())
	}
	return out
}

// TestKeptMessages: whoever comes to a turn, in whatever codec, receives what the first one did, whatever others have had
// withheld or shown.
func TestKeptMessages(t *testing.T) {
	f := serve(t, works(3, 4), server.Config{})
	for _, tc := range []struct {
		name string
		left int
	}{{"open", 2}, {"over", 0}} {
		t.Run(tc.name, func(t *testing.T) {
			id := f.answered(t, 12, tc.left)
			c := agentdv1connect.NewSessionServiceClient(f.hc, f.url)
			list := func(req *agentdv1.ListTurnEventsRequest) []*agentdv1.RunResponse {
				req.SessionId, req.AfterSeq = id, new(int64)
				resp, err := c.ListTurnEvents(t.Context(), connect.NewRequest(req))
				if err != nil {
					t.Fatal(err)
				}
				return resp.Msg.GetEvents()
			}
			plain := list(&agentdv1.ListTurnEventsRequest{})
			shown := list(&agentdv1.ListTurnEventsRequest{Display: true, Visibility: agentdv1.Display_VISIBILITY_PUBLIC})
			equal := func(name string, got, want []*agentdv1.RunResponse) {
				t.Helper()
				for i, m := range want {
					if !m.GetReplayed() {
						t.Fatalf("event %d is new: %v", i, m)
					}
					if !proto.Equal(got[i], m) {
						t.Fatalf("%s: event %d is %v, want %v", name, i, got[i], m)
					}
				}
			}
			for round := range 3 {
				for codec, opts := range map[string][]connect.ClientOption{"proto": nil, "json": {connect.WithProtoJSON()}} {
					name := fmt.Sprintf("%s, time %d", codec, round)
					equal(name, f.watched(t, &agentdv1.WatchTurnRequest{SessionId: id, Observe: true}, len(plain), opts...), plain)
					equal(name+", public", f.watched(t, &agentdv1.WatchTurnRequest{
						SessionId: id, Observe: true, Display: true, Visibility: agentdv1.Display_VISIBILITY_PUBLIC,
					}, len(shown), opts...), shown)
					equal(name+", whole session", f.session(t, id, len(plain), opts...), plain)
				}
			}
			equal("the list", list(&agentdv1.ListTurnEventsRequest{}), plain)
		})
	}
}

// session returns the first so many events of a session that somebody watches.
func (f *fixture) session(t *testing.T, id string, n int, opts ...connect.ClientOption) (out []*agentdv1.RunResponse) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := agentdv1connect.NewSessionServiceClient(f.hc, f.url, opts...).
		WatchSession(ctx, connect.NewRequest(&agentdv1.WatchSessionRequest{SessionId: id}))
	if err != nil {
		t.Fatal(err)
	}
	for len(out) < n && s.Receive() {
		if m := s.Msg().GetEvent(); m.GetHeartbeat() == nil {
			out = append(out, m)
		}
	}
	if len(out) < n {
		t.Fatalf("%d events, want %d: %v", len(out), n, s.Err())
	}
	return out
}

// BenchmarkReconnect has one client after another read a turn of 1,000 events from its beginning. Unless it says so, the
// client reads the bytes and decodes none.
func BenchmarkReconnect(b *testing.B) {
	f := serve(b, works(48, 10), server.Config{})
	id := f.answered(b, 480, 0)
	for _, codec := range []string{"proto", "json", "proto, decoded"} {
		b.Run(codec, func(b *testing.B) {
			var opts []connect.ClientOption
			if codec != "proto, decoded" {
				opts = append(opts, connect.WithCodec(undecoded{codec}))
			}
			c := agentdv1connect.NewSessionServiceClient(f.hc, f.url, opts...)
			b.ReportAllocs()
			for b.Loop() {
				s, err := c.WatchTurn(b.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{
					SessionId: id, Observe: true, AfterSeq: new(int64),
				}))
				if err != nil {
					b.Fatal(err)
				}
				n := 0
				for s.Receive() {
					n++
				}
				if s.Err() != nil || n < 1000 {
					b.Fatalf("%d messages, error %v", n, s.Err())
				}
			}
		})
	}
}

// undecoded is the codec of a client that encodes its requests and decodes nothing.
type undecoded struct{ name string }

func (c undecoded) Name() string { return c.name }

func (c undecoded) Marshal(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, errors.New("no message")
	}
	if c.name == "json" {
		return protojson.Marshal(m)
	}
	return proto.Marshal(m)
}

func (undecoded) Unmarshal([]byte, any) error { return nil }

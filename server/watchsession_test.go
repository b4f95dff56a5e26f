package server_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/principal"
)

// turnOn runs a turn to its end and returns its session; "" makes one.
func turnOn(t *testing.T, c agentdv1connect.SessionServiceClient, id string) string {
	t.Helper()
	ex := execute().GetExecute()
	if id != "" {
		ex.SessionId = &id
	}
	created, err := c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: ex}))
	if err != nil {
		t.Fatal(err)
	}
	turn := created.Msg.GetTurn()
	w, err := c.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId(), Observe: true}))
	if err != nil {
		t.Fatal(err)
	}
	for w.Receive() { // to its end
	}
	if w.Err() != nil {
		t.Fatal(w.Err())
	}
	return turn.GetSessionId()
}

// wireClients are clients of SessionService over each protocol, and over HTTP/1.1.
func wireClients(t *testing.T, f *fixture) map[string]agentdv1connect.SessionServiceClient {
	t.Helper()
	old := &http.Transport{Protocols: new(http.Protocols)}
	old.Protocols.SetHTTP1(true)
	t.Cleanup(old.CloseIdleConnections)
	return map[string]agentdv1connect.SessionServiceClient{
		"connect":        agentdv1connect.NewSessionServiceClient(f.hc, f.url),
		"HTTP/1.1":       agentdv1connect.NewSessionServiceClient(&http.Client{Transport: old}, f.url),
		"HTTP/1.1, JSON": agentdv1connect.NewSessionServiceClient(&http.Client{Transport: old}, f.url, connect.WithProtoJSON(), connect.WithHTTPGet()),
		"gRPC":           agentdv1connect.NewSessionServiceClient(f.hc, f.url, connect.WithGRPC()),
		"gRPC-Web":       agentdv1connect.NewSessionServiceClient(&http.Client{Transport: old}, f.url, connect.WithGRPCWeb()),
	}
}

// The pages of a list are what a watcher sees from each cursor on, filtered as the
// client asks.
func TestReadSession(t *testing.T) {
	f := serve(t, engine{run: talk}, server.Config{})
	for name, c := range wireClients(t, f) {
		t.Run(name, func(t *testing.T) {
			id := turnOn(t, c, "")
			turnOn(t, c, id)
			for _, only := range []agentdv1.Display_Visibility{0, agentdv1.Display_VISIBILITY_PUBLIC, agentdv1.Display_VISIBILITY_PRIVATE} {
				list := func(cursor string, size int32) (out []*agentdv1.SessionEvent) {
					for more := true; more; {
						r, err := c.ListSessionEvents(t.Context(), connect.NewRequest(&agentdv1.ListSessionEventsRequest{
							SessionId: id, Cursor: cursor, PageSize: size, Visibility: only, Display: true,
						}))
						if err != nil {
							t.Fatal(err)
						}
						events := r.Msg.GetEvents()
						if n := len(events); n > 0 && events[n-1].GetCursor() != r.Msg.GetNextCursor() || n == 0 && r.Msg.GetNextCursor() != cursor {
							t.Errorf("%d events, then %q", n, r.Msg.GetNextCursor())
						}
						out, cursor, more = append(out, events...), r.Msg.GetNextCursor(), r.Msg.GetMore()
					}
					return out
				}
				all := list("", 0)
				ends := 0
				for i := range all {
					if isEnd(all[i].GetEvent()) {
						ends++
					}
					if d := all[i].GetEvent().GetDisplay(); d == nil {
						t.Errorf("no display: %v", all[i])
					}
				}
				if ends != 2 {
					t.Fatalf("%d turns in %v", ends, all)
				}
				same := func(a, b *agentdv1.SessionEvent) bool { return proto.Equal(a, b) }
				for i := range all {
					rest := all[i+1:]
					if got := list(all[i].GetCursor(), 2); !slices.EqualFunc(got, rest, same) {
						t.Errorf("listed behind event %d: %v\nwant %v", i, got, rest)
					}
					if got := f.watchSome(t, c, &agentdv1.WatchSessionRequest{SessionId: id, Cursor: all[i].GetCursor(), Visibility: only, Display: true}, len(rest)); !slices.EqualFunc(got, rest, same) {
						t.Errorf("watched behind event %d: %v\nwant %v", i, got, rest)
					}
				}
			}
		})
	}
}

// watchSome watches until so many events have come that have a place.
func (f *fixture) watchSome(t *testing.T, c agentdv1connect.SessionServiceClient, r *agentdv1.WatchSessionRequest, n int) (out []*agentdv1.SessionEvent) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w, err := c.WatchSession(ctx, connect.NewRequest(r))
	if err != nil {
		t.Fatal(err)
	}
	for first := true; (first || len(out) < n) && w.Receive(); first = false {
		m := w.Msg()
		if beat := m.GetEvent().GetHeartbeat() != nil; beat != first && (first || beat) || (m.GetCursor() == "") != beat {
			t.Errorf("first: %v, got %v", first, m)
		}
		if m.GetCursor() != "" {
			out = append(out, &agentdv1.SessionEvent{Event: m.GetEvent(), Cursor: m.GetCursor()})
		}
	}
	if len(out) < n {
		t.Errorf("the stream has ended: %v", w.Err())
	}
	cancel()
	_ = w.Close()
	return out
}

// A stream of a quiet session has heartbeats, counts as one of the server's, and says
// why it ends: at its limit, when the server stops, or with its session.
func TestWatchSessionEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg  server.Config
		does func(f *fixture, c agentdv1connect.SessionServiceClient, id string)
		want agentdv1.ErrorCode
	}{
		"limit": {server.Config{StreamTimeout: 100 * time.Millisecond}, func(*fixture, agentdv1connect.SessionServiceClient, string) {}, agentdv1.ErrorCode_ERROR_CODE_TIMEOUT},
		"stop":  {server.Config{}, func(f *fixture, _ agentdv1connect.SessionServiceClient, _ string) { f.stop() }, agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE},
		"delete": {server.Config{}, func(_ *fixture, c agentdv1connect.SessionServiceClient, id string) {
			if _, err := c.DeleteSession(t.Context(), connect.NewRequest(&agentdv1.DeleteSessionRequest{SessionId: id})); err != nil {
				t.Error(err)
			}
		}, agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND},
	} {
		t.Run(name, func(t *testing.T) {
			tc.cfg.HeartbeatEvery, tc.cfg.MaxStreams = 10*time.Millisecond, 1
			f := serve(t, engine{run: talk}, tc.cfg)
			c := agentdv1connect.NewSessionServiceClient(f.hc, f.url)
			id := turnOn(t, c, "")
			watch := func() *connect.ServerStreamForClient[agentdv1.WatchSessionResponse] {
				w, err := c.WatchSession(t.Context(), connect.NewRequest(&agentdv1.WatchSessionRequest{SessionId: id}))
				if err != nil {
					t.Fatal(err)
				}
				return w
			}
			w := watch()
			for beats := 0; beats < 3 && w.Receive(); {
				if w.Msg().GetEvent().GetHeartbeat() != nil {
					beats++
				}
			}
			second := watch()
			if second.Receive() || connect.CodeOf(second.Err()) != connect.CodeUnavailable {
				t.Errorf("a stream too many: %v, %v", second.Msg(), second.Err())
			}
			_ = second.Close()
			tc.does(f, c, id)
			var last *agentdv1.WatchSessionResponse
			for w.Receive() {
				last = w.Msg()
			}
			e := last.GetEvent().GetError()
			if w.Err() != nil || e.GetCode() != tc.want || last.GetEvent().GetSeq() != 0 || last.GetCursor() != "" {
				t.Errorf("the stream ended with %v, %v", last, w.Err())
			}
			if name == "limit" && !strings.Contains(e.GetMessage(), "cursor") {
				t.Errorf("it does not say what to do: %s", e.GetMessage())
			}
			_ = w.Close()
		})
	}
}

// An observer may read sessions, and nothing of it changes a turn that waits.
func TestObserverReadsSession(t *testing.T) {
	f := serve(t, engine{run: func(ctx context.Context, run *session.Run) error {
		_, err := ask(ctx, run, "c1")
		return err
	}}, server.Config{Authenticate: func(r *http.Request) (principal.Principal, error) {
		if r.Header.Get("X-Role") == "observer" {
			return principal.Principal{ID: "olga", Role: principal.Observer}, nil
		}
		return principal.Principal{ID: "carl", Role: principal.Caller}, nil
	}})
	run := f.run(t)
	id := run.until(isCall)[0].GetExecute().GetSessionId()
	c := agentdv1connect.NewSessionServiceClient(f.hc, f.url)
	req := connect.NewRequest(&agentdv1.WatchSessionRequest{SessionId: id})
	req.Header().Set("X-Role", "observer")
	w, err := c.WatchSession(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for w.Receive() && w.Msg().GetEvent().GetToolCallAnnounced() == nil {
		if isCall(w.Msg().GetEvent()) {
			t.Error("who watches a session is asked")
		}
	}
	run.send(toolResult("c1", "fine"))
	run.toEnd()
	for w.Receive() && !isEnd(w.Msg().GetEvent()) { // to the end of the turn
	}
	if !isEnd(w.Msg().GetEvent()) {
		t.Errorf("the stream ended with %v, %v", w.Msg(), w.Err())
	}
	_ = w.Close()
	list := connect.NewRequest(&agentdv1.ListSessionEventsRequest{SessionId: id})
	list.Header().Set("X-Role", "observer")
	if r, err := c.ListSessionEvents(t.Context(), list); err != nil || len(r.Msg.GetEvents()) == 0 {
		t.Errorf("an observer lists %v, %v", r, err)
	}
}

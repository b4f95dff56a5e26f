package server_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/bus"
	"github.com/apzuk3/agentd/internal/test/memowners"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

const replicaSecret = "a secret of servers"

// peerServer is one of several servers over one store.
type peerServer struct {
	owns  *memowners.Replica
	group *memowners.Group
	srv   *server.Server
	calls agentdv1connect.SessionServiceClient
	runs  agentdv1connect.AgentdClient
	m     *session.Manager
	url   string
	cut   func() // the server is gone: its connections are closed, and nothing is shut down
}

// peers starts servers over one store. Callers say who they are in the header Who.
func peers(t testing.TB, e engine, n int) []*peerServer {
	t.Helper()
	return peersOn(t, e, n, "")
}

// peersOn is peers with a bus over the NATS at a URL, "" for none.
func peersOn(t testing.TB, e engine, n int, url string) []*peerServer {
	t.Helper()
	db, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	g := memowners.New(db)
	var out []*peerServer
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p := &peerServer{group: g, owns: g.Join(l.Addr().String()), url: "http://" + l.Addr().String()}
		cfg := session.Config{Store: p.owns, Owners: p.owns, Runner: e, Reach: reachesByHTTP}
		if url != "" {
			hints, err := bus.Dial(bus.Config{URLs: url, Secret: replicaSecret})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(hints.Close)
			for !hints.Carries() {
				time.Sleep(time.Millisecond)
			}
			cfg.Bus = hints
		}
		if p.m, err = session.NewManager(cfg); err != nil {
			t.Fatal(err)
		}
		if err := p.m.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		h2 := new(http.Protocols)
		h2.SetUnencryptedHTTP2(true)
		tr := &http.Transport{Protocols: h2}
		srv, err := server.New(server.Config{
			Sessions: p.m, ReplicaClient: &http.Client{Transport: tr}, ReplicaSecret: replicaSecret, ReplicaAddress: l.Addr().String(),
			Authenticate: func(r *http.Request) (principal.Principal, error) {
				if who := r.Header.Get("Who"); who != "" {
					return principal.Principal{ID: who, Role: principal.Caller}, nil
				}
				return principal.Principal{}, errors.New("nobody")
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		p.srv = srv
		both := new(http.Protocols)
		both.SetHTTP1(true)
		both.SetUnencryptedHTTP2(true)
		hs := &http.Server{Handler: srv.Handler(), Protocols: both, ReadHeaderTimeout: time.Minute}
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = hs.Serve(l)
		}()
		p.cut = sync.OnceFunc(func() { _ = hs.Close(); <-served })
		p.calls = agentdv1connect.NewSessionServiceClient(&http.Client{Transport: tr}, p.url,
			connect.WithInterceptors(who("ann")))
		p.runs = agentdv1connect.NewAgentdClient(&http.Client{Transport: tr}, p.url, connect.WithInterceptors(who("ann")))
		t.Cleanup(func() {
			srv.Drain()
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if err := p.m.Shutdown(ctx); err != nil {
				t.Error(err)
			}
			srv.End()
			p.cut()
			tr.CloseIdleConnections()
		})
		out = append(out, p)
	}
	return out
}

// reachesByHTTP reports whether a server responds.
func reachesByHTTP(ctx context.Context, address string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/healthz", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return true
}

// who says who calls.
type who string

func (w who) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		r.Header().Set("Who", string(w))
		return next(ctx, r)
	}
}

func (w who) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		c := next(ctx, spec)
		c.RequestHeader().Set("Who", string(w))
		return c
	}
}

func (who) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// askThenSay asks for a tool and speaks; it goes on where its log ends.
func askThenSay(ctx context.Context, r *session.Run) error {
	n := 0
	for rec, err := range r.Records(ctx, r.StartSeq()) {
		if err != nil {
			return err
		}
		if rec.Kind == record.KindEvent {
			n++
		}
	}
	if n < 1 {
		if err := say(ctx, r, "m1-"+r.TurnID(), "one ", "moment. "); err != nil {
			return err
		}
	}
	if n < 2 {
		ev := &record.Event{Path: root, Calls: []record.ToolCall{{ID: "c-" + r.TurnID(), Name: "tool", Path: root, Input: []byte("{}")}}}
		if err := emit(ctx, r, ev); err != nil {
			return err
		}
	}
	if _, err := r.Await(ctx, "c-"+r.TurnID()); err != nil || n > 2 {
		return err
	}
	return say(ctx, r, "m2-"+r.TurnID(), "do", "ne")
}

// TestForward has a client at one server use a session that another one owns, also when that one is killed.
func TestForward(t *testing.T) {
	for name, killed := range map[string]bool{"the owner lives": false, "the owner is killed": true} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			all := peers(t, engine{run: askThenSay}, 2)
			a, b := all[0], all[1]
			made, err := a.calls.CreateTurn(ctx, connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: execute().GetExecute()}))
			if err != nil {
				t.Fatal(err)
			}
			id, turn := made.Msg.GetTurn().GetSessionId(), made.Msg.GetTurn().GetId()
			if made.Msg.GetTurn().GetCreatedBy() != "ann" {
				t.Errorf("the turn is of %q", made.Msg.GetTurn().GetCreatedBy())
			}
			w, err := b.calls.WatchTurn(ctx, connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: id, ToolNames: []string{"tool"}}))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = w.Close() }()
			ws, err := b.calls.WatchSession(ctx, connect.NewRequest(&agentdv1.WatchSessionRequest{SessionId: id}))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = ws.Close() }()
			last, said, answered, ended := int64(0), "", false, false
			for !ended && w.Receive() {
				m := w.Msg().GetEvent()
				if seq := m.GetSeq(); seq > 0 {
					if seq <= last {
						t.Errorf("position %d after %d", seq, last)
					}
					last = seq
				}
				switch {
				case m.GetOutputChunk() != nil:
					said += m.GetOutputChunk().GetContent()
				case m.GetError() != nil:
					t.Errorf("error %v", m.GetError())
				case m.GetEnd() != nil:
					ended = m.GetEnd().GetCompleted()
				case m.GetToolCall() != nil && !answered:
					answered = true
					if killed {
						a.owns.Die()
						a.m.LostAll()
						a.cut()
					}
					out := &agentdv1.RunRequest_ToolCallResponse{ToolCallId: "c-" + turn, SessionId: id,
						Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: `"ok"`}}
					_, err := b.calls.SubmitToolResults(ctx, connect.NewRequest(&agentdv1.SubmitToolResultsRequest{
						SessionId: id, TurnId: turn, Results: []*agentdv1.RunRequest_ToolCallResponse{out},
					}))
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			if !ended || said != "one moment. done" {
				t.Errorf("ended %v: %q, %v", ended, said, w.Err())
			}
			kinds := 0
			for ws.Receive() {
				kinds++
				if ws.Msg().GetEvent().GetEnd() != nil {
					break
				}
			}
			if kinds < 4 || ws.Err() != nil {
				t.Errorf("the session's stream had %d messages, %v", kinds, ws.Err())
			}
			got, err := b.calls.GetTurn(ctx, connect.NewRequest(&agentdv1.GetTurnRequest{SessionId: id, TurnId: turn}))
			if err != nil || !strings.Contains(got.Msg.GetTurn().GetStatus().String(), "SUCCEEDED") {
				t.Errorf("the turn is %v, %v", got, err)
			}
		})
	}
}

// watcher is what an observer receives, by whichever call.
type watcher struct {
	name string
	next func() (*agentdv1.RunResponse, error)
}

// watchers have observers begin to watch a session, and its last turn, at a server.
func watchers(t *testing.T, p *peerServer, id string) []watcher {
	t.Helper()
	ctx := t.Context()
	w, err := p.calls.WatchTurn(ctx, connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: id, Observe: true}))
	if err != nil {
		t.Fatal(err)
	}
	ws, err := p.calls.WatchSession(ctx, connect.NewRequest(&agentdv1.WatchSessionRequest{SessionId: id}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = w.Close(), ws.Close() })
	run := p.runs.Run(ctx)
	if err := run.Send(attaching(id)); err != nil {
		t.Fatal(err)
	}
	return []watcher{
		{"WatchTurn", func() (*agentdv1.RunResponse, error) { w.Receive(); return w.Msg().GetEvent(), w.Err() }},
		{"WatchSession", func() (*agentdv1.RunResponse, error) { ws.Receive(); return ws.Msg().GetEvent(), ws.Err() }},
		{"Run", run.Receive},
	}
}

// attaching begins a stream that observes.
func attaching(id string) *agentdv1.RunRequest {
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Attach{
		Attach: &agentdv1.AttachRequest{SessionId: id, Observe: true},
	}}
}

// TestWatchWhileTheOwnerIsAway has clients begin to observe at one server while the owner of the session cannot be
// reached, and lives: they receive what the log has, and the rest once somebody else owns the session.
func TestWatchWhileTheOwnerIsAway(t *testing.T) {
	ctx := t.Context()
	all := peers(t, engine{run: askThenSay}, 2)
	a, b := all[0], all[1]
	made, err := a.calls.CreateTurn(ctx, connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: execute().GetExecute()}))
	if err != nil {
		t.Fatal(err)
	}
	id, turn := made.Msg.GetTurn().GetSessionId(), made.Msg.GetTurn().GetId()
	a.cut()
	observers := watchers(t, b, id)
	said := map[string]string{}
	until := func(o watcher, is func(*agentdv1.RunResponse) bool) {
		t.Helper()
		for {
			m, err := o.next()
			if err != nil || m == nil {
				t.Fatalf("%s ends with %v after %q", o.name, err, said[o.name])
			}
			said[o.name] += m.GetOutputChunk().GetContent()
			if is(m) {
				return
			}
		}
	}
	for _, o := range observers {
		until(o, func(m *agentdv1.RunResponse) bool { return m.GetToolCall() != nil || m.GetToolCallAnnounced() != nil })
	}
	if address, _ := a.group.OwnerOf(id); !strings.HasSuffix(a.url, address) {
		t.Fatalf("the session is at %q, want %q", address, a.url)
	}
	a.owns.Die()
	a.m.LostAll()
	_, err = b.calls.SubmitToolResults(ctx, connect.NewRequest(&agentdv1.SubmitToolResultsRequest{
		SessionId: id, TurnId: turn, Results: []*agentdv1.RunRequest_ToolCallResponse{{
			ToolCallId: "c-" + turn, SessionId: id,
			Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: `"ok"`},
		}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range observers {
		until(o, func(m *agentdv1.RunResponse) bool { return m.GetEnd() != nil })
		if said[o.name] != "one moment. done" {
			t.Errorf("%s reads %q", o.name, said[o.name])
		}
	}
}

// TestRunObserves has clients observe by Run at a server that does not own the session: they receive what they would at
// the owner, and change nothing.
func TestRunObserves(t *testing.T) {
	all := peers(t, engine{run: askThenSay}, 2)
	r := begin(t.Context(), t, all[0], knowing())
	r.untilCall()
	var observers []*connect.BidiStreamForClient[agentdv1.RunRequest, agentdv1.RunResponse]
	for _, p := range all {
		run := p.runs.Run(t.Context())
		if err := run.Send(attaching(r.session)); err != nil {
			t.Fatal(err)
		}
		for {
			m, err := run.Receive()
			if err != nil {
				t.Fatal(err)
			}
			if m.GetToolCall() != nil {
				t.Error("an observer is asked")
			}
			if m.GetToolCallAnnounced() != nil {
				break
			}
		}
		for name, msg := range map[string]*agentdv1.RunRequest{
			"a result": {Request: &agentdv1.RunRequest_ToolCallResponse_{
				ToolCallResponse: &agentdv1.RunRequest_ToolCallResponse{ToolCallId: "c-" + r.turn,
					Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: `"mine"`}},
			}},
			"a result that is refused": {Request: &agentdv1.RunRequest_ToolCallResponse_{
				ToolCallResponse: &agentdv1.RunRequest_ToolCallResponse{ToolCallId: "c-" + r.turn, Parts: make([]*agentdv1.Part, 65)},
			}},
			"the end": {Request: &agentdv1.RunRequest_End{End: &agentdv1.RunRequest_EndRequest{}}},
		} {
			if err := run.Send(msg); err != nil {
				t.Fatal(err)
			}
			m, err := run.Receive()
			if err != nil || m.GetError() == nil {
				t.Errorf("%s at %s: %v, %v", name, p.url, m, err)
			}
		}
		beat := &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Heartbeat{Heartbeat: &agentdv1.RunRequest_HeartbeatRequest{}}}
		if err := run.Send(beat); err != nil {
			t.Fatal(err)
		}
		if m, err := run.Receive(); err != nil || m.GetHeartbeat().GetSessionId() != r.session {
			t.Errorf("a heartbeat at %s: %v, %v", p.url, m, err)
		}
		if err := run.CloseRequest(); err != nil {
			t.Fatal(err)
		}
		observers = append(observers, run)
	}
	r.finish()
	for i, run := range observers {
		said := ""
		for {
			m, err := run.Receive()
			if m.GetError() != nil || err != nil && !errors.Is(err, io.EOF) {
				t.Errorf("the observer at %s reads %v, %v", all[i].url, m, err)
			}
			if err != nil {
				break
			}
			said += m.GetOutputChunk().GetContent()
		}
		if said != "done" {
			t.Errorf("the observer at %s reads %q", all[i].url, said)
		}
	}
}

// TestWatchBehindTheEnd watches at one server what another one owns, behind its last event: there is nothing to see, and
// the streams end as they do at the owner.
func TestWatchBehindTheEnd(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // for a minute it would look for another owner
	defer cancel()
	all := peers(t, engine{run: func(ctx context.Context, r *session.Run) error {
		return say(ctx, r, "m1", "hello")
	}}, 2)
	a, b := all[0], all[1]
	made, err := a.calls.CreateTurn(ctx, connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: execute().GetExecute()}))
	if err != nil {
		t.Fatal(err)
	}
	id := made.Msg.GetTurn().GetSessionId()
	ws, err := a.calls.WatchSession(ctx, connect.NewRequest(&agentdv1.WatchSessionRequest{SessionId: id}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ws.Close() }() // until then the session has its owner
	for ws.Receive() && ws.Msg().GetEvent().GetEnd() == nil {
	}
	last := ws.Msg().GetEvent().GetSeq()
	for _, p := range all {
		w, err := p.calls.WatchTurn(ctx, connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: id, Observe: true, AfterSeq: &last}))
		if err != nil {
			t.Fatal(err)
		}
		for w.Receive() {
			if w.Msg().GetEvent().GetSeq() > 0 {
				t.Errorf("got %v", w.Msg())
			}
		}
		if w.Err() != nil {
			t.Errorf("WatchTurn at %s ends with %v", p.url, w.Err())
		}
		run := p.runs.Run(ctx)
		if err := run.Send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Attach{
			Attach: &agentdv1.AttachRequest{SessionId: id, Observe: true, AfterSeq: &last},
		}}); err != nil {
			t.Fatal(err)
		}
		if m, err := run.Receive(); !errors.Is(err, io.EOF) {
			t.Errorf("Run at %s: %v, %v", p.url, m, err)
		}
	}
	if address, err := b.m.OwnerOf(principal.With(ctx, principal.Principal{ID: "ann"}), id); address == "" {
		t.Errorf("nobody owns the session: %v", err)
	}
}

// TestForwardedNeedsTheSecret claims to be another server, in vain.
func TestForwardedNeedsTheSecret(t *testing.T) {
	p := peers(t, engine{run: askThenSay}, 1)[0]
	for _, secret := range []string{"", "another", replicaSecret[:3]} {
		r := connect.NewRequest(&agentdv1.ListSessionsRequest{})
		r.Header().Set("Agentd-Replica-Secret", secret)
		r.Header().Set("Agentd-Replica-Principal", "eyJJRCI6InJvb3QifQ==")
		plain := agentdv1connect.NewSessionServiceClient(http.DefaultClient, p.url)
		_, err := plain.ListSessions(t.Context(), r)
		if connect.CodeOf(err) != connect.CodeUnauthenticated || strings.Contains(err.Error(), "root") {
			t.Errorf("with the secret %q: %v", secret, err)
		}
	}
}

// TestForwardRun has a client run a turn at one server in a session that another one owns, also when that one is killed.
func TestForwardRun(t *testing.T) {
	for name, killed := range map[string]bool{"the owner lives": false, "the owner is killed": true} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			all := peers(t, engine{run: askThenSay}, 2)
			a, b := all[0], all[1]
			made, err := a.calls.CreateTurn(ctx, connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: execute().GetExecute()}))
			if err != nil {
				t.Fatal(err)
			}
			id, turn := made.Msg.GetTurn().GetSessionId(), made.Msg.GetTurn().GetId()
			run := b.runs.Run(ctx)
			if err := run.Send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Attach{
				Attach: &agentdv1.AttachRequest{SessionId: id, ToolNames: []string{"tool"}},
			}}); err != nil {
				t.Fatal(err)
			}
			last, said, ended := int64(0), "", false
			for !ended {
				m, err := run.Receive()
				if err != nil {
					t.Fatalf("%v after %q", err, said)
				}
				if seq := m.GetSeq(); seq > 0 {
					if seq <= last {
						t.Errorf("position %d after %d", seq, last)
					}
					last = seq
				}
				switch {
				case m.GetOutputChunk() != nil:
					said += m.GetOutputChunk().GetContent()
				case m.GetError() != nil:
					t.Errorf("error %v", m.GetError())
				case m.GetEnd() != nil:
					ended = true
				case m.GetToolCall() != nil:
					if killed {
						a.owns.Die()
						a.m.LostAll()
						a.cut()
					}
					if err := run.Send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_ToolCallResponse_{
						ToolCallResponse: &agentdv1.RunRequest_ToolCallResponse{ToolCallId: "c-" + turn, SessionId: id,
							Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: `"ok"`}},
					}}); err != nil {
						t.Fatal(err)
					}
				}
			}
			if said != "one moment. done" {
				t.Errorf("it says %q", said)
			}
			_ = run.CloseRequest()
		})
	}
}

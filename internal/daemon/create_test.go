package daemon_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/session/limits"
)

// begin is a way to start a turn: it returns the session and the turn, or the error
// of a request that is refused.
type begin func(t *testing.T, ex *agentdv1.RunRequest_ExecuteRequest) (sessionID, turnID string, e *agentdv1.RunResponse_ErrorResponse)

// begins are Run and CreateTurn. Both return when the turn has ended.
func begins(t *testing.T, d *daemon.Daemon) map[string]begin {
	t.Helper()
	dial := connectDialer(h2c(t), d.URL())
	service := wires(t, d)["Connect, binary, HTTP/2"]
	return map[string]begin{
		"Run": func(t *testing.T, ex *agentdv1.RunRequest_ExecuteRequest) (string, string, *agentdv1.RunResponse_ErrorResponse) {
			c := dial.open(t, &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: ex}})
			first := c.next()
			if err := c.s.CloseRequest(); err != nil {
				t.Error(err)
			}
			c.rest()
			return c.session(), first.GetTurnId(), first.GetError()
		},
		"CreateTurn": func(t *testing.T, ex *agentdv1.RunRequest_ExecuteRequest) (string, string, *agentdv1.RunResponse_ErrorResponse) {
			resp, err := service.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: ex}))
			if err != nil {
				return "", "", details(t, err)
			}
			turn := resp.Msg.GetTurn()
			until(t, service, turn, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
			return turn.GetSessionId(), turn.GetId(), nil
		},
	}
}

// details are what an error of SessionService says in the protocol's words.
func details(t *testing.T, err error) *agentdv1.RunResponse_ErrorResponse {
	t.Helper()
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok {
		t.Fatalf("not an error of Connect: %v", err)
	}
	for _, d := range ce.Details() {
		if v, err := d.Value(); err == nil {
			if e, ok := v.(*agentdv1.RunResponse_ErrorResponse); ok {
				return e
			}
		}
	}
	t.Fatalf("no details: %v", err)
	return nil
}

func greet(id string, create bool) *agentdv1.RunRequest_ExecuteRequest {
	ex := execute(llm("root", "echo"), "hi").GetExecute()
	ex.SessionId, ex.Create = &id, create
	return ex
}

// TestCreate: create makes the session under the id that the caller has chosen, and
// continues one that there is; what cannot be made is refused and leaves nothing.
func TestCreate(t *testing.T) {
	d := start(t, daemon.Config{})
	service := wires(t, d)["Connect, binary, HTTP/2"]
	for way, begin := range begins(t, d) {
		t.Run(way, func(t *testing.T) {
			id := "Desk-7:" + way + "@a.b_c"
			made, turn, e := begin(t, greet(id, true))
			if made != id || e != nil {
				t.Fatalf("made %q: %v", made, e)
			}
			second := greet(id, true)
			second.Agent = nil // the session has run a tree
			if made, next, e := begin(t, second); made != id || next == turn || e != nil {
				t.Errorf("continued %q %q: %v", made, next, e)
			}
			if turns := call(t, service.ListTurns, &agentdv1.ListTurnsRequest{SessionId: id}).GetTurns(); len(turns) != 2 {
				t.Errorf("%d turns", len(turns))
			}

			noID, attaches, badTree := greet("x", true), greet(id, true), greet(way+"-bad", true)
			noID.SessionId = nil
			attaches.UserPrompt, attaches.Agent = "", nil
			badTree.Agent = llm("root", "echo", "no_such_tool")
			for name, tc := range map[string]struct {
				ex   *agentdv1.RunRequest_ExecuteRequest
				code agentdv1.ErrorCode
				says string
			}{
				"no id":            {noID, agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "execute.create without session_id"},
				"attaches":         {attaches, agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "execute."},
				"a space":          {greet("a b", true), agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, `session_id "a b"`},
				"a path":           {greet("../etc", true), agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "session_id"},
				"a dash":           {greet("-rf", true), agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "session_id"},
				"a line":           {greet("a\n", true), agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "session_id"},
				"too long":         {greet(strings.Repeat("a", 129), true), agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "session_id"},
				"without create":   {greet(way+"-none", false), agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND, "does not exist"},
				"an invalid tree":  {badTree, agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE, "no_such_tool"},
				"still not made":   {greet(way+"-bad", false), agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND, "does not exist"},
				"without any tree": {noTree(way + "-tree"), agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "agent is missing"},
			} {
				if _, _, e := begin(t, tc.ex); e.GetCode() != tc.code || !strings.Contains(e.GetMessage(), tc.says) {
					t.Errorf("%s: %v", name, e)
				}
			}
		})
	}
}

func noTree(id string) *agentdv1.RunRequest_ExecuteRequest {
	ex := greet(id, true)
	ex.Agent = nil
	return ex
}

// TestCreateOnce: with a key, a request that is repeated makes neither a second
// session nor a second turn, also after the session was deleted meanwhile.
func TestCreateOnce(t *testing.T) {
	d := start(t, daemon.Config{})
	service := wires(t, d)["Connect, binary, HTTP/2"]
	for way, begin := range begins(t, d) {
		t.Run(way, func(t *testing.T) {
			req := func() *agentdv1.RunRequest_ExecuteRequest {
				ex := greet("once-"+way, true)
				ex.IdempotencyKey = "key-" + way
				return ex
			}
			_, turn, e := begin(t, req())
			if _, second, e := begin(t, req()); second != turn || e != nil {
				t.Errorf("the repeat is turn %q, want %q: %v", second, turn, e)
			}
			if e != nil {
				t.Fatal(e)
			}
			call(t, service.DeleteSession, &agentdv1.DeleteSessionRequest{SessionId: "once-" + way})
			// Keys are kept as long as their sessions: the id begins anew.
			if made, other, e := begin(t, req()); made != "once-"+way || other == turn || e != nil {
				t.Errorf("after the deletion: %q %q %v", made, other, e)
			}
			if turns := call(t, service.ListTurns, &agentdv1.ListTurnsRequest{SessionId: "once-" + way}).GetTurns(); len(turns) != 1 {
				t.Errorf("%d turns", len(turns))
			}
		})
	}
}

// TestCreateAtOnce: of several callers that make one session, and others that only
// continue it, all that are accepted have their turn in the one session.
func TestCreateAtOnce(t *testing.T) {
	d := start(t, daemon.Config{})
	service := wires(t, d)["Connect, binary, HTTP/2"]
	for round := range 8 {
		id := fmt.Sprintf("race-%d", round)
		var made, refused sync.Map
		var all sync.WaitGroup
		for i := range 12 {
			all.Go(func() {
				ex := greet(id, i%3 != 0)
				ex.OnBusy = agentdv1.OnBusy_ON_BUSY_ENQUEUE
				resp, err := service.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: ex}))
				switch {
				case err == nil:
					made.Store(resp.Msg.GetTurn().GetId(), resp.Msg.GetTurn())
				case ex.GetCreate() || details(t, err).GetCode() != agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND:
					refused.Store(i, err)
				}
			})
		}
		all.Wait()
		refused.Range(func(i, err any) bool { t.Errorf("%s: caller %v: %v", id, i, err); return true })
		n := 0
		made.Range(func(_, turn any) bool {
			n++
			until(t, service, turn.(*agentdv1.Turn), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
			return true
		})
		if turns := call(t, service.ListTurns, &agentdv1.ListTurnsRequest{SessionId: id}).GetTurns(); len(turns) != n || n < 8 {
			t.Errorf("%s has %d turns, %d were accepted", id, len(turns), n)
		}
	}
}

// TestCreatePurged: the id of a session whose log is gone is not reused.
func TestCreatePurged(t *testing.T) {
	onFakeTime(t, func(t *testing.T, dial dialer) {
		req := &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: greet("old", true)}}
		c := dial.open(t, req)
		if end := c.rest().GetEnd(); !end.GetCompleted() {
			t.Fatalf("got %s", show(c.got))
		}
		time.Sleep(24 * time.Hour)
		c = dial.open(t, req)
		if e := c.next().GetError(); e.GetCode() != agentdv1.ErrorCode_ERROR_CODE_HISTORY_PURGED {
			t.Errorf("got %s", show(c.got))
		}
		_ = c.s.CloseRequest()
		c.rest()
	}, testdaemon.WithTurnLimits(limits.Limits{PurgeAfter: time.Hour}))
}

// TestCreateForOlderClients: a server that is configured so makes sessions for requests
// over Run that cannot say create; over SessionService they can.
func TestCreateForOlderClients(t *testing.T) {
	t.Parallel() // it waits
	d := start(t, daemon.Config{CreateSessions: true})
	ways := begins(t, d)
	for range 2 { // made, then continued
		if made, _, e := ways["Run"](t, greet("ticket-1", false)); made != "ticket-1" || e != nil {
			t.Errorf("Run: %q %v", made, e)
		}
	}
	if _, _, e := ways["Run"](t, execute(llm("root", "echo"), "hi").GetExecute()); e != nil {
		t.Errorf("without an id: %v", e)
	}
	attached := connectDialer(h2c(t), d.URL()).open(t, attach("ticket-2", -1))
	if e := attached.next().GetError(); e.GetCode() != agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND {
		t.Errorf("attached: %v", e)
	}
	if _, _, e := ways["Run"](t, greet("no good", false)); e.GetCode() != agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST {
		t.Errorf("an id that is none: %v", e)
	}
	if _, _, e := ways["CreateTurn"](t, greet("ticket-3", false)); e.GetCode() != agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND {
		t.Errorf("CreateTurn: %v", e)
	}
}

// TestClientMakesSession: the option of the Go client makes the session, and continues
// it.
func TestClientMakesSession(t *testing.T) {
	d := start(t, daemon.Config{})
	c := client.New(d.URL())
	defer c.CloseIdleConnections()
	if _, err := c.Do(t.Context(), llm("root", "echo"), "hi", client.WithSessionID("mine")); !errors.Is(err, client.ErrSessionNotFound) {
		t.Errorf("WithSessionID of no session: %v", err)
	}
	for range 2 {
		if _, err := c.Do(t.Context(), llm("root", "echo"), "hi", client.WithSessionOrNew("mine")); err != nil {
			t.Fatal(err)
		}
	}
	service := agentdv1connect.NewSessionServiceClient(h2c(t), d.URL())
	if turns := call(t, service.ListTurns, &agentdv1.ListTurnsRequest{SessionId: "mine"}).GetTurns(); len(turns) != 2 {
		t.Errorf("%d turns", len(turns))
	}
}

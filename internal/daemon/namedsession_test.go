package daemon_test

import (
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
)

func object(t *testing.T, m map[string]any) *structpb.Struct {
	t.Helper()
	s, err := structpb.NewStruct(m)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// An id that the caller chooses names one session: a repeat is that session, anything else is a conflict, whoever made
// the session and however.
func TestSessionIDOfTheCaller(t *testing.T) {
	d := start(t, daemon.Config{})
	for name, c := range wires(t, d) {
		t.Run(name, func(t *testing.T) {
			name := strings.NewReplacer(" ", "", ",", "", "/", "").Replace(name)
			id := "a:1@x.-_" + name
			create := &agentdv1.CreateSessionRequest{SessionId: id, ClientRef: "ref", Metadata: object(t, map[string]any{"n": 1.0, "m": "<é>"})}
			s := call(t, c.CreateSession, create).GetSession()
			if s.GetId() != id {
				t.Errorf("the session is %q", s.GetId())
			}
			if again := call(t, c.CreateSession, create).GetSession(); !proto.Equal(again, s) {
				t.Errorf("again: %v, want %v", again, s)
			}
			call(t, c.UpdateSession, &agentdv1.UpdateSessionRequest{SessionId: id, ClientRef: new("other")})
			if again := call(t, c.CreateSession, create).GetSession(); again.GetClientRef() != "other" {
				t.Errorf("again, after a change: %v", again)
			}
			ex := execute(llm("root", "echo"), "hi").GetExecute()
			ex.SessionId, ex.Create = new("run-"+name), true
			turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn()
			until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
			for what, req := range map[string]*agentdv1.CreateSessionRequest{
				"other content":         {SessionId: id, ClientRef: "another"},
				"other metadata":        {SessionId: id, ClientRef: "ref"},
				"a session of a prompt": {SessionId: "run-" + name},
			} {
				_, err := c.CreateSession(t.Context(), connect.NewRequest(req))
				if e := details(t, err); e.GetCode() != conflict || !strings.Contains(e.GetMessage(), req.GetSessionId()) {
					t.Errorf("%s: %v", what, e)
				}
			}
			call(t, c.DeleteSession, &agentdv1.DeleteSessionRequest{SessionId: id})
			if anew := call(t, c.CreateSession, create).GetSession(); anew.GetClientRef() != "ref" || anew.GetVersion() != 1 {
				t.Errorf("after a delete: %v", anew)
			}
			ex = execute(llm("root", "echo"), "hi").GetExecute()
			ex.SessionId, ex.Create = &id, true
			until(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
			if now := call(t, c.GetSession, &agentdv1.GetSessionRequest{SessionId: id}).GetSession(); !proto.Equal(now.GetMetadata(), create.GetMetadata()) {
				t.Errorf("after a turn the metadata are %v", now.GetMetadata())
			}
		})
	}
}

// Of requests for one id at the same time all get the one session, or a conflict if they are not the same.
func TestSessionIDAtOnce(t *testing.T) {
	d := start(t, daemon.Config{})
	c := agentdv1connect.NewSessionServiceClient(h2c(t), d.URL())
	const all = 8
	codes := make(chan connect.Code, 2*all)
	for i := range 2 * all {
		go func() {
			var err error
			if i%2 == 0 {
				_, err = c.CreateSession(t.Context(), connect.NewRequest(&agentdv1.CreateSessionRequest{SessionId: "s"}))
			} else {
				ex := execute(llm("root", "echo"), "hi").GetExecute()
				ex.SessionId, ex.Create, ex.OnBusy = new("s"), true, agentdv1.OnBusy_ON_BUSY_ENQUEUE
				_, err = c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: ex}))
			}
			code := connect.Code(0)
			if err != nil {
				code = connect.CodeOf(err)
			}
			if code != 0 && (i%2 == 1 || code != connect.CodeAborted) {
				t.Errorf("request %d: %v", i, err)
			}
			codes <- code
		}()
	}
	for range 2 * all {
		<-codes
	}
	turns := call(t, c.ListTurns, &agentdv1.ListTurnsRequest{SessionId: "s"}).GetTurns()
	if len(turns) != all {
		t.Errorf("%d turns, want %d", len(turns), all)
	}
}

// Metadata is an object of the caller's own: it is replaced as a whole, kept by a restart, copied by a fork, and bounded.
func TestMetadata(t *testing.T) {
	dir := t.TempDir()
	d := start(t, daemon.Config{DataDir: dir})
	c := agentdv1connect.NewSessionServiceClient(h2c(t), d.URL())
	first := object(t, map[string]any{"a": 1.5, "b": []any{"x", nil, true}, "c": map[string]any{"d": "\x00<>"}})
	s := call(t, c.CreateSession, &agentdv1.CreateSessionRequest{Metadata: first, DropToolPayloads: true}).GetSession()
	want := func(when, id string, want *structpb.Struct) {
		t.Helper()
		got := call(t, c.GetSession, &agentdv1.GetSessionRequest{SessionId: id}).GetSession().GetMetadata()
		if !proto.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	want("made", s.GetId(), first)
	call(t, c.UpdateSession, &agentdv1.UpdateSessionRequest{SessionId: s.GetId(), ClientRef: new("r")})
	want("left out", s.GetId(), first)
	next := object(t, map[string]any{"z": "only"})
	call(t, c.UpdateSession, &agentdv1.UpdateSessionRequest{SessionId: s.GetId(), Metadata: next})
	want("replaced", s.GetId(), next)
	fork := call(t, c.ForkSession, &agentdv1.ForkSessionRequest{SessionId: s.GetId()}).GetSession()
	want("of a fork", fork.GetId(), next)
	call(t, c.UpdateSession, &agentdv1.UpdateSessionRequest{SessionId: fork.GetId(), Metadata: &structpb.Struct{}})
	want("taken away", fork.GetId(), nil)

	most := object(t, map[string]any{"k": strings.Repeat("<", 16384-len(`{"k":""}`))})
	call(t, c.UpdateSession, &agentdv1.UpdateSessionRequest{SessionId: fork.GetId(), Metadata: most})
	want("as much as there may be", fork.GetId(), most)
	most.Fields["k"] = structpb.NewStringValue(most.GetFields()["k"].GetStringValue() + "x")
	_, err := c.UpdateSession(t.Context(), connect.NewRequest(&agentdv1.UpdateSessionRequest{SessionId: s.GetId(), Metadata: most}))
	for what, err := range map[string]error{"update": err, "create": func() error {
		_, err := c.CreateSession(t.Context(), connect.NewRequest(&agentdv1.CreateSessionRequest{Metadata: most}))
		return err
	}()} {
		e := details(t, err)
		if e.GetCode() != limitExceeded || e.GetLimit().GetName() != "metadata_bytes" || e.GetLimit().GetReceived() != 16385 {
			t.Errorf("%s with too much: %v", what, e)
		}
	}

	stop(t, d)
	d = start(t, daemon.Config{DataDir: dir})
	c = agentdv1connect.NewSessionServiceClient(h2c(t), d.URL())
	want("after a restart", s.GetId(), next)
}

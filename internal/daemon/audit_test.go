package daemon_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/descriptorpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/session/principal"
)

// entries stops a daemon and reads its audit trail.
func (g *gated) entries(q daemon.AuditQuery) (out []daemon.AuditEntry) {
	g.t.Helper()
	stop(g.t, g.d)
	l, err := daemon.OpenLedger(g.t.Context(), g.dir, false)
	if err != nil {
		g.t.Fatal(err)
	}
	for e, failed := range l.Entries(g.t.Context(), q) {
		err = errors.Join(err, failed)
		out = append(out, e)
	}
	if err := errors.Join(err, l.Close()); err != nil {
		g.t.Fatal(err)
	}
	return out
}

// TestAudit: each method that changes something leaves one entry, also when it is refused; a read leaves none.
func TestAudit(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	before := time.Now()
	ann := g.good(principal.Principal{ID: "ann", Tenant: "acme"})
	key, id := g.key(principal.Principal{ID: "ben", Tenant: "acme", Role: principal.Observer})
	ben := g.bearer(key)
	sessions := agentdv1connect.NewSessionServiceClient(ann["token"], g.url())
	first := call(t, sessions.CreateTurn, &agentdv1.CreateTurnRequest{Execute: execute(llm("root", "echo"), "hi").GetExecute()}).GetTurn()
	until(t, sessions, first, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	want := map[string]int{"keys.create": 2}
	for _, m := range methods() {
		req, named := filled(m, first.GetSessionId(), first.GetId())
		reads := m.Name() == "WatchSession" || called(m) == "EventService.Watch" ||
			m.Options().(*descriptorpb.MethodOptions).GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
		if !reads && m.Name() != "SubmitToolResults" {
			want[string(m.Parent().Name())+"."+string(m.Name())] = 1
		}
		if code := outcome(t, ben, g.url(), m, req); !reads && code != agentdv1.ErrorCode_ERROR_CODE_PERMISSION_DENIED {
			t.Errorf("%s (names a session: %v): %v", called(m), named, code)
		}
	}
	fork := call(t, sessions.ForkSession, &agentdv1.ForkSessionRequest{SessionId: first.GetSessionId()}).GetSession()
	want["SessionService.CreateTurn"]++
	want["SessionService.ForkSession"]++

	// A turn that waits for its tool, with a second client, is canceled on its stream.
	stream, end := connectDialer(g.with(map[string]string{
		"X-User": "ann", "X-Tenant": "acme", "X-Forwarded-For": "203.0.113.9, 198.51.100.7",
	}), g.url())(t)
	defer end()
	if err := stream.Send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: lookRequest("look")}}); err != nil {
		t.Fatal(err)
	}
	began, err := stream.Receive()
	if err != nil {
		t.Fatal(err)
	}
	session := began.GetExecute().GetSessionId()
	watch, err := sessions.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: session}))
	if err != nil || !watch.Receive() {
		t.Fatal(err, watch.Err())
	}
	if err := stream.Send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Cancel{Cancel: &agentdv1.RunRequest_CancelRequest{}}}); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = stream.Receive()
	}
	for _, action := range []string{"SessionService.WatchTurn", "Run.execute", "Run.cancel"} {
		want[action]++
	}

	got := map[string]int{}
	for _, e := range g.entries(daemon.AuditQuery{AllTenants: true, Since: before}) {
		got[e.Action]++
		refused := e.Principal == "ben"
		switch {
		case e.Tenant != "acme" || e.Time.Before(before) || e.From == "":
			t.Errorf("entry %+v", e)
		case e.Action == "keys.create" && (!strings.HasPrefix(e.Principal, "os:") || e.Subject == ""):
			t.Errorf("entry of a key %+v", e)
		case refused && (e.Role != principal.Observer || e.Via != id || e.Outcome != "PERMISSION_DENIED"):
			t.Errorf("entry of what was refused %+v", e)
		case !refused && e.Outcome != "ok":
			t.Errorf("entry of what was done %+v", e)
		case e.Action == "Run.execute" && (e.Session != session || e.Turn == "" || e.From != "198.51.100.7"):
			t.Errorf("entry of a stream %+v", e)
		case e.Action == "SessionService.ForkSession" && !refused && (e.Session != first.GetSessionId() || e.Subject != fork.GetId()):
			t.Errorf("entry of a fork %+v", e)
		case e.Action == "SessionService.CreateTurn" && !refused && (e.Session != first.GetSessionId() || e.Turn != first.GetId()):
			t.Errorf("entry of a turn %+v", e)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries by action:\n%s", diff)
	}
}

package daemon_test

import (
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
)

// TestErase erases sessions whose turns wait, and shared state, of a user and of a tenant: by a daemon that runs, and
// without one.
func TestErase(t *testing.T) {
	t.Parallel()
	cfg := daemon.Config{DataDir: t.TempDir(), Scripts: map[string]string{"asks": asks}, Authenticate: byHeader}
	d := start(t, cfg)
	of := func(who string) agentdv1connect.SessionServiceClient {
		hc := &http.Client{Transport: headed{map[string]string{"X-Test-Who": who + "/operator"}, h2c(t).Transport}}
		return agentdv1connect.NewSessionServiceClient(hc, d.URL())
	}
	ids := map[string]string{}
	for _, who := range []string{"ann@acme", "ben@acme", "ann@umbrella", "ann"} {
		c := of(who)
		turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: lookRequest("look")}).GetTurn()
		ids[who] = until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT).GetSessionId()
		call(t, c.SetSharedState, &agentdv1.SetSharedStateRequest{Values: []*agentdv1.SharedStateValue{
			{Key: "app:of", Value: "1"}, {Key: "user:of", Value: "1"},
		}})
	}
	// has says which of its session, its user: and its app: state a user has.
	has := func(who string) (out string) {
		c := of(who)
		_, err := c.GetSession(t.Context(), connect.NewRequest(&agentdv1.GetSessionRequest{SessionId: ids[who]}))
		if err == nil {
			out += "session "
		} else if connect.CodeOf(err) != connect.CodeNotFound {
			t.Error(err)
		}
		for _, e := range call(t, c.ListSharedState, &agentdv1.ListSharedStateRequest{}).GetEntries() {
			out += e.GetKey() + " "
		}
		return out
	}
	const all, app = "session app:of user:of ", "app:of "
	wants := func(when string, want map[string]string) {
		t.Helper()
		for who := range ids {
			if got := has(who); got != want[who] {
				t.Errorf("%s, %s has %q, want %q", when, who, got, want[who])
			}
		}
	}
	erase := func(tenant, user, want string) {
		t.Helper()
		got, err := daemon.Erase(t.Context(), cfg, daemon.Erasure{Tenant: tenant, User: user})
		if err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("erased %q: %q, %v, want %q", tenant+"/"+user, got, err, want)
		}
	}
	wants("at first", map[string]string{"ann@acme": all, "ben@acme": all, "ann@umbrella": all, "ann": all})
	erase("acme", "ann", "erased 1 sessions, 1 shared keys")
	wants("without Ann", map[string]string{"ann@acme": app, "ben@acme": all, "ann@umbrella": all, "ann": all})
	erase("acme", "ann", "erased 0 sessions, 0 shared keys")
	stop(t, d)
	erase("acme", "", "erased 1 sessions, 2 shared keys")
	erase("", "ann", "erased 1 sessions, 1 shared keys")
	d = start(t, cfg)
	wants("after a restart", map[string]string{"ann@umbrella": all, "ann": app})
}

package daemon_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/test/pgserver"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/principal"
)

// replicas are daemons over one database.
type replicas struct {
	t    *testing.T
	url  string
	cfg  daemon.Config
	each []*daemon.Daemon
}

// startReplicas starts n daemons of a config over a database of their own.
func startReplicas(t *testing.T, n int, cfg daemon.Config) *replicas {
	t.Helper()
	r := &replicas{t: t, url: pgserver.URL(t), cfg: cfg}
	for range n {
		r.add()
	}
	return r
}

// add starts another daemon.
func (r *replicas) add() *daemon.Daemon {
	r.t.Helper()
	l, err := new(net.ListenConfig).Listen(r.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	return r.addAt(l, "http://"+l.Addr().String())
}

// addAt starts another daemon on a listener, which the others reach at a URL.
func (r *replicas) addAt(l net.Listener, url string) *daemon.Daemon {
	r.t.Helper()
	cfg := r.cfg
	cfg.Listener, cfg.StoreURL = l, session.Secret(r.url)
	cfg.Cluster = daemon.Cluster{Advertise: url, Secret: "a secret of replicas in tests, 32 or more"}
	d := start(r.t, cfg)
	r.each = append(r.each, d)
	return d
}

// service is a client of a daemon that sends headers, by pairs of a name and a value.
func service(t *testing.T, d *daemon.Daemon, headers ...string) agentdv1connect.SessionServiceClient {
	t.Helper()
	h := headed{map[string]string{}, h2c(t).Transport}
	for i := 0; i < len(headers); i += 2 {
		h.headers[headers[i]] = headers[i+1]
	}
	return agentdv1connect.NewSessionServiceClient(&http.Client{Transport: h}, d.URL())
}

// byTenant is who calls by the header X-Tenant.
func byTenant(r *http.Request) (principal.Principal, error) {
	return principal.Principal{ID: "ann", Tenant: r.Header.Get("X-Tenant")}, nil
}

// TestBudgetOfReplicas: callers of a tenant at several daemons never spend more than its budget together, and each
// daemon may spend what is left of it.
func TestBudgetOfReplicas(t *testing.T) {
	t.Parallel()
	const callers, budget, each, most = 48, 4_000, 25, 1_000
	r := startReplicas(t, 3, daemon.Config{
		Scripts: map[string]string{"pays": paying}, Authenticate: byTenant,
		Turns: limits.Limits{TenantDay: map[string]daemon.Budget{"acme": {Tokens: budget}}},
	})
	turn := func(d *daemon.Daemon) (*agentdv1.Turn, error) {
		c := service(t, d, "X-Tenant", "acme")
		agent := llm("root", "scripted/pays")
		agent.GetLlm().Generation = &agentdv1.GenerationSettings{MaxOutputTokens: 500}
		resp, err := c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{
			Execute: &agentdv1.RunRequest_ExecuteRequest{UserPrompt: "go", Agent: agent},
		}))
		if err != nil {
			return nil, err
		}
		return ended(t, c, resp.Msg.GetTurn())
	}
	var mu sync.Mutex // protects the counts
	var done, refused int
	for range 4 {
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				got, err := turn(r.each[i%len(r.each)])
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					t.Error(err)
				case got.GetStatus() == agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED:
					done++
				case got.GetErrorCode() != agentdv1.ErrorCode_ERROR_CODE_BUDGET_EXHAUSTED:
					t.Errorf("the turn is %v", got)
				default:
					refused++
				}
			})
		}
		wg.Wait()
	}
	t.Logf("%d turns of %d tokens within %d, %d refused", done, each, budget, refused)
	if done*each > budget || refused == 0 || budget-done*each > most {
		t.Errorf("%d turns of %d tokens of a budget of %d, and %d are refused", done, each, budget, refused)
	}
}

// TestOneView: what one daemon keeps beside sessions, and which sessions there are, all of them say.
func TestOneView(t *testing.T) {
	t.Parallel()
	r := startReplicas(t, 2, daemon.Config{})
	a, b := r.each[0], r.each[1]
	keys, err := daemon.OpenStoreLedger(t.Context(), session.Secret(r.url))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = keys.Close() }()
	text, key, _, err := keys.CreateKey(t.Context(), principal.Principal{ID: "op", Role: principal.Operator}, "")
	if err != nil {
		t.Fatal(err)
	}
	ofA, ofB := service(t, a, "Authorization", "Bearer "+text), service(t, b, "Authorization", "Bearer "+text)

	call(t, ofA.ApplyAgent, desk("be kind"))
	if got := call(t, ofB.GetAgent, &agentdv1.GetAgentRequest{AgentRef: ref(desk("").GetName(), 0)}); got.GetAgent().GetVersion() != 1 {
		t.Errorf("an agent that another daemon has: %v", got)
	}
	turn := call(t, ofB.CreateTurn, &agentdv1.CreateTurnRequest{Execute: execute(llm("root", "echo"), "hi").GetExecute()}).GetTurn()
	until(t, ofA, turn, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	for _, c := range []agentdv1connect.SessionServiceClient{ofA, ofB} {
		sessions := call(t, c.ListSessions, &agentdv1.ListSessionsRequest{}).GetSessions()
		turns := call(t, c.ListTurns, &agentdv1.ListTurnsRequest{}).GetTurns()
		if len(sessions) != 1 || len(turns) != 1 || turns[0].GetStatus() != agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED {
			t.Errorf("sessions %v, turns %v", sessions, turns)
		}
	}

	revoked, err := keys.RevokeKey(t.Context(), key.ID)
	if err != nil || revoked.Revoked.IsZero() {
		t.Fatal(revoked, err)
	}
	for i, c := range []agentdv1connect.SessionServiceClient{ofA, ofB} {
		for limit := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			_, err := c.ListSessions(t.Context(), connect.NewRequest(&agentdv1.ListSessionsRequest{}))
			if connect.CodeOf(err) == connect.CodeUnauthenticated {
				break
			}
			if time.Now().After(limit) {
				t.Fatalf("daemon %d takes a key that was revoked: %v", i, err)
			}
		}
	}
	var actions []string
	for e, err := range keys.Entries(t.Context(), daemon.AuditQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		actions = append(actions, e.Action)
	}
	for _, want := range []string{"keys.create", "SessionService.ApplyAgent", "SessionService.CreateTurn", "keys.revoke"} {
		if !slices.Contains(actions, want) {
			t.Errorf("the audit trail has no %s: %v", want, actions)
		}
	}
}

// TestArrival: a client whose connection a replica has taken before it stops, and that sends its first request after
// that, is not refused.
func TestArrival(t *testing.T) {
	t.Parallel()
	r := startReplicas(t, 2, daemon.Config{})
	leaving, addr := r.each[0], strings.TrimPrefix(r.each[0].URL(), "http://")
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	// Connections are taken by turns: that one has been when this one is answered.
	call(t, service(t, leaving).ListSessions, &agentdv1.ListSessionsRequest{})
	stopped := make(chan error, 1)
	go func() { stopped <- leaving.Shutdown(t.Context()) }()
	for {
		other, err := d.DialContext(t.Context(), "tcp", addr)
		if err != nil {
			break
		}
		_ = other.Close()
	}
	h := h2c(t)
	h.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	stream := agentdv1connect.NewAgentdClient(h, leaving.URL()).Run(t.Context())
	if err := stream.Send(execute(llm("root", "echo"), "hi")); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := stream.Receive()
		if err != nil || m.GetError() != nil {
			t.Fatalf("the turn: %v, %v", m, err)
		}
		if m.GetEnd() != nil {
			break
		}
	}
	if err := errors.Join(stream.CloseRequest(), stream.CloseResponse(), <-stopped); err != nil {
		t.Error(err)
	}
}

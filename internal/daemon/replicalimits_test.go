package daemon_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/session/limits"
)

// TestTenantLimitsOfReplicas: what a tenant may have at once, and how often its callers may call, holds for all daemons
// together; a stream that another daemon serves counts once.
func TestTenantLimitsOfReplicas(t *testing.T) {
	t.Parallel()
	const turns, streams, rate = 3, 2, 30
	r := startReplicas(t, 2, daemon.Config{
		Scripts: map[string]string{"asks": asks}, Authenticate: byTenant,
		MaxTenantStreams: streams, TenantRequestsPerSecond: rate, Turns: limits.Limits{MaxTenantTurns: turns},
	})
	a, b := service(t, r.each[0], "X-Tenant", "acme"), service(t, r.each[1], "X-Tenant", "acme")
	begin := func() *connect.Request[agentdv1.CreateTurnRequest] {
		return connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: lookRequest("look")})
	}
	refused := func(what string, err error, limit string) {
		t.Helper()
		var e *connect.Error
		if !errors.As(err, &e) || e.Code() != connect.CodeUnavailable || details(t, err).GetLimit().GetName() != limit {
			t.Errorf("%s: %v, want the limit %s", what, err, limit)
		}
	}
	first := call(t, a.CreateTurn, begin().Msg).GetTurn()
	call(t, a.CreateTurn, begin().Msg)
	last := call(t, b.CreateTurn, begin().Msg).GetTurn()
	_, err := a.CreateTurn(t.Context(), begin())
	refused("a fourth turn", err, "tenant_turns")
	_, err = b.CreateTurn(t.Context(), begin())
	refused("a fourth turn at the other daemon", err, "tenant_turns")
	call(t, b.CancelTurn, &agentdv1.CancelTurnRequest{
		SessionId: first.GetSessionId(), TurnId: first.GetId(),
	}) // which forwards it
	for limit := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if _, err = b.CreateTurn(t.Context(), begin()); err == nil {
			break
		}
		refused("a turn while another daemon gives back", err, "tenant_turns")
		if time.Now().After(limit) {
			t.Fatal("a place that is free goes to nobody")
		}
	}

	watch := func(c agentdv1connect.SessionServiceClient) error {
		w, err := c.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: last.GetSessionId()}))
		if err == nil && !w.Receive() {
			err = w.Err()
		}
		return err
	}
	for range streams { // of a session of the other one
		if err := watch(a); err != nil {
			t.Fatal(err)
		}
	}
	refused("a third stream", watch(b), "tenant_streams")

	var admitted atomic.Int64
	began := time.Now()
	var wg sync.WaitGroup
	for i := range 8 {
		c := service(t, r.each[i%2], "X-Tenant", "umbrella")
		wg.Go(func() {
			for range 60 {
				_, err := c.ListSessions(t.Context(), connect.NewRequest(&agentdv1.ListSessionsRequest{}))
				switch {
				case err == nil:
					admitted.Add(1)
				case connect.CodeOf(err) != connect.CodeResourceExhausted:
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	most := rate * (time.Since(began).Seconds() + 3)
	t.Logf("%d requests of 480 in %v, of at most %.0f", admitted.Load(), time.Since(began), most)
	if n := admitted.Load(); float64(n) > most || n < rate {
		t.Errorf("%d requests of 480, of at most %.0f", n, most)
	}
}

package daemon_test

import (
	"errors"
	"net/http"
	"testing"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/principal"
)

// tenantHeader takes the tenant that a header names.
func tenantHeader(r *http.Request) (principal.Principal, error) {
	return principal.Principal{ID: "ann", Tenant: r.Header.Get("X-Tenant")}, nil
}

// TestTenantLimits: a tenant that takes all that it may has its refusals named, and nobody else notices.
func TestTenantLimits(t *testing.T) {
	t.Parallel()
	d := start(t, daemon.Config{
		Scripts: map[string]string{"asks": asks}, Authenticate: tenantHeader,
		MaxTenantStreams: 2, TenantRequestsPerSecond: 5, Turns: limits.Limits{MaxTenantTurns: 3},
	})
	of := func(tenant string) agentdv1connect.SessionServiceClient {
		hc := &http.Client{Transport: headed{map[string]string{"X-Tenant": tenant}, h2c(t).Transport}}
		return agentdv1connect.NewSessionServiceClient(hc, d.URL())
	}
	// refused checks a refusal.
	refused := func(what string, err error, code connect.Code, limit string, value int64) {
		t.Helper()
		var e *connect.Error
		if !errors.As(err, &e) || e.Code() != code || details(t, err).GetLimit().GetName() != limit || details(t, err).GetLimit().GetValue() != value {
			t.Errorf("%s: %v, want the limit %s of %d", what, err, limit, value)
		} else if e.Meta().Get("Retry-After") == "" {
			t.Errorf("%s: the refusal does not say when it may be tried again", what)
		}
	}
	start := func(c agentdv1connect.SessionServiceClient) (*agentdv1.Turn, error) {
		resp, err := c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: lookRequest("look")}))
		if err != nil {
			return nil, err
		}
		return resp.Msg.GetTurn(), nil
	}
	acme := of("acme")
	var turn *agentdv1.Turn
	for range 3 {
		var err error
		if turn, err = start(acme); err != nil {
			t.Fatal(err)
		}
	}
	_, err := start(acme)
	refused("a fourth turn", err, connect.CodeUnavailable, "tenant_turns", 3)

	watches := of("umbrella") // whose requests are not counted yet
	own, err := start(watches)
	if err != nil {
		t.Fatal(err)
	}
	watch := func() error {
		w, err := watches.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: own.GetSessionId()}))
		if err == nil && !w.Receive() {
			err = w.Err()
		}
		return err
	}
	for range 2 {
		if err := watch(); err != nil {
			t.Fatal(err)
		}
	}
	refused("a third stream", watch(), connect.CodeUnavailable, "tenant_streams", 2)

	for range 20 { // on a slow machine another request is allowed before the stream comes
		errs := make(chan error, 100)
		for range cap(errs) { // at once: one after the other would be slower than the limit on a slow machine
			go func() {
				_, err := acme.GetTurn(t.Context(), connect.NewRequest(&agentdv1.GetTurnRequest{SessionId: turn.GetSessionId()}))
				errs <- err
			}()
		}
		for range cap(errs) {
			if e := <-errs; e != nil {
				err = e
			}
		}
		refused("many requests", err, connect.CodeResourceExhausted, "tenant_requests_per_second", 5)

		w, failed := acme.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: turn.GetSessionId()}))
		if failed == nil && !w.Receive() {
			failed = w.Err()
		}
		if err = failed; err != nil {
			break
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	refused("a stream among them", err, connect.CodeUnavailable, "tenant_requests_per_second", 5)

	for _, tenant := range []string{"others", ""} {
		c := of(tenant)
		for range 8 {
			if _, err := c.ListSessions(t.Context(), connect.NewRequest(&agentdv1.ListSessionsRequest{})); err != nil {
				t.Errorf("tenant %q: %v", tenant, err)
			}
		}
	}
	free := of("")
	for range 20 {
		if _, err := start(free); err != nil {
			t.Errorf("without a tenant: %v", err)
		}
	}
}

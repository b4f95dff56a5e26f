package daemon_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/principal"
)

// paying is a script whose call takes 25 tokens, and a while.
const paying = `answers: [{when: {}, text: "one two three", chunk_delay: 5ms, usage: {prompt: 20, completion: 5}}]`

// ended waits for the end of a turn.
func ended(t *testing.T, c agentdv1connect.SessionServiceClient, turn *agentdv1.Turn) (*agentdv1.Turn, error) {
	for {
		resp, err := c.GetTurn(t.Context(), connect.NewRequest(&agentdv1.GetTurnRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId()}))
		if err != nil || resp.Msg.GetTurn().EndTime != nil {
			return resp.Msg.GetTurn(), err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestTenantBudget: callers of a tenant at the same time never spend more than its budget, and all that they spend is
// counted, over restarts too. Another tenant is not concerned.
func TestTenantBudget(t *testing.T) {
	t.Parallel()
	const callers, budget, each = 64, 4_000, 25
	const exhausted = agentdv1.ErrorCode_ERROR_CODE_BUDGET_EXHAUSTED
	cfg := daemon.Config{
		DataDir: t.TempDir(), Scripts: map[string]string{"pays": paying},
		Turns: limits.Limits{TenantDay: map[string]daemon.Budget{"*": {Tokens: 1}, "acme": {Tokens: budget}, "umbrella": {}}},
		Authenticate: func(r *http.Request) (principal.Principal, error) {
			return principal.Principal{ID: "ann", Tenant: r.Header.Get("X-Tenant")}, nil
		},
	}
	d := start(t, cfg)
	of := func(tenant string) agentdv1connect.SessionServiceClient {
		hc := &http.Client{Transport: headed{map[string]string{"X-Tenant": tenant}, h2c(t).Transport}}
		return agentdv1connect.NewSessionServiceClient(hc, d.URL())
	}
	// The response has at most 500 tokens, so that a call reserves a little more, and six calls fit at once.
	turn := func(c agentdv1connect.SessionServiceClient) (*agentdv1.Turn, error) {
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
	var done, refused int64
	round := func(c agentdv1connect.SessionServiceClient) {
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				got, err := turn(c)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					t.Error(err)
				case got.GetStatus() == agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED:
					done++
				case got.GetErrorCode() != exhausted || !strings.Contains(got.GetStatusMessage(), "budget for the day"):
					t.Errorf("the turn is %v", got)
				default:
					refused++
				}
			})
		}
		wg.Wait()
	}
	acme := of("acme")
	for range 2 {
		round(acme)
	}
	stop(t, d)
	d = start(t, cfg)
	acme = of("acme")
	round(acme)
	t.Logf("%d turns of %d tokens within %d, %d refused", done, each, budget, refused)
	if done*each > budget || refused == 0 || done == 0 {
		t.Errorf("%d turns of %d tokens, want them within %d, and %d refused, want some", done, each, budget, refused)
	}
	if (budget - done*each) > 1000 {
		t.Errorf("%d tokens are left", budget-done*each)
	}
	if got, err := turn(of("umbrella")); err != nil || got.GetStatus() != agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED {
		t.Errorf("a tenant without a bound: %v, %v", got, err)
	}
	if got, err := turn(of("others")); err != nil || got.GetErrorCode() != exhausted {
		t.Errorf("a tenant that is not named: %v, %v", got, err)
	}
}

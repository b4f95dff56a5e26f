package daemon_test

import (
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/test/fakeprovider"
)

// TestSameIDInTwoTenants: the same id in two tenants is two conversations, also for the model.
func TestSameIDInTwoTenants(t *testing.T) {
	t.Parallel()
	provider, url := fakeprovider.Start(t, fakeprovider.Say("ok"))
	d := start(t, daemon.Config{
		Authenticate: byHeader, CreateSessions: true,
		Providers: daemon.Providers{AnthropicAPIKey: "k", AnthropicBaseURL: url},
	})
	say := func(who, prompt string) string { // what the model receives
		t.Helper()
		c := speaking(t, d, who)
		ex := execute(llm("root", "claude-x"), prompt).GetExecute()
		ex.SessionId, ex.Create = new("chat"), true
		turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn()
		until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
		return string(provider.Last().Body)
	}
	say("eve@umbrella", "hello")
	say("ann@acme", "my name is Ann")
	if got := say("eve@umbrella", "what is my name?"); strings.Contains(got, "Ann") || !strings.Contains(got, "hello") {
		t.Errorf("the model of another tenant receives %s", got)
	}
	if got := say("ann@acme", "and mine?"); !strings.Contains(got, "Ann") || strings.Contains(got, "hello") {
		t.Errorf("the model receives %s", got)
	}
}

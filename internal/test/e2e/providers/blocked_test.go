package providers

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/harness"
)

// TestBlocked: what a provider or its model refuses fails the turn once, with the
// provider's reason, the usage and what was shown; no tool is called, and the
// session goes on.
func TestBlocked(t *testing.T) {
	const code = agentdv1.ErrorCode_ERROR_CODE_CONTENT_BLOCKED
	for name, b := range harness.BlockedAnswers {
		t.Run(name, func(t *testing.T) {
			f := harness.NewFaulty(t, b.Wire)
			f.Use(b.Script())
			got := f.Turn("", "look")
			harness.CheckFailed(t, got, code, 1, append(b.Says, harness.WireProviders[b.Wire].Describe().Name+": ")...)
			if got.Errors[0].GetRetryable() || len(f.Calls()) != 1 {
				t.Errorf("retryable %v after %d calls", got.Errors[0].GetRetryable(), len(f.Calls()))
			}
			// What is on its way is shown to who is there; one who reads slowly may find
			// that the turn has failed already.
			if text := got.Text["root"]; text != b.Text && text != "" {
				t.Errorf("text %q, want %q", got.Text, b.Text)
			}
			if u := got.End.GetUsageSummary().GetTotalUsage(); u.GetTotalTokens() != b.Tokens {
				t.Errorf("usage %v, want %d tokens", u, b.Tokens)
			}
			service := agentdv1connect.NewSessionServiceClient(f.D.HTTPClient(), f.D.URL)
			resp, err := service.GetTurn(t.Context(), connect.NewRequest(&agentdv1.GetTurnRequest{SessionId: got.Session}))
			if err != nil {
				t.Fatal(err)
			}
			turn := resp.Msg.GetTurn()
			if turn.GetStatus() != agentdv1.TurnStatus_TURN_STATUS_FAILED || turn.GetStopReason() != agentdv1.StopReason_STOP_REASON_CONTENT_BLOCKED ||
				!strings.Contains(turn.GetStatusMessage(), b.Says[0]) {
				t.Errorf("turn %v", turn)
			}

			f.Serve(nil, harness.Hello)
			if again := f.Turn(got.Session); again.Text["root"] != "Hello." || !again.End.GetCompleted() {
				t.Errorf("the next turn: %v", again.Msgs)
			}
		})
	}
}

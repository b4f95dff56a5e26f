package server

import (
	"testing"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/index"
)

// A clock that is set back gives no turn less time than none.
func TestTurnDurationIsNeverNegative(t *testing.T) {
	now := time.Now()
	for name, turn := range map[string]index.Turn{
		"over":    {Started: now, Ended: now.Add(-time.Hour), Status: index.Succeeded},
		"running": {Started: now.Add(time.Hour), Status: index.Running},
	} {
		if got := turnOf(&turn).GetDuration().AsDuration(); got != 0 {
			t.Errorf("%s: it took %v", name, got)
		}
	}
}

func TestTurnSaysHowItsModelStopped(t *testing.T) {
	for stop, want := range map[string]agentdv1.StopReason{
		"":                        agentdv1.StopReason_STOP_REASON_UNSPECIFIED,
		"STOP":                    agentdv1.StopReason_STOP_REASON_STOP,
		"MAX_TOKENS":              agentdv1.StopReason_STOP_REASON_MAX_TOKENS,
		"SAFETY":                  agentdv1.StopReason_STOP_REASON_CONTENT_BLOCKED,
		"PROHIBITED_CONTENT":      agentdv1.StopReason_STOP_REASON_CONTENT_BLOCKED,
		"OTHER":                   agentdv1.StopReason_STOP_REASON_OTHER,
		"MALFORMED_FUNCTION_CALL": agentdv1.StopReason_STOP_REASON_OTHER,
	} {
		got := turnOf(&index.Turn{Stop: stop, Model: "m\xff", Output: `{"a":[1,null]}`, Structured: true, Status: index.Succeeded})
		if got.GetStopReason() != want || got.GetModel() != "m\uFFFD" {
			t.Errorf("%q: turn %v, want %v", stop, got, want)
		}
		if got.GetStructuredOutput() != `{"a":[1,null]}` {
			t.Errorf("structured output %s", got.GetStructuredOutput())
		}
	}
	for name, turn := range map[string]index.Turn{
		"text": {Output: "{}", Status: index.Succeeded}, "failed": {Output: "{}", Structured: true, Status: index.Failed}, "running": {Output: "{}", Structured: true, Status: index.Running},
	} {
		if got := turnOf(&turn); got.GetStructuredOutput() != "" || got.GetOutputText() != "{}" {
			t.Errorf("%s: turn %v", name, got)
		}
	}
}

package daemon_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/session/limits"
)

// A call is canceled on each wire by another client than the one that runs the
// tool: that one is notified, and the turn continues. A repeat changes nothing.
func TestCancelToolCall(t *testing.T) {
	d := start(t, daemon.Config{Scripts: map[string]string{"asks": asks}, Turns: limits.Limits{IdleTurn: time.Hour}})
	tools := wires(t, d)["Connect, binary, HTTP/1.1"]
	for wire, c := range wires(t, d) {
		t.Run(wire, func(t *testing.T) {
			turn := call(t, tools.CreateTurn, &agentdv1.CreateTurnRequest{Execute: lookRequest("1")}).GetTurn()
			runs := spectate(t, "the client with the tool", watchOn(tools, &agentdv1.WatchTurnRequest{SessionId: turn.GetSessionId(), ToolNames: []string{"look"}}))
			asked := runs.until(t, func(m *agentdv1.RunResponse) bool { return m.GetToolCall() != nil }).GetToolCall()
			req := &agentdv1.CancelToolCallRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId(), ToolCallId: asked.GetToolCallId()}
			if got := call(t, c.CancelToolCall, req).GetTurn(); got.GetId() != turn.GetId() || len(got.GetPendingToolCalls()) != 0 {
				t.Errorf("the turn is %v", got)
			}
			event := runs.until(t, func(m *agentdv1.RunResponse) bool { return m.GetToolCallCanceled() != nil }).GetToolCallCanceled()
			if event.GetToolCallId() != asked.GetToolCallId() || event.GetReason() == "" {
				t.Errorf("the client is told %v", event)
			}
			over := until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
			if !strings.Contains(over.GetOutputText(), "cancelled") {
				t.Errorf("the model was told of no cancelled tool: %v", over)
			}
			if got := call(t, c.CancelToolCall, req).GetTurn(); got.GetStatus() != over.GetStatus() || got.GetOutputText() != over.GetOutputText() {
				t.Errorf("after another cancel the turn is %v", got)
			}
			late, err := c.SubmitToolResults(t.Context(), connect.NewRequest(&agentdv1.SubmitToolResultsRequest{
				SessionId: turn.GetSessionId(), TurnId: turn.GetId(), Results: []*agentdv1.RunRequest_ToolCallResponse{{ToolCallId: asked.GetToolCallId()}},
			}))
			if err != nil || len(late.Msg.GetRefused()) != 1 {
				t.Errorf("an answer to the cancelled call: %v, %v", late, err)
			}
		})
	}
}

// A call that was open when the daemon stopped is canceled on the next one; its
// turn continues and ends without any client.
func TestCancelToolCallAfterARestart(t *testing.T) {
	cfg := daemon.Config{DataDir: filepath.Join(t.TempDir(), "data"), Scripts: map[string]string{"asks": asks}}
	d := start(t, cfg)
	c := wires(t, d)["gRPC"]
	turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: lookRequest("1")}).GetTurn()
	turn = until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
	stop(t, d)
	c = wires(t, start(t, cfg))["gRPC"]
	call(t, c.CancelToolCall, &agentdv1.CancelToolCallRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId(), ToolCallId: turn.GetPendingToolCalls()[0].GetToolCallId()})
	if over := until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED); !strings.Contains(over.GetOutputText(), "cancelled") {
		t.Errorf("the turn is %v", over)
	}
}

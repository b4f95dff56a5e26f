package daemon_test

import (
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
)

// partsOf are the parts of a prompt: a file with its bytes, a text, a file elsewhere.
func partsOf(name string) []*agentdv1.Part {
	return []*agentdv1.Part{
		{Content: &agentdv1.Part_Inline{Inline: &agentdv1.InlineData{MimeType: "image/png", Data: []byte{0, 255, name[0]}}}},
		{Content: &agentdv1.Part_Text{Text: "look at " + name}},
		{Content: &agentdv1.Part_File{File: &agentdv1.FileUri{MimeType: "image/jpeg", Uri: "https://example.com/" + name}}},
	}
}

// sameParts reports whether the parts are those of partsOf.
func sameParts(got []*agentdv1.Part, name string) bool {
	return proto.Equal(&agentdv1.Turn{UserParts: got}, &agentdv1.Turn{UserParts: partsOf(name)})
}

// TestGetTurnHasThePartsOfItsPrompt: whether a prompt runs, waits, becomes a message
// or is inherited, GetTurn has its files whole on each wire, and nothing else has.
func TestGetTurnHasThePartsOfItsPrompt(t *testing.T) {
	d := start(t, daemon.Config{Scripts: map[string]string{"asks": asks}})
	all := wires(t, d)
	c := all["Connect, JSON, HTTP/1.1"]
	begin := func(name string, as agentdv1.OnBusy, sessionID *string) *agentdv1.Turn {
		ex := lookRequest(name)
		ex.UserParts, ex.OnBusy, ex.SessionId = partsOf(name), as, sessionID
		turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn()
		if turn.GetUserParts() != nil {
			t.Errorf("%s: CreateTurn tells %v", name, turn.GetUserParts())
		}
		return turn
	}
	first := until(t, c, begin("first", 0, nil), agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
	id := first.GetSessionId()
	watch, err := c.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: id, ToolNames: []string{"look"}}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = watch.Close() }()
	until(t, c, first, agentdv1.TurnStatus_TURN_STATUS_RUNNING) // somebody is asked, so that prompts wait
	turns := map[string]string{"first": first.GetId()}
	turns["injected"] = begin("injected", agentdv1.OnBusy_ON_BUSY_INJECT, &id).GetId()
	turns["queued"] = begin("queued", agentdv1.OnBusy_ON_BUSY_ENQUEUE, &id).GetId()
	turns["dropped"] = begin("dropped", agentdv1.OnBusy_ON_BUSY_ENQUEUE, &id).GetId()
	check := func(sessionID, when string) {
		t.Helper()
		for wire, c := range all {
			for name, turnID := range turns {
				got := call(t, c.GetTurn, &agentdv1.GetTurnRequest{SessionId: sessionID, TurnId: turnID, UserParts: true}).GetTurn()
				if got.GetUserPrompt() != name || !sameParts(got.GetUserParts(), name) {
					t.Errorf("%s, %s: turn %q (%v) has the parts %v", when, wire, got.GetUserPrompt(), got.GetStatus(), got.GetUserParts())
				}
			}
		}
		for _, got := range call(t, c.ListTurns, &agentdv1.ListTurnsRequest{SessionId: sessionID}).GetTurns() {
			if got.GetUserParts() != nil {
				t.Errorf("%s: ListTurns tells the parts %v", when, got.GetUserParts())
			}
		}
	}
	check(id, "while the first turn runs")
	check(call(t, c.ForkSession, &agentdv1.ForkSessionRequest{SessionId: id}).GetSession().GetId(), "in a fork of a session that runs")
	if got := call(t, c.CancelTurn, &agentdv1.CancelTurnRequest{SessionId: id, TurnId: turns["dropped"]}).GetTurn(); got.GetUserParts() != nil {
		t.Errorf("CancelTurn tells %v", got.GetUserParts())
	}
	for _, name := range []string{"first", "queued"} {
		submitAll(t, c, id, turns[name])
	}
	if into := call(t, c.GetTurn, &agentdv1.GetTurnRequest{SessionId: id, TurnId: turns["injected"]}).GetTurn().GetInjectedInto(); into != turns["first"] {
		t.Errorf("the prompt was injected into %q, want %q", into, turns["first"])
	}
	check(id, "when all are over")
	check(call(t, c.ForkSession, &agentdv1.ForkSessionRequest{SessionId: id}).GetSession().GetId(), "in a fork of a session at rest")
	if got := call(t, c.GetTurn, &agentdv1.GetTurnRequest{SessionId: id, UserParts: true}).GetTurn(); !sameParts(got.GetUserParts(), "queued") {
		t.Errorf("the last turn has the parts %v", got.GetUserParts())
	}
	if got := call(t, c.GetTurn, &agentdv1.GetTurnRequest{SessionId: id}).GetTurn(); got.GetUserParts() != nil {
		t.Errorf("GetTurn tells the parts %v unasked", got.GetUserParts())
	}
}

// submitAll submits the results of a turn's calls until it has succeeded.
func submitAll(t *testing.T, c agentdv1connect.SessionServiceClient, sessionID, turnID string) {
	t.Helper()
	for t.Context().Err() == nil {
		turn := call(t, c.GetTurn, &agentdv1.GetTurnRequest{SessionId: sessionID, TurnId: turnID}).GetTurn()
		if turn.GetEndTime() != nil {
			if turn.GetStatus() != agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED {
				t.Errorf("the turn is %v", turn)
			}
			return
		}
		for _, open := range turn.GetPendingToolCalls() {
			call(t, c.SubmitToolResults, &agentdv1.SubmitToolResultsRequest{SessionId: sessionID, TurnId: turnID, Results: []*agentdv1.RunRequest_ToolCallResponse{
				{ToolCallId: open.GetToolCallId(), Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: "seen"}},
			}})
		}
		time.Sleep(time.Millisecond)
	}
}

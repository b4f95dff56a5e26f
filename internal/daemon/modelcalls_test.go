package daemon_test

import (
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/daemon"
)

// TestListModelCalls tells on each wire what the models of a turn were told, while
// it waits for a tool and when it is over: each call has the instruction of the
// state as it was then.
func TestListModelCalls(t *testing.T) {
	d := start(t, daemon.Config{Scripts: map[string]string{"asks": asks}})
	all := wires(t, d)
	c := all["gRPC"]
	state, err := structpb.NewStruct(map[string]any{"mood": "calm"})
	if err != nil {
		t.Fatal(err)
	}
	ex := lookRequest("go")
	ex.GetAgent().GetLlm().Instruction = "Be {mood}."
	ex.GetAgent().GetLlm().Generation = &agentdv1.GenerationSettings{Seed: new(int32(7))}
	ex.InitialState = state
	turn := until(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
	list := func(turnID string) []*agentdv1.ModelCallDetails {
		var first *agentdv1.ListModelCallsResponse
		for name, c := range all {
			got := call(t, c.ListModelCalls, &agentdv1.ListModelCallsRequest{SessionId: turn.GetSessionId(), TurnId: turnID})
			if first == nil {
				first = got
			}
			if !proto.Equal(got, first) {
				t.Errorf("%s: got %v, elsewhere %v", name, got, first)
			}
		}
		return first.GetCalls()
	}
	if calls := list(""); len(calls) != 1 || !strings.HasPrefix(calls[0].GetInstruction(), "Be calm.") {
		t.Errorf("a turn that waits: %v", calls)
	}
	open := turn.GetPendingToolCalls()[0].GetToolCallId()
	change, err := structpb.NewStruct(map[string]any{"mood": "quick"})
	if err != nil {
		t.Fatal(err)
	}
	call(t, c.SubmitToolResults, &agentdv1.SubmitToolResultsRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId(), Results: []*agentdv1.RunRequest_ToolCallResponse{
		{ToolCallId: open, Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: "seen"}, StateDelta: change},
	}})
	until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	calls := list(turn.GetId())
	if len(calls) != 2 {
		t.Fatalf("calls %v", calls)
	}
	for i, want := range []struct {
		instruction string
		contents    int32
	}{{"Be calm.", 1}, {"Be quick.", 3}} {
		got := calls[i]
		if !strings.HasPrefix(got.GetInstruction(), want.instruction) || got.GetContents() != want.contents || strings.Join(got.GetToolNames(), " ") != "look" || got.GetGeneration().GetSeed() != 7 {
			t.Errorf("call %d: %v, want %v", i, got, want)
		}
		if end := got.GetCall(); end.GetModel() != "scripted/asks" || end.GetSessionId() != turn.GetSessionId() || end.GetMessageId() == "" || end.GetUsage().GetTotalTokens() == 0 {
			t.Errorf("call %d: %v", i, end)
		}
	}
}

// What was told and does not fit into a reply is refused, with its size.
func TestListModelCallsTooLarge(t *testing.T) {
	d := start(t, daemon.Config{MaxMessageBytes: 1 << 13})
	c := wires(t, d)["Connect, JSON, HTTP/1.1"]
	agent := llm("root", "echo")
	agent.GetLlm().Instruction = strings.Repeat("x", 5000)
	tree := sequence("all", agent, llm("second", "echo"))
	tree.GetSequential().GetAgents()[1].GetLlm().Instruction = strings.Repeat("y", 2000)
	tree.GetSequential().Agents = append(tree.GetSequential().GetAgents(), llm("third", "echo"))
	prompt := strings.Repeat("z", 500)
	turn := until(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: &agentdv1.RunRequest_ExecuteRequest{UserPrompt: prompt, Agent: tree}}).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	if got := call(t, c.ListModelCalls, &agentdv1.ListModelCallsRequest{SessionId: turn.GetSessionId()}); len(got.GetCalls()) != 3 {
		t.Errorf("%d calls, want 3", len(got.GetCalls()))
	}
	// The same tree in a loop takes more.
	loop := &agentdv1.Agent{Name: "loop", AgentType: &agentdv1.Agent_Loop{Loop: &agentdv1.LoopAgent{Agents: []*agentdv1.Agent{tree}, MaxIterations: 2}}}
	turn = until(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: &agentdv1.RunRequest_ExecuteRequest{UserPrompt: "hi", Agent: loop}}).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	err := try(t, c.ListModelCalls, &agentdv1.ListModelCallsRequest{SessionId: turn.GetSessionId()})
	if connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "in 6 calls") || !strings.Contains(err.Error(), "8192") {
		t.Errorf("got %v", err)
	}
}

package daemon_test

import (
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
)

// TestListModelCalls lists on each wire the model calls of a turn, while
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

// TestListModelCallsInPages reads the calls page by page while the turn continues:
// none is lost or listed twice, and a token is of no use for anything else.
func TestListModelCallsInPages(t *testing.T) {
	d := start(t, daemon.Config{Scripts: map[string]string{"asks": asks}})
	c := wires(t, d)["Connect, JSON, HTTP/1.1"]
	ex := lookRequest("go")
	ex.Agent = sequence("all", llm("one", "echo"), llm("two", "echo"), llm("three", "scripted/asks", "look"))
	turn := until(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
	id := turn.GetSessionId()
	req := &agentdv1.ListModelCallsRequest{SessionId: id, PageSize: 2}
	first := call(t, c.ListModelCalls, req)
	if len(first.GetCalls()) != 2 || first.GetNextPageToken() == "" {
		t.Fatalf("the first page is %v", first)
	}
	for name, wrong := range map[string]*agentdv1.ListModelCallsRequest{
		"no token":         {SessionId: id, PageToken: "x"},
		"another request":  {SessionId: id, TurnId: turn.GetId(), PageToken: first.GetNextPageToken()},
		"of another thing": {SessionId: id, PageToken: pageOfTurns(t, c)},
	} {
		err := try(t, c.ListModelCalls, wrong)
		if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "page_token is none that a list of the same request has given") {
			t.Errorf("%s: %v", name, err)
		}
	}
	submitAll(t, c, id, turn.GetId())
	ex = &agentdv1.RunRequest_ExecuteRequest{UserPrompt: "more", SessionId: &id, Agent: llm("other", "echo")}
	until(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	paged := first.GetCalls()
	for req.PageToken = first.GetNextPageToken(); req.GetPageToken() != ""; { // of the same turn, although it is not the last one any more
		page := call(t, c.ListModelCalls, req)
		paged, req.PageToken = append(paged, page.GetCalls()...), page.GetNextPageToken()
	}
	all := call(t, c.ListModelCalls, &agentdv1.ListModelCallsRequest{SessionId: id, TurnId: turn.GetId()})
	if len(paged) != 4 || all.GetNextPageToken() != "" || !proto.Equal(&agentdv1.ListModelCallsResponse{Calls: paged}, all) {
		t.Errorf("in pages %v, on one page %v", paged, all)
	}
}

// pageOfTurns is a token of ListTurns.
func pageOfTurns(t *testing.T, c agentdv1connect.SessionServiceClient) string {
	t.Helper()
	for range 2 {
		ex := &agentdv1.RunRequest_ExecuteRequest{UserPrompt: "hi", Agent: llm("root", "echo")}
		until(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	}
	return call(t, c.ListTurns, &agentdv1.ListTurnsRequest{PageSize: 1}).GetNextPageToken()
}

// A page ends early when it says much; a call that does not fit into a reply by
// itself is refused, with its size.
func TestListModelCallsTooLarge(t *testing.T) {
	d := start(t, daemon.Config{MaxMessageBytes: 1 << 13})
	c := wires(t, d)["Connect, JSON, HTTP/1.1"]
	run := func(state map[string]any, agent *agentdv1.Agent) *agentdv1.ListModelCallsRequest {
		initial, err := structpb.NewStruct(state)
		if err != nil {
			t.Fatal(err)
		}
		ex := &agentdv1.RunRequest_ExecuteRequest{UserPrompt: "hi", Agent: agent, InitialState: initial}
		turn := until(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
		return &agentdv1.ListModelCallsRequest{SessionId: turn.GetSessionId()}
	}
	long := func(name string, bytes int) *agentdv1.Agent {
		agent := llm(name, "echo")
		agent.GetLlm().Instruction = strings.Repeat("x", bytes)
		return agent
	}
	loop := &agentdv1.Agent{Name: "loop", AgentType: &agentdv1.Agent_Loop{Loop: &agentdv1.LoopAgent{
		Agents: []*agentdv1.Agent{long("large", 5000), long("small", 1000), long("smaller", 500)}, MaxIterations: 2,
	}}}
	req := run(nil, loop)
	var sizes []int
	for {
		page := call(t, c.ListModelCalls, req)
		sizes = append(sizes, len(page.GetCalls()))
		if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
			break
		}
	}
	if want := []int{1, 2, 1, 2}; !slices.Equal(sizes, want) {
		t.Errorf("pages of %d calls, want %d", sizes, want)
	}
	agent := llm("root", "echo")
	agent.GetLlm().Instruction = strings.Repeat("{x}", 3)
	err := try(t, c.ListModelCalls, run(map[string]any{"x": strings.Repeat("x", 3000)}, agent))
	if connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "one model call of turn") || !strings.Contains(err.Error(), "8192") {
		t.Errorf("got %v", err)
	}
}

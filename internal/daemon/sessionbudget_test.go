package daemon_test

import (
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
)

// TestSessionBudget sets the budget of a session, on each wire: at its making, tightened by
// a turn, exceeded, raised, inherited by a fork, kept over a restart and taken away.
func TestSessionBudget(t *testing.T) {
	cfg := daemon.Config{DataDir: t.TempDir(), Scripts: map[string]string{"says": `answers: [{when: {}, text: "hi"}]`}}
	d := start(t, cfg)
	made := map[string]*agentdv1.Session{}
	two := &agentdv1.Budget{ModelCalls: 2, WallTime: durationpb.New(time.Hour)}
	for name, c := range wires(t, d) {
		t.Run(name, func(t *testing.T) {
			s := call(t, c.CreateSession, &agentdv1.CreateSessionRequest{Budget: two}).GetSession()
			made[name] = s
			holdsBudget(t, c, s.GetId(), two)
			asksOnce(t, c, s.GetId(), &agentdv1.Budget{ModelCalls: 1}, 0)
			asksOnce(t, c, s.GetId(), &agentdv1.Budget{ModelCalls: 1}, 1)
			asksOnce(t, c, s.GetId(), &agentdv1.Budget{ModelCalls: 9}, 0)
			asksOnce(t, c, s.GetId(), &agentdv1.Budget{}, 2)
			call(t, c.UpdateSession, &agentdv1.UpdateSessionRequest{SessionId: s.GetId(), ClientRef: new("x")})
			holdsBudget(t, c, s.GetId(), two)
			three := &agentdv1.Budget{ModelCalls: 3, CostUsd: 0.123456789}
			got := call(t, c.UpdateSession, &agentdv1.UpdateSessionRequest{SessionId: s.GetId(), Budget: three}).GetSession()
			if !proto.Equal(got.GetBudget(), three) {
				t.Errorf("updated to %v", got.GetBudget())
			}
			call(t, c.UpdateSession, &agentdv1.UpdateSessionRequest{SessionId: s.GetId(), Budget: &agentdv1.Budget{ModelCalls: 3}})
			asksOnce(t, c, s.GetId(), nil, 0)
			asksOnce(t, c, s.GetId(), nil, 3)
			fork := call(t, c.ForkSession, &agentdv1.ForkSessionRequest{SessionId: s.GetId()}).GetSession()
			holdsBudget(t, c, fork.GetId(), &agentdv1.Budget{ModelCalls: 3})
			asksOnce(t, c, fork.GetId(), nil, 0)
			bad := &agentdv1.Budget{Tokens: -1}
			if _, err := c.CreateSession(t.Context(), connect.NewRequest(&agentdv1.CreateSessionRequest{Budget: bad})); connect.CodeOf(err) != connect.CodeInvalidArgument {
				t.Errorf("a session with %v: %v", bad, err)
			}
			if _, err := c.UpdateSession(t.Context(), connect.NewRequest(&agentdv1.UpdateSessionRequest{SessionId: s.GetId(), Budget: bad})); connect.CodeOf(err) != connect.CodeInvalidArgument {
				t.Errorf("a session changed to %v: %v", bad, err)
			}
		})
	}
	stop(t, d)
	d = start(t, cfg)
	for name, c := range wires(t, d) {
		t.Run(name+", after a restart", func(t *testing.T) {
			id := made[name].GetId()
			holdsBudget(t, c, id, &agentdv1.Budget{ModelCalls: 3})
			asksOnce(t, c, id, nil, 3)
			call(t, c.UpdateSession, &agentdv1.UpdateSessionRequest{SessionId: id, Budget: &agentdv1.Budget{}})
			holdsBudget(t, c, id, nil)
			asksOnce(t, c, id, nil, 0)
		})
	}
}

// holdsBudget looks at a session by itself and in the list.
func holdsBudget(t *testing.T, c agentdv1connect.SessionServiceClient, id string, want *agentdv1.Budget) {
	t.Helper()
	s := call(t, c.GetSession, &agentdv1.GetSessionRequest{SessionId: id}).GetSession()
	if !proto.Equal(s.GetBudget(), want) {
		t.Errorf("the session's budget is %v, want %v", s.GetBudget(), want)
	}
	for _, listed := range call(t, c.ListSessions, &agentdv1.ListSessionsRequest{}).GetSessions() {
		if listed.GetId() == id && !proto.Equal(listed, s) {
			t.Errorf("listed as %v, got as %v", listed, s)
		}
	}
}

// asksOnce runs a turn of one model call, which completes, or is refused because the session has
// spent its model calls, that many.
func asksOnce(t *testing.T, c agentdv1connect.SessionServiceClient, id string, budget *agentdv1.Budget, refused int64) {
	t.Helper()
	turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: &agentdv1.RunRequest_ExecuteRequest{
		SessionId: &id, UserPrompt: "hi", SessionBudget: budget,
		Agent: &agentdv1.Agent{Name: "root", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: "scripted/says"}}},
	}}).GetTurn()
	if refused == 0 {
		until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
		return
	}
	turn = until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_FAILED)
	events := call(t, c.ListTurnEvents, &agentdv1.ListTurnEventsRequest{SessionId: id, TurnId: turn.GetId()}).GetEvents()
	var failure *agentdv1.RunResponse_ErrorResponse
	for _, e := range events {
		if e.GetError() != nil {
			failure = e.GetError()
		}
	}
	l := failure.GetLimit()
	if turn.GetErrorCode() != agentdv1.ErrorCode_ERROR_CODE_BUDGET_EXHAUSTED || l.GetName() != "session_model_calls" ||
		l.GetValue() != refused || l.GetReceived() < refused {
		t.Errorf("the turn failed with %v and the limit %v, want that of %d session_model_calls", turn.GetErrorCode(), l, refused)
	}
}

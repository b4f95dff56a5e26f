package daemon_test

import (
	"maps"
	"slices"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
)

// A session from its making to its end, on each wire.
func TestSessionLife(t *testing.T) {
	d := start(t, daemon.Config{Scripts: map[string]string{"asks": asks}})
	for name, c := range wires(t, d) {
		t.Run(name, func(t *testing.T) {
			create := &agentdv1.CreateSessionRequest{
				Labels: map[string]string{"wire": name, "team": "a"}, ClientRef: "ticket " + name, IdempotencyKey: "make " + name,
			}
			s := call(t, c.CreateSession, create).GetSession()
			if s.GetId() == "" || s.GetVersion() != 1 || s.GetState() != agentdv1.SessionState_SESSION_STATE_ACTIVE || s.GetLastSeq() != 0 || s.GetCreatedBy() == "" {
				t.Errorf("created %v", s)
			}
			if second := call(t, c.CreateSession, create).GetSession(); !proto.Equal(second, s) {
				t.Errorf("created again: %v, want %v", second, s)
			}
			// A turn, asked for twice.
			ask := lookRequest("go")
			ask.SessionId, ask.IdempotencyKey = &s.Id, "turn "+name
			turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ask}).GetTurn()
			if second := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ask}).GetTurn(); second.GetId() != turn.GetId() {
				t.Errorf("created turn %s again as %s", turn.GetId(), second.GetId())
			}
			turn = until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
			waiting := &agentdv1.ListSessionsRequest{
				Labels: map[string]string{"wire": name}, ClientRef: "ticket " + name,
				TurnStatuses:  []agentdv1.TurnStatus{agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT},
				CreatedSince:  s.GetCreateTime(),
				UpdatedBefore: timestamppb.New(s.GetCreateTime().AsTime().AddDate(1, 0, 0)),
			}
			if list := call(t, c.ListSessions, waiting).GetSessions(); len(list) != 1 || list[0].GetId() != s.GetId() || list[0].GetLastTurnId() != turn.GetId() {
				t.Errorf("sessions that wait: %v", list)
			}
			call(t, c.SubmitToolResults, &agentdv1.SubmitToolResultsRequest{SessionId: s.GetId(), TurnId: turn.GetId(), Results: []*agentdv1.RunRequest_ToolCallResponse{
				{ToolCallId: turn.GetPendingToolCalls()[0].GetToolCallId(), Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: "white"}},
			}})
			turn = until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
			now := call(t, c.GetSession, &agentdv1.GetSessionRequest{SessionId: s.GetId()}).GetSession()
			if now.GetUsage().GetModelCalls() != 2 || now.GetLastTurnStatus() != turn.GetStatus() || now.GetLastSeq() == 0 {
				t.Errorf("after the turn: %v", now)
			}
			// A fork from before the tool's result, and the turn after it.
			events := call(t, c.ListTurnEvents, &agentdv1.ListTurnEventsRequest{SessionId: s.GetId()}).GetEvents()
			at := events[slices.IndexFunc(events, func(e *agentdv1.RunResponse) bool { return e.GetToolCallAnnounced() != nil })].GetSeq()
			fork := call(t, c.ForkSession, &agentdv1.ForkSessionRequest{SessionId: s.GetId(), ThroughSeq: &at, ClientRef: "fork"}).GetSession()
			if fork.GetForkedFrom() != s.GetId() || fork.GetForkedThroughSeq() != at || fork.GetUsage().GetModelCalls() != 0 ||
				fork.GetLastTurnStatus() != agentdv1.TurnStatus_TURN_STATUS_CANCELED || len(fork.GetLabels()) != 0 {
				t.Errorf("fork: %v", fork)
			}
			next := lookRequest("what now")
			next.Agent, next.Tools, next.SessionId = nil, nil, &fork.Id // as the parent's turn
			inFork := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: next}).GetTurn()
			until(t, c, inFork, agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
			if after := call(t, c.GetSession, &agentdv1.GetSessionRequest{SessionId: s.GetId()}).GetSession(); !proto.Equal(after, now) {
				t.Errorf("the parent is now %v, was %v", after, now)
			}
			checkUpdates(t, c, now)
			for _, id := range []string{s.GetId(), fork.GetId()} {
				call(t, c.DeleteSession, &agentdv1.DeleteSessionRequest{SessionId: id})
				if _, err := c.GetSession(t.Context(), connect.NewRequest(&agentdv1.GetSessionRequest{SessionId: id})); connect.CodeOf(err) != connect.CodeNotFound {
					t.Errorf("a session that was deleted: %v", err)
				}
			}
		})
	}
}

// checkUpdates changes a session, and leaves it archived.
func checkUpdates(t *testing.T, c agentdv1connect.SessionServiceClient, s *agentdv1.Session) {
	t.Helper()
	update := &agentdv1.UpdateSessionRequest{
		SessionId: s.GetId(), Version: new(s.GetVersion()), Labels: map[string]string{"team": "", "done": "yes"},
		State: new(agentdv1.SessionState_SESSION_STATE_ARCHIVED),
	}
	got := call(t, c.UpdateSession, update).GetSession()
	want := maps.Clone(s.GetLabels())
	delete(want, "team")
	want["done"] = "yes"
	if !maps.Equal(got.GetLabels(), want) || got.GetVersion() != s.GetVersion()+1 || got.GetState() != update.GetState() || got.GetClientRef() != s.GetClientRef() {
		t.Errorf("updated: %v", got)
	}
	if _, err := c.UpdateSession(t.Context(), connect.NewRequest(update)); connect.CodeOf(err) != connect.CodeAborted {
		t.Errorf("an update of an old version: %v", err)
	}
	ask := lookRequest("more")
	ask.SessionId = &s.Id
	if _, err := c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: ask})); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("a turn of an archived session: %v", err)
	}
	of := &agentdv1.ListSessionsRequest{ClientRef: s.GetClientRef()}
	const active, archived = agentdv1.SessionState_SESSION_STATE_ACTIVE, agentdv1.SessionState_SESSION_STATE_ARCHIVED
	for _, q := range []struct {
		states []agentdv1.SessionState
		want   int
	}{
		{nil, 1}, // as with every filter, none is all
		{[]agentdv1.SessionState{active}, 0},
		{[]agentdv1.SessionState{archived}, 1},
		{[]agentdv1.SessionState{archived, active}, 1},
	} {
		of.States = q.states
		if list := call(t, c.ListSessions, of).GetSessions(); len(list) != q.want {
			t.Errorf("of the states %v there are %v, want %d", q.states, list, q.want)
		}
	}
}

// The turns of all sessions, page by page.
func TestTurnsOfAllSessions(t *testing.T) {
	d := start(t, daemon.Config{})
	c := wires(t, d)["Connect, JSON, HTTP/1.1"]
	var want []string
	for range 5 {
		turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: &agentdv1.RunRequest_ExecuteRequest{UserPrompt: "hi", Agent: llm("root", "echo")}}).GetTurn()
		until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
		want = append(want, turn.GetId())
	}
	slices.Reverse(want)
	req := &agentdv1.ListTurnsRequest{PageSize: 2, Statuses: []agentdv1.TurnStatus{agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED}}
	var got []string
	for {
		page := call(t, c.ListTurns, req)
		for _, turn := range page.GetTurns() {
			got = append(got, turn.GetId())
		}
		if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("turns %v, want %v", got, want)
	}
}
